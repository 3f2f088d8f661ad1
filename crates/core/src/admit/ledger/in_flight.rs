//! Decides who asks the server when identical calls of one caller meet, and who gets an answer that
//! nobody has taken.
//!
//! A call is entered when it starts and stays entered until its answer was delivered. Whoever makes
//! the identical call meanwhile has lost the first one, and gets its answer; unless it came so soon
//! that one turn of a model means both. Then a write waits for the first and goes after it, because
//! two of them must not be under way at once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::super::key::{AsItIs, CallKey};
use super::entry::{FollowerGets, LeadState, LedgerEntry, Meeting};
use crate::model::answer::{FallbackBody, Outcome};
use crate::model::call::Rejoin;
use crate::model::control::CallControl;
use crate::time::clock::{Clock, Moment};

/// How long an answer waits for a client that may come back for it.
pub(crate) const KEPT: Duration = Duration::from_secs(60);
/// How many answers wait, and how many bytes they have in all; then the oldest gives way.
const MOST: usize = 256;
const MOST_BYTES: usize = 32 << 20;
/// Of how many that gave way it is remembered that they were there.
const MOST_EMPTY: usize = 1000;

/// Of how many callers something is remembered; then all are learned anew.
const MOST_CALLERS: usize = 1000;

/// What a call brings when it is entered.
#[derive(Clone, Copy)]
pub(crate) struct Entering<'a> {
    pub(crate) key: CallKey,
    /// The key of its answer's copies: what is read with something else said beside the arguments
    /// is another answer.
    pub(crate) copy_key: CallKey,
    /// The server's writes when the call began: who reads after a write does not share with one who
    /// asked before it.
    pub(crate) writes: u64,
    pub(crate) is_replayable: bool,
    pub(crate) is_read: bool,
    /// Its answer may be shared with everybody of this caller who asks at the same time.
    pub(crate) shares: bool,
    pub(crate) rejoin: Option<&'a Rejoin>,
    pub(crate) control: Option<&'a Arc<CallControl>>,
    /// It was made in its own right, and has waited for an identical one to end.
    pub(crate) is_intent: bool,
    /// It came so soon after an identical one that both are meant, unless the other's client turns
    /// out to have gone.
    pub(crate) is_second: bool,
}

/// What is kept of a call that ended.
#[derive(Clone, Copy)]
pub(crate) enum EndedCall<'a, T> {
    Nothing,
    /// Its answer, until that was delivered.
    Answer(&'a Outcome<T>),
    /// What it asks its client, until the client goes on with it.
    Question(&'a Outcome<T>),
}

/// How a call leaves this stage.
pub(crate) enum Entered<'a, T> {
    /// It asks the server, and others may follow it.
    Lead(Lead<'a, T>),
    /// It asks the server beside an identical one, which does no harm.
    Alone,
    /// An identical one is under way.
    Behind(Following<T>),
    /// The answer of an identical one that nobody has taken, and how long ago it came.
    Late(Outcome<T>, Duration),
    /// An identical one was answered this long ago; its answer is gone, or may not be shared.
    Gone(Duration),
}

/// The calls under way, and the answers that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    entries: Mutex<LedgerEntries<T>>,
    weigh: fn(&T) -> usize,
    clock: Clock,
}

type Calls<T> = HashMap<CallKey, LedgerEntry<T>, AsItIs>;

#[derive(Debug)]
struct LedgerEntries<T> {
    calls: Calls<T>,
    /// Those that were answered, the oldest first; some may have been taken since.
    answered: VecDeque<(CallKey, u64)>,
    /// Those whose answers gave way.
    empty: VecDeque<(CallKey, u64)>,
    bytes: usize,
    next: u64,
    callers: HashMap<Arc<str>, CallerNotes>,
    /// Everything with a smaller number was entered before callers were last forgotten.
    forgotten: u64,
}

/// What is remembered of a caller that wrote, or asked again without a word.
#[derive(Debug, Default)]
struct CallerNotes {
    /// Calls with a smaller number were entered before its last write.
    last_write: u64,
    /// The least that it waited before it asked again without a word.
    waited: Option<Duration>,
    /// That was seen twice: it may give up without a word.
    is_silent: bool,
}

impl<T: Clone> InFlight<T> {
    pub(crate) fn new(weigh: fn(&T) -> usize, clock: Clock) -> Self {
        let (calls, answered, empty, callers) = Default::default();
        let entries =
            LedgerEntries { calls, answered, empty, bytes: 0, next: 1, callers, forgotten: 0 };
        Self { entries: Mutex::new(entries), weigh, clock }
    }

