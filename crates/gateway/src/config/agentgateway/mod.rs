//! Decides how agentgateway's file is read unchanged: one bind, one listener, routes with one MCP
//! target each. It becomes what Seawall's own file would give.
//!
//! A key that Seawall does not read is a problem, for it may be what keeps somebody out.

mod expression;
mod ext_authz;
mod jwt;
mod process;
mod route;
pub(crate) mod shape;
mod target;

use std::net::SocketAddr;

use super::expand::Variables;
use super::problem::{Problem, Problems};
use super::raw::RawServer;
use super::settings::ServeSettings;
use super::source::FileFormat;
use super::tree::{ConfigField, ConfigString};

const KEYS: [&str; 2] = ["binds", "config"];
const BIND_KEYS: [&str; 2] = ["port", "listeners"];
const LISTENER_KEYS: [&str; 5] = ["name", "protocol", "hostname", "policies", "routes"];
const POLICY_KEYS: [&str; 1] = ["jwtAuth"];

/// Whether the file is agentgateway's; no other YAML file is known.
pub(super) fn is_its(root: &ConfigField<'_>, format: FileFormat) -> bool {
    format == FileFormat::Yaml || (format == FileFormat::Json && root.has("binds"))
}

pub(super) fn read(
    root: &ConfigField<'_>,
    scope: &Variables<'_>,
    problems: &mut Problems,
) -> (ServeSettings, Vec<RawServer>) {
    let mut settings = ServeSettings::default();
    let mut servers = Vec::new();
    settings.admin = Some(process::admin(root, scope, problems));
    if !root.is_table() || !root.has("binds") {
        problems.push(Problem::of_file(
            "is YAML, but not agentgateway's: it has no binds; Seawall's own file is TOML or JSON",
        ));
        return (settings, servers);
    }
    for (key, value) in root.entries(problems) {
        match key {
            "binds" => {
                if let Some(bind) = only(&value, "bind", problems) {
                    servers = read_bind(&bind, &mut settings, problems);
                }
            }
            "config" => process::read(&value, problems),
            _ => problems.push(unsupported(&value, &KEYS)),
        }
    }
    (settings, servers)
}

fn read_bind(
    bind: &ConfigField<'_>,
    settings: &mut ServeSettings,
    problems: &mut Problems,
) -> Vec<RawServer> {
    let mut servers = Vec::new();
    for (key, value) in bind.entries(problems) {
        match key {
            "port" => {
                let port = problems.keep(value.whole(0, u16::MAX.into()));
                let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
                settings.listen = SocketAddr::from(([0, 0, 0, 0], port));
            }
            "listeners" => {
                if let Some(listener) = only(&value, "listener", problems) {
                    servers = read_listener(&listener, settings, problems);
                }
            }
            _ => problems.push(unsupported(&value, &BIND_KEYS)),
        }
    }
    for key in BIND_KEYS.into_iter().filter(|key| bind.is_table() && !bind.has(key)) {
        problems.push(bind.place.problem(format!("needs {key}")));
    }
    servers
}

fn read_listener(
    listener: &ConfigField<'_>,
    settings: &mut ServeSettings,
    problems: &mut Problems,
) -> Vec<RawServer> {
    let mut servers = Vec::new();
    for (key, value) in listener.entries(problems) {
        match key {
            // A label, which agentgateway shows.
            "name" => drop(problems.keep(value.text())),
            "protocol" => {
                problems.keep(exactly(&value, "HTTP", "put TLS in front of the gateway"));
            }
            "hostname" => {
                problems.keep(exactly(&value, "*", "Seawall answers under every name"));
            }
            "policies" => {
                for (key, policy) in value.entries(problems) {
                    match key {
                        "jwtAuth" => settings.identity = jwt::read(&policy, problems),
                        _ => problems.push(unsupported(&policy, &POLICY_KEYS)),
                    }
                }
            }
            "routes" => servers = route::read(&value, problems),
            _ => problems.push(unsupported(&value, &LISTENER_KEYS)),
        }
    }
    if servers.is_empty() && problems.count() == 0 {
        // A platform may begin with none and add them while the gateway runs.
        problems.warn(listener.place.problem("no routes, so nothing is served"));
    }
    servers
}

/// The only item of a list: agentgateway can have several where Seawall has one.
fn only<'a>(
    list: &ConfigField<'a>,
    what: &str,
    problems: &mut Problems,
) -> Option<ConfigField<'a>> {
    let before = problems.count();
    let mut items = list.items(problems).into_iter();
    let first = items.next();
    if first.is_none() && problems.count() == before {
        problems.push(list.place.problem(format!("needs a {what}")));
    }
    for more in items {
        problems
            .push(more.place.problem(format!("a second {what} is not supported here; keep one")));
    }
    first
}

/// The problem with a key that agentgateway may know and Seawall does not read.
fn unsupported(value: &ConfigField<'_>, read: &[&str]) -> Problem {
    let read = read.join(", ");
    value.place.problem(format!("is not supported in agentgateway's file; read here: {read}"))
}

/// A setting of which Seawall knows one value.
fn exactly(value: &ConfigField<'_>, known: &str, why: &str) -> Result<(), Problem> {
    let ConfigString { place, text } = value.text()?;
    match text == known {
        true => Ok(()),
        false => Err(place.problem(format!("{text:?} is not supported, only {known:?}: {why}"))),
    }
}

/// A text as agentgateway expands it: `$NAME` is a variable too.
fn shell(value: &ConfigField<'_>) -> Result<ConfigString, Problem> {
    let mut string = value.text()?;
    string.text = with_braces(&string.text);
    Ok(string)
}

/// `$NAME` as `${NAME}`.
fn with_braces(text: &str) -> String {
    let mut parts = text.split('$');
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = part.find(|c: char| !is_letter(c)).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            written.push_str(&format!("${{{name}}}{rest}"));
        } else {
            written.push('$');
            written.push_str(part);
        }
    }
    written
}
