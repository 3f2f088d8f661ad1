//! Decides which signals a running call can receive from outside: its client is being asked a
//! question, its client has left, no further attempt makes sense.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::time::clock::{Clock, Moment};

/// How long a call may wait for replies of its own client in all, unless set: people are slower
/// than servers.
const QUESTION_TIME: Duration = Duration::from_secs(600);

/// The handle of a running call. The code that made the call keeps a clone of the `Arc`.
#[derive(Debug, Default)]
pub struct CallControl {
    /// Created by the first question: most calls ask their client nothing and need no clock.
    clock: OnceLock<Clock>,
    state: Mutex<ControlState>,
    answered: Notify,
}

#[derive(Debug)]
struct ControlState {
    /// How long the call may wait for its client, over all questions together.
    question_time: Duration,
    /// The number of questions that the client has not answered yet; `since` is when the first of
    /// them was asked.
    open: u32,
    since: Moment,
    /// How long questions were open before `since`.
    asked: Duration,
    is_last: bool,
    has_left: bool,
    /// The number of the ledger entry whose answer this call gets.
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

    /// Bounds the time that the client may take for questions, over all of them together.
    pub fn limit_questions(&self, limit: Duration) {
        self.state().question_time = limit;
    }

    /// Notes a question to the client: until the guard is dropped, the deadline of the call stands
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
            // Woken tasks take this lock at once: it is released before they are woken.
            drop(state);
            self.answered.notify_waiters();
        }
    }

    /// How long questions to the client were open so far, over all of them together.
    pub fn asked(&self) -> Duration {
        match self.lost_time() {
            QuestionTime::Open(left) => self.state().question_time.saturating_sub(left),
            QuestionTime::Answered(lost) => lost,
        }
    }

    /// The time that the call has lost to questions.
    pub(crate) fn lost_time(&self) -> QuestionTime {
        // No clock means no question so far. The common case takes no lock.
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
            // `notify_waiters` stores no permit. Registering before the check below means that a
            // reply between the check and the await still wakes this task.
            answered.as_mut().enable();
            if self.state().open == 0 {
                return;
            }
            answered.await;
        }
    }

    /// Makes the attempt in flight the last one: its server was told to stop, or the process shuts
    /// down.
    pub fn make_last(&self) {
        self.state().is_last = true;
    }

    pub(crate) fn is_last(&self) -> bool {
        self.state().is_last
    }

    /// Notes that the client has left: it cancelled, or its connection ended. The call may run on
    /// as a detached call.
    pub fn leave(&self) {
        self.state().has_left = true;
    }

    /// Notes that the client has reconnected and reads on where it had left.
    pub fn come_back(&self) {
        self.state().has_left = false;
    }

    /// Notes the number of the ledger entry whose answer this call gets.
    pub(crate) fn enter(&self, number: u64) {
        self.state().entry = number;
    }

    pub(crate) fn entry(&self) -> u64 {
        self.state().entry
    }

    /// Whether the client has left.
    pub fn has_left(&self) -> bool {
        self.state().has_left
    }
}

/// The time that a call has lost to questions.
pub(crate) enum QuestionTime {
    /// A question is open, and may stay open for this long.
    Open(Duration),
    /// All questions are answered or have used up their time; they took this long in all.
    Answered(Duration),
}

/// A question that the client has not answered yet.
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
