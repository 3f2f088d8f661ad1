//! Bad settings of every public policy: zero, too much, no number at all, and pairs that contradict
//! each other. Each is a typed error that names its field; what looks odd and is right is listed
//! too, with its reason.

use super::kit::*;
use seawall::*;
use std::collections::BTreeMap;
use std::time::Duration;

const NO_NUMBERS: [f64; 3] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

fn field<T>(checked: Result<T, Invalid>) -> String {
    match checked {
        Ok(_) => "fine".to_owned(),
        Err(invalid) => invalid.field,
    }
}

fn all_name(expected: &str, checked: impl IntoIterator<Item = Result<(), Invalid>>) {
    for (index, checked) in checked.into_iter().enumerate() {
        assert_eq!(field(checked), expected, "case {index}");
    }
}

fn counts<P: Clone>(
    good: &P,
    set: fn(&mut P, u32),
    check: fn(&P) -> Result<(), Invalid>,
    name: &str,
    most: u32,
) {
    let checked = |count| {
        let mut policy = good.clone();
        set(&mut policy, count);
        field(check(&policy))
    };
    assert_eq!((checked(1), checked(most)), ("fine".into(), "fine".into()), "{name}");
    assert_eq!((checked(most + 1), checked(u32::MAX)), (name.to_owned(), name.to_owned()));
}

#[test]
fn retry_and_backoff() {
    let good = RetryPolicy::default();
    let check = RetryPolicy::validate;
    counts(&good, |policy, count| policy.attempts = count, check, "attempts", 100);
    all_name("attempts", [check(&RetryPolicy::new(0, Backoff::TOOL_CALL))]);
    all_name("longest_pause", [check(&RetryPolicy { longest_pause: Duration::MAX, ..good })]);
    let backoff = |backoff: Backoff| RetryPolicy::new(3, backoff).validate();
    all_name(
        "base",
        [backoff(Backoff { base: Duration::MAX, max: Duration::MAX, ..Backoff::LOAD })],
    );
    all_name(
        "max",
        [secs(0), ms(249), Duration::MAX].map(|max| backoff(Backoff { max, ..Backoff::LOAD })),
    );
    for share in NO_NUMBERS.into_iter().chain([-0.1, 1.1]) {
        let jitters = [Jitter::Additive(share), Jitter::Symmetric(share)];
        all_name("jitter", jitters.map(|jitter| backoff(Backoff { jitter, ..Backoff::LOAD })));
    }
    // No pauses at all, and no waiting for who asks for one, are wishes.
    assert_eq!(backoff(Backoff { base: secs(0), max: secs(0), ..Backoff::LOAD }), Ok(()));
    assert_eq!(RetryPolicy { longest_pause: secs(0), ..good }.validate(), Ok(()));

    assert_eq!(
        field(Retry::new(Effect::ReadOnly).policy(RetryPolicy { attempts: u32::MAX, ..good })),
        "attempts"
    );
    for timeout in [secs(0), Duration::MAX] {
        assert_eq!(field(Retry::new(Effect::ReadOnly).timeout(timeout)), "timeout");
    }
}

