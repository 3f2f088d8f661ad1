//! Decides what a route means: one server, named by its path.

use super::{exactly, expression, ext_authz, only, target, unsupported};
use crate::config::name;
use crate::config::pass_header;
use crate::config::problem::{Problem, Problems};
use crate::config::raw::RawServer;
use crate::config::tree::{ConfigField, ConfigString};

const KEYS: [&str; 4] = ["name", "matches", "policies", "backends"];
const MATCH_KEYS: [&str; 1] = ["path"];
const PATH_KEYS: [&str; 1] = ["pathPrefix"];
const POLICY_KEYS: [&str; 4] = ["extAuthz", "authorization", "transformations", "backendAuth"];

/// Reads all routes; two cannot have one path.
pub(super) fn read(list: &ConfigField<'_>, problems: &mut Problems) -> Vec<RawServer> {
    let mut servers: Vec<RawServer> = Vec::new();
    for route in list.items(problems) {
        let Some(server) = read_route(&route, problems) else { continue };
        if servers.iter().any(|known| known.name == server.name) {
            let text = format!("another route has the path /mcp/{} already; keep one", server.name);
            problems.push(route.place.problem(text));
        } else {
            servers.push(server);
        }
    }
    servers
}

fn read_route(route: &ConfigField<'_>, problems: &mut Problems) -> Option<RawServer> {
    let before = problems.count();
    let name = match route.find("matches") {
        Some(matches) => path(&matches, problems),
        None if route.is_table() => {
            let text = "needs matches with the pathPrefix \"/mcp/NAME\"";
            problems.keep(Err(route.place.problem(text)))
        }
        None => None,
    };
    let mut server = RawServer::new(name.as_deref().unwrap_or_default(), &route.place);
    route.place.path().clone_into(&mut server.rules.written.at);
    for (key, value) in route.entries(problems) {
        match key {
            "matches" => {}
            // A label, which agentgateway shows.
            "name" => drop(problems.keep(value.text())),
            "backends" => {
                if let Some(backend) = only(&value, "backend", problems) {
                    target::read(&mut server, &backend, problems);
                }
            }
            "policies" => policies(&mut server, &value, problems),
            _ => problems.push(unsupported(&value, &KEYS)),
        }
    }
    if route.is_table() && !route.has("backends") {
        problems.push(route.place.problem("needs backends with an MCP target"));
    }
    check_fit(&server, problems);
    server.is_partial = problems.count() > before;
    name.map(|_| server)
}

/// The name of the server in `matches: [{path: {pathPrefix: /mcp/NAME}}]`.
fn path(matches: &ConfigField<'_>, problems: &mut Problems) -> Option<String> {
    let mut name = None;
    let one = only(matches, "match", problems)?;
    for (key, value) in one.entries(problems) {
        if key != "path" {
            problems.push(unsupported(&value, &MATCH_KEYS));
            continue;
        }
        for (key, value) in value.entries(problems) {
            match key {
                "pathPrefix" => name = problems.keep(server_name(&value)),
                _ => problems.push(unsupported(&value, &PATH_KEYS)),
            }
        }
    }
    let has_prefix = one.find("path").is_some_and(|path| path.has("pathPrefix"));
    if one.is_table() && !has_prefix {
        problems.push(one.place.problem("needs path with the pathPrefix \"/mcp/NAME\""));
    }
    name
}

fn server_name(value: &ConfigField<'_>) -> Result<String, Problem> {
    let ConfigString { place, text } = value.text()?;
    let wrong =
        || place.problem(format!("{text:?} is not supported, only \"/mcp/NAME\"; {}", name::RULE));
    let name = text.strip_prefix("/mcp/").filter(|name| name::is_valid(name));
    name.map(str::to_owned).ok_or_else(wrong)
}

fn policies(server: &mut RawServer, section: &ConfigField<'_>, problems: &mut Problems) {
    for (key, value) in section.entries(problems) {
        match key {
            "extAuthz" => server.ext_authz = ext_authz::read(&value, problems),
            "authorization" => authorization(&value, problems),
            "transformations" => transformations(server, &value, problems),
            "backendAuth" => target::backend_auth(server, &value, problems),
            _ => problems.push(unsupported(&value, &POLICY_KEYS)),
        }
    }
}

/// `authorization: {rules: [{allow: 'true'}]}`: everybody whom the other policies let in.
fn authorization(section: &ConfigField<'_>, problems: &mut Problems) {
    for (key, value) in section.entries(problems) {
        if key != "rules" {
            problems.push(unsupported(&value, &["rules"]));
            continue;
        }
        for rule in value.items(problems) {
            for (key, value) in rule.entries(problems) {
                if key != "allow" {
                    problems.push(unsupported(&value, &["allow"]));
                } else if value.flag() != Ok(true) {
                    let why = "rules in CEL are not evaluated here; ask an authorizer (extAuthz)";
                    problems.keep(exactly(&value, "true", why));
                }
            }
        }
    }
}

/// `transformations: {request: {set: {HEADER: EXPRESSION}}}`, for the known expressions.
fn transformations(server: &mut RawServer, section: &ConfigField<'_>, problems: &mut Problems) {
    for (key, value) in section.entries(problems) {
        if key != "request" {
            problems.push(unsupported(&value, &["request"]));
            continue;
        }
        for (key, value) in value.entries(problems) {
            if key != "set" {
                problems.push(unsupported(&value, &["set"]));
                continue;
            }
            for (header, value) in value.entries(problems) {
                let rule = problems.keep(expression::passed_header(header, &value));
                let rule = rule.and_then(|rule| pass_header::checked(rule, &value.place, problems));
                let Some(rule) = rule else { continue };
                problems.keep(pass_header::add(&mut server.pass_headers, rule, &value.place));
            }
        }
    }
}

/// Reports what does not fit together: a process has no headers, and a header has one value.
fn check_fit(server: &RawServer, problems: &mut Problems) {
    let sets = |name: &str| server.pass_headers.iter().any(|rule| rule.to == name);
    if server.command.is_some() && !(server.pass_headers.is_empty() && server.headers.is_empty()) {
        let text =
            "transformations and backendAuth are for servers with a host, and this has a cmd";
        problems.push(server.place.problem(text));
    }
    if sets("authorization") && (server.token_var.is_some() || !server.headers.is_empty()) {
        let text = "transformations and backendAuth both set authorization; keep one of the two";
        problems.push(server.place.problem(text));
    }
}
