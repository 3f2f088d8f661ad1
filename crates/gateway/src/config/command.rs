//! Decides the config of `seawall run`: one server, from its command or its URL, and its name.

use std::path::Path;

use super::problem::{ConfigPlace, Problem, Problems};
use super::settings::ServeSettings;
use super::{Config, ServerAccess, ServerConfig, ServerLifetime, Transport, address, name};
use crate::config::layers::ServerRules;

/// Programs that launch another program, which is the server.
const LAUNCHERS: [&str; 15] = [
    "bun", "bunx", "deno", "node", "npm", "npx", "pipx", "pnpm", "pnpx", "python", "python3",
    "tsx", "uv", "uvx", "yarn",
];
const LAUNCH_WORDS: [&str; 5] = ["dlx", "exec", "run", "tool", "x"];
/// Options of launchers that consume the next argument.
const OPTIONS_WITH_VALUE: [&str; 13] = [
    "-c",
    "-e",
    "-p",
    "-r",
    "--directory",
    "--eval",
    "--from",
    "--import",
    "--package",
    "--project",
    "--python",
    "--require",
    "--with",
];
const SCRIPT_ENDINGS: [&str; 7] = [".js", ".mjs", ".cjs", ".ts", ".py", ".git", ".exe"];

impl Config {
    /// One server that is started by `command`, with the gateway's whole environment.
    pub fn for_command(name: Option<&str>, command: Vec<String>) -> Result<Self, Problems> {
        let derived = name_of_command(&command);
        let mut words = command.into_iter();
        let Some(program) = words.next().filter(|program| !program.trim().is_empty()) else {
            return Err(ConfigPlace::named("command")
                .problem("is empty; write: seawall run -- COMMAND [ARGS]")
                .into());
        };
        let transport = Transport::Stdio {
            command: program,
            args: words.collect(),
            env: Vec::new(),
            cwd: None,
            inherit_env: true,
        };
        Ok(Self::for_one(name, &derived, transport)?)
    }

    /// One server that is reached by `url`, over the transport that a config file would guess.
    pub fn for_url(name: Option<&str>, url: &str) -> Result<Self, Problems> {
        let place = ConfigPlace::named("url");
        let url = address::parse(&place, url)?;
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let transport =
            address::transport(None, url, Vec::new()).map_err(|error| place.problem(error))?;
        Ok(Self::for_one(name, &host, transport)?)
    }

    fn for_one(stated: Option<&str>, derived: &str, transport: Transport) -> Result<Self, Problem> {
        let name = match stated {
            Some(stated) if name::is_valid(stated) => stated.to_owned(),
            Some(_) => return Err(ConfigPlace::named("name").problem(name::RULE)),
            None => name::fit(derived).unwrap_or_else(|| "server".to_owned()),
        };
        Ok(ServeSettings::default().into_config(vec![ServerConfig {
            name,
            transport,
            filled: Vec::new(),
            shared: false,
            required: false,
            rules: ServerRules::default(),
            life: ServerLifetime::default(),
            access: ServerAccess::default(),
            chaos: None,
        }]))
    }
}

/// `npx -y @scope/server-git@1.2` is `server-git`; `/opt/bin/files --all` is `files`.
fn name_of_command(command: &[String]) -> String {
    let Some((program, args)) = command.split_first() else {
        return String::new();
    };
    let program = Path::new(program)
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    if !LAUNCHERS.contains(&program.as_str()) {
        return program;
    }
    launched(args).map_or(program, name_of_package)
}

/// The first argument that is neither an option nor one of the launcher's own words.
fn launched(args: &[String]) -> Option<&str> {
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if OPTIONS_WITH_VALUE.contains(&arg) {
            args.next();
        } else if !arg.starts_with('-') && !LAUNCH_WORDS.contains(&arg) {
            return Some(arg);
        }
    }
    None
}

/// The last part of a package's name without its version, or of a script's path without its
/// extension.
fn name_of_package(package: &str) -> String {
    let last = package.rsplit(['/', '\\', ':']).find(|part| !part.is_empty()).unwrap_or(package);
    let last = last.trim_start_matches('@');
    let bare = last.split(['@', '=', '<', '>', '~', '!', '[', ';']).next().unwrap_or(last);
    SCRIPT_ENDINGS.iter().find_map(|ending| bare.strip_suffix(ending)).unwrap_or(bare).to_owned()
}