#[test]
fn breakers() {
    let good = BreakerPolicy::default();
    let check = BreakerPolicy::validate;
    counts(&good, |policy, count| policy.failures = count, check, "failures", 10_000);
    counts(&good, |policy, count| policy.probes = count, check, "probes", 1000);
    counts(&good, |policy, count| policy.successes = count, check, "successes", 1000);
    all_name("failures", [check(&BreakerPolicy { failures: 0, ..good.clone() })]);
    all_name("probes", [check(&BreakerPolicy { probes: 0, ..good.clone() })]);
    all_name("successes", [check(&BreakerPolicy { successes: 0, ..good.clone() })]);
    for time in [secs(0), Duration::MAX] {
        all_name("memory", [check(&BreakerPolicy { memory: time, ..good.clone() })]);
        all_name("lease", [check(&BreakerPolicy { lease: time, ..good.clone() })]);
        all_name("cooldown.base", [check(&BreakerPolicy::new(5, time))]);
    }
    let cooling =
        |cooldown: Cooldown| check(&BreakerPolicy { cooldown, ..BreakerPolicy::default() });
    let fixed = Cooldown::fixed(secs(30));
    all_name(
        "cooldown.max",
        [secs(0), secs(29), Duration::MAX].map(|max| cooling(Cooldown { max, ..fixed })),
    );
    all_name(
        "cooldown.growth",
        [0.0, 0.9, 10.1, -1.0].map(|growth| cooling(Cooldown { growth, ..fixed })),
    );
    all_name("cooldown.growth", NO_NUMBERS.map(|growth| cooling(Cooldown { growth, ..fixed })));
    all_name("cooldown.jitter", NO_NUMBERS.map(|jitter| cooling(Cooldown { jitter, ..fixed })));
    all_name("cooldown.jitter", [-0.1, 1.1].map(|jitter| cooling(Cooldown { jitter, ..fixed })));

    let window = WindowRule { length: secs(10), min_calls: 10, failure_rate: 0.5, slow: None };
    let windowed = |window: WindowRule| {
        check(&BreakerPolicy { window: Some(window), ..BreakerPolicy::default() })
    };
    all_name(
        "window.length",
        [secs(0), Duration::MAX].map(|length| windowed(WindowRule { length, ..window.clone() })),
    );
    all_name(
        "window.min_calls",
        [0, 1_000_001, u32::MAX]
            .map(|min_calls| windowed(WindowRule { min_calls, ..window.clone() })),
    );
    for share in NO_NUMBERS.into_iter().chain([-0.1, 0.0, 1.1]) {
        all_name(
            "window.failure_rate",
            [windowed(WindowRule { failure_rate: share, ..window.clone() })],
        );
        let slow = Some(SlowRule { after: secs(1), rate: share });
        all_name("window.slow.rate", [windowed(WindowRule { slow, ..window.clone() })]);
    }
    for after in [secs(0), Duration::MAX] {
        let slow = Some(SlowRule { after, rate: 0.5 });
        all_name("window.slow.after", [windowed(WindowRule { slow, ..window.clone() })]);
    }
    // More successes than probes at a time come one after the other; the row may be off beside a
    // window.
    assert_eq!(check(&BreakerPolicy { probes: 1, successes: 3, ..good.clone() }), Ok(()));
    assert_eq!(check(&BreakerPolicy { failures: 0, window: Some(window), ..good.clone() }), Ok(()));

    for names in [0, 1_000_001, u32::MAX] {
        assert_eq!(field(CircuitBreaker::with_capacity(good.clone(), &env(0.0), names)), "names");
    }
    let none = BreakerPolicy { probes: 0, ..good };
    assert_eq!(field(CircuitBreaker::new(none.clone(), &env(0.0))), "probes");
    assert_eq!(field(Breaker::new("b", none, &env(0.0))), "probes");
}

#[test]
fn budgets_rates_and_slots() {
    let good = BudgetPolicy::DEFAULT;
    let check = BudgetPolicy::validate;
    all_name("share", NO_NUMBERS.map(|share| check(&BudgetPolicy { share, ..good })));
    all_name("share", [-0.1, 1.1].map(|share| check(&BudgetPolicy { share, ..good })));
    counts(&good, |policy, count| policy.floor = count, check, "floor", 100_000);
    counts(&good, |policy, count| policy.saved = count, check, "saved", 1_000_000);
    assert_eq!(
        field(RetryBudget::new(BudgetPolicy { floor: u32::MAX, ..good }, &Clock::manual())),
        "floor"
    );
    // No retries at all are a wish.
    assert_eq!(check(&BudgetPolicy { share: 0.0, floor: 0, saved: 0 }), Ok(()));

    let good = Rate::per_second(1);
    let check = |rate: Rate| RateLimiter::new(rate, &Clock::manual()).map(|_| ());
    all_name(
        "count",
        [check(Rate { count: 0, ..good }), check(Rate { count: u32::MAX, burst: 1, ..good })],
    );
    all_name("burst", [0, 1_000_000_001, u32::MAX].map(|burst| check(Rate { burst, ..good })));
    all_name("per", [secs(0), Duration::MAX].map(|per| check(Rate { per, ..good })));
    // More at once than in the time: who was silent has saved it up.
    assert_eq!(check(Rate { burst: 1000, ..good }), Ok(()));

    let good = BulkheadPolicy::new(8);
    let check = BulkheadPolicy::validate;
    counts(&good, |policy, count| policy.concurrency = count, check, "concurrency", 100_000);
    counts(&good, |policy, count| policy.waiting = count, check, "waiting", 1_000_000);
    assert_eq!(field(Bulkhead::new(BulkheadPolicy::new(0))), "concurrency");
    all_name("patience", [check(&BulkheadPolicy { patience: Duration::MAX, ..good })]);
    // Nobody waits, or not at all: whoever finds no slot is refused at once.
    assert_eq!(check(&BulkheadPolicy { waiting: 0, patience: secs(0), ..good }), Ok(()));
    assert_eq!(BulkheadPolicy::new(100_000).validate(), Ok(()));
}

