//! Decides which answers the response cache keeps, and how old they may be: a fresh response ends
//! the call, a stale one is a fallback.
//!
//! Only successes are kept, under a key that includes the caller. A write to a server makes every
//! response cached before it unfresh at once. An answer read while the write ran is unfresh too,
//! and never replaces an answer read after the write.

use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::key::{AsItIs, CallKey};
use crate::model::invalid::Invalid;
use crate::time::clock::{Clock, Moment};

/// A cached response that is no longer fresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleResponse<T> {
    /// The cached answer.
    pub value: T,
    /// Its age.
    pub age: Duration,
    /// Whether the server has seen a write since the response was cached.
    pub before_a_write: bool,
}

#[derive(Clone, Debug)]
struct CachedResponse<T> {
    value: T,
    at: Moment,
    /// How many writes the server had seen when the call began.
    writes: u64,
}

#[derive(Clone, Debug)]
struct ResponseWeight<T>(fn(&T) -> usize);

impl<T> Weighter<CallKey, CachedResponse<T>> for ResponseWeight<T> {
    fn weight(&self, _: &CallKey, copy: &CachedResponse<T>) -> u64 {
        const OVERHEAD: usize = 64;
        u64::try_from((self.0)(&copy.value).saturating_add(OVERHEAD)).unwrap_or(u64::MAX)
    }
}

/// An upper bound above any machine's memory.
const MOST_BYTES: u64 = 1 << 40;

/// The response cache, bounded by the weight of its answers in bytes.
///
/// ```
/// # use seawall::{Clock, Keys, ResponseCache};
/// # use std::time::Duration;
/// let clock = Clock::manual();
/// let cache = ResponseCache::new(1 << 20, String::len, clock.clone())?;
/// let key = Keys::default().key(&["github", "get_issue"], &serde_json::json!({"number": 7}));
/// cache.keep(key, "issue 7".to_owned(), 0);
/// clock.advance(Duration::from_secs(90));
/// assert_eq!(cache.fresh(key, Duration::from_secs(60), 0), None);
/// assert_eq!(cache.stale(key, Duration::from_secs(600), 0).unwrap().value, "issue 7");
/// # Ok::<(), seawall::Invalid>(())
/// ```
#[derive(Debug)]
pub struct ResponseCache<T> {
    copies: Cache<CallKey, CachedResponse<T>, ResponseWeight<T>, AsItIs>,
    clock: Clock,
}

impl<T: Clone> ResponseCache<T> {
    /// A cache for `bytes` of answers, each weighed by `weigh`; 1 KiB to 1 TiB.
    pub fn new(bytes: u64, weigh: fn(&T) -> usize, clock: Clock) -> Result<Self, Invalid> {
        const TYPICAL: u64 = 1024;
        if bytes < TYPICAL {
            return Err(Invalid::new(
                "kept_bytes",
                format!("must be at least {TYPICAL}, or nothing could be kept"),
            ));
        }
        if bytes > MOST_BYTES {
            return Err(Invalid::new("kept_bytes", format!("must not exceed {MOST_BYTES}")));
        }
        let items = usize::try_from(bytes / TYPICAL).unwrap_or(usize::MAX).clamp(16, 65_536);
        let copies =
            Cache::with(items, bytes, ResponseWeight(weigh), AsItIs::default(), Default::default());
        Ok(Self { copies, clock })
    }

    /// Caches the answer of a call that began when the server had seen `writes` writes, unless the
    /// response cached already had seen more.
    pub fn keep(&self, key: CallKey, value: T, writes: u64) {
        self.keep_at(self.clock.now(), key, value, writes, u64::MAX);
    }

    /// The cached response if it is younger than `fresh` and the server has seen no write since.
    pub fn fresh(&self, key: CallKey, fresh: Duration, writes: u64) -> Option<T> {
        self.fresh_at(self.clock.now(), key, fresh, writes)
    }

    /// `newest` is the server's count of writes by now. Usually no write came meanwhile; then no
    /// newer response can be cached, and the lookup is skipped.
    pub(crate) fn keep_at(&self, now: Moment, key: CallKey, value: T, writes: u64, newest: u64) {
        // Peek and insert are two steps: a response that wins this race is older by a write, and
        // `fresh_at` refuses it by its count.
        if writes < newest && self.copies.peek(&key).is_some_and(|kept| kept.writes > writes) {
            return;
        }
        self.copies.insert(key, CachedResponse { value, at: now, writes });
    }

    pub(crate) fn fresh_at(
        &self,
        now: Moment,
        key: CallKey,
        fresh: Duration,
        writes: u64,
    ) -> Option<T> {
        let copy = self.copies.get(&key)?;
        (copy.writes == writes && now.since(copy.at) < fresh).then_some(copy.value)
    }

    /// The cached response if it is at most `stale` old, whether or not a write came since.
    pub fn stale(&self, key: CallKey, stale: Duration, writes: u64) -> Option<StaleResponse<T>> {
        let copy = self.copies.get(&key)?;
        let age = self.clock.now().since(copy.at);
        (age <= stale).then_some(StaleResponse {
            value: copy.value,
            age,
            before_a_write: copy.writes != writes,
        })
    }

    /// How many responses are cached.
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::Keys;
    use super::*;
    use serde_json::json;

    fn copies(bytes: u64) -> (ResponseCache<String>, Clock, CallKey) {
        let clock = Clock::manual();
        (
            ResponseCache::new(bytes, String::len, clock.clone()).unwrap(),
            clock,
            Keys::default().key(&[], &json!({})),
        )
    }

    #[test]
    fn an_answer_is_fresh_then_stale_then_gone() {
        let (copies, clock, key) = copies(10_000);
        let (fresh, stale) = (Duration::from_secs(30), Duration::from_secs(3600));
        copies.keep(key, "v".into(), 0);

        clock.advance(Duration::from_secs(29));
        assert_eq!(copies.fresh(key, fresh, 0), Some("v".into()));
        clock.advance(Duration::from_secs(1));
        assert_eq!(copies.fresh(key, fresh, 0), None);
        assert_eq!(
            copies.stale(key, stale, 0),
            Some(StaleResponse { value: "v".into(), age: fresh, before_a_write: false })
        );
        clock.advance(stale);
        assert_eq!(copies.stale(key, stale, 0), None);
    }

    #[test]
    fn a_write_ends_freshness_but_not_the_rescue() {
        let (copies, _, key) = copies(10_000);
        copies.keep(key, "v".into(), 4);

        assert_eq!(copies.fresh(key, Duration::from_secs(30), 5), None);
        assert!(
            copies.stale(key, Duration::from_secs(30), 5).is_some_and(|stale| stale.before_a_write)
        );
    }

    #[test]
    fn what_was_read_before_a_write_does_not_replace_what_was_read_after_it() {
        let (copies, _, key) = copies(10_000);
        copies.keep(key, "new".into(), 1);
        copies.keep(key, "old".into(), 0);
        assert_eq!(copies.fresh(key, Duration::from_secs(30), 1), Some("new".into()));

        copies.keep(key, "newer".into(), 1);
        assert_eq!(copies.fresh(key, Duration::from_secs(30), 1), Some("newer".into()));
    }

    #[test]
    fn memory_is_bounded_by_weight() {
        let (copies, _, _) = copies(100_000);
        let keys = Keys::default();
        for n in 0..10_000 {
            copies.keep(keys.key(&[], &json!(n)), "x".repeat(1000), 0);
        }

        assert!(copies.len() <= 100, "{}", copies.len());
    }
}
