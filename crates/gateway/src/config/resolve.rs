//! Decides how a server is reached: by its stated type, else by its fields.

use super::address;
use super::env;
use super::expand::Variables;
use super::headers;
use super::problem::{Problem, Problems};
use super::raw::{RawServer, TransportName};
use super::tree::ConfigString;
use super::words;
use super::{Secret, ServerAccess, ServerAuthz, ServerConfig, ServerLifetime, Transport};

/// The server with everything filled in; `None` if its entry is wrong. A missing variable or file
/// makes only this server incomplete; the others are not affected.
pub(super) fn server(
    raw: RawServer,
    scope: &Variables<'_>,
    problems: &mut Problems,
) -> Option<ServerConfig> {
    let mut found = Problems::default();
    // Clears values of the server before this one, so that each server gets only its own secrets.
    scope.take_filled();
    let transport = match raw.kind {
        Some(TransportName::Stdio) => stdio(&raw, scope, &mut found),
        None if raw.command.is_some() => stdio(&raw, scope, &mut found),
        _ => remote(&raw, scope, &mut found),
    };
    let lacking = found.take_lacking();
    let transport =
        if lacking.is_empty() { transport } else { Some(Transport::Incomplete { lacking }) };
    problems.append(found);
    let access = ServerAccess {
        authz: raw.ext_authz.map_or(ServerAuthz::Inherited, |own| own.of_server(scope, problems)),
        scopes: raw.scopes.iter().filter_map(|text| scope.expand(text, problems)).collect(),
        pass_headers: raw.pass_headers,
        token_variable: raw.token_var.map(|variable| variable.text),
    };
    let RawServer { name, shared, required, rules, lazy, idle_stop, keep_warm, chaos, .. } = raw;
    let life = ServerLifetime::default();
    let life =
        ServerLifetime { lazy, idle_stop, keep_warm: keep_warm.unwrap_or(life.keep_warm), ..life };
    let filled = scope.take_filled().into_iter().map(Secret::new).collect();
    Some(ServerConfig {
        name,
        transport: transport?,
        filled,
        shared,
        required,
        rules,
        life,
        access,
        chaos,
    })
}

fn stdio(raw: &RawServer, scope: &Variables<'_>, problems: &mut Problems) -> Option<Transport> {
    let Some(command) = &raw.command else {
        return missing(raw, "needs a command", problems);
    };
    let command = word(command, scope, problems).and_then(|text| match text.trim() {
        "" => problems
            .keep_filled(command.has_references(), Err(command.place.problem("must not be empty"))),
        _ => Some(text),
    });
    let line = command
        .as_deref()
        .and_then(|command| words::of(command, &scope.variable("PATH").unwrap_or_default()));
    let (command, first) = match line
        .and_then(|words| words.split_first().map(|(first, rest)| (first.clone(), rest.to_vec())))
    {
        Some((program, rest)) => (Some(program), rest),
        None => (command, Vec::new()),
    };
    let args = raw.args.iter().map(|arg| word(arg, scope, problems));
    let args: Vec<_> = first.into_iter().map(Some).chain(args).collect();
    let env = env::resolve(raw, scope, problems);
    let cwd = raw.cwd.as_ref().map(|cwd| word(cwd, scope, problems).map(|cwd| scope.path(&cwd)));
    Some(Transport::Stdio {
        command: command?,
        args: args.into_iter().collect::<Option<_>>()?,
        env,
        cwd: cwd.map_or(Some(None), |cwd| cwd.map(Some))?,
        inherit_env: false,
    })
}

fn remote(raw: &RawServer, scope: &Variables<'_>, problems: &mut Problems) -> Option<Transport> {
    let stated = raw.kind.or(raw.http_url.is_some().then_some(TransportName::Http));
    let url = match stated {
        Some(TransportName::Http) => raw.http_url.as_ref().or(raw.url.as_ref()),
        _ => raw.url.as_ref().or(raw.http_url.as_ref()),
    };
    let Some(text) = url else {
        let needs = if raw.kind.is_some() { "needs a url" } else { "needs a command or a url" };
        return missing(raw, needs, problems);
    };
    let is_filled = text.has_references();
    let url = scope.expand(text, problems);
    let url =
        url.and_then(|url| problems.keep_filled(is_filled, address::parse(&text.place, &url)));
    let headers = headers::resolve(raw, scope, problems);
    let transport =
        address::transport(stated, url?, headers).map_err(|error| text.place.problem(error));
    problems.keep_filled(is_filled, transport)
}

fn missing(raw: &RawServer, needs: &str, problems: &mut Problems) -> Option<Transport> {
    if !raw.is_partial {
        problems.push(raw.place.problem(needs));
    }
    None
}

/// A text that is valid as a word of a command line.
fn word(text: &ConfigString, scope: &Variables<'_>, problems: &mut Problems) -> Option<String> {
    let expanded = scope.expand(text, problems)?;
    problems.keep_filled(text.has_references(), without_nul(text, expanded))
}

pub(super) fn without_nul(text: &ConfigString, expanded: String) -> Result<String, Problem> {
    if expanded.contains('\0') {
        return Err(text.place.problem("has a NUL character, which no process can be given"));
    }
    Ok(expanded)
}
