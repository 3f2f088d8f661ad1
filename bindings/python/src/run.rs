//! Decides how a future of the library runs without a runtime of its own: Python asks for the next
//! event, makes the attempts, and says how they ended.
//!
//! The future is polled on the thread that asks. While Python waits, a timer of the library wakes
//! it through a callback. A run that Python drops ends there: permits and slots are released.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use seawall::FailureSignals;

use crate::signals::{Facts, Raised};
use crate::timers;

/// What a run ends with.
pub(crate) type Ended = PyResult<Py<PyAny>>;
type Running = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// The kinds of events, as `seawall._run` knows them.
const WAIT: u8 = 0;
const TRY: u8 = 1;
const CUT: u8 = 2;
const END: u8 = 3;

type Event = (u8, u32, Py<PyAny>);

thread_local! {
    /// The board of the run that this thread is polling: attempts are put there.
    static POLLED: RefCell<Option<Arc<Board>>> = const { RefCell::new(None) };
}

/// One future of the library, driven by Python.
#[pyclass(frozen, module = "seawall._core")]
pub(crate) struct Run {
    future: Mutex<Option<Running>>,
    board: Arc<Board>,
    alarm: Arc<Alarm>,
}

impl Run {
    pub(crate) fn new(future: impl Future<Output = Ended> + Send + 'static) -> Self {
        Self {
            future: Mutex::new(Some(Box::pin(future))),
            board: Arc::default(),
            alarm: Arc::default(),
        }
    }

    /// Polls the future until it ends, asks for something, or has to wait.
    fn proceed(&self, py: Python<'_>) -> PyResult<Event> {
        loop {
            if let Some(event) = self.board.event(py) {
                return Ok(event);
            }
            if !self.alarm.rang.swap(false, Ordering::AcqRel) {
                return Ok((WAIT, 0, py.None()));
            }
            let mut future = lock(&self.future);
            let Some(running) = future.as_mut() else {
                return Err(PyRuntimeError::new_err("the call has ended"));
            };
            let polled = self.poll(running)?;
            if let Poll::Ready(ended) = polled {
                let over = future.take();
                drop((future, over));
                self.board.finish(ended?);
            }
        }
    }

    fn poll(&self, running: &mut Running) -> PyResult<Poll<Ended>> {
        let timers = timers::handle()?;
        let _timers = timers.enter();
        let before = POLLED.replace(Some(Arc::clone(&self.board)));
        let waker = Waker::from(Arc::clone(&self.alarm));
        let polled = running.as_mut().poll(&mut Context::from_waker(&waker));
        POLLED.replace(before);
        Ok(polled)
    }
}

#[pymethods]
impl Run {
    /// What Python has to do next, as `(kind, attempt, payload)`.
    fn next(&self, py: Python<'_>) -> PyResult<Event> {
        self.proceed(py)
    }

    /// The attempt returned `value`; gives the next event.
    fn returned(&self, py: Python<'_>, attempt: u32, value: Py<PyAny>) -> PyResult<Event> {
        self.board.answer(attempt, Ok(value));
        self.proceed(py)
    }

    /// The attempt raised `exception`; gives the next event.
    fn raised(
        &self,
        py: Python<'_>,
        attempt: u32,
        exception: Py<PyAny>,
        facts: Facts,
    ) -> PyResult<Event> {
        self.board.answer(attempt, Err(Raised { exception, signals: facts.into() }));
        self.proceed(py)
    }

    /// Calls `callback` from any thread once the run has something to do; `false` if it has
    /// already.
    fn wake_with(&self, callback: Py<PyAny>) -> bool {
        *lock(&self.alarm.callback) = Some(callback);
        !self.alarm.rang.load(Ordering::Acquire) || lock(&self.alarm.callback).take().is_none()
    }

    /// No callback is wanted any more.
    fn stay(&self) {
        lock(&self.alarm.callback).take();
    }

    /// Ends the run: nothing more is decided, permits and slots are released.
    fn close(&self) {
        let running = lock(&self.future).take();
        drop(running);
        self.stay();
    }
}

