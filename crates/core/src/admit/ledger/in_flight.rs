//! Decides which of several identical calls of one caller goes to the server, and which client gets
//! an answer that its own client never read.
//!
//! A call is entered when it starts and stays in the ledger until its answer is delivered. A client
//! that makes the identical call meanwhile has lost the first one and gets its answer, unless the
//! second came so soon that one turn of a model means both. Then a write waits for the first and
//! runs after it: two identical writes must not be in flight at once.

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

/// How long the ledger keeps an unread answer for a client that may come back for it.
pub(crate) const KEPT: Duration = Duration::from_secs(60);
/// How many unread answers are kept, and their bytes in all; beyond that the oldest is dropped.
const MOST: usize = 256;
const MOST_BYTES: usize = 32 << 20;
/// For how many dropped answers the ledger remembers that the call was answered.
const MOST_EMPTY: usize = 1000;

/// How many callers the ledger has notes on; beyond that it forgets all of them and learns anew.
const MOST_CALLERS: usize = 1000;

/// The facts about a call that the ledger needs to enter it.
#[derive(Clone, Copy)]
pub(crate) struct Entering<'a> {
    pub(crate) key: CallKey,
    /// The key of its cached response: a read with another context has another answer.
    pub(crate) copy_key: CallKey,
    /// The server's count of writes when the call began: a read made after a write does not share
    /// the answer of a read made before it.
    pub(crate) writes: u64,
    pub(crate) is_replayable: bool,
    pub(crate) is_read: bool,
    /// Whether its answer may be shared with every concurrent identical call of this caller.
    pub(crate) shares: bool,
    pub(crate) rejoin: Option<&'a Rejoin>,
    pub(crate) control: Option<&'a Arc<CallControl>>,
    /// The call stands for itself and has waited for an identical call to end.
    pub(crate) is_intent: bool,
    /// It came so soon after an identical call that both are meant, unless the other's client turns
    /// out to have gone.
    pub(crate) is_second: bool,
}

/// The part of an ended call that the ledger keeps.
#[derive(Clone, Copy)]
pub(crate) enum EndedCall<'a, T> {
    Nothing,
    /// Its answer, until the client has read it.
    Answer(&'a Outcome<T>),
    /// The question to its client, until the client continues the call.
    Question(&'a Outcome<T>),
}

/// How a call leaves this stage.
pub(crate) enum Entered<'a, T> {
    /// It goes to the server, and identical calls may follow it.
    Lead(Lead<'a, T>),
    /// It goes to the server beside an identical call, which does no harm.
    Alone,
    /// It follows an identical call in flight.
    Behind(Following<T>),
    /// It gets the unread answer of an identical call, given this long ago.
    Late(Outcome<T>, Duration),
    /// An identical call was answered this long ago, but the answer was dropped or may not be
    /// shared.
    Gone(Duration),
}

/// The calls in flight and the answers not read yet.
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
    /// Answered calls, oldest first; some of their answers may have been read since.
    answered: VecDeque<(CallKey, u64)>,
    /// Answered calls whose answers were dropped.
    empty: VecDeque<(CallKey, u64)>,
    bytes: usize,
    next: u64,
    callers: HashMap<Arc<str>, CallerNotes>,
    /// Entries with a smaller number were made before the notes on callers were last cleared.
    forgotten: u64,
}

/// The notes on a caller that wrote, or that repeated a call without cancelling the first.
#[derive(Debug, Default)]
struct CallerNotes {
    /// Entries with a smaller number were made before this caller's last write.
    last_write: u64,
    /// The shortest time the caller waited before such a silent repeat.
    waited: Option<Duration>,
    /// Seen twice: the caller may give up without cancelling.
    is_silent: bool,
}

impl<T: Clone> InFlight<T> {
    pub(crate) fn new(weigh: fn(&T) -> usize, clock: Clock) -> Self {
        let (calls, answered, empty, callers) = Default::default();
        let entries =
            LedgerEntries { calls, answered, empty, bytes: 0, next: 1, callers, forgotten: 0 };
        Self { entries: Mutex::new(entries), weigh, clock }
    }

