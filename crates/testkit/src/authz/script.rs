//! What a scripted server does next: a queue of single acts first, then one rule for all others;
//! and what it remembers of what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{MOST, Pending};

/// What is done with one request.
#[derive(Clone, Debug)]
pub enum Act<A> {
    /// Answers.
    Answer(A),
    /// Never answers; the connection stays.
    Hang,
    /// Resets the connection, and with it all that is under way on it.
    Reset,
    /// Waits first.
    After(Duration, Box<Act<A>>),
}

impl<A> Act<A> {
    /// The same, so much later.
    pub fn after(self, delay: Duration) -> Self {
        Self::After(delay, Box::new(self))
    }

    /// Does it; comes back only with an answer.
    async fn play(mut self, reset: &CancellationToken) -> A {
        loop {
            match self {
                Self::Answer(answer) => return answer,
                Self::Hang => return std::future::pending().await,
                Self::Reset => {
                    reset.cancel();
                    return std::future::pending().await;
                }
                Self::After(delay, then) => {
                    tokio::time::sleep(delay).await;
                    self = *then;
                }
            }
        }
    }
}

impl<A> From<A> for Act<A> {
    fn from(answer: A) -> Self {
        Self::Answer(answer)
    }
}

/// The rule for requests that no act of the queue is for.
type Rule<Q, A> = dyn Fn(Arc<Q>) -> Pending<Act<A>> + Send + Sync;

/// Acts, and the memory of requests.
pub(super) struct Script<Q, A> {
    state: Mutex<State<Q, A>>,
}

struct State<Q, A> {
    queue: VecDeque<Act<A>>,
    rule: Arc<Rule<Q, A>>,
    asked: VecDeque<Arc<Q>>,
    now: usize,
    peak: usize,
}

impl<Q: Send + Sync + 'static, A: Clone + Send + Sync + 'static> Script<Q, A> {
    /// A script with nothing in its queue.
    pub(super) fn new(rule: impl Fn(Arc<Q>) -> Pending<Act<A>> + Send + Sync + 'static) -> Self {
        let rule: Arc<Rule<Q, A>> = Arc::new(rule);
        let (queue, asked) = (VecDeque::new(), VecDeque::new());
        Self { state: Mutex::new(State { queue, rule, asked, now: 0, peak: 0 }) }
    }

    /// Answers the same always.
    pub(super) fn always(act: Act<A>) -> Self {
        Self::new(move |_| ready(act.clone()))
    }

    pub(super) fn push(&self, act: Act<A>) {
        self.state().queue.push_back(act);
    }

    pub(super) fn set(&self, rule: impl Fn(&Q) -> Act<A> + Send + Sync + 'static) {
        self.state().rule = Arc::new(move |asked| ready(rule(&asked)));
    }

    pub(super) fn clear_queue(&self) {
        self.state().queue.clear();
    }

    pub(super) fn forget(&self) {
        let mut state = self.state();
        state.asked.clear();
        state.peak = state.now;
    }

    pub(super) fn peak(&self) -> usize {
        self.state().peak
    }

    pub(super) fn now(&self) -> usize {
        self.state().now
    }

    pub(super) fn asked(&self) -> Vec<Arc<Q>> {
        self.state().asked.iter().cloned().collect()
    }

    pub(super) fn count(&self) -> usize {
        self.state().asked.len()
    }

    /// Remembers the request and does what the script says; counted as under way until the answer
    /// is there or the client gave up.
    pub(super) async fn play(&self, asked: Q, reset: &CancellationToken) -> A {
        let asked = Arc::new(asked);
        let (_under_way, act, rule) = {
            let mut state = self.state();
            if state.asked.len() == MOST {
                state.asked.pop_front();
            }
            state.asked.push_back(Arc::clone(&asked));
            state.now += 1;
            state.peak = state.peak.max(state.now);
            (UnderWay(self), state.queue.pop_front(), Arc::clone(&state.rule))
        };
        let act = match act {
            Some(act) => act,
            None => rule(asked).await,
        };
        act.play(reset).await
    }

    fn state(&self) -> MutexGuard<'_, State<Q, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request, until it is answered or given up.
struct UnderWay<'a, Q: Send + Sync + 'static, A: Clone + Send + Sync + 'static>(&'a Script<Q, A>);

impl<Q: Send + Sync + 'static, A: Clone + Send + Sync + 'static> Drop for UnderWay<'_, Q, A> {
    fn drop(&mut self) {
        self.0.state().now -= 1;
    }
}

fn ready<T: Send + 'static>(value: T) -> Pending<T> {
    Box::pin(std::future::ready(value))
}
