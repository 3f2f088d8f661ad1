//! Decides what a running call can be told from outside: that its client is being asked something,
//! that its client has gone, that no further attempt makes sense.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::time::clock::{Clock, Moment};

/// How long a call may wait for its own client in all, unless set: people are slower than servers.
const QUESTION_TIME: Duration = Duration::from_secs(600);

/// The handle of a call that runs. Whoever made the call keeps a clone of it.
#[derive(Debug, Default)]
pub struct CallControl {
    /// Most calls ask their client nothing, and then no clock is needed.
    clock: OnceLock<Clock>,
    state: Mutex<ControlState>,
    answered: Notify,
}

#[derive(Debug)]
struct ControlState {
    /// How long the client may be waited for, over all questions together.
    question_time: Duration,
    /// Questions that the client has not answered, and since when there is one.
    open: u32,
    since: Moment,
    /// How long questions were open before that.
    asked: Duration,
    is_last: bool,
    has_left: bool,
    /// The number in the ledger of the call whose answer it gets.
    entry: u64,
}

impl Default for ControlState {
    fn default() -> Self {
        let (since, asked) = (Moment::default(), Duration::ZERO);
        Self {
            question_time: QUESTION_TIME,
            open: 0,
            since,
            asked,
            is_last: false,
            has_left: false,
            entry: 0,
        }
    }
}

impl CallControl {
    fn state(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        self.clock.get_or_init(Clock::default).now()
    }

    /// Bounds the time that questions to the client may take, over all of them together.
    pub fn limit_questions(&self, limit: Duration) {
        self.state().question_time = limit;
    }

    /// The client is asked something: until the guard is dropped, the clock of the call stands
    /// still.
    pub fn question(self: &Arc<Self>) -> Question {
        let now = self.now();
        let mut state = self.state();
        if state.open == 0 {
            state.since = now;
        }
        state.open += 1;
        drop(state);
        Question { control: Arc::clone(self) }
    }

    fn end_question(&self) {
        let now = self.now();
        let mut state = self.state();
        state.open = state.open.saturating_sub(1);
        if state.open == 0 {
            let since = state.since;
            state.asked += now.since(since);
            drop(state);
            self.answered.notify_waiters();
        }
    }

    /// How long the client has been asked something, over all questions together.
    pub fn asked(&self) -> Duration {
        match self.lost_time() {
            QuestionTime::Open(left) => self.state().question_time.saturating_sub(left),
            QuestionTime::Answered(lost) => lost,
        }
    }

    /// The time that a call has lost to questions.
    pub(crate) fn lost_time(&self) -> QuestionTime {
        let Some(now) = self.clock.get().map(Clock::now) else {
            return QuestionTime::Answered(Duration::ZERO);
        };
        let state = self.state();
        let open = if state.open > 0 { now.since(state.since) } else { Duration::ZERO };
        let asked = (state.asked + open).min(state.question_time);
        if state.open > 0 && asked < state.question_time {
            return QuestionTime::Open(state.question_time - asked);
        }
        QuestionTime::Answered(asked)
    }

    /// Waits until no question is open.
    pub(crate) async fn answered(&self) {
        loop {
            let answered = self.answered.notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            if self.state().open == 0 {
                return;
            }
            answered.await;
        }
    }

    /// No attempt follows the one that is under way: its server was told to stop, or the process
    /// ends.
    pub fn make_last(&self) {
        self.state().is_last = true;
    }

    pub(crate) fn is_last(&self) -> bool {
        self.state().is_last
    }

    /// The client has gone: it cancelled, or its connection ended. The call may run on.
    pub fn leave(&self) {
        self.state().has_left = true;
    }

    /// The client is there again, to read the answer where it left.
    pub fn come_back(&self) {
        self.state().has_left = false;
    }

    /// Notes under which number the answer it gets is entered in the ledger.
    pub(crate) fn enter(&self, number: u64) {
        self.state().entry = number;
    }

    pub(crate) fn entry(&self) -> u64 {
        self.state().entry
    }

    /// Whether the client has gone.
    pub fn has_left(&self) -> bool {
        self.state().has_left
    }
}

/// What a call has lost to questions.
pub(crate) enum QuestionTime {
    /// A question is open, and may stay so for this long.
    Open(Duration),
    /// All are answered, or have had their time: this much, over all of them.
    Answered(Duration),
}

/// A question to the client that is not answered yet.
#[derive(Debug)]
#[must_use = "the question is over when this is dropped"]
pub struct Question {
    control: Arc<CallControl>,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.control.end_question();
    }
}
