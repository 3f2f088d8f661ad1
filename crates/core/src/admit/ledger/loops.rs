//! Decides when an agent is looping: the same call fails again and again in one session.
//!
//! By default only failing calls count and any success resets the count, so that polling and
//! repeated snapshots are left alone. Internal retries are attempts, not calls, and never count;
//! nor does a call that only waited for the answer of an identical one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;

use super::dirty_sessions::DirtySessions;
use super::key::CallKey;
use crate::model::policy::loops::{LONGEST_WINDOW, LoopMode, LoopPolicy};
use crate::time::clock::{Clock, Moment};

/// How many sessions the guard remembers.
const SESSIONS: usize = 10_000;
/// A call this long ago is no part of a loop.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// A call of a session; a refused call has no key and only advances the window.
#[derive(Clone, Copy, Debug)]
struct RecentCall {
    key: Option<CallKey>,
    at: Moment,
}

/// The loop guard: the recent calls of every session.
///
/// ```
/// # use seawall::{Clock, Keys, LoopGuard, LoopPolicy};
/// # use std::sync::Arc;
/// let (guard, policy) = (LoopGuard::new(Clock::manual()), LoopPolicy::default());
/// let (session, keys): (Arc<str>, _) = ("s1".into(), Keys::default());
/// let key = || keys.key(&["github", "get_issue"], &serde_json::json!({"number": 7}));
/// (0..3).for_each(|_| drop(guard.failed(&policy, &session, key)));
/// assert_eq!(guard.check(&policy, &session, key), Some(3));
/// guard.succeeded(&policy, &session);
/// assert_eq!(guard.check(&policy, &session, key), None);
/// ```
#[derive(Debug)]
pub struct LoopGuard {
    sessions: Cache<Arc<str>, Arc<Mutex<VecDeque<RecentCall>>>>,
    /// Sessions with remembered calls, now or until lately.
    dirty_sessions: DirtySessions,
    clock: Clock,
}

impl LoopGuard {
    /// A guard that has seen no call.
    pub fn new(clock: Clock) -> Self {
        Self { sessions: Cache::new(SESSIONS), dirty_sessions: DirtySessions::new(), clock }
    }

    /// How often the call was repeated, if that is too often for it to run. In the mode `Calls`
    /// this counts the call itself.
    pub fn check(
        &self,
        policy: &LoopPolicy,
        session: &Arc<str>,
        key: impl FnOnce() -> CallKey,
    ) -> Option<u32> {
        match policy.mode {
            LoopMode::Off => None,
            LoopMode::Failures => {
                let seen =
                    self.dirty_sessions.is_set(session).then(|| self.sessions.get(session))??;
                let key = key();
                let repeats = self.count(&mut lock(&seen), key);
                // The refused call advances the window: after a while the agent may try for real
                // again.
                (repeats >= policy.repeats)
                    .then(|| self.remember(policy, session, None))
                    .map(|()| repeats)
            }
            LoopMode::Calls => {
                let key = key();
                self.remember(policy, session, Some(key));
                let seen = self.sessions.get(session)?;
                let repeats = self.count(&mut lock(&seen), key);
                (repeats >= policy.repeats).then_some(repeats)
            }
        }
    }

    /// Notes that a call of the session failed, and returns how often it has failed.
    pub fn failed(
        &self,
        policy: &LoopPolicy,
        session: &Arc<str>,
        key: impl FnOnce() -> CallKey,
    ) -> u32 {
        if policy.mode != LoopMode::Failures {
            return 1;
        }
        let key = key();
        self.remember(policy, session, Some(key));
        self.sessions.get(session).map_or(1, |seen| self.count(&mut lock(&seen), key))
    }

    /// Notes that a call of the session succeeded: the calls that failed before may work now.
    pub fn succeeded(&self, policy: &LoopPolicy, session: &Arc<str>) {
        if policy.mode == LoopMode::Failures && self.dirty_sessions.is_set(session) {
            // Removed before the mark is cleared: a failure noted in between renews the mark, which
            // stays.
            self.sessions.remove(session);
            // Older calls do not count, so no call that counts is behind a mark of this age.
            self.dirty_sessions.wipe_older(session, FORGOTTEN_AFTER, &self.clock);
        }
    }

