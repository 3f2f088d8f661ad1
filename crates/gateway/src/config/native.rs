//! Decides how Seawall's own file is read: every key is known, or it is a problem.

use super::name;
use super::policy::key::PolicyKey;
use super::policy::keys::KEYS;
use super::problem::{Problem, Problems};
use super::raw::{RawServer, TransportName};
use super::rules;
use super::settings::{self, ServeSettings};
use super::suggest;
use super::tree::ConfigField;

const SERVER_KEYS: [&str; 9] =
    ["command", "args", "env", "cwd", "url", "headers", "type", "enabled", "disabled"];
/// Keys of a server that only Seawall has.
const SERVER_OURS: [&str; 9] = [
    "shared",
    "required",
    "lazy",
    "idle_stop",
    "keep_warm",
    "scopes",
    "ext_authz",
    "pass_header",
    "chaos",
];

/// Whether the gateway has such a setting.
pub(super) fn is_setting(key: &str) -> bool {
    settings::keys().contains(&key)
}

/// Reads the whole file; with `needs_servers`, a file without servers is a problem.
pub(super) fn read(
    root: &ConfigField<'_>,
    needs_servers: bool,
    problems: &mut Problems,
) -> (ServeSettings, Vec<RawServer>) {
    let mut settings = ServeSettings::default();
    let mut servers = None;
    for (key, value) in root.entries(problems) {
        if key == "$schema" {
            // For editors: the location of this file's schema.
            problems.keep(value.text());
        } else if key == "servers" {
            servers = Some(read_servers(&value, problems));
        } else if !settings.set(key, &value, problems) {
            problems.push(not_ours(&value, key, &[settings::keys(), vec!["servers"]].concat()));
        }
    }
    let servers =
        servers.unwrap_or_else(|| if needs_servers { no_servers(problems) } else { Vec::new() });
    (settings, servers)
}

/// Reads the section `x-seawall` in another client's file.
pub(super) fn read_settings(section: &ConfigField<'_>, problems: &mut Problems) -> ServeSettings {
    let mut settings = ServeSettings::default();
    section.place.path().clone_into(&mut settings.rules.written.at);
    for (key, value) in section.entries(problems) {
        if !settings.set(key, &value, problems) {
            problems.push(not_ours(&value, key, &settings::keys()));
        }
    }
    settings
}

/// Reads a server's section `x-seawall` in another client's file.
pub(super) fn read_server_section(
    server: &mut RawServer,
    section: &ConfigField<'_>,
    problems: &mut Problems,
) {
    section.place.path().clone_into(&mut server.rules.written.at);
    for (key, value) in section.entries(problems) {
        let is_known = server.set_ours(key, &value, problems)
            || rules::set_server(&mut server.rules, key, &value, problems);
        if !is_known {
            let known = [&SERVER_OURS[..], &rules::SERVER_KEYS].concat();
            problems.push(not_ours(&value, key, &known));
        }
    }
}

fn read_servers(list: &ConfigField<'_>, problems: &mut Problems) -> Vec<RawServer> {
    let before = problems.count();
    let entries = list.entries(problems);
    if entries.is_empty() && problems.count() == before {
        return no_servers(problems);
    }
    let servers: Vec<_> =
        entries.iter().map(|(name, field)| read_server(name, field, problems)).collect();
    let running: Vec<_> = servers.into_iter().filter(|server| !server.is_off).collect();
    if running.is_empty() && problems.count() == before {
        problems.push(list.place.problem("all servers are disabled; enable one"));
    }
    running
}

fn no_servers(problems: &mut Problems) -> Vec<RawServer> {
    problems.push(Problem::of_file("no servers; add one: [servers.NAME] with a command or a url"));
    Vec::new()
}

fn read_server(server_name: &str, field: &ConfigField<'_>, problems: &mut Problems) -> RawServer {
    let before = problems.count();
    let mut server = RawServer::new(server_name, &field.place);
    field.place.path().clone_into(&mut server.rules.written.at);
    if !name::is_valid(server_name) {
        problems.push(field.place.problem(name::RULE));
    }
    let entries = field.entries(problems);
    for (key, value) in &entries {
        let is_known = server.set(key, value, problems)
            || server.set_ours(key, value, problems)
            || rules::set_server(&mut server.rules, key, value, problems);
        if !is_known {
            let known = [&SERVER_KEYS[..], &SERVER_OURS, &rules::SERVER_KEYS].concat();
            problems.push(not_ours(value, key, &known));
        }
    }
    check_fit(&server, &entries, problems);
    server.is_partial = problems.count() > before;
    server
}

/// Reports fields that do not fit the server's transport: the user meant something by them.
fn check_fit(server: &RawServer, entries: &[(&str, ConfigField<'_>)], problems: &mut Problems) {
    let (has, misfits, wanted): (_, &[&str], _) = if server.command.is_some() {
        ("a command", &["url", "headers", "pass_header"], "url")
    } else if server.kind == Some(TransportName::Stdio) {
        ("the type \"stdio\"", &["url", "headers", "pass_header"], "url")
    } else if server.url.is_some() {
        ("a url", &["args", "env", "cwd"], "command")
    } else {
        return;
    };
    for (_, field) in entries.iter().filter(|(key, _)| misfits.contains(key)) {
        let text =
            format!("is for servers with a {wanted}, and this one has {has}; keep one of the two");
        problems.push(field.place.problem(text));
    }
}

fn not_ours(value: &ConfigField<'_>, key: &str, known: &[&str]) -> Problem {
    if !known.contains(&"listen") && settings::keys().contains(&key) {
        return value.place.problem(format!(
            "unknown key; {key} is set once for all servers, at the top of the file"
        ));
    }
    let is_policy = |known: &PolicyKey| known.name.split('.').next() == Some(key);
    if KEYS.iter().any(is_policy) {
        return value.place.problem(
            "unknown key; it is a policy key: put it into [defaults], [kinds.KIND], [servers.NAME.policy] or [tools.\"SERVER/TOOL\"]",
        );
    }
    value.place.problem(suggest::unknown(key, known))
}
