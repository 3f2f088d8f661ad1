//! The policies that are there without any feature, each used alone: what
//! `default-features = false` promises. Compiled with every set of features.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

use std::time::Duration;

use seawall::{
    BreakerPolicy, Bulkhead, BulkheadPolicy, CircuitBreaker, Effect, Env, FallbackChain,
    GuardedError, Rate, RateLimiter, Retry, Step, within,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_retry_alone_repeats_a_read_until_it_works() {
    let result = Retry::new(Effect::ReadOnly)
        .call(|attempt| async move {
            if attempt < 3 { Err("503 Service Unavailable") } else { Ok(attempt) }
        })
        .await
        .unwrap();

    assert_eq!((result.value, result.attempts), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_breaker_alone_opens_and_probes_again() {
    let breaker = CircuitBreaker::new(BreakerPolicy::new(2, SECOND), &Env::new()).unwrap();
    for _ in 0..2 {
        let _ = breaker.call("t", || async { Err::<(), _>("503 Service Unavailable") }).await;
    }
    let refused = breaker.call("t", || async { Ok::<_, &str>(()) }).await;
    assert!(matches!(refused, Err(GuardedError::Open(_))));

    tokio::time::advance(2 * SECOND).await;
    assert!(breaker.call("t", || async { Ok::<_, &str>(()) }).await.is_ok());
}

#[tokio::test]
async fn a_fallback_chain_alone_takes_the_next_way() {
    let steps = vec![
        Step::new("first", || async { Err("503 Service Unavailable".into()) }),
        Step::new("second", || async { Ok(2) }),
    ];
    assert_eq!(FallbackChain::new(steps).unwrap().run().await.unwrap().value, 2);
}

#[tokio::test(start_paused = true)]
async fn bulkhead_rate_and_deadline_alone_refuse_what_is_too_much() {
    let bulkhead = Bulkhead::new(BulkheadPolicy { waiting: 0, ..BulkheadPolicy::new(1) }).unwrap();
    let _held = bulkhead.take(SECOND).await.unwrap();
    assert!(bulkhead.take(SECOND).await.is_err());

    let rate = Rate { count: 1, per: SECOND, burst: 1 };
    let limiter = RateLimiter::new(rate, &Env::new().clock).unwrap();
    assert!(limiter.check().is_ok() && limiter.check().is_err());

    assert!(within(SECOND, std::future::pending::<()>()).await.is_err());
}
