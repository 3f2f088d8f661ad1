//! Whether a tool vanished from a list.

use std::collections::HashSet;

use super::Judge;
use crate::world::notes::Listing;
use crate::world::plan::{Step, Way, What};

impl Judge<'_> {
    /// A tool that was once listed to somebody is in every later list, unless its server takes it
    /// away.
    pub(super) fn vanished(&self) -> Vec<String> {
        let mut found = Vec::new();
        let listings = &self.record.listings;
        for later in listings {
            let client = &self.record.history.clients[later.client];
            let before = |earlier: &&Listing| {
                let same_place = self.record.history.clients[earlier.client].way == client.way;
                let life = earlier.life == later.life || client.way != Way::Merged;
                earlier.came <= later.sent && same_place && life
            };
            let known: HashSet<&String> =
                listings.iter().filter(before).flat_map(|one| one.names.iter().flatten()).collect();
            let missing = |name: &&&String| {
                !name.ends_with("extra")
                    && !later.names.iter().flatten().any(|there| there == **name)
            };
            let was_hit = client.way == Way::Merged
                && self
                    .record
                    .blows
                    .iter()
                    .any(|(begin, end)| *begin <= later.came && later.sent <= *end);
            let missing: Vec<_> =
                known.iter().filter(missing).filter(|name| self.is_asked(later, name)).collect();
            // A wrapper that was killed answers nothing more, and its client knows that.
            let kills = |step: &Step| matches!(step.what, What::KillWrapper(client) if client == later.client);
            let was_killed = later.names.is_err() && self.record.history.steps.iter().any(kills);
            if !missing.is_empty() && !was_hit && !was_killed {
                let instead = later.names.as_ref().err();
                let at = self.ms(later.sent);
                found.push(format!(
                    "c{} did not find {missing:?} at {at}; it got {instead:?}",
                    later.client
                ));
            }
        }
        found
    }

    /// Whether a list that was asked for should have this tool at all.
    fn is_asked(&self, later: &Listing, name: &str) -> bool {
        if !self.record.history.settings.alone {
            return true;
        }
        // A server's own list has only its own.
        later
            .names
            .iter()
            .flatten()
            .all(|there| there.split("__").next() == name.split("__").next())
            && later.names.as_ref().is_ok_and(|names| !names.is_empty())
    }
}
