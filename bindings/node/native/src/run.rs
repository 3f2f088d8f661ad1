//! Decides how a future of the library runs without a runtime of its own: JavaScript starts it under
//! a number, makes the attempts that it asks for, and says how they ended.
//!
//! A future is polled on the thread of node that started it. Every function here returns what
//! JavaScript has to do next, as one number: the kind in the lowest 3 bits, then the attempt in 21
//! bits, then the step that it belongs to, and in the highest whether there is more to do. A run that JavaScript closes ends there: permits and
//! slots are released.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Error, Result, Status};
use napi_derive::napi;
use serde_json::{Value as Json, json};

use crate::facts::{ErrorFacts, Raised};
use crate::settings::as_millis;
use crate::timers;

/// The kinds of events, as `run.ts` knows them.
const WAIT: u32 = 0;
const TRY: u32 = 1;
const CUT: u32 = 2;
const VALUE: u32 = 3;
const ERROR: u32 = 4;
const TOLD: u32 = 5;
/// JavaScript asks for the next event at once.
const MORE: u32 = 1 << 31;

/// What a run ends with.
pub(crate) enum Ended {
    /// The value of this attempt.
    Value(u32),
    /// The error of this attempt.
    Error(u32),
    /// More than a number; JavaScript asks for it.
    Told(Json),
}

/// The value of an attempt; the value itself stays in JavaScript.
pub(crate) struct Returned {
    pub(crate) attempt: u32,
    /// The number under which JavaScript keeps the value for longer than the run; 0 if it does not.
    pub(crate) kept: u32,
    pub(crate) bytes: u32,
    /// The text of a value that its tool marked as an error.
    pub(crate) error_text: Option<String>,
}

type Running = Pin<Box<dyn Future<Output = Ended>>>;
type WakeUp = ThreadsafeFunction<u32, (), u32, Status, false, true>;

thread_local! {
    static RUNS: RefCell<Vec<Option<Run>>> = const { RefCell::new(Vec::new()) };
    /// The board of the run that this thread is polling: attempts are put there.
    static POLLED: RefCell<Option<Arc<Board>>> = const { RefCell::new(None) };
    /// How this thread's JavaScript is told that a timer has run out.
    static WAKE_UP: RefCell<Option<Arc<WakeUp>>> = const { RefCell::new(None) };
    /// Which steps may be tried, one bit each.
    static AVAILABLE: Cell<u32> = const { Cell::new(u32::MAX) };
}

struct Run {
    future: Option<Running>,
    board: Arc<Board>,
    alarm: Arc<Alarm>,
    told: Option<Json>,
}

/// Starts a future as the run `number`, which JavaScript chose, and returns its first event.
pub(crate) fn start(number: u32, future: impl Future<Output = Ended> + 'static) -> Result<u32> {
    let Some(wake_up) = WAKE_UP.with_borrow(Clone::clone) else {
        return Err(Error::from_reason("wakeWith was not called"));
    };
    let alarm = Alarm { number, rang: true.into(), waits: false.into(), wake_up };
    let future: Option<Running> = Some(Box::pin(future));
    let mut run = Run { future, board: Arc::default(), alarm: Arc::new(alarm), told: None };
    let event = run.proceed()?;
    let place = number as usize;
    RUNS.with_borrow_mut(|runs| {
        if runs.len() <= place {
            runs.resize_with(place + 1, || None);
        }
        runs[place] = Some(run);
    });
    Ok(event)
}

impl Run {
    /// Polls the future until it ends, asks for something, or has to wait.
    fn proceed(&mut self) -> Result<u32> {
        loop {
            if let Some(event) = self.board.event() {
                let more = !self.may_wait() || self.board.has_event();
                return Ok(event | if more { MORE } else { 0 });
            }
            if !self.alarm.rang.swap(false, Ordering::SeqCst) {
                if self.may_wait() {
                    return Ok(WAIT);
                }
                continue;
            }
            if let Poll::Ready(ended) = self.poll()? {
                return Ok(self.end(ended));
            }
        }
    }

