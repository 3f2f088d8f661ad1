//! Decides which fields a server has, as its file states them: known by name and type, not
//! expanded.

use std::time::Duration;

use super::chaos::ChaosConfig;
use super::ext_authz::{self, RawExtAuthz};
use super::pass_header::{self, PassedHeader};
use super::problem::{ConfigPlace, Problem, Problems};
use super::tree::{ConfigField, ConfigString};
use super::{chaos, duration, reconnect};
use crate::config::layers::ServerRules;

/// A server before its variables are filled in.
#[derive(Default)]
pub(super) struct RawServer {
    pub(super) place: ConfigPlace,
    pub(super) name: String,
    pub(super) kind: Option<TransportName>,
    pub(super) command: Option<ConfigString>,
    pub(super) args: Vec<ConfigString>,
    /// Variables; one without a text must not be set.
    pub(super) env: Vec<(String, Option<ConfigString>)>,
    /// Names of variables to inherit.
    pub(super) env_vars: Vec<ConfigString>,
    pub(super) env_file: Option<ConfigString>,
    pub(super) cwd: Option<ConfigString>,
    pub(super) url: Option<ConfigString>,
    /// A URL that is certainly for streamable HTTP.
    pub(super) http_url: Option<ConfigString>,
    pub(super) headers: Vec<(String, ConfigString)>,
    /// Headers whose values are in the named variables.
    pub(super) header_vars: Vec<(String, ConfigString)>,
    /// The variable with the bearer token.
    pub(super) token_var: Option<ConfigString>,
    pub(super) shared: bool,
    pub(super) required: bool,
    /// The policy settings for its tools.
    pub(super) rules: ServerRules,
    pub(super) lazy: bool,
    pub(super) idle_stop: Option<Duration>,
    pub(super) keep_warm: Option<Duration>,
    pub(super) scopes: Vec<ConfigString>,
    pub(super) ext_authz: Option<RawExtAuthz>,
    pub(super) pass_headers: Vec<PassedHeader>,
    pub(super) chaos: Option<ChaosConfig>,
    /// The place where its own client limits the time of its start.
    pub(super) start_limit: Option<ConfigPlace>,
    pub(super) is_off: bool,
    /// Whether a field was left out because of a problem: then a missing field is no further
    /// problem.
    pub(super) is_partial: bool,
}

/// A transport by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransportName {
    Stdio,
    Http,
    Sse,
    Ws,
}

impl RawServer {
    pub(super) fn new(name: &str, place: &ConfigPlace) -> Self {
        Self { name: name.to_owned(), place: place.clone(), ..Self::default() }
    }

    /// Sets a field that all files spell alike; false if `key` is no such field.
    pub(super) fn set(
        &mut self,
        key: &str,
        value: &ConfigField<'_>,
        problems: &mut Problems,
    ) -> bool {
        match key {
            "command" => self.command = problems.keep(value.text()),
            "args" => self.args = value.texts(problems),
            "env" => self.env = variables(value, problems),
            "cwd" => self.cwd = problems.keep(value.text()),
            "url" => self.url = problems.keep(value.text()),
            "headers" => self.headers.extend(value.pairs(problems)),
            "type" => self.kind = problems.keep(kind(value)),
            "enabled" => self.is_off |= problems.keep(value.flag()) == Some(false),
            "disabled" => self.is_off |= problems.keep(value.flag()) == Some(true),
            _ => return false,
        }
        true
    }

    /// Sets a field that only Seawall has; false if `key` is no such field.
    pub(super) fn set_ours(
        &mut self,
        key: &str,
        value: &ConfigField<'_>,
        problems: &mut Problems,
    ) -> bool {
        match key {
            "shared" => self.shared = problems.keep(value.flag()).unwrap_or_default(),
            "required" => self.required = problems.keep(value.flag()).unwrap_or_default(),
            "lazy" => self.lazy = problems.keep(value.flag()).unwrap_or_default(),
            "idle_stop" => self.idle_stop = problems.keep(reconnect::some_time(value)),
            "keep_warm" => self.keep_warm = problems.keep(duration::read(value)),
            "scopes" => self.scopes = value.texts(problems),
            "ext_authz" => self.ext_authz = Some(ext_authz::read(value, problems)),
            "chaos" => self.chaos = chaos::read(value, problems),
            "pass_header" => self.pass_headers = pass_header::read(value, problems),
            _ => return false,
        }
        true
    }
}

/// A transport by any of the names that clients use for it.
pub(super) fn kind(value: &ConfigField<'_>) -> Result<TransportName, Problem> {
    let ConfigString { place, text } = value.text()?;
    match text.to_ascii_lowercase().as_str() {
        // `local` is the Copilot CLI's name for it.
        "stdio" | "local" => Ok(TransportName::Stdio),
        "http" | "streamable-http" | "streamable_http" | "streamablehttp" => {
            Ok(TransportName::Http)
        }
        "sse" => Ok(TransportName::Sse),
        "ws" | "websocket" => Ok(TransportName::Ws),
        _ => Err(place.problem(format!(
            "{text:?} is not a type; write \"stdio\", \"http\", \"sse\" or \"ws\""
        ))),
    }
}

fn variables(
    value: &ConfigField<'_>,
    problems: &mut Problems,
) -> Vec<(String, Option<ConfigString>)> {
    let entries = value.entries(problems);
    entries
        .iter()
        .filter_map(|(key, field)| Some(((*key).to_owned(), problems.keep(field.variable())?)))
        .collect()
}
