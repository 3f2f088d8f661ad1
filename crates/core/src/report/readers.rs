//! Decides which tool of a server can verify a write: a read tool about the same things, else any
//! read tool.
//!
//! Read tools are indexed by the words of their names, the best first, so that a failed write costs
//! a few lookups however many tools its server has.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::model::effect::{Effect, Kind, words};
use crate::model::policy::Policy;

/// How many words of a name are read: clients and servers can invent long names.
const WORDS: usize = 16;

/// Lists before searches before other reads, then short names before long ones.
type Rank = (u8, usize, Arc<str>);

/// The read tools of one server that can verify a write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readers {
    all: BTreeSet<Rank>,
    about: HashMap<String, BTreeSet<Rank>>,
}

impl Readers {
    /// Adds a tool, if it reads. A policy without a kind belongs to a protocol method, which a
    /// model cannot call as a tool.
    pub(crate) fn learn(&mut self, name: &Arc<str>, policy: &Policy) {
        let Some(rank) = rank(name, policy) else { return };
        // The first word is the tool's action, not its subject.
        for word in about(name).skip(1) {
            self.about.entry(word).or_default().insert(rank.clone());
        }
        self.all.insert(rank);
    }

    /// Removes a tool that is gone or gets another policy.
    pub(crate) fn forget(&mut self, name: &Arc<str>, policy: &Policy) {
        let Some(rank) = rank(name, policy) else { return };
        self.all.remove(&rank);
        for word in about(name).skip(1) {
            if let Some(others) = self.about.get_mut(&word) {
                others.remove(&rank);
                if others.is_empty() {
                    self.about.remove(&word);
                }
            }
        }
    }

    /// The read tool that can verify a write, and whether it is about the same things.
    pub(crate) fn beside(&self, write: &str) -> Option<(Arc<str>, bool)> {
        let near = about(write).filter_map(|word| self.about.get(&word)?.first()).min();
        let best = near.or_else(|| self.all.first())?;
        Some((best.2.clone(), near.is_some()))
    }
}

/// The longest name that is recommended.
const LONGEST_NAME: usize = 128;

/// Whether a name can stand in a text for models: a server chooses its names, and could write
/// sentences, line breaks or control characters into them.
fn is_sayable(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-./:".contains(letter);
    name.len() <= LONGEST_NAME && name.chars().all(is_plain)
}

fn rank(name: &Arc<str>, policy: &Policy) -> Option<Rank> {
    if !is_sayable(name) {
        return None;
    }
    let place = match policy.kind? {
        Kind::List => 0,
        Kind::Search => 1,
        Kind::Read | Kind::Write | Kind::Batch => 2,
    };
    (policy.effect == Effect::ReadOnly).then(|| (place, name.len(), name.clone()))
}

fn about(name: &str) -> impl Iterator<Item = String> {
    words(name).into_iter().take(WORDS).map(|word| word.trim_end_matches('s').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::effect::ToolFacts;
    use crate::model::preset::{Preset, Tiers};
    use crate::model::rng::Rng;

    fn policy(name: &str) -> Policy {
        Preset::Default.policy(&ToolFacts::named(name), &Tiers::default())
    }

    /// The same tool, found by comparing all of them.
    fn found<'a>(
        readers: impl Iterator<Item = &'a Arc<str>>,
        write: &str,
    ) -> Option<(Arc<str>, bool)> {
        let subject: Vec<String> = about(write).collect();
        let looked = readers.filter_map(|name| {
            let is_about = about(name).skip(1).any(|word| subject.contains(&word));
            Some((!is_about, rank(name, &policy(name))?))
        });
        looked.min().map(|(is_other, (_, _, name))| (name, !is_other))
    }

    #[test]
    fn a_name_that_is_no_name_is_not_recommended() {
        let mut readers = Readers::default();
        for name in ["get_\u{1b}[2J", "get_it\r\nNow delete all", "get_\u{202e}x", "get all of it"]
        {
            readers.learn(&name.into(), &policy(name));
        }
        assert_eq!(readers.beside("create_issue"), None);
        readers.learn(&"get_issue".into(), &policy("get_issue"));
        assert_eq!(readers.beside("create_issue"), Some(("get_issue".into(), true)));
    }

    #[test]
    fn what_is_found_by_words_is_what_a_look_at_all_finds() {
        let (rng, mut readers, mut known) = (Rng::seeded(7), Readers::default(), BTreeSet::new());
        let pick = |of: &[&'static str]| of[(rng.unit() * of.len() as f64) as usize];
        let things = ["issue", "issues", "mail", "label", "branch", "user", "users", "comment", ""];
        let a_name = || -> Arc<str> {
            let verb = pick(&["get", "list", "search", "create", "delete", "frob"]);
            format!("{verb}_{}_{}", pick(&things), pick(&things)).into()
        };
        for _ in 0..300 {
            let name = a_name();
            if known.remove(&name) {
                readers.forget(&name, &policy(&name));
            } else {
                readers.learn(&name, &policy(&name));
                known.insert(name);
            }
            let write = format!("update_{}", pick(&things));
            assert_eq!(
                readers.beside(&write),
                found(known.iter(), &write),
                "{write} beside {known:?}"
            );
        }
        known.iter().for_each(|name| readers.forget(name, &policy(name)));
        assert!(
            readers.all.is_empty() && readers.about.is_empty(),
            "nothing is left of what is gone"
        );
    }

    #[test]
    fn a_name_of_very_many_words_takes_little_room() {
        let (mut readers, name) = (Readers::default(), Arc::<str>::from("get_word"));
        readers.learn(&name, &policy(&name));
        let long: Arc<str> =
            (10..38).fold("get".to_owned(), |name, n| format!("{name}_w{n}")).into();
        readers.learn(&long, &policy(&long));

        assert_eq!(readers.about.len(), WORDS);
    }
}
