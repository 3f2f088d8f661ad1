//! Decides how two identical calls of one caller relate: the second repeats the first, both are
//! meant by one turn of a model, or the second follows the first.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::super::key::CallKey;
use super::in_flight::{Entering, KEPT};
use crate::model::answer::Outcome;
use crate::model::control::CallControl;
use crate::time::clock::Moment;

/// How long a repeated write waits for the first one's answer after the server was told to stop:
/// below the five seconds that the least patient clients wait.
const STOPPED_WAIT: Duration = Duration::from_secs(4);

/// The state of the leading call, as its followers see it.
#[derive(Debug)]
pub(super) enum LeadState<T> {
    Running,
    /// The lead has an answer for all followers.
    Landed(Outcome<T>),
    /// The lead ended, and its result is not for its followers.
    Over,
}

/// The ledger entry of one exact call of one caller.
#[derive(Debug)]
pub(super) struct LedgerEntry<T> {
    pub(super) number: u64,
    began: Moment,
    copy_key: CallKey,
    writes: u64,
    is_replayable: bool,
    shares: bool,
    /// Whether the answer may go to a client that repeats the call.
    takes: bool,
    control: Option<Arc<CallControl>>,
    /// Notifies the calls that follow this one; `None` while there are none.
    waiting: Option<watch::Sender<LeadState<T>>>,
    /// An identical call has joined this one or taken its answer.
    is_joined: bool,
    /// When the call was made last: its start, or its latest repeat.
    asked: Moment,
    /// How long the client waits before it repeats the call without having cancelled it, as seen
    /// now or earlier: it may give up as silently after that long again.
    patience: Option<Duration>,
    /// The answer was written to the client, but the client may have given up by then.
    is_suspect: bool,
    /// How long the client of this call waited until it repeated the call without cancelling.
    silence: Option<Duration>,
    answered: Option<LateAnswer<T>>,
}

#[derive(Debug)]
struct LateAnswer<T> {
    at: Moment,
    /// `None` if there was no room for the answer, or if no other client may have it.
    outcome: Option<Outcome<T>>,
    bytes: usize,
    /// When the answer was first delivered.
    delivered: Option<Moment>,
    /// The answer is a question back to the client: the call goes on when the client answers.
    is_question: bool,
}

/// The share of the first call's result that an identical follower gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowerGets {
    /// The same answer, as every concurrent identical call gets it (single flight).
    Share,
    /// The answer of a call whose client has gone.
    Answer,
    /// Only the news that the write was executed: the answer may belong to another client.
    Word,
    /// Its turn: it is a call of its own and runs after the first.
    Turn,
}

impl FollowerGets {
    /// Whether the follower is answered with the first call's outcome.
    pub(crate) fn is_answered(self) -> bool {
        matches!(self, Self::Share | Self::Answer)
    }
}

/// How an identical call relates to this entry.
pub(super) enum Meeting<T> {
    /// The first call is finished, and its entry is of no use to the new one.
    Over,
    /// Both calls may run at the same time.
    Aside,
    /// The first call runs, and the new one waits for it.
    Behind { gets: FollowerGets, patience: Option<Duration> },
    /// The first call was answered, and its client has not read the answer.
    Late(Outcome<T>, Duration),
    /// The first call was answered, but the answer was dropped or may not be shared.
    Gone(Duration),
}

impl<T: Clone> LedgerEntry<T> {
    /// `patience` is how long the client waits, if it is known to give up without cancelling.
    pub(super) fn new(
        number: u64,
        call: &Entering<'_>,
        patience: Option<Duration>,
        now: Moment,
    ) -> Self {
        Self {
            number,
            began: now,
            copy_key: call.copy_key,
            writes: call.writes,
            is_replayable: call.is_replayable,
            shares: call.shares,
            takes: call.rejoin.is_some_and(|rejoin| rejoin.takes),
            control: call.control.cloned(),
            waiting: None,
            is_joined: false,
            asked: now,
            patience,
            is_suspect: false,
            silence: None,
            answered: None,
        }
    }