    fn remember(&self, policy: &LoopPolicy, session: &Arc<str>, key: Option<CallKey>) {
        let now = self.clock.now();
        self.dirty_sessions.set(session, now);
        let fresh = || Ok::<_, std::convert::Infallible>(Arc::default());
        let Ok(seen) = self.sessions.get_or_insert_with(session, fresh);
        let mut seen = lock(&seen);
        // Clamped although `LoopPolicy::validate` bounds it: a guard used alone may get an
        // unchecked policy, and its memory and this loop stay bounded.
        let window = policy.window.clamp(1, LONGEST_WINDOW);
        while seen.len() >= usize::try_from(window).unwrap_or(usize::MAX) {
            seen.pop_front();
        }
        seen.push_back(RecentCall { key, at: now });
    }

    fn count(&self, seen: &mut VecDeque<RecentCall>, key: CallKey) -> u32 {
        let now = self.clock.now();
        seen.retain(|seen| now.since(seen.at) < FORGOTTEN_AFTER);
        u32::try_from(seen.iter().filter(|seen| seen.key == Some(key)).count()).unwrap_or(u32::MAX)
    }
}

fn lock(seen: &Mutex<VecDeque<RecentCall>>) -> std::sync::MutexGuard<'_, VecDeque<RecentCall>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::key::Keys;
    use super::*;
    use serde_json::json;

    struct Session {
        guard: LoopGuard,
        keys: Keys,
        policy: LoopPolicy,
        clock: Clock,
    }

    impl Session {
        fn new(mode: LoopMode) -> Self {
            let clock = Clock::manual();
            let policy = LoopPolicy { mode, ..LoopPolicy::default() };
            Self { guard: LoopGuard::new(clock.clone()), keys: Keys::default(), policy, clock }
        }

        fn check(&self, n: u32) -> Option<u32> {
            self.guard.check(&self.policy, &"s".into(), || self.keys.key(&["t"], &json!(n)))
        }

        fn fail(&self, n: u32) {
            self.guard.failed(&self.policy, &"s".into(), || self.keys.key(&["t"], &json!(n)));
        }
    }

    #[test]
    fn three_identical_failures_stop_the_fourth_call() {
        let session = Session::new(LoopMode::Failures);
        for _ in 0..3 {
            assert_eq!(session.check(1), None);
            session.fail(1);
        }

        assert_eq!(session.check(1), Some(3));
        assert_eq!(session.check(2), None);
    }

    #[test]
    fn any_success_starts_afresh() {
        let session = Session::new(LoopMode::Failures);
        (0..3).for_each(|_| session.fail(1));

        session.guard.succeeded(&session.policy, &"s".into());

        assert_eq!(session.check(1), None);
    }

    #[test]
    fn a_success_long_after_does_not_hide_what_fails_from_then_on() {
        let session = Session::new(LoopMode::Failures);
        (0..3).for_each(|_| session.fail(1));
        session.clock.advance(2 * FORGOTTEN_AFTER);
        session.guard.succeeded(&session.policy, &"s".into());
        assert!(!session.guard.dirty_sessions.is_set("s"), "quiet again, and cheap");

        (0..3).for_each(|_| session.fail(1));

        assert_eq!(session.check(1), Some(3));
    }

    #[test]
    fn a_loop_is_let_through_again_after_a_while() {
        let session = Session::new(LoopMode::Failures);
        (0..3).for_each(|_| session.fail(1));

        let refused = (0..).take_while(|_| session.check(1).is_some()).count();
        assert_eq!(refused, 8, "refused calls move the window of ten on");

        (0..3).for_each(|_| session.fail(1));
        session.clock.advance(FORGOTTEN_AFTER);
        assert_eq!(session.check(1), None);
    }

    #[test]
    fn counting_calls_stops_the_third_even_when_others_lie_between() {
        let session = Session::new(LoopMode::Calls);

        let answers: Vec<_> = [1, 2, 1, 2, 1].map(|n| session.check(n)).into();

        assert_eq!(answers, [None, None, None, None, Some(3)]);
    }

    #[test]
    fn off_is_off_and_bad_settings_name_their_field() {
        let session = Session { policy: LoopPolicy::OFF, ..Session::new(LoopMode::Off) };
        assert!((0..20).all(|_| session.check(1).is_none()));

        let field = |policy: LoopPolicy| policy.validate().unwrap_err().field;
        assert_eq!(field(LoopPolicy { repeats: 1, ..LoopPolicy::OFF }), "repeats");
        assert_eq!(field(LoopPolicy { repeats: 11, ..LoopPolicy::OFF }), "repeats");
        assert_eq!(field(LoopPolicy { window: 0, ..LoopPolicy::OFF }), "window");
        assert_eq!(field(LoopPolicy { window: u32::MAX, ..LoopPolicy::OFF }), "window");
    }
}
