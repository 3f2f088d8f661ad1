//! Shows the promises of the config reader. Texts are compared as users see them.

mod admin;
mod agentgateway;
mod agree;
mod import;
mod life;
mod names;
mod own;
mod parts;
mod policy;
mod reference;
mod references;
mod safety;
mod schema;
mod store;
mod telemetry;
mod transports;
mod wrong;
mod yaml_tree;

use std::fs;
use std::path::Path;

use super::*;

/// A file alone in a folder, with the environment it is read in.
struct Kit {
    folder: tempfile::TempDir,
    vars: Vec<(String, String)>,
}

impl Kit {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), vars: Vec::new() }
    }

    fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    fn file(self, name: &str, text: &str) -> Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        set_mode(&path, 0o600);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text_of_folder(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn load(&self, name: &str) -> Result<Config, Problems> {
        let env = |wanted: &str| {
            self.vars.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        };
        let loaded = load(&self.path(name), &env);
        schema::agrees(&self.path(name), &loaded);
        loaded
    }

    fn good(&self, name: &str) -> Config {
        self.load(name).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// The problems, without the folder, which differs in each run.
    fn problems(&self, name: &str) -> String {
        let problems = self.load(name).expect_err("the file is wrong").to_string();
        problems.replace(&format!("{}/", self.text_of_folder()), "")
    }
}

fn toml_file(text: &str) -> Kit {
    Kit::new().file("seawall.toml", text)
}

fn json_file(text: &str) -> Kit {
    Kit::new().file("mcp.json", text)
}

/// One server of a user's file.
fn json_server(fields: &str) -> Kit {
    json_file(&format!("{{\"mcpServers\": {{\"it\": {{{fields}}}}}}}"))
}

fn only(config: Config) -> Transport {
    assert_eq!(config.servers.len(), 1);
    config.servers.into_iter().next().unwrap().transport
}

/// A transport in one line, with its secrets, as `env` or `curl` would show it.
fn shown(transport: &Transport) -> String {
    let headers = |headers: &[(HeaderName, Secret)]| {
        headers
            .iter()
            .map(|(name, value)| format!(" {name}: {}", value.expose()))
            .collect::<String>()
    };
    match transport {
        Transport::Stdio { command, args, env, cwd, inherit_env } => {
            let env: String =
                env.iter().map(|(name, value)| format!("{name}={} ", value.expose())).collect();
            let cwd = cwd.as_ref().map(|cwd| format!(" in {}", cwd.display())).unwrap_or_default();
            format!(
                "stdio {env}{command} {}{cwd}{}",
                args.join(" "),
                if *inherit_env { " +env" } else { "" }
            )
        }
        Transport::Http { url, headers: list, sse_fallback } => {
            format!("http{} {url}{}", if *sse_fallback { "?" } else { "" }, headers(list))
        }
        Transport::Sse { url, headers: list } => format!("sse {url}{}", headers(list)),
        Transport::Ws { url, headers: list } => format!("ws {url}{}", headers(list)),
        Transport::Incomplete { .. } => {
            format!("incomplete {}", transport.why_incomplete().unwrap_or_default())
        }
    }
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(not(unix))]
fn set_mode(_: &Path, _: u32) {}