    /// Enters a call, or finds an identical one.
    pub(crate) fn enter(&self, call: &Entering<'_>) -> Entered<'_, T> {
        let now = self.clock.now();
        let mut entries = self.lock();
        if !call.is_read {
            entries.note_write(call);
        }
        let LedgerEntries { calls, callers, forgotten, .. } = &mut *entries;
        let Some(entry) = calls.get_mut(&call.key) else {
            return self.lead(&mut entries, call, now);
        };
        let notes =
            call.rejoin.filter(|_| call.is_read).and_then(|rejoin| callers.get(&rejoin.scope));
        // Of whom nothing is remembered any more, it may have written until then.
        let last_write = notes.map_or(*forgotten, |notes| notes.last_write.max(*forgotten));
        match entry.meet(call, if call.is_read { last_write } else { 0 }, now) {
            Meeting::Over => {
                entries.remove(call.key);
                self.lead(&mut entries, call, now)
            }
            Meeting::Aside => Entered::Alone,
            Meeting::Behind { gets, patience } => {
                note_number(call, entry.number);
                let gives_up = entry.gives_up().filter(|_| call.is_replayable);
                let (landing, waited) = (entry.subscribe(), entry.silence());
                entries.note_silence(call, waited);
                Entered::Behind(Following { landing, gets, patience, gives_up })
            }
            Meeting::Late(outcome, age) => {
                note_number(call, entry.number);
                Entered::Late(outcome, age)
            }
            Meeting::Gone(age) => Entered::Gone(age),
        }
    }

    fn lead<'a>(
        &'a self,
        entries: &mut LedgerEntries<T>,
        call: &Entering<'_>,
        now: Moment,
    ) -> Entered<'a, T> {
        let number = entries.next;
        entries.next += 1;
        note_number(call, number);
        // Of a read nothing is kept that was answered, whoever asked for it.
        let notes = call
            .rejoin
            .filter(|_| !call.is_replayable)
            .and_then(|rejoin| entries.callers.get(&rejoin.scope));
        let known = notes.filter(|notes| notes.is_silent).and_then(|notes| notes.waited);
        entries.calls.insert(call.key, LedgerEntry::new(number, call, known, now));
        Entered::Lead(Lead { in_flight: self, key: call.key, number })
    }

    /// An answer was written to a client that was there to read it; `number` is the call's that
    /// brought it.
    pub(crate) fn delivered(&self, key: CallKey, number: u64) {
        let now = self.clock.now();
        let mut entries = self.lock();
        let Some(entry) = entries.calls.get_mut(&key).filter(|entry| entry.number == number) else {
            return;
        };
        if entry.is_over_when_delivered(now) {
            entries.remove(key);
        }
    }

    /// Forgets the answers that nobody came for.
    pub(crate) fn sweep(&self) {
        let now = self.clock.now();
        self.lock().make_room(now);
    }

    fn land(&self, lead: &Lead<'_, T>, shared: Option<&Outcome<T>>, kept: EndedCall<'_, T>) {
        let now = self.clock.now();
        let mut entries = self.lock();
        let Some(entry) =
            entries.calls.get_mut(&lead.key).filter(|entry| entry.number == lead.number)
        else {
            return;
        };
        entry.tell(shared);
        match kept {
            EndedCall::Nothing => entries.remove(lead.key),
            EndedCall::Answer(outcome) | EndedCall::Question(outcome) => {
                let bytes = weight(outcome, self.weigh);
                let bytes = entry.keep(outcome, bytes, matches!(kept, EndedCall::Question(_)), now);
                entries.bytes += bytes;
                entries.answered.push_back((lead.key, lead.number));
                entries.make_room(now);
            }
        }
    }
}

impl<T> InFlight<T> {
    fn lock(&self) -> MutexGuard<'_, LedgerEntries<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note_number(call: &Entering<'_>, number: u64) {
    if let Some(control) = call.control {
        control.enter(number);
    }
}

/// What an answer weighs; a batch's parts are not counted one by one.
fn weight<T>(outcome: &Outcome<T>, weigh: fn(&T) -> usize) -> usize {
    match outcome {
        Outcome::Live(value) => weigh(value),
        Outcome::ToolError(error) => weigh(&error.value),
        Outcome::Served(served) => match &served.body {
            FallbackBody::Value(value) => weigh(value),
            FallbackBody::Items(items) => {
                items.iter().filter_map(|item| item.result.as_ref().ok()).map(weigh).sum()
            }
            FallbackBody::Nothing => served.note.len(),
        },
        Outcome::Failed(report) => report.message.len(),
    }
}

