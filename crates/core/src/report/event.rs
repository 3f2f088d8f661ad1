//! Decides which steps of a call are reported: the one enum from which logs, metrics, traces and
//! screens derive.
//!
//! Listeners read from a bounded queue that drops its oldest events. A listener that panics or
//! blocks misses events; it cannot slow, fail or stop a call. Without a listener an event is not
//! even built.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::{self, error::RecvError};

use super::listening::{Listeners, Listening};
use crate::model::failure::{Cause, Disposition};
use crate::model::policy::breaker::BreakerStatus;
use crate::time::clock::millis;

/// One event on the path of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "event", rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Event {
    /// An attempt began.
    AttemptStarted {
        /// The server; empty when a fallback chain runs without a pipeline.
        server: String,
        /// The tool, or the step of such a chain.
        tool: String,
        /// 1 for the first attempt of the call.
        attempt: u32,
    },
    /// An attempt ended.
    AttemptEnded {
        /// The server; empty when a fallback chain runs without a pipeline.
        server: String,
        /// The tool, or the step of such a chain.
        tool: String,
        /// 1 for the first attempt of the call.
        attempt: u32,
        /// How long the attempt took.
        elapsed: Duration,
        /// Why the attempt failed; `None` when it succeeded.
        cause: Option<Cause>,
    },
    /// Another attempt will follow after a pause.
    RetryScheduled {
        /// The server; empty when a retry runs without a pipeline.
        server: String,
        /// The tool; empty when a retry runs without a pipeline, or a server is being loaded.
        tool: String,
        /// The attempt that failed.
        attempt: u32,
        /// How many attempts are allowed.
        of: u32,
        /// The pause before the next attempt.
        delay: Duration,
        /// The text of the failure.
        error: String,
    },
    /// A retry was due, and the server's retry budget had no token left.
    RetryBudgetSpent {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
    },
    /// A slow attempt of a read was hedged with a second one.
    Hedged {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
    },
    /// A breaker changed its state.
    BreakerChanged {
        /// The breaker's name: a tool, a server, or `global`.
        name: String,
        /// The state before.
        from: BreakerStatus,
        /// The state after.
        to: BreakerStatus,
    },
    /// An open breaker rejected a call, or would have in shadow mode.
    BreakerRejected {
        /// The breaker's name.
        name: String,
        /// How long until a call may be tried.
        retry_after: Duration,
        /// Shadow mode: the rejection was only measured, and the call went through.
        shadow: bool,
    },
    /// A call was answered from a fresh cached response, or joined an identical call in flight.
    CacheHit {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// The answer came from a call that was still in flight.
        shared_flight: bool,
    },
    /// A call was rejected before it reached the server.
    Refused {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// Why: a loop, an uncertain write, a rate limit, a pause, a full wait line.
        cause: Cause,
    },
    /// A pattern of the operator found an error in an answer that its tool did not mark as one.
    ToolErrorFound {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// The error was only counted, and the answer passed on unchanged.
        counted_only: bool,
    },
    /// Whoever decides about calls allowed one.
    CallAllowed {
        /// The server.
        server: String,
        /// The tool, or the method of a request that calls none.
        tool: String,
        /// How long the decision took.
        elapsed: Duration,
        /// What whoever decides noted about the call, as JSON; empty without a note.
        note: String,
    },
    /// Whoever decides about calls denied one.
    CallDenied {
        /// The server.
        server: String,
        /// The tool, or the method of a request that calls none.
        tool: String,
        /// How long the decision took.
        elapsed: Duration,
        /// The reason that was given.
        reason: String,
    },
    /// Nobody could decide about a call, so it was not made.
    AuthorizerUnavailable {
        /// The server.
        server: String,
        /// The tool, or the method of a request that calls none.
        tool: String,
        /// How long it was tried.
        elapsed: Duration,
        /// What happened.
        reason: String,
        /// How long until the next call may be decided.
        retry_after: Duration,
    },
    /// A fallback answered.
    FallbackServed {
        /// The server; empty when a fallback chain runs without a pipeline.
        server: String,
        /// The tool, or the first step of such a chain.
        tool: String,
        /// The fallback step, without the tool's name.
        step: String,
    },
    /// An open breaker left only an explanation as an answer.
    Degraded {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
    },
    /// A call ended. Exactly one event for every call that began.
    CallFinished {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// The outcome: `ok`, `tool_error`, `fallback`, `cancelled`, or the failure's code.
        class: &'static str,
        /// Attempts that were made for the call, fallbacks included.
        attempts: u32,
        /// How long the call took.
        elapsed: Duration,
    },
    /// The loading of a server ended.
    ServerLoaded {
        /// The server.
        server: String,
        /// Why loading failed; `None` when the server is available.
        failed: Option<Disposition>,
        /// How many attempts loading took.
        attempts: u32,
        /// How many tools the server has.
        tools: usize,
    },
}