    /// Whether the client has cancelled or disconnected.
    fn has_left(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.has_left())
    }

    /// Whether the client counts as gone: it has cancelled or disconnected, or the call has run for
    /// `after`, sooner than which a client that repeats it means two calls.
    fn is_left(&self, after: Duration, now: Moment) -> bool {
        self.has_left() || now.since(self.began) >= after
    }

    /// Decides how the identical `call` relates to this entry now.
    pub(super) fn meet(&mut self, call: &Entering<'_>, last_write: u64, now: Moment) -> Meeting<T> {
        match &self.answered {
            _ if call.is_replayable && call.copy_key != self.copy_key => Meeting::Aside,
            // A read answered before a write of the same caller does not answer a read made after
            // it.
            Some(_) if self.number < last_write => Meeting::Over,
            None if self.number < last_write => Meeting::Aside,
            Some(_) if call.is_intent => self.hand_on(call, now),
            Some(answered) => self.meet_answered(answered, call, now).inspect_taken(
                &mut self.is_joined,
                &mut self.asked,
                now,
            ),
            None => self.meet_running(call, now),
        }
    }

    /// Hands an unread answer to a call that waited for its turn, if the first client has gone: the
    /// server has executed the call once already, and no other client waits for that answer.
    fn hand_on(&mut self, call: &Entering<'_>, now: Moment) -> Meeting<T> {
        let is_there = !call.control.is_some_and(|control| control.has_left());
        let is_free = self.has_left() && !self.is_joined && is_there;
        let takes = self.takes && call.rejoin.is_some_and(|rejoin| rejoin.takes);
        match &self.answered {
            Some(LateAnswer { at, outcome: Some(outcome), .. }) if is_free && takes => {
                self.control = call.control.cloned();
                self.began = now;
                Meeting::Late(outcome.clone(), now.since(*at))
            }
            _ => Meeting::Over,
        }
    }

    fn meet_running(&mut self, call: &Entering<'_>, now: Moment) -> Meeting<T> {
        // A call that brings answers to a question continues its own call and joins no other.
        if call.rejoin.is_some_and(|rejoin| rejoin.continues) {
            return Meeting::Aside;
        }
        if call.shares && self.shares && self.writes == call.writes {
            return Meeting::Behind { gets: FollowerGets::Share, patience: None };
        }
        let Some(rejoin) = call.rejoin else { return Meeting::Aside };
        let is_left =
            if call.is_second { self.has_left() } else { self.is_left(rejoin.after, now) };
        let is_repeat = !call.is_intent && is_left;
        if is_repeat && self.takes && rejoin.takes {
            self.is_joined = true;
            self.note_repeat(now);
            // A server that was told to stop may never answer, so the follower waits only briefly.
            let is_stopped = self.control.as_ref().is_some_and(|control| control.is_last());
            let patience =
                is_stopped.then_some(if call.is_replayable { rejoin.after } else { STOPPED_WAIT });
            return Meeting::Behind { gets: FollowerGets::Answer, patience };
        }
        if call.is_replayable {
            return Meeting::Aside;
        }
        match is_repeat {
            true => Meeting::Behind { gets: FollowerGets::Word, patience: None },
            // The follower wakes every `after` to see whether the first call's client has gone
            // since.
            false => Meeting::Behind { gets: FollowerGets::Turn, patience: Some(rejoin.after) },
        }
    }

    fn meet_answered(
        &self,
        answered: &LateAnswer<T>,
        call: &Entering<'_>,
        now: Moment,
    ) -> Meeting<T> {
        let Some(rejoin) = call.rejoin.filter(|rejoin| !rejoin.continues) else {
            return Meeting::Over;
        };
        if answered.is_question {
            return self.meet_question(answered, call, now);
        }
        let is_taken = answered.delivered.is_some_and(|at| now.since(at) >= rejoin.after);
        if self.is_another_intent(now) {
            return Meeting::Over;
        }
        // While the first client is connected, its answer is being delivered right now: an
        // identical call made by then is another call.
        let is_late = self.is_joined || self.is_left(rejoin.after, now);
        if self.is_expired(now) || is_taken || !is_late {
            return Meeting::Over;
        }
        let age = now.since(answered.at);
        match &answered.outcome {
            Some(outcome) if self.takes && rejoin.takes => Meeting::Late(outcome.clone(), age),
            _ if call.is_replayable => Meeting::Over,
            _ => Meeting::Gone(age),
        }
    }

    /// A write that has asked its client a question is still under way: a client that repeats the
    /// write is asked the same question. Clients that cannot be told apart do not get each other's
    /// questions: their calls start over, as the protocol allows.
    fn meet_question(
        &self,
        answered: &LateAnswer<T>,
        call: &Entering<'_>,
        now: Moment,
    ) -> Meeting<T> {
        let is_repeat = call.rejoin.is_some_and(|rejoin| self.is_left(rejoin.after, now));
        let takes = self.takes && call.rejoin.is_some_and(|rejoin| rejoin.takes);
        match &answered.outcome {
            Some(outcome) if takes && is_repeat && !call.is_replayable && !self.is_expired(now) => {
                Meeting::Late(outcome.clone(), now.since(answered.at))
            }
            _ => Meeting::Over,
        }
    }

    /// Notes a repeat. A client that cancels announces that it gives up; for a client that only
    /// repeats the call, the entry learns how long it waited.
    fn note_repeat(&mut self, now: Moment) {
        let is_silent = !self.has_left();
        let waited = now.since(self.asked);
        self.asked = now;
        if is_silent {
            self.patience = self.patience.max(Some(waited));
            self.silence = Some(waited);
        }
    }

    /// How long the client waited until it repeated the call without cancelling; taken once.
    pub(super) fn silence(&mut self) -> Option<Duration> {
        self.silence.take()
    }

    /// Whether the client that made the call last may have given up since, without cancelling. How
    /// long it paused before its repeat is unknown, so half of its patience is enough.
    fn may_be_left(&self, now: Moment) -> bool {
        !self.is_replayable
            && self.patience.is_some_and(|patience| now.since(self.asked) >= patience / 2)
    }

    /// How soon a client that repeats calls without cancelling must be answered to be in time.
    pub(super) fn gives_up(&self) -> Option<Duration> {
        self.patience.map(|patience| patience / 2)
    }

    /// Whether the client has read the answer and now makes another call: the call was not repeated
    /// while it ran, and a client that gives up silently would have repeated it by now.
    fn is_another_intent(&self, now: Moment) -> bool {
        let is_late = |patience: Duration| now.since(self.began) > patience + patience / 2;
        self.is_suspect && !self.is_joined && self.patience.is_some_and(is_late)
    }

    /// Subscribes a follower to the end of this call.
    pub(super) fn subscribe(&mut self) -> watch::Receiver<LeadState<T>> {
        self.waiting.get_or_insert_with(|| watch::channel(LeadState::Running).0).subscribe()
    }

    /// Tells all followers how the call ended.
    pub(super) fn tell(&mut self, shared: Option<&Outcome<T>>) {
        if let Some(waiting) = self.waiting.take() {
            waiting.send_replace(
                shared.map_or(LeadState::Over, |outcome| LeadState::Landed(outcome.clone())),
            );
        }
    }

    /// Keeps the answer until it is delivered; returns the bytes that it takes.
    pub(super) fn keep(
        &mut self,
        outcome: &Outcome<T>,
        bytes: usize,
        is_question: bool,
        now: Moment,
    ) -> usize {
        let outcome = self.takes.then(|| outcome.clone());
        let bytes = if outcome.is_some() { bytes } else { 0 };
        self.answered = Some(LateAnswer { at: now, outcome, bytes, delivered: None, is_question });
        bytes
    }

    /// Notes that the answer was delivered to one client; `true` if no other client can be waiting
    /// for it.
    pub(super) fn is_over_when_delivered(&mut self, now: Moment) -> bool {
        let (is_joined, may_be_left) = (self.is_joined, self.may_be_left(now));
        self.is_suspect = may_be_left;
        let Some(answered) = self.answered.as_mut().filter(|_| !may_be_left) else { return false };
        answered.delivered.get_or_insert(now);
        // Several repeats may wait at once, and a call that asked a question goes on.
        !is_joined && !answered.is_question
    }
}

impl<T> LedgerEntry<T> {
    /// The bytes that the kept answer takes.
    pub(super) fn bytes(&self) -> usize {
        self.answered.as_ref().map_or(0, |answered| answered.bytes)
    }

    /// Whether the answer has been kept for its full time.
    pub(super) fn is_expired(&self, now: Moment) -> bool {
        self.answered.as_ref().is_some_and(|answered| now.since(answered.at) >= KEPT)
    }

    /// Drops the answer to make room but remembers that the call was answered. Returns the bytes
    /// freed.
    pub(super) fn empty(&mut self) -> usize {
        let Some(answered) = &mut self.answered else { return 0 };
        answered.outcome = None;
        std::mem::take(&mut answered.bytes)
    }
}

impl<T> Meeting<T> {
    /// Notes that a repeat has taken the answer, and when.
    fn inspect_taken(self, is_joined: &mut bool, asked: &mut Moment, now: Moment) -> Self {
        if matches!(self, Self::Late(..)) {
            *is_joined = true;
            *asked = now;
        }
        self
    }
}
