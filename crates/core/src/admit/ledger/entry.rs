//! Decides what two identical calls of one caller are to each other: the same one asked again, two
//! intents of one turn, or one after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::super::key::CallKey;
use super::in_flight::{Entering, KEPT};
use crate::model::answer::Outcome;
use crate::model::control::CallControl;
use crate::time::clock::Moment;

/// How long the answer of a write is waited for whose server was told to stop: below the five
/// seconds that the least patient clients wait.
const STOPPED_WAIT: Duration = Duration::from_secs(4);

/// How far the first of them is, as those see it who wait for it.
#[derive(Debug)]
pub(super) enum LeadState<T> {
    Running,
    /// It has an answer for all.
    Landed(Outcome<T>),
    /// It ended, and what it came to is its own.
    Over,
}

/// What is known of one exact call of one caller.
#[derive(Debug)]
pub(super) struct LedgerEntry<T> {
    pub(super) number: u64,
    began: Moment,
    copy_key: CallKey,
    writes: u64,
    is_replayable: bool,
    shares: bool,
    /// Whether its answer may be given to somebody who asks again.
    takes: bool,
    control: Option<Arc<CallControl>>,
    /// Those who wait for it, if anybody does.
    waiting: Option<watch::Sender<LeadState<T>>>,
    /// Somebody has asked again.
    is_joined: bool,
    /// When it was asked for last.
    asked: Moment,
    /// After how long a client that says nothing asked again, now or earlier: it may give up as
    /// silently as long after that.
    patience: Option<Duration>,
    /// Its answer was written, and its client may have given up by then.
    is_suspect: bool,
    /// How long this one has waited until it asked again without a word.
    silence: Option<Duration>,
    answered: Option<LateAnswer<T>>,
}

#[derive(Debug)]
struct LateAnswer<T> {
    at: Moment,
    /// `None`: there was no room for it, or nobody else may have it.
    outcome: Option<Outcome<T>>,
    bytes: usize,
    /// When it was first delivered to somebody who asked again.
    delivered: Option<Moment>,
    /// It is a question back to the client: the call goes on when that is answered.
    is_question: bool,
}

/// What a call gets that waits for an identical one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowerGets {
    /// The same answer, as everybody who asks at the same time.
    Share,
    /// The answer, whose client has gone.
    Answer,
    /// Only the word that it was executed: the answer may be somebody else's.
    Word,
    /// Its turn: it is a call in its own right.
    Turn,
}

impl FollowerGets {
    /// Whether it is answered with what the identical call comes to.
    pub(crate) fn is_answered(self) -> bool {
        matches!(self, Self::Share | Self::Answer)
    }
}

/// What an identical call finds.
pub(super) enum Meeting<T> {
    /// The first is over and done with.
    Over,
    /// Both may run.
    Aside,
    /// The first runs, and this one waits.
    Behind { gets: FollowerGets, patience: Option<Duration> },
    /// The first was answered, and nobody has taken that.
    Late(Outcome<T>, Duration),
    /// The same, but the answer is not to be had.
    Gone(Duration),
}

impl<T: Clone> LedgerEntry<T> {
    /// `patience`: how long its client waits, if it is known for giving up without a word.
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

