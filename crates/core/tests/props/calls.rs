//! Whole calls on random failures: what must never happen, whatever happens.

use proptest::prelude::*;
use seawall::Rng;
use seawall::*;
use serde_json::json;
use std::sync::Mutex;
use std::time::Duration;

/// One attempt as the server lives it: how it ends, how far it got, how long it takes.
#[derive(Clone, Debug)]
struct Try {
    ends: Ends,
    sent: Sent,
    takes: u64,
}

impl Try {
    async fn play(self) -> Result<String, FailureSignals> {
        tokio::time::sleep(Duration::from_millis(self.takes)).await;
        match self.ends {
            Ends::Well => Ok("ok".to_owned()),
            Ends::ToolError => Ok("Error: GitHub API: 503 Service Unavailable".to_owned()),
            Ends::Failing(kind) => Err(signals(kind, self.sent)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Ends {
    Well,
    Failing(u8),
    ToolError,
}

fn attempt() -> impl Strategy<Value = Try> {
    let ends = prop_oneof![1 => Just(Ends::Well), 5 => (0..10u8).prop_map(Ends::Failing), 1 => Just(Ends::ToolError)];
    let sent = prop_oneof![Just(Sent::Never), Just(Sent::Maybe), Just(Sent::Yes)];
    (ends, sent, prop_oneof![Just(0), 0..40_000u64]).prop_map(|(ends, sent, takes)| Try {
        ends,
        sent,
        takes,
    })
}

fn signals(kind: u8, sent: Sent) -> FailureSignals {
    let signals = match kind {
        0 => FailureSignals::transport(TransportFailure::Refused, "refused"),
        1 => FailureSignals::transport(TransportFailure::Lost, "reset"),
        2 => FailureSignals::transport(TransportFailure::Timeout, "slow"),
        3 => FailureSignals::http(429, "slow down"),
        4 => FailureSignals::http(503, "down"),
        5 => FailureSignals::http(422, "invalid"),
        6 => FailureSignals::http(403, "Forbidden"),
        7 => FailureSignals::text("request timed out"),
        8 => FailureSignals {
            retry_after: Some(Duration::from_secs(9)),
            ..FailureSignals::http(429, "slow down")
        },
        _ => FailureSignals::exited(ProcessExit::Signal(9), "killed"),
    };
    signals.with_sent(sent)
}

fn effect() -> impl Strategy<Value = Effect> {
    prop_oneof![
        Just(Effect::ReadOnly),
        Just(Effect::Idempotent),
        Just(Effect::Write),
        Just(Effect::Destructive)
    ]
}

#[derive(Clone, Debug)]
struct World {
    effect: Effect,
    kind: Kind,
    hedged: bool,
    calls: Vec<Vec<Try>>,
}

fn world() -> impl Strategy<Value = World> {
    let kind = prop_oneof![
        Just(Kind::Read),
        Just(Kind::Write),
        Just(Kind::Search),
        Just(Kind::List),
        Just(Kind::Batch)
    ];
    let calls = prop::collection::vec(prop::collection::vec(attempt(), 12), 1..8);
    (effect(), kind, any::<bool>(), calls).prop_map(|(effect, kind, hedged, calls)| World {
        effect,
        kind,
        hedged,
        calls,
    })
}

/// What the server saw of one call: the arguments, and whether it may have acted on them.
struct Execution {
    arguments: String,
    may_have_acted: bool,
}

/// No write was sent again that may have run, nor a part of one.
fn nothing_was_sent_again(world: &World, seen: &[Execution]) -> Result<(), TestCaseError> {
    if world.effect.is_replayable() {
        return Ok(());
    }
    for (index, execution) in
        seen.iter().enumerate().filter(|(_, execution)| execution.may_have_acted)
    {
        let later = &seen[index + 1..];
        let again = later.iter().any(|later| later.arguments == execution.arguments);
        prop_assert!(!again, "a write was sent again although it may have run");
        let part_again =
            !later.is_empty() && world.kind == Kind::Batch && execution.arguments.contains("[1,2]");
        prop_assert!(!part_again, "a batch was taken apart although it may have run");
    }
    Ok(())
}

async fn check(world: World) -> Result<(), TestCaseError> {
    let env = Env::new().with_rng(Rng::seeded(7));
    let mut events = env.events.subscribe();
    let own = Settings {
        env: env.clone(),
        error_text: |text: &String| text.starts_with("Error").then(|| text.clone()),
        ..Settings::default()
    };
    let facts = ToolFacts {
        kind: Some(world.kind),
        effect: Some(world.effect),
        ..ToolFacts::named("tool")
    };
    let hedge = (world.hedged && world.effect == Effect::ReadOnly)
        .then_some(HedgePolicy::After(Duration::from_secs(5)));
    let tools = ToolCaller::new(own).unwrap();
    tools.tool(facts, |policy| policy.hedge = hedge).unwrap();
    let timeout = Duration::from_secs(60);
    let mut repeats = 0;

    for (number, script) in world.calls.iter().enumerate() {
        let seen = Mutex::new(Vec::<Execution>::new());
        let send = |attempt: Attempt| {
            let index = (attempt.number as usize - 1).min(script.len() - 1);
            let now = script[index].clone();
            // A server that was reached may have acted, unless it said that it did not.
            let refused = matches!(now.ends, Ends::Failing(0 | 3 | 5 | 6 | 8));
            let may_have_acted =
                !(now.sent == Sent::Never && matches!(now.ends, Ends::Failing(_)) || refused);
            seen.lock()
                .unwrap()
                .push(Execution { arguments: attempt.arguments.to_string(), may_have_acted });
            now.play()
        };
        let start = tokio::time::Instant::now();
        let arguments = json!({"n": number, "query": "a b c", "page": 2, "ids": [1, 2]});
        let answer = tools.call("tool", arguments.clone(), send).await;

        let seen = seen.into_inner().unwrap();
        prop_assert!(start.elapsed() <= timeout, "answered in time");
        prop_assert_eq!(answer.attempts as usize, seen.len(), "attempts are executions");
        nothing_was_sent_again(&world, &seen)?;
        let acted = world.effect != Effect::ReadOnly
            && seen.iter().any(|execution| execution.may_have_acted);
        if let (true, Some(report)) = (acted, answer.report()) {
            prop_assert!(
                report.may_have_executed,
                "a failure hid that the write may have run: {:?}",
                report
            );
        }
        if !world.effect.is_replayable()
            && answer.report().is_some_and(|report| report.may_have_executed)
        {
            let send = |_| -> std::future::Ready<Result<String, FailureSignals>> {
                panic!("a blind repeat was sent")
            };
            let repeated = tools.call("tool", arguments, send).await;
            prop_assert!(repeated.value().is_none());
            repeats += 1;
        }
    }
    let finished = events
        .drain()
        .iter()
        .filter(|event| matches!(***event, Event::CallFinished { .. }))
        .count();
    prop_assert_eq!(finished, world.calls.len() + repeats, "one end for each call");
    Ok(())
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn no_history_of_failures_makes_a_write_run_twice_or_a_call_late(world in world()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(world))?;
    }
}
