//! Decides which names are remembered where strangers may invent them: a bounded map in which what is at rest makes room.
//!
//! Of the few that are looked at for each new name, the least recently used that can go does. The next look begins where this one
//! ended, so that all are looked at in turn and none costs more than a few.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// How many are looked at for a new name.
const LOOKS: usize = 16;

/// What is known by name.
#[derive(Debug)]
pub(crate) struct Names<V> {
    capacity: usize,
    /// Grows with each name that is learned. Who is used notes it, so it is written seldom and read often.
    age: AtomicU64,
    known: RwLock<Known<V>>,
}

#[derive(Debug)]
struct Known<V> {
    by_name: HashMap<Arc<str>, Entry<V>>,
    /// Those that may be forgotten, the next to be looked at first.
    learned: VecDeque<Arc<str>>,
}

#[derive(Debug)]
struct Entry<V> {
    value: Arc<V>,
    used: AtomicU64,
}

impl<V> Names<V> {
    /// Learns at most `capacity` names.
    pub(crate) fn new(capacity: usize) -> Self {
        let known = Known { by_name: HashMap::new(), learned: VecDeque::new() };
        Self { capacity, age: AtomicU64::new(0), known: RwLock::new(known) }
    }

    /// What is known by `name`, which counts as used.
    #[inline]
    pub(crate) fn used(&self, name: &str) -> Option<Arc<V>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let entry = known.by_name.get(name)?;
        let age = self.age.load(Ordering::Relaxed);
        if entry.used.load(Ordering::Relaxed) != age {
            entry.used.store(age, Ordering::Relaxed);
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

    /// Learns a name, if there is room or one that `lets_go` of its value makes some. `lets_go` must tell of what is in use, as
    /// its count of owners shows, that it stays: nobody takes another while it is asked.
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
        if known.learned.len() >= self.capacity && !known.make_room(lets_go) {
            return None;
        }
        let (name, value): (Arc<str>, _) = (name.into(), make()?);
        known.learned.push_back(name.clone());
        known.by_name.insert(name, self.entry(value.clone()));
        Some(value)
    }

    /// Keeps a name for good, whatever was known by it before.
    pub(crate) fn keep<E>(&self, name: &str, make: impl FnOnce() -> Result<Arc<V>, E>) -> Result<(), E> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let value = make()?;
        known.learned.retain(|learned| **learned != *name);
        known.by_name.insert(name.into(), self.entry(value));
        Ok(())
    }

    /// Whoever is used after it is younger than it.
    fn entry(&self, value: Arc<V>) -> Entry<V> {
        Entry { value, used: AtomicU64::new(self.age.fetch_add(1, Ordering::Relaxed)) }
    }
}

impl<V> Known<V> {
    fn make_room(&mut self, lets_go: impl Fn(&Arc<V>) -> bool) -> bool {
        let looks = LOOKS.min(self.learned.len());
        let mut looked_at: Vec<Arc<str>> = self.learned.drain(..looks).collect();
        looked_at.sort_by_cached_key(|name| self.by_name.get(name).map(|entry| entry.used.load(Ordering::Relaxed)));
        let goes = |name: &Arc<str>| self.by_name.get(name).is_none_or(|entry| lets_go(&entry.value));
        let gone = looked_at.iter().position(goes).map(|place| looked_at.remove(place));
        self.learned.extend(looked_at);
        gone.map(|name| self.by_name.remove(&name)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn learn(names: &Names<u32>, number: u32, lets_go: impl Fn(&Arc<u32>) -> bool) -> bool {
        names.learn(&number.to_string(), lets_go, || Some(Arc::new(number))).is_some()
    }

    #[test]
    fn a_new_name_costs_a_few_looks_and_all_are_looked_at_in_turn() {
        let (names, looks) = (Names::new(1000), Cell::new(0));
        (0..1000).for_each(|number| assert!(learn(&names, number, |_| true)));
        let only_500 = |value: &Arc<u32>| {
            looks.set(looks.get() + 1);
            **value == 500
        };

        let needed = (1000..).take_while(|number| !learn(&names, *number, only_500)).count();

        assert_eq!((needed, looks.get()), (500 / LOOKS, 500 + 1));
        assert_eq!((names.get("500"), names.all().len()), (None, 1000));
    }

    #[test]
    fn what_is_used_again_and_again_outlives_any_number_of_strangers() {
        let names = Names::new(1000);
        (0..1000).for_each(|number| assert!(learn(&names, number, |_| true)));

        for number in 1000..5000 {
            assert!(names.used("7").is_some(), "forgotten before {number}");
            assert!(learn(&names, number, |_| true));
        }

        assert_eq!((names.get("8"), names.all().len()), (None, 1000));
    }

    #[test]
    fn what_is_kept_for_good_takes_no_strangers_place() {
        let names = Names::new(2);
        (0..2).for_each(|number| assert!(learn(&names, number, |_| true)));
        names.keep("0", || Ok::<_, ()>(Arc::new(100))).unwrap();

        (1..50).for_each(|number| assert!(learn(&names, number, |_| true)));

        assert_eq!((names.get("0").as_deref(), names.all().len()), (Some(&100), 3));
        assert_eq!(names.keep("9", || Err("bad")), Err("bad"));
    }
}
