//! Decides the settings of the gateway itself: its address, its shutdown, the hosts it accepts.

use std::net::SocketAddr;
use std::time::Duration;

use super::admin::{self, RawAdmin};
use super::audit::{self, RawAudit};
use super::expand::Variables;
use super::ext_authz::{self, RawExtAuthz};
use super::identity::{self, RawIdentity};
use super::log::{self, LogConfig};
use super::problem::{Problem, Problems};
use super::store::{self, RawStore};
use super::telemetry::{self, RawTelemetry};
use super::tree::{ConfigField, ConfigString};
use super::{
    AdminConfig, Config, ReconnectConfig, ServerConfig, StartupConfig, duration, reconnect, rules,
    size, startup,
};
use crate::config::layers::PolicyRules;
use crate::config::prefix::NamePrefix;
use crate::protocol::limits;

/// The keys [`ServeSettings::set`] knows, beside the policy settings.
const OWN: [&str; 17] = [
    "listen",
    "prefix",
    "grace",
    "max_request",
    "answer_memory",
    "session_idle",
    "allowed_hosts",
    "allowed_origins",
    "startup",
    "reconnect",
    "store",
    "admin",
    "identity",
    "ext_authz",
    "audit",
    "telemetry",
    "log",
];

/// The keys [`ServeSettings::set`] knows.
pub(super) fn keys() -> Vec<&'static str> {
    [&OWN[..], &rules::KEYS].concat()
}

pub(super) struct ServeSettings {
    pub(super) listen: SocketAddr,
    grace: Duration,
    max_request: usize,
    answer_memory: usize,
    session_idle: Duration,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
    startup: StartupConfig,
    pub(super) rules: PolicyRules,
    reconnect: ReconnectConfig,
    pub(super) store: Option<RawStore>,
    pub(super) admin: Option<RawAdmin>,
    pub(super) identity: Option<RawIdentity>,
    pub(super) ext_authz: Option<RawExtAuthz>,
    pub(super) audit: Option<RawAudit>,
    pub(super) telemetry: Option<RawTelemetry>,
    log: LogConfig,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7332)),
            grace: Duration::from_secs(10),
            max_request: limits::FROM_CLIENT,
            answer_memory: limits::ANSWER_BYTES,
            session_idle: limits::SERVERS_IDLE,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            startup: StartupConfig::default(),
            rules: PolicyRules::default(),
            reconnect: ReconnectConfig::default(),
            store: None,
            admin: None,
            identity: None,
            ext_authz: None,
            audit: None,
            telemetry: None,
            log: LogConfig::default(),
        }
    }
}

impl ServeSettings {
    /// Applies one setting; false if `key` is unknown.
    pub(super) fn set(
        &mut self,
        key: &str,
        value: &ConfigField<'_>,
        problems: &mut Problems,
    ) -> bool {
        value.note(key, &mut self.rules.written);
        match key {
            "listen" => self.listen = problems.keep(listen(value)).unwrap_or(self.listen),
            "prefix" => self.rules.prefix = problems.keep(prefix(value)).unwrap_or_default(),
            "grace" => self.grace = problems.keep(duration::read(value)).unwrap_or(self.grace),
            "max_request" => {
                let size = size::read(value, limits::LEAST_FROM_CLIENT, limits::MOST_FROM_CLIENT);
                self.max_request = problems.keep(size).unwrap_or(self.max_request);
            }
            "answer_memory" => {
                let size = size::read(value, limits::LEAST_ANSWER_BYTES, limits::MOST_ANSWER_BYTES);
                self.answer_memory = problems.keep(size).unwrap_or(self.answer_memory);
            }
            "session_idle" => {
                self.session_idle =
                    problems.keep(reconnect::some_time(value)).unwrap_or(self.session_idle);
            }
            "allowed_hosts" => self.allowed_hosts = names(value, host, problems),
            "allowed_origins" => self.allowed_origins = names(value, origin, problems),
            "startup" => self.startup = startup::read(value, problems),
            "store" => self.store = Some(store::read(value, problems)),
            "reconnect" => self.reconnect = reconnect::read(value, problems),
            "admin" => self.admin = Some(admin::read(value, problems)),
            "identity" => self.identity = Some(identity::read(value, problems)),
            "ext_authz" => self.ext_authz = Some(ext_authz::read(value, problems)),
            "audit" => self.audit = Some(audit::read(value, problems)),
            "telemetry" => self.telemetry = Some(telemetry::read(value, problems)),
            "log" => self.log = log::read(value, problems),
            _ => return rules::set(&mut self.rules, key, value, problems),
        }
        true
    }

    /// The admin server, with its token filled in from the environment.
    pub(super) fn take_admin(
        &mut self,
        scope: &Variables<'_>,
        problems: &mut Problems,
    ) -> Option<AdminConfig> {
        self.admin.take()?.resolve(scope, problems)
    }

    pub(super) fn into_config(self, mut servers: Vec<ServerConfig>) -> Config {
        let Self {
            listen,
            grace,
            max_request,
            answer_memory,
            session_idle,
            allowed_hosts,
            allowed_origins,
            mut startup,
            rules,
            reconnect,
            log,
            ..
        } = self;
        startup.denied_text.get_or_insert(rules.preset.denied_text());
        for server in &mut servers {
            server.life.reconnect = reconnect;
        }
        Config {
            listen,
            servers,
            grace,
            max_request,
            answer_memory,
            session_idle,
            allowed_hosts,
            allowed_origins,
            startup,
            rules,
            store: None,
            redis: None,
            admin: None,
            identity: None,
            ext_authz: None,
            audit: None,
            telemetry: None,
            log,
            source: None,
            files: Default::default(),
            warnings: Vec::new(),
        }
    }
}

pub(super) fn listen(value: &ConfigField<'_>) -> Result<SocketAddr, Problem> {
    let ConfigString { place, text } = value.text()?;
    text.parse().map_err(|_| {
        place.problem(format!("{text:?} is not an address; write it like \"127.0.0.1:7332\""))
    })
}

fn prefix(value: &ConfigField<'_>) -> Result<NamePrefix, Problem> {
    let ConfigString { place, text } = value.text()?;
    match text.as_str() {
        "auto" => Ok(NamePrefix::Auto),
        "always" => Ok(NamePrefix::Always),
        _ => Err(place.problem(format!("{text:?} is neither \"auto\" nor \"always\""))),
    }
}

type CheckName = fn(&str) -> Result<(), &'static str>;

fn names(value: &ConfigField<'_>, check: CheckName, problems: &mut Problems) -> Vec<String> {
    let name = |ConfigString { place, text }: ConfigString| match check(&text) {
        Ok(()) => Ok(text.to_ascii_lowercase()),
        Err(error) => Err(place.problem(error)),
    };
    let texts = value.texts(problems);
    texts.into_iter().filter_map(|text| problems.keep(name(text))).collect()
}

fn host(text: &str) -> Result<(), &'static str> {
    if text.contains('*') {
        return Err("has no wildcards; list every host");
    }
    match text.parse::<http::uri::Authority>() {
        Ok(authority) if !authority.as_str().contains('@') => Ok(()),
        _ => Err("is not a host; write it like \"gateway.example\" or \"gateway.example:8080\""),
    }
}

fn origin(text: &str) -> Result<(), &'static str> {
    let host_part =
        text.split_once("://").filter(|(scheme, _)| !scheme.is_empty()).map(|(_, rest)| rest);
    match host_part {
        Some(rest) => host(rest)
            .map_err(|_| "is not an origin; write it like \"https://app.example\", without a path"),
        None => Err("is not an origin; write it like \"https://app.example\""),
    }
}
