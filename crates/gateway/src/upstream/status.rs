//! The observed state of a server: whether it is up, since when, its last exit, its last error and
//! the end of its stderr.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::stderr_limit::StderrLimit;

/// The last lines of stderr that are kept.
const STDERR_KEPT: usize = 50;
/// The most characters of each line that are kept.
const STDERR_LETTERS: usize = 500;

/// The observed state of one server, over all its connections.
#[derive(Debug, Default)]
pub struct ServerStatus {
    seen: Mutex<Observations>,
    /// The limit for the server's lines in the gateway's log.
    pub(super) flood: StderrLimit,
}

/// Observations of one server.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// Connections that are being opened, or will be once the backoff is over.
    pub starting: usize,
    /// Connections that are open.
    pub open: usize,
    /// When the server's state, as [`word`](Self::word) names it, last changed.
    pub since: Option<Instant>,
    /// The pids of the server's processes.
    pub pids: Vec<u32>,
    /// How often a supervisor reopened a connection that had been open.
    pub restarts: u64,
    /// The last exit of a process: its exit code or signal.
    pub last_exit: Option<String>,
    /// The last failure, also after a recovery.
    pub last_error: Option<String>,
    /// Whether a failure came since a connection was last opened.
    is_ill: bool,
    /// Lines on stdout that were no messages.
    pub noise: u64,
    /// Answers to requests that were never sent.
    pub strays: u64,
    /// The last lines of stderr.
    pub stderr: VecDeque<String>,
}

/// Keeps one observation true until it is dropped.
#[derive(Debug)]
pub struct StatusGuard {
    status: Arc<ServerStatus>,
    what: ObservedState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObservedState {
    Starting,
    Open,
    Process(u32),
}

impl ServerStatus {
    /// A copy of the observations.
    pub fn seen(&self) -> Observations {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Observations> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection is being opened.
    pub fn starting(self: &Arc<Self>) -> StatusGuard {
        self.hold(ObservedState::Starting)
    }

    /// A connection is open; `is_again` counts a restart.
    pub fn open(self: &Arc<Self>, is_again: bool) -> StatusGuard {
        self.lock().restarts += u64::from(is_again);
        self.hold(ObservedState::Open)
    }

    /// A process runs.
    pub fn process(self: &Arc<Self>, pid: u32) -> StatusGuard {
        self.hold(ObservedState::Process(pid))
    }

    fn hold(self: &Arc<Self>, what: ObservedState) -> StatusGuard {
        self.lock().turn(|seen| seen.change(what, true));
        StatusGuard { status: Arc::clone(self), what }
    }

    /// A process ended by itself.
    pub(crate) fn exited(&self, how: String) {
        self.lock().last_exit = Some(how);
    }

    /// The server failed.
    pub fn failed(&self, why: String) {
        let mut seen = self.lock();
        seen.last_error = Some(why);
        seen.turn(|seen| seen.is_ill = true);
    }

    /// A failure on a connection that goes on.
    pub(crate) fn troubled(&self, why: String) {
        self.lock().last_error = Some(why);
    }

    /// A line on stdout was no message.
    pub fn noise(&self) {
        self.lock().noise += 1;
    }

    /// An answer came for a request that was never sent.
    pub fn stray(&self) {
        self.lock().strays += 1;
    }

    /// A line on stderr, without secrets.
    pub fn said(&self, line: &str) {
        let mut seen = self.lock();
        seen.stderr.push_back(line.chars().take(STDERR_LETTERS).collect());
        if seen.stderr.len() > STDERR_KEPT {
            seen.stderr.pop_front();
        }
    }
}

impl Observations {
    fn change(&mut self, what: ObservedState, is_so: bool) {
        let count =
            |count: &mut usize| *count = if is_so { *count + 1 } else { count.saturating_sub(1) };
        match what {
            ObservedState::Starting => count(&mut self.starting),
            ObservedState::Open => count(&mut self.open),
            ObservedState::Process(pid) if is_so => self.pids.push(pid),
            ObservedState::Process(pid) => self.pids.retain(|known| *known != pid),
        }
        self.is_ill &= !(is_so && what == ObservedState::Open);
    }

    /// Applies a change, and notes the time if the state's word changes.
    fn turn(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.word();
        change(self);
        if self.word() != before {
            self.since = Some(Instant::now());
        }
    }

    /// The state in one word.
    pub fn word(&self) -> &'static str {
        match (self.open, self.starting, self.is_ill) {
            (1.., ..) => "up",
            (0, 1.., false) => "starting",
            (0, 1.., true) => "away",
            (0, 0, true) => "down",
            (0, 0, false) => "resting",
        }
    }
}

impl Drop for StatusGuard {
    fn drop(&mut self) {
        self.status.lock().turn(|seen| seen.change(self.what, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_tells_what_is_held_and_what_went_wrong() {
        let status = Arc::new(ServerStatus::default());
        assert_eq!(status.seen().word(), "resting");
        let starting = status.starting();
        assert_eq!(status.seen().word(), "starting");
        let open = status.open(false);
        drop(starting);
        assert_eq!((status.seen().word(), status.seen().restarts), ("up", 0));
        drop(open);
        status.failed("broke".to_owned());
        assert_eq!(status.seen().word(), "down");
        let _starting = status.starting();
        assert_eq!(status.seen().word(), "away");
        let (_open, _process) = (status.open(true), status.process(7));
        let seen = status.seen();
        assert_eq!((seen.word(), seen.restarts, seen.pids), ("up", 1, vec![7]));
    }

    #[test]
    fn what_a_server_says_is_bounded() {
        let status = ServerStatus::default();
        for number in 0..1_000 {
            status.said(&format!("{number} {}", "x".repeat(10_000)));
        }
        let stderr = status.seen().stderr;
        assert_eq!((stderr.len(), stderr[0].len()), (STDERR_KEPT, STDERR_LETTERS));
        assert!(stderr[49].starts_with("999 "));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_so_since_the_state_changed_and_not_since_another_conversation_came() {
        let status = Arc::new(ServerStatus::default());
        let since = || status.seen().since;
        let open = status.open(false);
        let began = since();
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        drop((status.starting(), status.open(false)));
        assert_eq!((status.seen().word(), since()), ("up", began));
        drop(open);
        assert!(status.seen().word() == "resting" && since() > began);
    }
}