    /// Whether its client is known to have gone.
    fn has_left(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.has_left())
    }

    /// Whether its client has gone: it is known to have, or it has been silent for as long as
    /// nobody asks twice.
    fn is_left(&self, after: Duration, now: Moment) -> bool {
        self.has_left() || now.since(self.began) >= after
    }

    /// What an identical call finds now.
    pub(super) fn meet(&mut self, call: &Entering<'_>, last_write: u64, now: Moment) -> Meeting<T> {
        match &self.answered {
            _ if call.is_replayable && call.copy_key != self.copy_key => Meeting::Aside,
            // What was read before a write of the same caller is no answer to what it reads after
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

    /// Who has waited for its turn takes the place of a client that has gone: the server has done
    /// it once already, and nobody else waits for that.
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
        // What goes on with a call is its own affair.
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
            // A server that was told to stop may never answer: nobody waits long for that.
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
            // It is looked again now and then whether the first one's client is still there.
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
        // One whose client is still there is being delivered right now: who asks already asks for
        // another.
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

    /// A write whose client was asked something is under way: whoever makes it anew is asked the
    /// same. Clients that cannot be told apart are not asked each other's questions: they begin
    /// anew, as the protocol lets them.
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

    /// A client that cancels says when it goes; of one that only asks again it is noted how long it
    /// waited.
    fn note_repeat(&mut self, now: Moment) {
        let is_silent = !self.has_left();
        let waited = now.since(self.asked);
        self.asked = now;
        if is_silent {
            self.patience = self.patience.max(Some(waited));
            self.silence = Some(waited);
        }
    }

    /// How long its client waited until it asked again without a word; once.
    pub(super) fn silence(&mut self) -> Option<Duration> {
        self.silence.take()
    }

    /// Whether whoever asked last may have given up since, without a word. How long it thought
    /// before it asked again is not known, so half of that time is enough.
    fn may_be_left(&self, now: Moment) -> bool {
        !self.is_replayable
            && self.patience.is_some_and(|patience| now.since(self.asked) >= patience / 2)
    }

    /// When a client that asked again without a word is answered at the latest, to be in time.
    pub(super) fn gives_up(&self) -> Option<Duration> {
        self.patience.map(|patience| patience / 2)
    }

    /// Whether whoever asks has read the answer and means another call: nobody asked again while it
    /// ran, and a client that gives up without a word would have asked again by now.
    fn is_another_intent(&self, now: Moment) -> bool {
        let is_late = |patience: Duration| now.since(self.began) > patience + patience / 2;
        self.is_suspect && !self.is_joined && self.patience.is_some_and(is_late)
    }

    /// Waits with the others.
    pub(super) fn subscribe(&mut self) -> watch::Receiver<LeadState<T>> {
        self.waiting.get_or_insert_with(|| watch::channel(LeadState::Running).0).subscribe()
    }

    /// Tells those who wait.
    pub(super) fn tell(&mut self, shared: Option<&Outcome<T>>) {
        if let Some(waiting) = self.waiting.take() {
            waiting.send_replace(
                shared.map_or(LeadState::Over, |outcome| LeadState::Landed(outcome.clone())),
            );
        }
    }

    /// Keeps its answer until it was delivered; gives the bytes that it takes.
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

    /// The answer was delivered to one client; whether nobody else can mean it.
    pub(super) fn is_over_when_delivered(&mut self, now: Moment) -> bool {
        let (is_joined, may_be_left) = (self.is_joined, self.may_be_left(now));
        self.is_suspect = may_be_left;
        let Some(answered) = self.answered.as_mut().filter(|_| !may_be_left) else { return false };
        answered.delivered.get_or_insert(now);
        // Several may have asked again at once; and a question is not the end.
        !is_joined && !answered.is_question
    }
}

impl<T> LedgerEntry<T> {
    /// How many bytes its answer takes.
    pub(super) fn bytes(&self) -> usize {
        self.answered.as_ref().map_or(0, |answered| answered.bytes)
    }

    /// Whether its answer has waited long enough.
    pub(super) fn is_expired(&self, now: Moment) -> bool {
        self.answered.as_ref().is_some_and(|answered| now.since(answered.at) >= KEPT)
    }

    /// Makes room: that it was answered is remembered, and the answer is not. Gives the bytes that
    /// are free now.
    pub(super) fn empty(&mut self) -> usize {
        let Some(answered) = &mut self.answered else { return 0 };
        answered.outcome = None;
        std::mem::take(&mut answered.bytes)
    }
}

impl<T> Meeting<T> {
    /// Notes that somebody has taken the answer, and when.
    fn inspect_taken(self, is_joined: &mut bool, asked: &mut Moment, now: Moment) -> Self {
        if matches!(self, Self::Late(..)) {
            *is_joined = true;
            *asked = now;
        }
        self
    }
}
