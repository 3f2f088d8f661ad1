//! Decides what a route's backend means: one MCP target, and what authenticates the gateway to it.

use super::{only, shell, unsupported, with_braces};
use crate::config::problem::{Problem, Problems};
use crate::config::raw::{RawServer, TransportName};
use crate::config::tree::{ConfigField, ConfigString};

const BACKEND_KEYS: [&str; 2] = ["mcp", "policies"];
const MCP_KEYS: [&str; 1] = ["targets"];
const TARGET_KEYS: [&str; 5] = ["name", "mcp", "sse", "stdio", "policies"];
const HOST_KEYS: [&str; 3] = ["host", "port", "path"];
const STDIO_KEYS: [&str; 4] = ["cmd", "args", "env", "clearEnv"];

/// Reads `{mcp: {targets: [TARGET]}}`.
pub(super) fn read(server: &mut RawServer, backend: &ConfigField<'_>, problems: &mut Problems) {
    for (key, value) in backend.entries(problems) {
        match key {
            "mcp" => {
                for (key, value) in value.entries(problems) {
                    match key {
                        "targets" => {
                            if let Some(target) = only(&value, "target", problems) {
                                read_target(server, &target, problems);
                            }
                        }
                        _ => problems.push(unsupported(&value, &MCP_KEYS)),
                    }
                }
            }
            "policies" => policies(server, &value, problems),
            _ => problems.push(unsupported(&value, &BACKEND_KEYS)),
        }
    }
}

fn read_target(server: &mut RawServer, target: &ConfigField<'_>, problems: &mut Problems) {
    let before = problems.count();
    for (key, value) in target.entries(problems) {
        match key {
            // The path names the server; with one target agentgateway puts no name before tools.
            "name" => drop(problems.keep(value.text())),
            "mcp" => {
                server.kind = Some(TransportName::Http);
                server.url = url(&value, problems);
            }
            "sse" => {
                server.kind = Some(TransportName::Sse);
                server.url = url(&value, problems);
            }
            "stdio" => {
                server.kind = Some(TransportName::Stdio);
                stdio(server, &value, problems);
            }
            "policies" => policies(server, &value, problems),
            _ => problems.push(unsupported(&value, &TARGET_KEYS)),
        }
    }
    let transports = ["mcp", "sse", "stdio"].into_iter().filter(|key| target.has(key)).count();
    if transports > 1 || (transports == 0 && problems.count() == before) {
        problems.push(target.place.problem("needs one of mcp, sse and stdio"));
    }
}

/// The URL: a host that is one, or host, port and path.
fn url(section: &ConfigField<'_>, problems: &mut Problems) -> Option<ConfigString> {
    let (mut host, mut port, mut path) = (None, None, None);
    for (key, value) in section.entries(problems) {
        match key {
            "host" => host = problems.keep(shell(&value)),
            "port" => port = problems.keep(value.whole(1, u16::MAX.into())),
            "path" => path = problems.keep(shell(&value)),
            _ => problems.push(unsupported(&value, &HOST_KEYS)),
        }
    }
    if section.is_table() && !section.has("host") {
        problems.push(section.place.problem("needs host"));
    }
    let ConfigString { place, text } = host?;
    let text = match (text.contains("://"), port, path) {
        (true, None, None) => text,
        (false, None, None) => format!("http://{text}"),
        (false, Some(port), Some(path)) => {
            format!("http://{text}:{port}/{}", path.text.trim_start_matches('/'))
        }
        _ => {
            let text = "write host as a URL alone, or host, port and path";
            return problems.keep(Err(place.problem(text)));
        }
    };
    Some(ConfigString { place, text })
}

fn stdio(server: &mut RawServer, section: &ConfigField<'_>, problems: &mut Problems) {
    for (key, value) in section.entries(problems) {
        match key {
            "cmd" => server.command = problems.keep(shell(&value)),
            "args" => {
                let items = value.items(problems);
                server.args = items.iter().filter_map(|arg| problems.keep(shell(arg))).collect();
            }
            "env" => {
                for (name, value) in value.entries(problems) {
                    let text = problems.keep(value.variable()).flatten();
                    let text = text.map(|variable| ConfigString {
                        text: with_braces(&variable.text),
                        ..variable
                    });
                    server.env.push((name.to_owned(), text));
                }
            }
            "clearEnv" => {
                if problems.keep(value.flag()) == Some(false) {
                    let text = "a server gets only the variables under env; name them there";
                    problems.push(value.place.problem(text));
                }
            }
            _ => problems.push(unsupported(&value, &STDIO_KEYS)),
        }
    }
    if section.is_table() && !section.has("cmd") {
        problems.push(section.place.problem("needs cmd"));
    }
}

fn policies(server: &mut RawServer, section: &ConfigField<'_>, problems: &mut Problems) {
    for (key, value) in section.entries(problems) {
        match key {
            "backendAuth" => backend_auth(server, &value, problems),
            _ => problems.push(unsupported(&value, &["backendAuth"])),
        }
    }
}

/// `backendAuth: {key: "$VARIABLE"}` or `backendAuth: {key: {file: PATH}}`.
pub(super) fn backend_auth(
    server: &mut RawServer,
    section: &ConfigField<'_>,
    problems: &mut Problems,
) {
    for (key, value) in section.entries(problems) {
        if key != "key" {
            problems.push(unsupported(&value, &["key"]));
            continue;
        }
        if server.token_var.is_some() || !server.headers.is_empty() {
            problems.push(value.place.problem("backendAuth is set already; keep one"));
        } else if value.is_table() {
            server.headers.extend(key_file(&value, problems));
        } else {
            server.token_var = problems.keep(variable(&value));
        }
    }
}

/// The variable that holds the key. A key that stands in the file itself is not quoted.
fn variable(value: &ConfigField<'_>) -> Result<ConfigString, Problem> {
    let ConfigString { place, text } = value.text()?;
    let written = with_braces(&text);
    let name = written.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    let is_plain = |name: &&str| !name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    match name.filter(is_plain) {
        Some(name) => Ok(ConfigString { place, text: name.to_owned() }),
        None => Err(place.problem(
            "must name a variable, like \"$GITHUB_TOKEN\", or a file: a key does not belong into this file",
        )),
    }
}

fn key_file(section: &ConfigField<'_>, problems: &mut Problems) -> Option<(String, ConfigString)> {
    let mut header = None;
    for (key, value) in section.entries(problems) {
        match key {
            "file" => {
                header = problems.keep(value.text()).map(|ConfigString { place, text }| {
                    let text = format!("Bearer ${{file:{text}}}");
                    ("authorization".to_owned(), ConfigString { place, text })
                });
            }
            _ => problems.push(unsupported(&value, &["file"])),
        }
    }
    header
}
