//! Decides what a change of configuration is called: which servers and settings differ, which of
//! them need a restart, and that these stay as they are until then.

use std::fmt;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::config::{Config, ServerConfig};

/// The difference between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigChange {
    /// Servers that only the new one has.
    pub added: Vec<String>,
    /// Servers that only the old one has.
    pub removed: Vec<String>,
    /// Servers that are reached in another way from now on.
    pub reopened: Vec<String>,
    /// Servers whose rules changed; their connections go on.
    pub rules: Vec<String>,
    /// Sections of the file that changed.
    pub settings: Vec<&'static str>,
    /// Settings that changed and take effect after a restart only.
    pub needs_restart: Vec<&'static str>,
}

impl ConfigChange {
    /// The change from one configuration in force to the next, of a gateway that was started with
    /// `first` and read `new`.
    pub(super) fn between(first: &Config, old: &Config, next: &Config, new: &Config) -> Self {
        let mut change = Self { needs_restart: needs_restart(first, new), ..Self::default() };
        let found = |config: &Config, name: &str| -> Option<ServerConfig> {
            config.servers.iter().find(|server| server.name == name).cloned()
        };
        for after in &next.servers {
            let list = match found(old, &after.name) {
                None => &mut change.added,
                Some(before) if old.startup != next.startup || !before.connects_like(after) => {
                    &mut change.reopened
                }
                Some(before) if before != *after => &mut change.rules,
                Some(_) => continue,
            };
            list.push(after.name.clone());
        }
        let removed = old.servers.iter().filter(|before| found(next, &before.name).is_none());
        change.removed = removed.map(|server| server.name.clone()).collect();
        let order = |config: &Config| -> Vec<String> {
            config.servers.iter().map(|server| server.name.clone()).collect()
        };
        let is_moved =
            change.added.is_empty() && change.removed.is_empty() && order(old) != order(next);
        let token = |config: &Config| config.admin.as_ref().map(|admin| admin.token.clone());
        let sections = [
            ("policies", old.rules != next.rules),
            ("startup", old.startup != next.startup),
            ("session_idle", old.session_idle != next.session_idle),
            ("identity", old.identity != next.identity),
            ("ext_authz", old.ext_authz != next.ext_authz),
            ("admin.token", token(old) != token(next)),
            ("the order of servers", is_moved),
        ];
        let changed = sections.into_iter().filter(|(_, is_changed)| *is_changed);
        change.settings = changed.map(|(name, _)| name).collect();
        change
    }

    /// Whether nothing changed that takes effect now.
    pub(crate) fn is_nothing(&self) -> bool {
        let needs_restart = self.needs_restart.clone();
        *self == Self { needs_restart, ..Self::default() }
    }

    /// The change for the admin API.
    pub(crate) fn json(&self) -> Value {
        json!({
            "added": self.added,
            "removed": self.removed,
            "reopened": self.reopened,
            "rules": self.rules,
            "settings": self.settings,
            "needsRestart": self.needs_restart,
        })
    }
}

/// A new configuration as a gateway can follow it that was started with `first` and now follows
/// `before`: what needs a restart stays in force.
pub(super) fn until_restart(first: &Config, before: &Config, new: &Config) -> Config {
    let mut next = new.clone();
    next.listen = first.listen;
    next.store.clone_from(&first.store);
    next.redis.clone_from(&first.redis);
    next.audit.clone_from(&first.audit);
    next.telemetry.clone_from(&first.telemetry);
    next.log.clone_from(&first.log);
    next.grace = first.grace;
    next.max_request = first.max_request;
    next.answer_memory = first.answer_memory;
    next.allowed_hosts.clone_from(&first.allowed_hosts);
    next.allowed_origins.clone_from(&first.allowed_origins);
    // The token stays with the address: without one, or with the weaker one that is enough on
    // loopback, everybody could operate a gateway that is reached from elsewhere.
    if admin_address(first) != admin_address(new) {
        next.admin.clone_from(&before.admin);
    }
    // The address may be open to other machines because there is an identity. Without it everybody
    // who reaches the address would use every server, and the sessions of others.
    if first.identity.is_some() != new.identity.is_some() {
        next.identity.clone_from(&before.identity);
    }
    next
}

fn admin_address(config: &Config) -> Option<SocketAddr> {
    config.admin.as_ref().map(|admin| admin.listen)
}

/// Settings that differ from those the gateway was started with, and that it cannot change.
fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let fixed = [
        ("listen", old.listen != new.listen),
        ("store", old.store != new.store || old.redis != new.redis),
        ("audit", old.audit != new.audit),
        ("telemetry", old.telemetry != new.telemetry),
        ("log", old.log != new.log),
        ("admin.listen", admin_address(old) != admin_address(new)),
        ("grace", old.grace != new.grace),
        ("max_request", old.max_request != new.max_request),
        ("answer_memory", old.answer_memory != new.answer_memory),
        ("allowed_hosts", old.allowed_hosts != new.allowed_hosts),
        ("allowed_origins", old.allowed_origins != new.allowed_origins),
        // Who may reach the address was decided when it was opened.
        ("identity", old.identity.is_some() != new.identity.is_some()),
    ];
    fixed.into_iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| name).collect()
}

/// In words, for the log.
impl fmt::Display for ConfigChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |names: &[String]| names.join(", ");
        let settings = self.settings.join(", ");
        let parts = [
            ("added ", names(&self.added)),
            ("removed ", names(&self.removed)),
            ("opened anew ", names(&self.reopened)),
            ("new rules for ", names(&self.rules)),
            ("changed ", settings),
        ];
        let told: Vec<String> = parts
            .into_iter()
            .filter(|(_, what)| !what.is_empty())
            .map(|(verb, what)| format!("{verb}{what}"))
            .collect();
        match told.is_empty() {
            true => f.write_str("nothing changed")?,
            false => f.write_str(&told.join("; "))?,
        }
        match self.needs_restart.is_empty() {
            true => Ok(()),
            false => write!(f, "; a restart is needed for {}", self.needs_restart.join(", ")),
        }
    }
}