    /// From now on the alarm wakes JavaScript, unless it has rung already.
    fn may_wait(&self) -> bool {
        self.alarm.waits.store(true, Ordering::SeqCst);
        !self.alarm.rang.load(Ordering::SeqCst)
    }

    fn poll(&mut self) -> Result<Poll<Ended>> {
        let Some(running) = &mut self.future else {
            return Err(ended());
        };
        let timers = timers::handle()?;
        let _timers = timers.enter();
        let before = POLLED.replace(Some(Arc::clone(&self.board)));
        let waker = Waker::from(Arc::clone(&self.alarm));
        let polled = running.as_mut().poll(&mut Context::from_waker(&waker));
        POLLED.replace(before);
        Ok(polled)
    }

    fn end(&mut self, ended: Ended) -> u32 {
        self.future = None;
        match ended {
            Ended::Value(attempt) => packed(VALUE, attempt, 0),
            Ended::Error(attempt) => packed(ERROR, attempt, 0),
            Ended::Told(told) => {
                self.told = Some(told);
                TOLD
            }
        }
    }
}

fn packed(kind: u32, attempt: u32, step: u8) -> u32 {
    kind | (attempt & 0x1f_ffff) << 3 | u32::from(step & 0x7f) << 24
}

fn with<T>(number: u32, work: impl FnOnce(&mut Run) -> Result<T>) -> Result<T> {
    RUNS.with_borrow_mut(|runs| match runs.get_mut(number as usize) {
        Some(place) => {
            let Some(run) = place else { return Err(ended()) };
            run.alarm.waits.store(false, Ordering::SeqCst);
            let done = work(run);
            // A run that has ended, and has nothing more to tell, is closed.
            if run.future.is_none() && run.told.is_none() {
                *place = None;
            }
            done
        }
        None => Err(ended()),
    })
}

fn ended() -> Error {
    Error::from_reason("the call has ended")
}

/// Sets what is called with the number of a run that has something to do. It does not keep the
/// process alive.
#[napi]
pub fn wake_with(callback: WakeUp) {
    WAKE_UP.set(Some(Arc::new(callback)));
}

/// What JavaScript has to do next.
#[napi]
pub fn next(run: u32) -> Result<u32> {
    with(run, Run::proceed)
}

/// The attempt returned a value; gives the next event.
#[napi]
pub fn returned(run: u32, attempt: u32) -> Result<u32> {
    returned_value(run, attempt, 0, 0, None)
}

/// The attempt returned a value that the library may keep, under the number `kept`.
#[napi]
pub fn returned_value(
    run: u32,
    attempt: u32,
    kept: u32,
    bytes: u32,
    error_text: Option<String>,
) -> Result<u32> {
    with(run, |run| {
        run.board.answer(attempt, Ok(Returned { attempt, kept, bytes, error_text }));
        run.proceed()
    })
}

/// The attempt threw an error; gives the next event.
#[napi]
pub fn raised(run: u32, attempt: u32, facts: ErrorFacts) -> Result<u32> {
    with(run, |run| {
        run.board.answer(attempt, Err(Raised::new(attempt, facts)));
        run.proceed()
    })
}

/// What the run ended with, as JSON; once.
#[napi]
pub fn told(run: u32) -> Result<String> {
    with(run, |run| Ok(run.told.take().unwrap_or_default().to_string()))
}

/// The arguments and the timeout of an attempt, as JSON.
#[napi]
pub fn asked(run: u32, attempt: u32) -> Result<String> {
    with(run, |run| Ok(run.board.asked(attempt).to_string()))
}

/// Ends a run that has not ended by itself: nothing more is decided, permits and slots are released.
#[napi]
pub fn close(run: u32) {
    let over = RUNS.with_borrow_mut(|runs| runs.get_mut(run as usize).and_then(Option::take));
    drop(over);
}

