//! Decides what becomes of a future that is woken while it runs: it runs again at once, a few
//! times, and only then in another turn of its task.
//!
//! hyper and the service of a connection hand each other the body of a request by waking the task
//! that runs both. A task that is woken while it runs goes to the end of tokio's queue, and another
//! thread is woken to take it from there.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// How often a future runs before other tasks have their turn.
const RUNS: usize = 8;

const RUNNING: u8 = 1;
const WOKEN: u8 = 2;

/// A future that goes on in the same turn when it is woken in it.
pub(crate) struct OneTurn<F> {
    inner: Pin<Box<F>>,
    wakes: Arc<TurnWaker>,
    waker: Waker,
}

/// Takes the wake-ups of the future inside.
struct TurnWaker {
    /// `RUNNING` while the future runs; `WOKEN` since it was woken. Always changed by one step that
    /// reads and writes: then who runs the future sees what everybody did who woke it.
    state: AtomicU8,
    /// Wakes the task.
    task: Mutex<Waker>,
}

impl TurnWaker {
    fn task(&self) -> MutexGuard<'_, Waker> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for TurnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) & RUNNING == 0 {
            self.task().wake_by_ref();
        }
    }
}

impl<F: Future> OneTurn<F> {
    pub(crate) fn new(inner: F) -> Self {
        let task = Mutex::new(Waker::noop().clone());
        let wakes = Arc::new(TurnWaker { state: AtomicU8::new(0), task });
        Self { inner: Box::pin(inner), waker: Arc::clone(&wakes).into(), wakes }
    }
}

impl<F: Future> Future for OneTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.wakes.task().clone_from(context.waker());
        let mut inside = Context::from_waker(&this.waker);
        for _ in 0..RUNS {
            this.wakes.state.swap(RUNNING, Ordering::AcqRel);
            let polled = this.inner.as_mut().poll(&mut inside);
            let was_woken = this.wakes.state.swap(0, Ordering::AcqRel) & WOKEN != 0;
            if polled.is_ready() || !was_woken {
                return polled;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts the wake-ups of a task.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A future that wakes itself for as long as `more` says, and how often it ran.
    fn waking(more: impl Fn(usize) -> bool) -> (impl Future<Output = ()>, Arc<AtomicUsize>) {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let future = poll_fn(move |context| {
            let run = counted.fetch_add(1, Ordering::Relaxed) + 1;
            if !more(run) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        });
        (future, runs)
    }

    fn polled<F: Future>(future: &mut OneTurn<F>, task: &Arc<Task>) -> Poll<F::Output> {
        let waker = Arc::clone(task).into();
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn a_future_that_wakes_itself_ends_in_one_turn_and_wakes_nobody() {
        let (task, (future, runs)) = (Arc::default(), waking(|run| run < 3));
        assert!(polled(&mut OneTurn::new(future), &task).is_ready());
        assert_eq!((runs.load(Ordering::Relaxed), task.0.load(Ordering::Relaxed)), (3, 0));
    }

    #[test]
    fn a_future_that_wakes_itself_for_ever_lets_others_have_their_turn() {
        let (task, (future, runs)) = (Arc::default(), waking(|_| true));
        assert!(polled(&mut OneTurn::new(future), &task).is_pending());
        assert_eq!((runs.load(Ordering::Relaxed), task.0.load(Ordering::Relaxed)), (RUNS, 1));
    }

    #[test]
    fn a_wake_up_while_the_future_waits_reaches_the_task_that_polled_it_last() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut future = OneTurn::new(receiver);
        let (first, second) = (Arc::default(), Arc::default());
        assert!(polled(&mut future, &first).is_pending());
        assert!(polled(&mut future, &second).is_pending());
        sender.send(7).unwrap();
        assert_eq!(second.0.load(Ordering::Relaxed), 1);
        assert_eq!(first.0.load(Ordering::Relaxed), 0);
        assert_eq!(polled(&mut future, &second), Poll::Ready(Ok(7)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_up_of_another_thread_is_lost() {
        let (to, mut from) = tokio::sync::mpsc::channel(1);
        let sending = tokio::spawn(async move {
            for number in 0..20_000_u32 {
                to.send(number).await.unwrap();
            }
        });
        let reading = tokio::spawn(OneTurn::new(async move {
            let mut sum = 0;
            while let Some(number) = from.recv().await {
                sum += u64::from(number);
            }
            sum
        }));
        sending.await.unwrap();
        assert_eq!(reading.await.unwrap(), 20_000 * 19_999 / 2);
    }
}
