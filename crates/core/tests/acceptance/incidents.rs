//! One incident that ends many calls is one failure, and the calls are tried again as their effect
//! allows.

use super::kit::*;
use futures_util::future::join_all;
use seawall::*;
use serde_json::json;

fn lost(incident: u64) -> FailureSignals {
    FailureSignals::transport(TransportFailure::Lost, "its process ended").with_incident(incident)
}

/// Eight calls at a time, all ended by the same incident at their first attempt.
async fn struck_together(
    tools: &ToolCaller<String>,
    tool: &'static str,
    incident: u64,
) -> Vec<Answer<String>> {
    let dies = |attempt: Attempt| async move {
        tokio::time::sleep(ms(10)).await;
        if attempt.number == 1 { Err(lost(incident)) } else { Ok("ok".to_owned()) }
    };
    join_all((0..8).map(|n| tools.call(tool, json!({ "n": n, "incident": incident }), dies))).await
}

#[tokio::test(start_paused = true)]
async fn a_death_that_ends_eight_reads_counts_once_and_all_are_tried_again() {
    let tools = caller(&env(0.0));

    let answers = struck_together(&tools, "get_issue", 1).await;

    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.outcome, Outcome::Live(_)) && answer.attempts == 2)
    );
    assert_eq!(tools.breaker_status("get_issue").unwrap().trips, 0);
}

#[tokio::test(start_paused = true)]
async fn a_death_that_ends_eight_writes_counts_once_and_none_is_tried_again() {
    let tools = caller(&env(0.0));

    let answers = struck_together(&tools, "create_issue", 1).await;

    assert!(answers.iter().all(|answer| report(answer).may_have_executed && answer.attempts == 1));
    let breaker = tools.breaker_status("create_issue").unwrap();
    assert_eq!((breaker.status, breaker.failures), (BreakerStatus::Closed, 1));
}

#[tokio::test(start_paused = true)]
async fn three_deaths_in_a_row_open_the_breaker_of_a_write() {
    let tools = caller(&env(0.0));

    for (incident, status) in
        [(1, BreakerStatus::Closed), (2, BreakerStatus::Closed), (3, BreakerStatus::Open)]
    {
        struck_together(&tools, "create_issue", incident).await;
        assert_eq!(
            tools.breaker_status("create_issue").unwrap().status,
            status,
            "after {incident}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_connections_breaker_counts_incidents_too() {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    let connection = Some(BreakerPolicy::new(2, secs(30)));
    let server =
        pipeline.server("s", ServerPolicy { connection, ..ServerPolicy::default() }).unwrap();
    let policy = Preset::Default.policy(&ToolFacts::named("create_issue"), &Tiers::default());
    let tool = pipeline.tool("s", "create_issue", policy).unwrap();

    for (incident, status) in
        [(1, BreakerStatus::Closed), (1, BreakerStatus::Closed), (2, BreakerStatus::Open)]
    {
        let dies = |_| std::future::ready(Err::<String, _>(lost(incident)));
        pipeline.run(&tool, &Call::new(json!({ "incident": incident })), dies).await;
        assert_eq!(server.connection().unwrap().status(), status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_word_of_an_earlier_incident_counts_no_more_and_other_failures_always_count() {
    let breaker = Breaker::new("b", BreakerPolicy::default(), &env(0.0)).unwrap();
    let failures = |blame, incident| {
        breaker.admit().unwrap().blame_incident(blame, incident);
        breaker.snapshot().failures
    };

    assert_eq!(failures(Blame::Server, Some(7)), 1);
    assert_eq!(failures(Blame::Server, Some(6)), 1);
    assert_eq!(failures(Blame::Server, Some(7)), 1);
    assert_eq!(failures(Blame::Server, None), 2);
    assert_eq!(failures(Blame::Server, Some(8)), 3);
    assert_eq!(failures(Blame::Alive, Some(9)), 0);
}