#[test]
fn copies_hedges_and_loops() {
    for time in [secs(0), Duration::MAX] {
        all_name("ttl", [CachePolicy { fresh: Some(time), stale_if_error: None }.validate()]);
        all_name(
            "stale_if_error",
            [CachePolicy { fresh: None, stale_if_error: Some(time) }.validate()],
        );
    }
    // A copy that answers for longer than it rescues does so until a write; then it rescues for as
    // long as is said.
    assert_eq!(
        CachePolicy { fresh: Some(secs(60)), stale_if_error: Some(secs(1)) }.validate(),
        Ok(())
    );
    for bytes in [0, 1, 1023, (1 << 40) + 1, u64::MAX] {
        assert_eq!(field(ResponseCache::new(bytes, String::len, Clock::manual())), "kept_bytes");
        assert_eq!(
            field(Pipeline::new(Settings { kept_bytes: bytes, ..settings(&env(0.0)) })),
            "kept_bytes"
        );
    }
    for bytes in [1024, 1 << 40] {
        assert!(ResponseCache::new(bytes, String::len, Clock::manual()).is_ok());
    }

    all_name("delay", [secs(0), Duration::MAX].map(|delay| HedgePolicy::After(delay).validate()));
    all_name("quantile", NO_NUMBERS.map(|share| HedgePolicy::Quantile(share).validate()));
    all_name(
        "quantile",
        [-0.5, 0.0, 1.0, 1.5].map(|share| HedgePolicy::Quantile(share).validate()),
    );

    let loops =
        |repeats, window| LoopPolicy { repeats, window, ..LoopPolicy::default() }.validate();
    all_name("repeats", [loops(0, 10), loops(1, 10), loops(11, 10), loops(u32::MAX, 10)]);
    all_name("window", [loops(2, 0), loops(2, 1001), loops(2, u32::MAX)]);
    // A guard that is used alone is given its policy call by call: one that nobody checked neither
    // hangs nor grows.
    let (guard, keys, session) = (LoopGuard::new(Clock::manual()), Keys::default(), "s".into());
    let unchecked = LoopPolicy { mode: LoopMode::Calls, repeats: 2, window: 0 };
    for _ in 0..3 {
        assert_eq!(guard.check(&unchecked, &session, || keys.key(&[], &nothing())), None);
    }
}

