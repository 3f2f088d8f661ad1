//! Fallback chains: steps in order, true counts, exact texts.

use super::kit::*;
use seawall::*;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn failing(name: &str, text: &'static str) -> Step<String> {
    Step::new(name, move || async move { Err(text.into()) })
}

fn working(name: &str) -> Step<String> {
    Step::new(name, || async { Ok("value".to_owned()) })
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_chain_tells_every_step() {
    let chain =
        FallbackChain::new(vec![failing("primary", "fail"), failing("backup", "also fail")])
            .unwrap();

    let error = chain.run().await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "All fallback steps exhausted. Warnings:\nprimary: fail\nbackup: also fail"
    );
    assert!(matches!(error, ChainError::Exhausted { attempts: 2, .. }));
}

#[test]
fn an_empty_chain_is_an_error() {
    let error = FallbackChain::<String>::new(vec![]).unwrap_err();

    assert_eq!(
        (error.field.as_str(), error.problem.as_str()),
        ("steps", "Fallback chain must have at least one step")
    );
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_step_is_skipped_with_its_warning() {
    let chain =
        FallbackChain::new(vec![working("primary").when(|| false), working("backup")]).unwrap();

    let result = chain.run().await.unwrap();

    assert_eq!((result.final_step.as_str(), result.attempts), ("backup", 1));
    assert_eq!(result.warnings, ["primary: unavailable, skipping"]);
}

#[tokio::test(start_paused = true)]
async fn an_open_step_is_passed_over_with_its_wait() {
    let chain =
        FallbackChain::in_env(vec![failing("primary", "fail"), working("backup")], env(0.0))
            .unwrap();
    for _ in 0..5 {
        chain.run().await.unwrap();
    }

    let result = chain.run().await.unwrap();

    assert_eq!(result.warnings, ["primary: circuit open (retry in 30000ms)"]);
    assert_eq!(result.attempts, 1, "only what was executed counts");
}

#[tokio::test(start_paused = true)]
async fn three_tries_and_a_cached_copy_are_four_attempts() {
    let caller = caller(&env(0.0));
    let cached = [Step::new("get_issue-cached", || async { Ok("copy".to_owned()) })];
    let down = Script::down("503 Service Unavailable");

    let answer =
        caller.call_with("get_issue", json!({"issue_number": 1}), &cached, down.send()).await;

    assert_eq!(
        (answer.attempts, answer.final_step().as_str(), down.executions()),
        (4, "get_issue-cached", 3)
    );
    assert_eq!(
        answer.warnings,
        ["get_issue: 503 Service Unavailable", "get_issue-cached: unavailable, skipping"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_callers_fault_stops_the_chain() {
    let chain =
        FallbackChain::new(vec![failing("primary", "422 invalid"), working("backup")]).unwrap();

    assert!(
        matches!(chain.run().await, Err(ChainError::Stopped { step, attempts: 1, .. }) if step == "primary")
    );
}

#[tokio::test(start_paused = true)]
async fn the_chain_retries_only_when_told_to_and_keeps_one_deadline() {
    let run = |attempts, timeout| async move {
        let chain =
            FallbackChain::in_env(vec![failing("primary", "503"), working("backup")], env(0.0))
                .unwrap();
        let policy = RetryPolicy::new(attempts, Backoff::FALLBACK);
        let chain = chain.retry(policy, Effect::ReadOnly).unwrap().timeout(timeout).unwrap();
        let (result, elapsed) = timed(chain.run()).await;
        (result.unwrap().attempts, elapsed)
    };

    assert_eq!(run(1, secs(60)).await, (2, ms(0)));
    assert_eq!(run(2, secs(60)).await, (3, ms(500)));
    assert_eq!(
        run(3, ms(1200)).await,
        (3, ms(500)),
        "a second pause of 1 s does not fit into its half"
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_that_hangs_is_cut_off_at_the_chains_deadline() {
    let hangs = Step::new("primary", std::future::pending);
    let chain =
        FallbackChain::<String>::in_env(vec![hangs], env(0.0)).unwrap().timeout(secs(5)).unwrap();

    let (result, elapsed) = timed(chain.run()).await;

    assert_eq!(elapsed, secs(5));
    assert_eq!(
        result.unwrap_err().to_string(),
        "All fallback steps exhausted. Warnings:\nprimary: deadline exceeded"
    );
}

#[tokio::test(start_paused = true)]
async fn one_budget_pays_for_the_retries_of_all_steps() {
    let steps = vec![failing("primary", "503"), failing("backup", "503"), working("last")];
    let budget = BudgetPolicy { share: 1.0, floor: 0, saved: 1 };
    let budget = Arc::new(RetryBudget::new(budget, &Clock::tokio()).unwrap());
    let chain = FallbackChain::in_env(steps, env(0.0)).unwrap().budget(budget.clone());
    let chain = chain.retry(RetryPolicy::new(3, Backoff::FALLBACK), Effect::ReadOnly).unwrap();

    let result = chain.run().await.unwrap();

    assert_eq!(
        (result.attempts, result.final_step.as_str()),
        (4, "last"),
        "one retry for both steps that failed"
    );
    assert_eq!(budget.saved(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_operators_rule_holds_for_the_chain_and_its_breakers() {
    let closed = Verdict::new(Cause::InvalidInput, Disposition::Permanent);
    let classifier =
        Classifier::new().with_rule(Rule::phrases("closed", ["bank is closed"], closed)).unwrap();
    let chain =
        FallbackChain::new(vec![failing("primary", "503: the bank is closed"), working("backup")])
            .unwrap();
    let chain = chain.classifier(classifier);

    for _ in 0..10 {
        assert!(
            matches!(chain.run().await, Err(ChainError::Stopped { attempts: 1, .. })),
            "a caller's fault opens nothing"
        );
    }
}

fn hanging(name: &str) -> Step<String> {
    Step::new(name, std::future::pending)
}

#[tokio::test(start_paused = true)]
async fn a_step_that_hangs_takes_no_other_steps_turn() {
    let chain = FallbackChain::in_env(
        vec![hanging("primary"), hanging("second"), working("last")],
        env(0.0),
    )
    .unwrap();
    let (result, elapsed) = timed(chain.timeout(secs(9)).unwrap().run()).await;
    let result = result.unwrap();
    assert_eq!((result.final_step.as_str(), result.attempts, elapsed), ("last", 3, secs(6)));
    assert_eq!(result.warnings, ["primary: deadline exceeded", "second: deadline exceeded"]);

    let chain = FallbackChain::in_env(vec![hanging("primary"), hanging("last")], env(0.0)).unwrap();
    let (result, elapsed) = timed(chain.timeout(secs(9)).unwrap().run()).await;
    assert_eq!((result.is_err(), elapsed), (true, secs(9)), "all that is left is the last one's");
}

#[tokio::test(start_paused = true)]
async fn a_write_of_a_chain_has_all_the_time_because_no_other_may_follow_it() {
    let once = RetryPolicy::new(1, Backoff::FALLBACK);
    let chain =
        FallbackChain::in_env(vec![hanging("primary"), working("backup")], env(0.0)).unwrap();
    let chain = chain.retry(once, Effect::Write).unwrap().timeout(secs(9)).unwrap();
    let (result, elapsed) = timed(chain.run()).await;
    assert!(matches!(result, Err(ChainError::Stopped { attempts: 1, .. })));
    assert_eq!(elapsed, secs(9));
}

#[tokio::test(start_paused = true)]
async fn every_step_and_who_stood_in_is_told_to_those_who_listen() {
    let told = |chain: FallbackChain<String>, mut listener: Listener| async move {
        let _ended = tokio::time::timeout(secs(1), chain.run()).await;
        let mut short = Vec::new();
        for event in listener.drain() {
            short.push(match &*event {
                Event::AttemptStarted { tool, attempt, .. } => format!("{tool} starts, {attempt}"),
                Event::AttemptEnded { tool, attempt, cause, .. } => {
                    format!("{tool} ends, {attempt}: {cause:?}")
                }
                Event::FallbackServed { tool, step, .. } => format!("{step} for {tool}"),
                other => format!("{other:?}"),
            });
        }
        short
    };
    let listening = |steps| {
        let env = env(0.0);
        let listener = env.events.subscribe();
        told(FallbackChain::in_env(steps, env).unwrap(), listener)
    };

    assert_eq!(
        listening(vec![failing("primary", "503"), working("backup")]).await,
        [
            "primary starts, 1",
            "primary ends, 1: Some(Misbehaved)",
            "backup starts, 2",
            "backup ends, 2: None",
            "backup for primary",
        ]
    );
    assert_eq!(
        listening(vec![working("primary")]).await,
        ["primary starts, 1", "primary ends, 1: None"]
    );
    assert_eq!(
        listening(vec![hanging("primary")]).await,
        ["primary starts, 1", "primary ends, 1: Some(Cancelled)"],
        "its caller left"
    );
}

#[tokio::test(start_paused = true)]
async fn own_steps_that_fail_are_no_more_than_the_budget_bears_and_those_that_work_cost_nothing() {
    let budget = BudgetPolicy { share: 0.0, floor: 3, saved: 0 };
    let policy = ServerPolicy { budget, ..ServerPolicy::default() };
    let options = CallerOptions { policy, ..CallerOptions::default() };
    let tools = ToolCaller::with_options(settings(&env(0.0)), options).unwrap();
    let once = |policy: &mut Policy| {
        (policy.retry.attempts, policy.breaker) = (1, None);
        policy.fallback.clear();
    };
    tools.tool(ToolFacts::named("get_issue"), once).unwrap();
    let ten_calls = async |own: &Script, down: &Script| {
        let mut last = None;
        for n in 0..10 {
            let own = own.clone();
            let own = [Step::new("backup", move || std::future::ready(own.execute()))];
            last = Some(tools.call_with("get_issue", json!({ "n": n }), &own, down.send()).await);
        }
        last.unwrap()
    };

    let (own, down) = (Script::down("503"), Script::down("503"));
    let last = ten_calls(&own, &down).await;
    assert_eq!((down.executions(), own.executions()), (10, 3));
    assert_eq!(
        last.warnings,
        ["get_issue: 503", "backup: the retry budget of the server is spent"]
    );

    advance(secs(1)).await;
    let own = Script::healthy();
    let last = ten_calls(&own, &down).await;
    assert_eq!((own.executions(), served(&last).by.as_str()), (10, "backup"));
}

#[tokio::test(start_paused = true)]
async fn a_chain_without_a_limit_of_its_own_has_one_all_the_same() {
    let hangs = || Step::new("hangs", std::future::pending::<Result<&str, FailureSignals>>);
    let then = Step::new("then", || async { Ok("answered") });

    let (result, elapsed) = timed(FallbackChain::new(vec![hangs(), then]).unwrap().run()).await;
    assert_eq!((result.unwrap().value, elapsed), ("answered", secs(30)));

    let (result, elapsed) = timed(FallbackChain::new(vec![hangs()]).unwrap().run()).await;
    assert!(matches!(result, Err(ChainError::Exhausted { attempts: 1, .. })));
    assert_eq!(elapsed, secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_chain_shares_the_breakers_of_other_work() {
    let policy = BreakerPolicy::new(1, Duration::from_secs(30));
    let breakers = Arc::new(CircuitBreaker::new(policy, &Env::new()).unwrap());
    let _ = breakers.call("live", || async { Err::<(), _>("503 Service Unavailable") }).await;
    let steps = vec![
        Step::new("live", || async { Ok("never asked") }),
        Step::new("copy", || async { Ok("yesterday's") }),
    ];

    let chain = FallbackChain::new(steps).unwrap().breakers(breakers.clone());

    let chained = chain.run().await.unwrap();
    assert_eq!((chained.value, chained.attempts), ("yesterday's", 1));
    assert_eq!(chained.warnings, ["live: circuit open (retry in 30000ms)"]);
    assert!(breakers.reset("live"));
    assert_eq!(chain.run().await.unwrap().value, "never asked");
}