/// Wakes Python when a timer of the library has run out.
struct Alarm {
    /// Whether the future has to be polled.
    rang: AtomicBool,
    callback: Mutex<Option<Py<PyAny>>>,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { rang: AtomicBool::new(true), callback: Mutex::default() }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::Release);
        let callback = lock(&self.callback).take();
        if let Some(callback) = callback {
            // A loop that was closed meanwhile refuses the callback; nobody waits any more then.
            // An interpreter that is ending is not entered.
            let _ = Python::try_attach(|py| callback.call0(py).map(drop));
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
    /// Attempts that the library gave up while Python makes them.
    cut: Vec<u32>,
    ended: Option<Py<PyAny>>,
}

struct Open {
    number: u32,
    state: State,
    waker: Option<Waker>,
}

enum State {
    Asked(Py<PyAny>),
    Made,
    Over(Result<Py<PyAny>, Raised>),
}

impl Board {
    fn event(&self, py: Python<'_>) -> Option<Event> {
        let mut notes = lock(&self.0);
        if let Some(number) = notes.cut.pop() {
            return Some((CUT, number, py.None()));
        }
        for open in &mut notes.open {
            if let State::Asked(_) = open.state {
                let State::Asked(asked) = std::mem::replace(&mut open.state, State::Made) else {
                    return None;
                };
                return Some((TRY, open.number, asked));
            }
        }
        notes.ended.take().map(|value| (END, 0, value))
    }

    fn finish(&self, value: Py<PyAny>) {
        lock(&self.0).ended = Some(value);
    }

    /// An attempt that the library gave up meanwhile is over already; its end is not looked at.
    fn answer(&self, number: u32, result: Result<Py<PyAny>, Raised>) {
        let mut notes = lock(&self.0);
        notes.cut.retain(|cut| *cut != number);
        let found = notes.open.iter_mut().find(|open| open.number == number);
        let waker = found.and_then(|open| {
            open.state = State::Over(result);
            open.waker.take()
        });
        drop(notes);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Asks Python for an attempt; called by the library while a run is polled.
pub(crate) fn attempt(asked: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>>) -> Attempt {
    let board = POLLED.with_borrow(Clone::clone);
    let number = board.as_ref().and_then(|board| {
        let asked = Python::attach(asked).ok()?;
        let mut notes = lock(&board.0);
        notes.attempts += 1;
        let number = notes.attempts;
        notes.open.push(Open { number, state: State::Asked(asked), waker: None });
        Some(number)
    });
    Attempt { board, number }
}

/// An attempt that Python makes. Dropped, it is cut off.
pub(crate) struct Attempt {
    board: Option<Arc<Board>>,
    number: Option<u32>,
}

impl Future for Attempt {
    type Output = Result<Py<PyAny>, Raised>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (Some(board), Some(number)) = (&self.board, self.number) else {
            return Poll::Ready(Err(Raised::impossible()));
        };
        let mut notes = lock(&board.0);
        let Some(place) = notes.open.iter().position(|open| open.number == number) else {
            return Poll::Ready(Err(Raised::impossible()));
        };
        if let State::Over(_) = notes.open[place].state
            && let State::Over(result) = notes.open.swap_remove(place).state
        {
            return Poll::Ready(result);
        }
        notes.open[place].waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let (Some(board), Some(number)) = (&self.board, self.number) else { return };
        let mut notes = lock(&board.0);
        let Some(place) = notes.open.iter().position(|open| open.number == number) else { return };
        let open = notes.open.swap_remove(place);
        if let State::Made = open.state {
            notes.cut.push(number);
        }
        drop((notes, open));
    }
}

impl Raised {
    /// An attempt outside a run: no code of this crate makes one.
    fn impossible() -> Self {
        let signals = FailureSignals::text("the attempt was made outside a run");
        let exception = Python::attach(|py| {
            PyRuntimeError::new_err("the attempt was made outside a run")
                .into_py_any(py)
                .unwrap_or_else(|_| py.None())
        });
        Self { exception, signals }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
