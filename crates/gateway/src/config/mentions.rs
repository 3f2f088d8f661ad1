//! Decides whether the policies of a file can apply: the servers they name exist, and a queue has a
//! store.
//!
//! Without this check a policy for a misspelled server would be read and never apply.

use super::problem::Problems;
use super::suggest;
use super::tree::{ConfigField, ConfigString};
use crate::config::layers::glob;

/// The names and settings that the policies of a file may refer to.
struct KnownNames<'a> {
    servers: Vec<&'a str>,
    has_store: bool,
}

/// Checks the settings in `section` and the `servers` of a file. Other problems there are reported
/// elsewhere.
pub(super) fn check(section: &ConfigField<'_>, servers: &ConfigField<'_>, problems: &mut Problems) {
    let told = &mut Problems::default();
    let listed = servers.entries(told);
    let there = KnownNames {
        servers: listed.iter().map(|(name, _)| *name).collect(),
        has_store: section.has("store"),
    };
    for (key, value) in section.entries(told) {
        match key {
            "defaults" => there.look_at(&value, problems),
            "kinds" => {
                value.entries(told).iter().for_each(|(_, table)| there.look_at(table, problems))
            }
            "tools" => {
                for (pattern, table) in value.entries(told) {
                    let server = pattern.split_once('/').map(|(server, _)| server);
                    if let Some(server) =
                        server.filter(|server| !there.servers.iter().any(|name| glob(server, name)))
                    {
                        problems.push(table.place.problem(there.no_server(server)));
                    }
                    there.look_at(&table, problems);
                }
            }
            _ => {}
        }
    }
    for (_, server) in listed.iter().filter(|(_, server)| server.is_table()) {
        let own = server.entries(told).into_iter().find(|(key, _)| *key == "policy");
        own.iter().for_each(|(_, table)| there.look_at(table, problems));
    }
}

impl KnownNames<'_> {
    /// Checks the fallbacks of one policy.
    fn look_at(&self, table: &ConfigField<'_>, problems: &mut Problems) {
        let told = &mut Problems::default();
        let steps = table.entries(told).into_iter().filter(|(key, _)| *key == "fallback");
        for step in steps.flat_map(|(_, list)| list.items(&mut Problems::default())) {
            if step.text().is_ok_and(|word| word.text == "queue") && !self.has_store {
                problems.push(
                    step.place.problem("needs a place where calls wait; add [store] with a path"),
                );
            }
            let other = if step.is_table() { step.entries(told) } else { Vec::new() };
            let other = other
                .into_iter()
                .find(|(key, _)| *key == "tool")
                .and_then(|(_, tool)| tool.text().ok());
            let Some(ConfigString { place, text }) = other else { continue };
            if let Some((server, _)) =
                text.split_once('/').filter(|(server, _)| !self.servers.contains(server))
            {
                problems.push(place.problem(self.no_server(server)));
            }
        }
    }

    fn no_server(&self, name: &str) -> String {
        match suggest::nearest(name, &self.servers) {
            Some(near) => format!("there is no server {name:?}; did you mean {near:?}?"),
            None => format!("there is no server {name:?}; there are {}", self.servers.join(", ")),
        }
    }
}
