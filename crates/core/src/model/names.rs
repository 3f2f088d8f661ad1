//! Decides which names are remembered where clients may invent them: a bounded map in which idle
//! entries make room for new ones.
//!
//! Each new name examines a few learned names and evicts the least recently used one that is idle.
//! The next eviction starts after those names, so that all names are examined in turn and none
//! costs more than a few looks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError};

use super::atomic::{AtomicU64, Ordering};
use super::sync::RwLock;

/// The longest name that is learned, in bytes. MCP wants tool names of at most 128 characters.
const LONGEST: usize = 256;
/// How many learned names one eviction examines.
pub(super) const LOOKS: usize = 16;

/// A bounded map from names to values.
#[derive(Debug)]
pub(crate) struct NameRegistry<V> {
    capacity: usize,
    known: RwLock<KnownNames<V>>,
}

#[derive(Debug)]
struct KnownNames<V> {
    /// Grows with each name that is learned. A lookup notes the current age in its entry, so `age`
    /// is written seldom and read often.
    age: u64,
    by_name: HashMap<Arc<str>, NamedEntry<V>>,
    /// The names that may be evicted, the next to be examined first.
    learned: VecDeque<Arc<str>>,
}

#[derive(Debug)]
struct NamedEntry<V> {
    value: Arc<V>,
    /// The age at the last use; readers note it too, under the read lock.
    used: AtomicU64,
}

impl<V> NameRegistry<V> {
    /// A registry that learns at most `capacity` names.
    pub(crate) fn new(capacity: usize) -> Self {
        let known = KnownNames { age: 0, by_name: HashMap::new(), learned: VecDeque::new() };
        Self { capacity, known: RwLock::new(known) }
    }

    /// The value of `name`, which counts as used.
    #[inline]
    pub(crate) fn used(&self, name: &str) -> Option<Arc<V>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let entry = known.by_name.get(name)?;
        // Writing only on change keeps the cache line shared between cores: most calls find the
        // current age noted already. Relaxed: a stale age only makes an eviction less exact.
        if entry.used.load(Ordering::Relaxed) != known.age {
            entry.used.store(known.age, Ordering::Relaxed);
        }
        Some(entry.value.clone())
    }

    /// The value of `name`; does not count as used.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<V>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_name.get(name).map(|entry| entry.value.clone())
    }

    /// All names and their values.
    pub(crate) fn all(&self) -> Vec<(Arc<str>, Arc<V>)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_name.iter().map(|(name, entry)| (name.clone(), entry.value.clone())).collect()
    }

    /// Learns a name, if it is not too long, and there is room or an entry can be evicted:
    /// `lets_go` tells whether an entry is idle. It must refuse a value in use, as its count of
    /// owners shows; the write lock keeps other tasks from taking another clone meanwhile.
    pub(crate) fn learn(
        &self,
        name: &str,
        lets_go: impl Fn(&Arc<V>) -> bool,
        make: impl FnOnce() -> Option<Arc<V>>,
    ) -> Option<Arc<V>> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Another task may have learned the name between the caller's lookup and this lock.
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

    /// Keeps a name for good, and replaces the value that was known by the name before.
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
    /// Inserts an entry; every entry used after this one has a higher age.
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
        // Examined names go to the back, so the next eviction examines others.
        self.learned.extend(looked_at);
        gone.map(|name| self.by_name.remove(&name)).is_some()
    }
}