/// Which steps of a chain may be tried, one bit each; holds until it is set again.
#[napi]
pub fn set_available(steps: u32) {
    AVAILABLE.set(steps);
}

/// Whether the step at this place may be tried.
pub(crate) fn is_available(place: u8) -> bool {
    AVAILABLE.get() >> place & 1 == 1
}

/// Wakes JavaScript when a timer of the library has run out.
struct Alarm {
    number: u32,
    /// Whether the future has to be polled.
    rang: AtomicBool,
    /// Whether JavaScript was told to wait.
    waits: AtomicBool,
    wake_up: Arc<WakeUp>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::SeqCst);
        if self.waits.swap(false, Ordering::SeqCst) {
            // A node that is ending refuses the call; nobody waits any more then.
            self.wake_up.call(self.number, ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}

/// The attempts of a run: what the library asked for, and what came of it.
#[derive(Default)]
struct Board(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    attempts: u32,
    open: Vec<Open>,
    /// Attempts that the library gave up while JavaScript makes them.
    cut: Vec<u32>,
}

struct Open {
    number: u32,
    step: u8,
    about: Option<(Arc<Json>, Duration)>,
    state: State,
    waker: Option<Waker>,
}

enum State {
    Asked,
    Made,
    Over(Outcome),
}

type Outcome = std::result::Result<Returned, Raised>;

impl Board {
    fn event(&self) -> Option<u32> {
        let mut notes = lock(&self.0);
        if let Some(number) = notes.cut.pop() {
            return Some(packed(CUT, number, 0));
        }
        let open = notes.open.iter_mut().find(|open| matches!(open.state, State::Asked))?;
        open.state = State::Made;
        Some(packed(TRY, open.number, open.step))
    }

    fn has_event(&self) -> bool {
        let notes = lock(&self.0);
        !notes.cut.is_empty() || notes.open.iter().any(|open| matches!(open.state, State::Asked))
    }

    /// An attempt that the library gave up meanwhile is over already; its end is not looked at.
    fn answer(&self, number: u32, outcome: Outcome) {
        let mut notes = lock(&self.0);
        let found = notes.open.iter_mut().find(|open| open.number == number);
        let waker = found.and_then(|open| {
            open.state = State::Over(outcome);
            open.waker.take()
        });
        drop(notes);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn asked(&self, number: u32) -> Json {
        let notes = lock(&self.0);
        let found = notes.open.iter().find(|open| open.number == number);
        match found.and_then(|open| open.about.as_ref()) {
            Some((arguments, timeout)) => {
                json!({"args": &**arguments, "timeoutMs": as_millis(*timeout)})
            }
            None => json!({}),
        }
    }
}

/// Asks JavaScript for an attempt; called by the library while a run is polled.
pub(crate) fn attempt(step: u8, about: Option<(Arc<Json>, Duration)>) -> Attempt {
    let board = POLLED.with_borrow(Clone::clone).unwrap_or_default();
    let mut notes = lock(&board.0);
    notes.attempts += 1;
    let number = notes.attempts;
    notes.open.push(Open { number, step, about, state: State::Asked, waker: None });
    drop(notes);
    Attempt { board, number }
}

/// An attempt that JavaScript makes. Dropped, it is cut off.
pub(crate) struct Attempt {
    board: Arc<Board>,
    number: u32,
}

impl Future for Attempt {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut notes = lock(&self.board.0);
        let Some(place) = notes.open.iter().position(|open| open.number == self.number) else {
            return Poll::Pending;
        };
        if let State::Over(_) = notes.open[place].state
            && let State::Over(outcome) = notes.open.swap_remove(place).state
        {
            return Poll::Ready(outcome);
        }
        notes.open[place].waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut notes = lock(&self.board.0);
        let Some(place) = notes.open.iter().position(|open| open.number == self.number) else {
            return;
        };
        let open = notes.open.swap_remove(place);
        if let State::Made = open.state {
            notes.cut.push(self.number);
        }
        drop((notes, open));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
