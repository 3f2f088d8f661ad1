//! Decides which file the name of a client stands for: the project's own if there is one, else the
//! user's.

use std::path::{Path, PathBuf};

/// A client, and the places of its file.
struct KnownClient {
    name: &'static str,
    /// In a project.
    project: Option<&'static str>,
    /// Of a user, below the home folder; the first that exists.
    user: &'static [&'static str],
}

const CLIENTS: [KnownClient; 7] = [
    KnownClient {
        name: "claude-desktop",
        project: None,
        user: &[
            ".config/Claude/claude_desktop_config.json",
            "Library/Application Support/Claude/claude_desktop_config.json",
        ],
    },
    KnownClient { name: "claude-code", project: Some(".mcp.json"), user: &[".claude.json"] },
    KnownClient { name: "codex", project: None, user: &[".codex/config.toml"] },
    KnownClient { name: "cursor", project: Some(".cursor/mcp.json"), user: &[".cursor/mcp.json"] },
    KnownClient {
        name: "gemini",
        project: Some(".gemini/settings.json"),
        user: &[".gemini/settings.json"],
    },
    KnownClient {
        name: "vscode",
        project: Some(".vscode/mcp.json"),
        user: &[".config/Code/User/mcp.json", "Library/Application Support/Code/User/mcp.json"],
    },
    KnownClient { name: "windsurf", project: None, user: &[".codeium/windsurf/mcp_config.json"] },
];

/// The names of all known clients.
pub(crate) fn names() -> String {
    CLIENTS.map(|client| client.name).join(", ")
}

/// The file of the named client, or the file with this path.
pub(crate) fn file(named: &str, project: &Path, home: Option<&Path>) -> Result<PathBuf, String> {
    let Some(client) = CLIENTS.iter().find(|client| client.name == named) else {
        let path = PathBuf::from(named);
        return if path.exists() {
            Ok(path)
        } else {
            Err(format!("{named}: there is no such file, and no client that is known: {}", names()))
        };
    };
    let here = client.project.map(|file| project.join(file));
    let users = client.user.iter().filter_map(|file| Some(home?.join(file)));
    let places: Vec<PathBuf> = here.into_iter().chain(users).collect();
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        let looked: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        format!("{named} has no file at {}: give its path", looked.join(" or "))
    })
}