/// A line for people; programs read the fields, or serialize them.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::RetryScheduled { server, tool, attempt, of, delay, error }
                if tool.is_empty() && !server.is_empty() =>
            {
                write!(
                    f,
                    "MCP server '{server}' transient load failure (attempt {attempt}/{of}): {error}; retrying in {}s",
                    delay.as_secs_f64()
                )
            }
            Event::RetryScheduled { attempt, of, delay, error, .. } => {
                write!(
                    f,
                    "[Retry] Attempt {attempt}/{of} failed. Retrying in {}ms. Error: {error}",
                    millis(*delay)
                )
            }
            Event::BreakerChanged { name, from, to } => {
                write!(f, "[CircuitBreaker] {name}: {from} → {to}")
            }
            other => write!(f, "{other:?}"),
        }
    }
}

/// How many events a slow listener may lag behind before it loses the oldest.
const QUEUE: usize = 1024;

/// The stream of events. Clones feed the same listeners.
///
/// ```
/// # use seawall::{BreakerMode, BreakerPolicy, CircuitBreaker, Env};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), seawall::Invalid> {
/// let env = Env::new();
/// let mut listener = env.events.subscribe();
/// let breakers = CircuitBreaker::new(BreakerPolicy::default(), &env)?;
/// breakers.breaker("jira").set_mode(BreakerMode::ForcedOpen);
/// assert_eq!(listener.drain()[0].to_string(), "[CircuitBreaker] jira: closed → open");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Events(Arc<EventStream>);

#[derive(Debug)]
struct EventStream {
    sender: broadcast::Sender<Arc<Event>>,
    /// Rare events only: retries and state changes of breakers. A listener of these alone costs
    /// nothing on calls that succeed.
    rare: broadcast::Sender<Arc<Event>>,
    /// Listeners of all events; listeners of rare events are not counted.
    listeners: Listeners,
}

impl Events {
    /// A stream without listeners.
    pub fn new() -> Self {
        let ((sender, _), (rare, _)) = (broadcast::channel(QUEUE), broadcast::channel(QUEUE));
        Self(Arc::new(EventStream { sender, rare, listeners: Listeners::default() }))
    }

    /// Listens to all events from now on.
    pub fn subscribe(&self) -> Listener {
        Listener {
            // Counted before it subscribes: an event in between is built in vain, but no event is
            // skipped once the subscription exists.
            _listening: self.0.listeners.join(),
            receiver: self.0.sender.subscribe(),
            missed: 0,
        }
    }

    /// Calls `listen` for every event, on a thread of its own that ends with the stream. A panic in
    /// `listen` loses that event only.
    pub fn for_each(&self, listen: impl Fn(&Event) + Send + 'static) -> std::io::Result<()> {
        // The closure keeps the count for as long as its thread lives; if no thread starts, it is
        // dropped and the count with it.
        let listening = self.0.listeners.join();
        Self::hear(self.0.sender.subscribe(), move |event| {
            let _listening = &listening;
            event.into_iter().for_each(&listen);
        })
    }

    /// Calls `listen` for every event as [`for_each`](Events::for_each) does, and with the number
    /// of events that were lost where some were.
    #[cfg(feature = "metrics")]
    pub(crate) fn count_each(
        &self,
        listen: impl Fn(Result<&Event, u64>) + Send + 'static,
    ) -> std::io::Result<()> {
        let listening = self.0.listeners.join();
        Self::hear(self.0.sender.subscribe(), move |event| {
            let _listening = &listening;
            listen(event);
        })
    }

    /// The same for rare events only: scheduled retries and state changes of breakers.
    pub fn for_each_rare(&self, listen: impl Fn(&Event) + Send + 'static) -> std::io::Result<()> {
        Self::hear(self.0.rare.subscribe(), move |event| event.into_iter().for_each(&listen))
    }

    /// Runs a listener on its own thread; it hears every event, or how many it lost. The thread
    /// holds no sender, so it ends when the last sender is gone.
    fn hear(
        mut receiver: broadcast::Receiver<Arc<Event>>,
        listen: impl Fn(Result<&Event, u64>) + Send + 'static,
    ) -> std::io::Result<()> {
        std::thread::Builder::new().name("seawall-listener".into()).spawn(move || {
            loop {
                match receiver.blocking_recv() {
                    // A panic loses this event for this listener; the next event is delivered
                    // again.
                    Ok(event) => drop(catch_unwind(AssertUnwindSafe(|| listen(Ok(&event))))),
                    Err(RecvError::Lagged(lost)) => {
                        drop(catch_unwind(AssertUnwindSafe(|| listen(Err(lost)))));
                    }
                    Err(RecvError::Closed) => break,
                }
            }
        })?;
        Ok(())
    }

