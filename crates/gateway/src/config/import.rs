//! Decides how the MCP file of another client is read unchanged: `mcpServers`, VS Code's `servers`,
//! Codex's `mcp_servers`, Gemini's `httpUrl`, Windsurf's `serverUrl`.
//!
//! Fields that only those clients know are skipped; a skipped time limit causes a warning. Known
//! fields must have their type.

use std::collections::BTreeMap;

use super::limit;
use super::name;
use super::native;
use super::problem::{Problem, Problems};
use super::raw::{self, RawServer};
use super::settings::{self, ServeSettings};
use super::source::FileFormat;
use super::tree::{ConfigField, ConfigString};
use crate::config::policy::keys::call_timeout;

/// The keys under which clients put the URL of a server.
pub(super) const ADDRESSES: [&str; 3] = ["url", "httpUrl", "serverUrl"];

/// The key under which Claude Code's own file lists the servers of single projects.
pub(super) const PROJECTS: &str = "projects";

/// The key of Seawall's settings in a file that has to stay valid for its own client.
pub(super) const SECTION: &str = "x-seawall";

/// The key under which another client lists its servers; `None` if the file is Seawall's own.
pub(super) fn list_key(root: &ConfigField<'_>, format: FileFormat) -> Option<&'static str> {
    // VS Code's file has only servers and inputs: with a Seawall setting beside them, the file is
    // Seawall's own.
    let is_ours = format == FileFormat::Toml || root.has_any(native::is_setting);
    if let Some(key) = ["mcpServers", "mcp_servers"].into_iter().find(|key| root.has(key)) {
        return Some(key);
    }
    if is_ours {
        return None;
    }
    Some(if root.has("servers") { "servers" } else { "mcpServers" })
}

pub(super) fn read(
    root: &ConfigField<'_>,
    list_key: &str,
    is_in_seconds: bool,
    problems: &mut Problems,
) -> (ServeSettings, Vec<RawServer>) {
    let mut settings = ServeSettings::default();
    let (mut servers, mut passed_over) = (None, Vec::new());
    for (key, value) in root.entries(problems) {
        match key {
            _ if key == list_key => servers = Some(read_servers(&value, is_in_seconds, problems)),
            "mcpServers" | "mcp_servers" | "servers" => {
                problems.push(
                    value
                        .place
                        .problem(format!("{list_key} lists servers too; keep one of the two")),
                );
            }
            SECTION => settings = native::read_settings(&value, problems),
            PROJECTS => passed_over = of_projects(&value, list_key),
            _ if settings::keys().contains(&key) => {
                problems.push(
                    value.place.problem(format!("stands under \"{SECTION}\" in this kind of file")),
                );
            }
            _ => {}
        }
    }
    if servers.is_none() && problems.count() == 0 {
        problems.push(Problem::of_file(format!(
            "no servers; add one under \"{list_key}\" with a command or a url"
        )));
    }
    let servers = servers.unwrap_or_default();
    // If there is no other server, the user meant these, so skipping them is an error and no
    // warning.
    let note = if servers.is_empty() { Problems::push } else { Problems::warn };
    passed_over.into_iter().for_each(|problem| note(problems, problem));
    if !settings.rules.written.has(&["reconnect", "wait"]) {
        let places = servers.iter().filter_map(|server| server.start_limit.as_ref());
        places.for_each(|place| problems.warn(place.problem(limit::OF_STARTS)));
    }
    (settings, servers)
}

/// Servers of a single project: a gateway runs in no project, so it skips them and says so.
fn of_projects(projects: &ConfigField<'_>, list_key: &str) -> Vec<Problem> {
    let told = &mut Problems::default();
    let mut passed_over = Vec::new();
    for (_, project) in if projects.is_table() { projects.entries(told) } else { Vec::new() } {
        let Some(list) = project.find(list_key).filter(ConfigField::is_table) else { continue };
        let names: Vec<&str> = list.entries(told).into_iter().map(|(name, _)| name).collect();
        if !names.is_empty() {
            let text = format!(
                "only for this project, so not served: {}; to serve them, move them to the {list_key} of all",
                names.join(", ")
            );
            passed_over.push(list.place.problem(text));
        }
    }
    passed_over
}

fn read_servers(
    list: &ConfigField<'_>,
    is_in_seconds: bool,
    problems: &mut Problems,
) -> Vec<RawServer> {
    let before = problems.count();
    let entries = list.entries(problems);
    let read =
        |(name, field): &(&str, ConfigField<'_>)| read_server(name, field, is_in_seconds, problems);
    let servers: Vec<_> = entries.iter().map(read).collect();
    let running: Vec<_> = servers.into_iter().filter(|server| !server.is_off).collect();
    if running.is_empty() && problems.count() == before {
        let text = if entries.is_empty() {
            "no servers; add one with a command or a url"
        } else {
            "all servers are disabled; enable one"
        };
        problems.push(list.place.problem(text));
    }
    fit_names(running, problems)
}

fn read_server(
    name: &str,
    field: &ConfigField<'_>,
    is_in_seconds: bool,
    problems: &mut Problems,
) -> RawServer {
    let mut found = Problems::default();
    let mut server = RawServer::new(name, &field.place);
    for (key, value) in field.entries(&mut found) {
        if !value.is_null() && !server.set(key, &value, &mut found) {
            set(&mut server, key, &value, &mut found);
        }
    }
    // A timeout under `x-seawall` overrides the client's own.
    if !server.rules.layer.says("timeout") {
        limit(&mut server, field, is_in_seconds, &mut found);
    }
    server.is_partial = found.count() > 0;
    // A disabled server may be disabled because it is broken, so its problems are not reported.
    if !server.is_off {
        problems.append(found);
    }
    server
}

/// Takes over the client's own time limit for calls of this server.
fn limit(
    server: &mut RawServer,
    field: &ConfigField<'_>,
    is_in_seconds: bool,
    problems: &mut Problems,
) {
    let stated = |key: &str| {
        field.find(key).filter(|value| !value.is_null()).map(|value| (key.to_owned(), value))
    };
    let Some((key, value)) = stated("timeout").or_else(|| stated("tool_timeout_sec")) else {
        return;
    };
    let limit = match key.as_str() {
        "timeout" => limit::of_calls(&value, is_in_seconds, problems),
        _ => limit::in_seconds(&value, problems),
    };
    if let Some((time, line)) = limit {
        server.rules.layer.say(call_timeout(time));
        let heading = format!("[{}] {key}", field.place.path());
        server.rules.written.note_elsewhere(&["policy", "timeout"], heading, line);
    }
}

fn set(server: &mut RawServer, key: &str, value: &ConfigField<'_>, problems: &mut Problems) {
    match key {
        "transport" => server.kind = problems.keep(raw::kind(value)),
        "httpUrl" => server.http_url = problems.keep(value.text()),
        "serverUrl" => server.url = problems.keep(value.text()),
        "startup_timeout_sec" | "startup_timeout_ms" => {
            server.start_limit = Some(value.place.clone())
        }
        "envFile" => server.env_file = problems.keep(value.text()),
        "env_vars" => server.env_vars = variable_names(value, problems),
        "http_headers" => server.headers.extend(value.pairs(problems)),
        "env_http_headers" => server.header_vars = value.pairs(problems),
        "bearer_token_env_var" => server.token_var = problems.keep(value.text()),
        SECTION => native::read_server_section(server, value, problems),
        _ => {}
    }
}

/// Codex names variables to inherit by a string, or by a table with a `name`.
fn variable_names(value: &ConfigField<'_>, problems: &mut Problems) -> Vec<ConfigString> {
    let mut names = Vec::new();
    for item in value.items(problems) {
        let name = if item.has("name") {
            item.entries(problems)
                .into_iter()
                .find(|(key, _)| *key == "name")
                .map_or(item, |(_, name)| name)
        } else {
            item
        };
        names.extend(problems.keep(name.text()));
    }
    names
}

/// Fits the names of servers: other clients allow names that Seawall does not.
fn fit_names(servers: Vec<RawServer>, problems: &mut Problems) -> Vec<RawServer> {
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    let mut fitted = Vec::new();
    for mut server in servers {
        let Some(name) = name::fit(&server.name) else {
            problems.push(server.place.problem(name::RULE));
            continue;
        };
        if let Some(other) = taken.insert(name.clone(), server.name.clone()) {
            problems.push(
                server
                    .place
                    .problem(format!("would be called {name:?}, as {other:?} is; rename one")),
            );
            continue;
        }
        server.name = name;
        fitted.push(server);
    }
    fitted
}