impl<T> LedgerEntries<T> {
    /// What is remembered of the caller of a call that may be rejoined.
    fn caller(&mut self, call: &Entering<'_>) -> Option<&mut CallerNotes> {
        let scope = &call.rejoin?.scope;
        if self.callers.len() >= MOST_CALLERS && !self.callers.contains_key(scope) {
            self.callers.clear();
            self.forgotten = self.next;
        }
        Some(self.callers.entry(Arc::clone(scope)).or_default())
    }

    /// A caller that gave up without a word does so again: its next calls are taken for given up
    /// after as long.
    fn note_silence(&mut self, call: &Entering<'_>, waited: Option<Duration>) {
        let Some((waited, notes)) = waited.zip(self.caller(call)) else { return };
        notes.is_silent = notes.waited.is_some();
        notes.waited = Some(notes.waited.map_or(waited, |least| waited.min(least)));
    }

    fn note_write(&mut self, call: &Entering<'_>) {
        let next = self.next;
        self.caller(call).into_iter().for_each(|notes| notes.last_write = next);
    }

    fn remove(&mut self, key: CallKey) {
        if let Some(entry) = self.calls.remove(&key) {
            self.bytes -= entry.bytes();
        }
    }

    /// Forgets answers that waited long enough; while there are too many, the oldest ones, of which
    /// it is remembered that they were there.
    fn make_room(&mut self, now: Moment) {
        let is_there = |calls: &Calls<T>, (key, number): &(CallKey, u64)| {
            calls.get(key).is_some_and(|entry| entry.number == *number)
        };
        // Most are delivered at once, out of their turn.
        if self.answered.len() > MOST {
            self.answered.retain(|answered| is_there(&self.calls, answered));
        }
        while let Some((key, number)) = self.answered.front().copied() {
            let is_full = self.answered.len() > MOST || self.bytes > MOST_BYTES;
            match self.calls.get_mut(&key).filter(|entry| entry.number == number) {
                None => {}
                Some(entry) if entry.is_expired(now) => self.remove(key),
                Some(entry) if is_full => {
                    self.bytes -= entry.empty();
                    self.empty.push_back((key, number));
                }
                Some(_) => break,
            }
            self.answered.pop_front();
        }
        while let Some((key, number)) = self.empty.front().copied() {
            let entry = self.calls.get(&key).filter(|entry| entry.number == number);
            let goes =
                entry.is_none_or(|entry| entry.is_expired(now)) || self.empty.len() > MOST_EMPTY;
            if !goes {
                break;
            }
            if entry.is_some() {
                self.remove(key);
            }
            self.empty.pop_front();
        }
    }
}

/// An identical call under way.
pub(crate) struct Following<T> {
    landing: watch::Receiver<LeadState<T>>,
    /// What the call gets from it.
    pub(crate) gets: FollowerGets,
    /// How long it is worth waiting for, if that is less than the call's own time.
    pub(crate) patience: Option<Duration>,
    /// After how long its client may give up without a word, as it did before: a copy is worth more
    /// by then.
    pub(crate) gives_up: Option<Duration>,
}

impl<T: Clone> Following<T> {
    /// Waits until it ends; gives its answer, if it has one for others.
    pub(crate) async fn landed(&mut self) -> Option<Outcome<T>> {
        let landed =
            self.landing.wait_for(|state| !matches!(state, LeadState::Running)).await.ok()?;
        match &*landed {
            LeadState::Landed(outcome) => Some(outcome.clone()),
            LeadState::Running | LeadState::Over => None,
        }
    }
}

/// The duty to ask for all. Dropped without an answer, it passes to one of those who wait.
pub(crate) struct Lead<'a, T> {
    in_flight: &'a InFlight<T>,
    key: CallKey,
    number: u64,
}

impl<T: Clone> Lead<'_, T> {
    /// The call ended: `shared` is for those who wait, `kept` until it was delivered.
    pub(crate) fn land(self, shared: Option<&Outcome<T>>, kept: EndedCall<'_, T>) {
        self.in_flight.land(&self, shared, kept);
        std::mem::forget(self);
    }
}

impl<T> Drop for Lead<'_, T> {
    fn drop(&mut self) {
        let mut entries = self.in_flight.lock();
        if entries.calls.get(&self.key).is_some_and(|entry| entry.number == self.number) {
            entries.remove(self.key);
        }
    }
}
