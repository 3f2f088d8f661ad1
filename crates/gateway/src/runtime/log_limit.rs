//! Decides which log lines are left out: those of one kind, about one server, that come too fast.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// Lines of a kind that may come at once.
const BURST: u32 = 100;
/// How long a further one takes to be allowed.
const EACH: Duration = Duration::from_millis(500);
/// Kinds that are remembered; the oldest are forgotten.
const KINDS: usize = 1024;

/// Where a line comes from: a file of the sources, and its line.
type LineSource = (&'static str, u32);

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineVerdict {
    /// It is written; so many of its kind were left out before it.
    Written(u64),
    /// It is left out.
    LeftOut,
}

/// The lines of each kind so far.
#[derive(Default)]
pub(super) struct LineLimit {
    kinds: HashMap<(LineSource, String), KindOfLine>,
}

struct KindOfLine {
    room: u32,
    since: SystemTime,
    left_out: u64,
}

impl LineLimit {
    pub(super) fn judge(&mut self, from: LineSource, server: &str, now: SystemTime) -> LineVerdict {
        if self.kinds.len() >= KINDS {
            self.forget_idle(now);
        }
        let fresh = || KindOfLine { room: BURST, since: now, left_out: 0 };
        let kind = self.kinds.entry((from, server.to_owned())).or_insert_with(fresh);
        kind.refill(now);
        if kind.room == 0 {
            kind.left_out += 1;
            return LineVerdict::LeftOut;
        }
        kind.room -= 1;
        LineVerdict::Written(std::mem::take(&mut kind.left_out))
    }

    /// Forgets the kinds that nothing was left out of of late; all of them, if that is none.
    fn forget_idle(&mut self, now: SystemTime) {
        self.kinds.retain(|_, kind| {
            kind.refill(now);
            kind.room < BURST
        });
        if self.kinds.len() >= KINDS {
            self.kinds.clear();
        }
    }
}

impl KindOfLine {
    fn refill(&mut self, now: SystemTime) {
        // A clock that was set back counts as one that stands.
        let passed = now.duration_since(self.since).unwrap_or_default();
        let more = u32::try_from(passed.as_millis() / EACH.as_millis()).unwrap_or(u32::MAX);
        if more > 0 || now < self.since {
            self.room = self.room.saturating_add(more).min(BURST);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_kind_that_come_too_fast_are_left_out_and_counted() {
        let (mut limit, start) = (LineLimit::default(), SystemTime::UNIX_EPOCH);
        let mut judge =
            |line, server, after: Duration| limit.judge(("a.rs", line), server, start + after);
        for _ in 0..BURST {
            assert_eq!(judge(1, "s", Duration::ZERO), LineVerdict::Written(0));
        }
        for _ in 0..7 {
            assert_eq!(judge(1, "s", Duration::ZERO), LineVerdict::LeftOut);
        }
        // Another server, and another line, have room of their own.
        assert_eq!(judge(1, "t", Duration::ZERO), LineVerdict::Written(0));
        assert_eq!(judge(2, "s", Duration::ZERO), LineVerdict::Written(0));
        assert_eq!(judge(1, "s", EACH), LineVerdict::Written(7));
        assert_eq!(judge(1, "s", EACH), LineVerdict::LeftOut);
    }

    #[test]
    fn the_kinds_that_are_remembered_are_bounded() {
        let (mut limit, now) = (LineLimit::default(), SystemTime::UNIX_EPOCH);
        for number in 0..10 * KINDS {
            limit.judge(("a.rs", 1), &number.to_string(), now);
            assert!(limit.kinds.len() <= KINDS);
        }
    }
}