    /// Whether there is a listener of all events.
    pub(crate) fn has_listeners(&self) -> bool {
        self.0.listeners.are_there()
    }

    /// Sends an event to the listeners; `event` is built only if there are any. For whoever embeds
    /// the library and has steps of its own on the path of a call.
    pub fn emit(&self, event: impl FnOnce() -> Event) {
        if self.has_listeners() {
            // An error means that the last listener left meanwhile.
            drop(self.0.sender.send(Arc::new(event())));
        }
    }
}

impl Events {
    /// Sends a rare event to all listeners, and to the listeners of rare events.
    pub(crate) fn emit_rare(&self, event: impl FnOnce() -> Event) {
        if self.has_listeners() || self.0.rare.receiver_count() > 0 {
            let event = Arc::new(event());
            drop(self.0.rare.send(Arc::clone(&event)));
            drop(self.0.sender.send(event));
        }
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

/// Receives events; costs nothing after it is dropped.
#[derive(Debug)]
pub struct Listener {
    _listening: Listening,
    receiver: broadcast::Receiver<Arc<Event>>,
    missed: u64,
}

impl Listener {
    /// The next event; `None` when no sender is left.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(count)) => self.missed += count,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// The events that are queued now, without waiting for more.
    pub fn drain(&mut self) -> Vec<Arc<Event>> {
        let mut events = Vec::new();
        loop {
            match self.receiver.try_recv() {
                Ok(event) => events.push(event),
                Err(broadcast::error::TryRecvError::Lagged(count)) => self.missed += count,
                Err(_) => return events,
            }
        }
    }

    /// How many events were lost because this listener was too slow.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn event(tool: &str) -> Event {
        Event::Degraded { server: "s".into(), tool: tool.into() }
    }

    #[test]
    fn nothing_is_built_without_a_listener() {
        let events = Events::new();
        events.emit(|| panic!("built for nobody"));

        drop(events.subscribe());
        events.emit(|| panic!("built for a listener that left"));
    }

    #[test]
    fn who_wants_only_what_is_rare_costs_nothing_else() {
        let events = Events::new();
        let (heard, hears) = mpsc::channel();
        events.for_each_rare(move |event| heard.send(event.clone()).unwrap()).unwrap();
        events.emit(|| panic!("built for nobody"));

        let mut all = events.subscribe();
        events.emit(|| event("often"));
        events.emit_rare(|| event("rare"));

        assert_eq!(hears.recv(), Ok(event("rare")));
        assert_eq!(all.drain().len(), 2);
    }

    #[tokio::test]
    async fn a_listener_hears_when_nobody_can_speak_any_more() {
        let events = Events::new();
        let mut listener = events.subscribe();
        events.emit(|| event("last"));
        drop(events);

        assert!(listener.next().await.is_some());
        assert_eq!(listener.next().await, None);
    }

    #[test]
    fn a_slow_listener_loses_the_oldest_and_knows_how_many() {
        let events = Events::new();
        let mut listener = events.subscribe();

        for n in 0..QUEUE + 10 {
            events.emit(|| event(&n.to_string()));
        }

        assert_eq!(listener.drain().first().map(|e| (**e).clone()), Some(event("10")));
        assert_eq!(listener.missed(), 10);
    }

    #[test]
    fn a_listener_that_panics_hears_the_next_event() {
        let events = Events::new();
        let (heard, hears) = mpsc::channel();
        events
            .for_each(move |event| match event {
                Event::Degraded { tool, .. } if tool == "bad" => panic!("listener"),
                Event::Degraded { tool, .. } => heard.send(tool.clone()).unwrap(),
                _ => {}
            })
            .unwrap();

        events.emit(|| event("bad"));
        events.emit(|| event("good"));

        assert_eq!(hears.recv(), Ok("good".to_owned()));
    }

    #[test]
    fn a_listener_that_blocks_does_not_block_the_sender() {
        let events = Events::new();
        let (release, blocked) = mpsc::channel::<()>();
        events
            .for_each(move |_| {
                let _ = blocked.recv();
            })
            .unwrap();

        for _ in 0..3 * QUEUE {
            events.emit(|| event("x"));
        }
        drop(release);
    }

    #[test]
    fn the_log_lines_of_retries_and_breakers_are_exact() {
        let retry = Event::RetryScheduled {
            server: String::new(),
            tool: String::new(),
            attempt: 1,
            of: 3,
            delay: Duration::from_millis(1180),
            error: "429".into(),
        };
        assert_eq!(retry.to_string(), "[Retry] Attempt 1/3 failed. Retrying in 1180ms. Error: 429");

        let change = Event::BreakerChanged {
            name: "get_issue".into(),
            from: BreakerStatus::HalfOpen,
            to: BreakerStatus::Closed,
        };
        assert_eq!(change.to_string(), "[CircuitBreaker] get_issue: half-open → closed");
    }
}
