//! Decides which names are remembered where strangers may invent them: a bounded map in which what
//! is at rest makes room.
//!
//! Of the few that are looked at for each new name, the least recently used that can go does. The
//! next look begins where this one ended, so that all are looked at in turn and none costs more
//! than a few.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError};

use super::atomic::{AtomicU64, Ordering};
use super::sync::RwLock;

/// The longest name that is learned, in bytes. MCP wants no tool to have one of more than 128
/// letters.
const LONGEST: usize = 256;
/// How many are looked at for a new name.
pub(super) const LOOKS: usize = 16;

/// What is known by name.
#[derive(Debug)]
pub(crate) struct NameRegistry<V> {
    capacity: usize,
    known: RwLock<KnownNames<V>>,
}

#[derive(Debug)]
struct KnownNames<V> {
    /// Grows with each name that is learned. Who is used notes it, so it is written seldom and read
    /// often.
    age: u64,
    by_name: HashMap<Arc<str>, NamedEntry<V>>,
    /// Those that may be forgotten, the next to be looked at first.
    learned: VecDeque<Arc<str>>,
}

#[derive(Debug)]
struct NamedEntry<V> {
    value: Arc<V>,
    /// The age at which it was last used; noted also by those who only read.
    used: AtomicU64,
}

impl<V> NameRegistry<V> {
    /// Learns at most `capacity` names.
    pub(crate) fn new(capacity: usize) -> Self {
        let known = KnownNames { age: 0, by_name: HashMap::new(), learned: VecDeque::new() };
        Self { capacity, known: RwLock::new(known) }
    }

    /// What is known by `name`, which counts as used.
    #[inline]
    pub(crate) fn used(&self, name: &str) -> Option<Arc<V>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let entry = known.by_name.get(name)?;
        if entry.used.load(Ordering::Relaxed) != known.age {
            entry.used.store(known.age, Ordering::Relaxed);
        }
        Some(entry.value.clone())
    }

    /// The same, where asking is no use.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<V>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_name.get(name).map(|entry| entry.value.clone())
    }

    /// All that is known.
    pub(crate) fn all(&self) -> Vec<(Arc<str>, Arc<V>)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_name.iter().map(|(name, entry)| (name.clone(), entry.value.clone())).collect()
    }

    /// Learns a name, if it is not too long, and there is room or one that `lets_go` of its value
    /// makes some. `lets_go` must tell of what is in use, as its count of owners shows, that it
    /// stays: nobody takes another while it is asked.
    pub(crate) fn learn(
        &self,
        name: &str,
        lets_go: impl Fn(&Arc<V>) -> bool,
        make: impl FnOnce() -> Option<Arc<V>>,
    ) -> Option<Arc<V>> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = known.by_name.get(name) {
            return Some(entry.value.clone());
        }
        if name.len() > LONGEST {
            return None;
        }
        if known.learned.len() >= self.capacity && !known.make_room(lets_go) {
            return None;
        }
        let (name, value): (Arc<str>, _) = (name.into(), make()?);
        known.learned.push_back(name.clone());
        known.insert(name, value.clone());
        Some(value)
    }

    /// Keeps a name for good, whatever was known by it before.
    pub(crate) fn keep<E>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Arc<V>, E>,
    ) -> Result<(), E> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let value = make()?;
        known.learned.retain(|learned| **learned != *name);
        known.insert(name.into(), value);
        Ok(())
    }
}

impl<V> KnownNames<V> {
    /// Whoever is used after it is younger than it.
    fn insert(&mut self, name: Arc<str>, value: Arc<V>) {
        self.by_name.insert(name, NamedEntry { value, used: AtomicU64::new(self.age) });
        self.age += 1;
    }

    fn make_room(&mut self, lets_go: impl Fn(&Arc<V>) -> bool) -> bool {
        let looks = LOOKS.min(self.learned.len());
        let mut looked_at: Vec<Arc<str>> = self.learned.drain(..looks).collect();
        looked_at.sort_by_cached_key(|name| {
            self.by_name.get(name).map(|entry| entry.used.load(Ordering::Relaxed))
        });
        let goes =
            |name: &Arc<str>| self.by_name.get(name).is_none_or(|entry| lets_go(&entry.value));
        let gone = looked_at.iter().position(goes).map(|place| looked_at.remove(place));
        self.learned.extend(looked_at);
        gone.map(|name| self.by_name.remove(&name)).is_some()
    }
}
