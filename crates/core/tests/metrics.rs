//! What whoever embeds the library shows to Prometheus, after real calls of a `ToolCaller` and of
//! a breaker alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]
#![allow(
    clippy::disallowed_methods,
    reason = "a thread counts: the test waits for it in real time"
)]

use std::time::{Duration, Instant};

use seawall::{
    BreakerPolicy, CallerOptions, CircuitBreaker, Env, Event, Metrics, Settings, ToolCaller,
};
use serde_json::json;

/// The metrics, once a sample is among them: they are counted on a thread of their own.
fn text_with(metrics: &Metrics, tools: &ToolCaller<String>, sample: &str) -> String {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let text = metrics.text(tools.all_breaker_status());
        if text.lines().any(|line| line == sample) {
            return text;
        }
        assert!(Instant::now() < patience, "no {sample} in\n{text}");
        std::thread::yield_now();
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_embeds_the_library_gets_the_four_metrics_in_five_lines() {
    let env = Env::new();
    let metrics = Metrics::listen(&env.events).unwrap();
    let settings = Settings { env, ..Settings::<String>::default() };
    let tools = ToolCaller::new(settings).unwrap();
    let down = |_| async { Err("503 Service Unavailable".into()) };

    tools.call("get_issue", json!({"n": 1}), |_| async { Ok("issue 1".to_owned()) }).await;
    // Two calls, three attempts each, and the fifth failure opens the breaker.
    let copy = tools.call("get_issue", json!({"n": 1}), down).await;
    assert!(copy.value().is_some());
    tools.call("get_issue", json!({"n": 2}), down).await;
    tools.call("get_issue", json!({"n": 3}), down).await;

    let text = text_with(&metrics, &tools, "graceful_degradation_total{tool=\"get_issue\"} 1");
    for sample in [
        "# TYPE retry_attempts_total counter",
        "retry_attempts_total{tool=\"get_issue\"} 3",
        "# TYPE circuit_breaker_state gauge",
        "circuit_breaker_state{tool=\"get_issue\",state=\"closed\"} 0",
        "circuit_breaker_state{tool=\"get_issue\",state=\"half-open\"} 0",
        "circuit_breaker_state{tool=\"get_issue\",state=\"open\"} 1",
        "fallback_activated_total{tool=\"get_issue\",step=\"cached\"} 1",
        "seawall_calls_total{tool=\"get_issue\",class=\"CIRCUIT_OPEN\"} 1",
        "seawall_events_missed_total 0",
    ] {
        assert!(text.lines().any(|line| line == sample), "no {sample} in\n{text}");
    }
}

#[tokio::test]
async fn a_server_that_is_named_is_a_label() {
    let env = Env::new();
    let metrics = Metrics::listen(&env.events).unwrap();
    let settings = Settings { env, ..Settings::<String>::default() };
    let options = CallerOptions { server: "github".into(), ..CallerOptions::default() };
    let tools = ToolCaller::with_options(settings, options).unwrap();

    tools.call("get_issue", json!({}), |_| async { Ok(String::new()) }).await;

    let counted = "seawall_calls_total{tool=\"get_issue\",server=\"github\",class=\"ok\"} 1";
    text_with(&metrics, &tools, counted);
}

#[test]
fn events_that_come_too_fast_are_counted_as_missed_and_not_hidden() {
    let env = Env::new();
    let metrics = Metrics::listen(&env.events).unwrap();
    let breakers = CircuitBreaker::new(BreakerPolicy::default(), &env).unwrap();
    breakers.breaker("search");
    let told = |name: &str| {
        let text = metrics.text(breakers.all_status());
        let line = text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    const SENT: u64 = 50_000;
    for _ in 0..SENT {
        env.events.emit(|| Event::Degraded { server: String::new(), tool: "search".into() });
    }

    let patience = Instant::now() + Duration::from_secs(20);
    while told("graceful_degradation_total") + told("seawall_events_missed_total") < SENT {
        assert!(Instant::now() < patience, "events were lost without a word");
        std::thread::yield_now();
    }
    assert_eq!(told("circuit_breaker_state{tool=\"search\",state=\"closed\"}"), 1);
}