    /// Enters a call, or finds the identical one it meets.
    pub(crate) fn enter(&self, call: &Entering<'_>) -> Entered<'_, T> {
        let now = self.clock.now();
        let mut entries = self.lock();
        // A write is noted before the lookup, so that its number lies above every read entered so
        // far.
        if !call.is_read {
            entries.note_write(call);
        }
        let LedgerEntries { calls, callers, forgotten, .. } = &mut *entries;
        let Some(entry) = calls.get_mut(&call.key) else {
            return self.lead(&mut entries, call, now);
        };
        let notes =
            call.rejoin.filter(|_| call.is_read).and_then(|rejoin| callers.get(&rejoin.scope));
        // A caller without notes may have written at any time until the notes were last cleared.
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

    /// Whether a call with this key is in flight, or its answer was not read.
    pub(crate) fn has(&self, key: CallKey) -> bool {
        self.lock().calls.contains_key(&key)
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
        // The patience of the client matters for writes only: an answered read is not kept.
        let notes = call
            .rejoin
            .filter(|_| !call.is_replayable)
            .and_then(|rejoin| entries.callers.get(&rejoin.scope));
        let known = notes.filter(|notes| notes.is_silent).and_then(|notes| notes.waited);
        entries.calls.insert(call.key, LedgerEntry::new(number, call, known, now));
        Entered::Lead(Lead { in_flight: self, key: call.key, number })
    }

    /// Notes that an answer was written to a client that was connected to read it; `number` is that
    /// of the call that brought the answer.
    pub(crate) fn delivered(&self, key: CallKey, number: u64) {
        let now = self.clock.now();
        let mut entries = self.lock();
        // The number tells this call from a later one under the same key.
        let Some(entry) = entries.calls.get_mut(&key).filter(|entry| entry.number == number) else {
            return;
        };
        if entry.is_over_when_delivered(now) {
            entries.remove(key);
        }
    }

    /// Drops the unread answers whose time is up.
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
        // Followers are told under the lock, together with the change of the entry: a call that
        // enters later finds the entry answered or gone, and never subscribes to a call that has
        // ended.
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

/// The bytes of an answer; the values of a batch's items are summed up.
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
    /// The notes on the caller of a call that may be rejoined.
    fn caller(&mut self, call: &Entering<'_>) -> Option<&mut CallerNotes> {
        let scope = &call.rejoin?.scope;
        if self.callers.len() >= MOST_CALLERS && !self.callers.contains_key(scope) {
            self.callers.clear();
            self.forgotten = self.next;
        }
        Some(self.callers.entry(Arc::clone(scope)).or_default())
    }

    /// A caller that gave up silently once does so again: its next calls count as given up after
    /// the same wait.
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

    /// Drops answers whose time is up and, while there are too many, the oldest ones; for those the
    /// ledger still remembers that they were answered.
    fn make_room(&mut self, now: Moment) {
        let is_there = |calls: &Calls<T>, (key, number): &(CallKey, u64)| {
            calls.get(key).is_some_and(|entry| entry.number == *number)
        };
        // Most answers are delivered at once, out of order: purge their places before evicting.
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

/// An identical call in flight that this call follows.
pub(crate) struct Following<T> {
    landing: watch::Receiver<LeadState<T>>,
    /// The share of the lead's result that this call gets.
    pub(crate) gets: FollowerGets,
    /// How long the wait is worthwhile, if that is less than the call's own deadline.
    pub(crate) patience: Option<Duration>,
    /// After how long the client may give up without cancelling, as it did before: from then on a
    /// cached response serves it better.
    pub(crate) gives_up: Option<Duration>,
}

impl<T: Clone> Following<T> {
    /// Waits until the lead ends; returns its answer if it has one for followers.
    pub(crate) async fn landed(&mut self) -> Option<Outcome<T>> {
        let landed =
            self.landing.wait_for(|state| !matches!(state, LeadState::Running)).await.ok()?;
        match &*landed {
            LeadState::Landed(outcome) => Some(outcome.clone()),
            LeadState::Running | LeadState::Over => None,
        }
    }
}

/// The duty of the leading call to end its entry. Dropped without an answer (a cancelled or
/// panicking call), it removes the entry, and one of the followers takes the lead.
pub(crate) struct Lead<'a, T> {
    in_flight: &'a InFlight<T>,
    key: CallKey,
    number: u64,
}

impl<T: Clone> Lead<'_, T> {
    /// Ends the call: `shared` goes to the followers, `kept` stays until it is delivered.
    pub(crate) fn land(self, shared: Option<&Outcome<T>>, kept: EndedCall<'_, T>) {
        self.in_flight.land(&self, shared, kept);
        // `Drop` would remove the entry, and with it the answer just kept.
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
