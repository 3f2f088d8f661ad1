//! The layer in a real `tower` stack: which requests are repeated, refused and told to wait.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

use std::future::{Ready, pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use seawall::{
    Breaker, BreakerPolicy, BreakerStatus, Cause, Effect, Env, FailureSignals, ResilienceLayer,
    Retry, Sent, TransportFailure,
};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);

/// A request that says what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Get,
    Post,
}

fn effect(method: &Method) -> Effect {
    match method {
        Method::Get => Effect::ReadOnly,
        Method::Post => Effect::Write,
    }
}

/// Counts how often a service was called.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

impl Count {
    fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

fn lost() -> FailureSignals {
    FailureSignals::transport(TransportFailure::Lost, "connection reset")
}

fn breaker(failures: u32) -> Arc<Breaker> {
    Arc::new(Breaker::new("api", BreakerPolicy::new(failures, 30 * SECOND), &Env::new()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_read_is_repeated_and_a_write_that_may_have_run_is_not() {
    let calls = Count::default();
    let counted = calls.clone();
    let service = ServiceBuilder::new()
        .layer(ResilienceLayer::new(Retry::new(Effect::Write)).effect_of(effect))
        .service(service_fn(move |_: Method| {
            let answer = if counted.add() % 3 == 0 { Ok("done") } else { Err(lost()) };
            ready(answer)
        }));

    assert_eq!(service.clone().oneshot(Method::Get).await.unwrap(), "done");
    assert_eq!(calls.get(), 3);

    let gave_up = service.oneshot(Method::Post).await.unwrap_err();
    assert_eq!(calls.get(), 4, "the write was sent once");
    assert_eq!((gave_up.attempts, gave_up.failure.sent), (1, Sent::Maybe));
    assert_eq!(gave_up.error, Some(lost()), "the service's own error, unchanged");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_never_sent_is_repeated() {
    let calls = Count::default();
    let counted = calls.clone();
    let service = ServiceBuilder::new()
        .layer(ResilienceLayer::new(Retry::new(Effect::Write)))
        .service(service_fn(move |_: Method| {
            let refused = FailureSignals::transport(TransportFailure::Refused, "refused");
            ready(if counted.add() == 1 { Err(refused) } else { Ok(()) })
        }));

    service.oneshot(Method::Post).await.unwrap();
    assert_eq!(calls.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_refuses_without_asking_the_service() {
    let (calls, breaker) = (Count::default(), breaker(2));
    let counted = calls.clone();
    let retry = Retry::new(Effect::ReadOnly).breaker(breaker.clone());
    let mut service = ServiceBuilder::new().layer(ResilienceLayer::new(retry)).service(service_fn(
        move |_: Method| {
            counted.add();
            ready(Err::<(), _>("503 Service Unavailable"))
        },
    ));

    let opened = service.ready().await.unwrap().call(Method::Get).await.unwrap_err();
    assert_eq!((opened.attempts, calls.get()), (2, 2), "no third attempt: it has opened");
    assert_eq!(breaker.status(), BreakerStatus::Open);

    let refused = service.ready().await.unwrap().call(Method::Get).await.unwrap_err();
    assert_eq!((refused.failure.cause, refused.attempts), (Cause::CircuitOpen, 0));
    assert_eq!((refused.error, calls.get()), (None, 2));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_a_failure_is_retried_and_the_last_one_passed_on() {
    let (calls, breaker) = (Count::default(), breaker(3));
    let counted = calls.clone();
    let failure = |status: &u16| {
        (*status >= 500).then(|| FailureSignals {
            status: Some(*status),
            ..FailureSignals::text("the API failed")
        })
    };
    let retry = Retry::new(Effect::ReadOnly).breaker(breaker.clone());
    let service = ServiceBuilder::new()
        .layer(ResilienceLayer::new(retry).failure_of(failure))
        .service(service_fn(move |_: Method| {
            counted.add();
            ready(Ok::<u16, String>(503))
        }));

    assert_eq!(service.oneshot(Method::Get).await, Ok(503));
    assert_eq!((calls.get(), breaker.status()), (3, BreakerStatus::Open));
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_only_when_the_service_is() {
    let mut service = ServiceBuilder::new()
        .layer(ResilienceLayer::new(Retry::new(Effect::ReadOnly)))
        .concurrency_limit(1)
        .service(service_fn(|_: Method| pending::<Result<(), String>>()));
    let mut other = service.clone();

    let running = begun(service.ready().await.unwrap().call(Method::Get));
    assert!(is_pending(&mut other), "the one place is taken");

    drop(running);
    assert!(!is_pending(&mut other), "and free again when the request is dropped");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_service_only_to_be_refused() {
    let breaker = breaker(1);
    let retry = Retry::new(Effect::ReadOnly).breaker(breaker.clone());
    let mut service = ServiceBuilder::new()
        .layer(ResilienceLayer::new(retry))
        .concurrency_limit(1)
        .service(service_fn(|_: Method| pending::<Result<(), String>>()));
    let mut other = service.clone();
    let _running = begun(service.ready().await.unwrap().call(Method::Get));
    assert!(is_pending(&mut other));

    breaker.admit().unwrap().badly();
    assert!(!is_pending(&mut other));
    let refused = other.call(Method::Get).await.unwrap_err();
    assert_eq!(refused.failure.cause, Cause::CircuitOpen);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_cannot_become_ready_has_its_error_passed_on() {
    #[derive(Clone)]
    struct Closed;
    impl Service<Method> for Closed {
        type Response = ();
        type Error = String;
        type Future = Ready<Result<(), String>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
            Poll::Ready(Err("the worker is gone".into()))
        }
        fn call(&mut self, _: Method) -> Self::Future {
            panic!("called although it was not ready")
        }
    }
    let layer = ResilienceLayer::new(Retry::new(Effect::Write));

    let gone = ServiceBuilder::new().layer(layer).service(Closed);
    let gave_up = gone.oneshot(Method::Post).await.unwrap_err();
    assert_eq!((gave_up.attempts, gave_up.failure.sent), (0, Sent::Never));
    assert_eq!(gave_up.error.as_deref(), Some("the worker is gone"));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_drops_its_attempt_and_decides_nothing() {
    let (held, breaker) = (Arc::new(()), breaker(1));
    let inner = held.clone();
    let retry = Retry::new(Effect::ReadOnly).breaker(breaker.clone());
    let mut service = ServiceBuilder::new().layer(ResilienceLayer::new(retry)).service(service_fn(
        move |_: Method| {
            let held = inner.clone();
            async move {
                pending::<()>().await;
                drop(held);
                Ok::<(), String>(())
            }
        },
    ));

    let before = Arc::strong_count(&held);
    let running = begun(service.ready().await.unwrap().call(Method::Get));
    assert!(Arc::strong_count(&held) > before);
    drop(running);

    assert_eq!(Arc::strong_count(&held), before);
    assert_eq!((breaker.status(), breaker.snapshot().failures), (BreakerStatus::Closed, 0));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_is_cut_off_and_repeated() {
    let calls = Count::default();
    let counted = calls.clone();
    let retry = Retry::new(Effect::ReadOnly).attempt_timeout(SECOND).unwrap();
    let service =
        ServiceBuilder::new().layer(ResilienceLayer::new(retry)).service(service_fn(move |_| {
            let is_first = counted.add() == 1;
            async move {
                if is_first {
                    pending::<()>().await;
                }
                Ok::<_, String>("late but there")
            }
        }));

    assert_eq!(service.oneshot(Method::Get).await.unwrap(), "late but there");
    assert_eq!(calls.get(), 2);
}

/// A future that was begun and has to wait.
fn begun<F: Future + Unpin>(mut future: F) -> F {
    let mut context = Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut future).poll(&mut context).is_pending());
    future
}

fn is_pending<S: Service<Method>>(service: &mut S) -> bool {
    let mut context = Context::from_waker(std::task::Waker::noop());
    service.poll_ready(&mut context).is_pending()
}