#[test]
fn rules_and_chains() {
    let verdict = Verdict::new(Cause::RateLimited, Disposition::Transient);
    let rule = |tests: Vec<Test>| Rule { name: "r".into(), tests: tests.into(), verdict };
    let check = |rule: Rule| Classifier::new().with_rule(rule).map(|_| ());
    let none: [&str; 0] = [];
    all_name("rule \"r\".tests", [check(rule(vec![])), check(Rule::phrases("r", none, verdict))]);
    let empty = [Test::Transport(&[]), Test::Status(500, 400), Test::Code(-1, -2)];
    all_name("rule \"r\".tests", empty.map(|test| check(rule(vec![Test::Exited, test]))));
    all_name(
        "rule \"r\".phrases",
        ["", " ", "*", " **"].map(|phrase| check(Rule::phrases("r", ["x", phrase], verdict))),
    );

    let steps = |names: &[&str]| {
        let step = |name: &&str| Step::new(*name, || async { Ok::<_, FailureSignals>(()) });
        FallbackChain::new(names.iter().map(step).collect()).map(|_| ())
    };
    assert_eq!(
        steps(&[]).unwrap_err().to_string(),
        "steps: Fallback chain must have at least one step"
    );
    let names: Vec<String> = (0..33).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!((field(steps(&names)), steps(&names[..32])), ("steps".into(), Ok(())));
    assert_eq!(field(steps(&["a", ""])), "steps[1]");
    let twice = steps(&["a", "b", "a"]).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "steps[2]: is called \"a\" like one before it; give each step its own name"
    );

    let chain = || {
        FallbackChain::new(vec![Step::new("a", || async { Ok::<_, FailureSignals>(()) })]).unwrap()
    };
    assert_eq!(
        field(chain().retry(RetryPolicy { attempts: 0, ..RetryPolicy::default() }, Effect::Write)),
        "retry.attempts"
    );
    assert_eq!(field(chain().timeout(secs(0))), "timeout");
}

#[test]
fn policies_as_a_whole() {
    let check = |adjust: &dyn Fn(&mut Policy)| {
        let mut policy = Preset::Default.policy(&ToolFacts::named("get_issue"), &Tiers::default());
        adjust(&mut policy);
        policy.validate()
    };
    for time in [secs(0), Duration::MAX] {
        all_name("timeout", [check(&|policy| policy.timeout = time)]);
        all_name("attempt_timeout", [check(&|policy| policy.attempt_timeout = Some(time))]);
        all_name(
            "uncertain_write_hold",
            [check(&|policy| policy.uncertain_write_hold = Some(time))],
        );
    }
    all_name(
        "attempt_timeout",
        [check(&|policy| policy.attempt_timeout = Some(policy.timeout + ms(1)))],
    );
    assert_eq!(check(&|policy| policy.attempt_timeout = Some(policy.timeout)), Ok(()));
    let hedged = |delay, attempt: Option<Duration>| {
        check(&|policy| {
            policy.hedge = Some(HedgePolicy::After(delay));
            policy.attempt_timeout = attempt;
        })
    };
    all_name("hedge.delay", [hedged(secs(60), None), hedged(secs(5), Some(secs(5)))]);
    assert_eq!((hedged(ms(59_999), None), hedged(ms(4999), Some(secs(5)))), (Ok(()), Ok(())));
    all_name(
        "retry.attempts",
        [0, 101, u32::MAX].map(|count| check(&|policy| policy.retry.attempts = count)),
    );
    all_name("loop.repeats", [check(&|policy| policy.loops.repeats = 0)]);
    all_name(
        "cache.stale_if_error",
        [check(&|policy| policy.cache.stale_if_error = Some(secs(0)))],
    );

    let step = |step: Fallback| check(&|policy| policy.fallback = vec![step.clone()]);
    let nameless = |server: &str, tool: &str| {
        step(Fallback::Alternate { server: server.into(), tool: tool.into(), map: BTreeMap::new() })
    };
    let empty = || Some(String::new());
    all_name(
        "fallback",
        [
            nameless("", "t"),
            nameless("s", ""),
            step(Fallback::Text(" ".into())),
            step(Fallback::Simplify(empty())),
            step(Fallback::PreviousPage(empty())),
            step(Fallback::OneByOne(empty())),
            step(Fallback::Queue),
            check(&|policy| policy.cache.stale_if_error = None),
            check(&|policy| policy.fallback = vec![Fallback::Cached; 33]),
        ],
    );
    // A retry whose pause outlasts the call is not begun; that is no contradiction.
    assert_eq!(check(&|policy| policy.timeout = ms(1)), Ok(()));

    for tiers in [
        Tiers { quick: secs(0), ..Tiers::default() },
        Tiers { quick: Duration::MAX, ..Tiers::default() },
    ] {
        assert_eq!(field(tiers.validate()), "quick");
        let options = CallerOptions { tiers, ..CallerOptions::default() };
        assert_eq!(field(ToolCaller::with_options(settings(&env(0.0)), options)), "tiers.quick");
    }
    // Two limits of two sorts of tools: neither has to be the longer one.
    assert_eq!(Tiers { quick: secs(200), ..Tiers::default() }.validate(), Ok(()));
}

