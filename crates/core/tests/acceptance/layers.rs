//! The three layers in their shortest use: retry, circuit breaker, fallback chain.

use super::kit::*;
use seawall::*;

#[tokio::test(start_paused = true)]
async fn retry_succeeds_on_the_third_attempt() {
    let tools = caller(&env(0.5));
    let flaky = Script::failing(["429 rate limit"; 2]);

    let result = tools.call("test-tool", nothing(), flaky.send()).await;

    assert_eq!(result.value().map(String::as_str), Some("ok"));
    assert_eq!(result.attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn circuit_breaker_opens_after_five_failures() {
    let breaker = CircuitBreaker::new(BreakerPolicy::new(5, secs(1)), &env(0.5)).unwrap();
    for _ in 0..5 {
        assert!(breaker.call("flaky", || async { Err::<&str, _>("fail") }).await.is_err());
    }

    let sixth = breaker.call("flaky", || async { Ok::<_, &str>("should not reach") }).await;

    assert!(matches!(sixth, Err(GuardedError::Open(_))));
}

#[tokio::test(start_paused = true)]
async fn fallback_chain_exhausts() {
    let chain = FallbackChain::<&str>::new(vec![
        Step::new("primary", || async { Err("fail".into()) }),
        Step::new("backup", || async { Err("also fail".into()) }),
    ])
    .unwrap();

    assert!(matches!(chain.run().await, Err(ChainError::Exhausted { .. })));
}