#[test]
fn servers_and_pipelines() {
    let off = BreakerPolicy { failures: 0, ..BreakerPolicy::default() };
    let server = |adjust: &dyn Fn(&mut ServerPolicy)| {
        let mut policy = ServerPolicy::default();
        adjust(&mut policy);
        Pipeline::new(settings(&env(0.0))).unwrap().server("s", policy).map(|_| ())
    };
    all_name("concurrency", [server(&|policy| policy.slots = Some(BulkheadPolicy::new(0)))]);
    all_name("rate.count", [server(&|policy| policy.rate = Some(Rate::per_second(0)))]);
    all_name("budget.share", [server(&|policy| policy.budget.share = f64::NAN)]);
    all_name("budget.saved", [server(&|policy| policy.budget.saved = u32::MAX)]);
    all_name("shared.failures", [server(&|policy| policy.shared = off.clone())]);
    all_name("connection.failures", [server(&|policy| policy.connection = Some(off.clone()))]);

    let global = Settings { global_breaker: off, ..settings(&env(0.0)) };
    assert_eq!(field(Pipeline::new(global)), "global_breaker.failures");
    let rated = Settings { caller_rate: Some(Rate::per_second(0)), ..settings(&env(0.0)) };
    assert_eq!(field(Pipeline::new(rated)), "caller_rate.count");
}

#[test]
fn a_breaker_that_is_shared_is_set_where_all_who_share_it_are_meant() {
    let (of_server, global) = (BreakerPolicy::new(2, secs(7)), BreakerPolicy::new(4, secs(9)));
    let pipeline =
        Pipeline::new(Settings { global_breaker: global.clone(), ..settings(&env(0.0)) }).unwrap();
    pipeline
        .server("s", ServerPolicy { shared: of_server.clone(), ..ServerPolicy::default() })
        .unwrap();
    let tool = |scope, breaker| {
        let policy = Preset::Default.policy(&ToolFacts::named("get_issue"), &Tiers::default());
        pipeline.tool("s", "get_issue", Policy { scope, breaker, ..policy })
    };
    let own = BreakerPolicy::new(3, secs(60));

    for (scope, shared) in [(Scope::Server, &of_server), (Scope::Global, &global)] {
        let refused = tool(scope, Some(own.clone())).unwrap_err();
        assert!(refused.field == "breaker" && refused.problem.contains("is shared"), "{refused}");
        for fine in [BreakerPolicy::default(), shared.clone()] {
            assert_eq!(
                tool(scope, Some(fine)).unwrap().policy().breaker.as_ref(),
                Some(shared),
                "what holds is shown"
            );
        }
        assert!(tool(scope, None).unwrap().breaker().is_none(), "off is off for one tool");
    }
    assert_eq!(tool(Scope::Tool, Some(own.clone())).unwrap().policy().breaker, Some(own));

    let caipe = CallerOptions { preset: Preset::Caipe, ..CallerOptions::default() };
    let caller = ToolCaller::with_options(settings(&env(0.0)), caipe).unwrap();
    let wish = |policy: &mut Policy| policy.breaker = Some(BreakerPolicy::new(1, secs(1)));
    assert_eq!(field(caller.tool(ToolFacts::named("create_issue"), wish)), "create_issue.breaker");
    assert_eq!(caller.tool(ToolFacts::named("create_issue"), |_| ()), Ok(()));
}

#[test]
fn times_as_text() {
    for text in ["-1s", "NaNs", "infs", "1e30h", "169h", "99999999999999999999ms"] {
        assert_eq!(field(parse_duration("retry.base", text)), "retry.base", "{text}");
    }
    for text in ["0", "0s", "-5", "18446744073709551615"] {
        assert_eq!(field(parse_env_timeout("QUICK", text)), "QUICK", "{text}");
    }
}
