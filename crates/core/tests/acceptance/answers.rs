//! Failure texts and codes: what a client reads when a call fails.

use super::kit::*;
use seawall::*;
use serde_json::json;

/// A report about an open breaker with `wait` left.
async fn open_for(
    wait: std::time::Duration,
    settings: impl FnOnce(&mut Settings<String>),
) -> FailureReport {
    let env = env(0.0);
    let mut own = self::settings(&env);
    settings(&mut own);
    let caller = ToolCaller::new(own).unwrap();
    open_breaker(&caller, "send_mail").await;
    let passed = secs(60) - wait;
    advance(passed).await;
    let call = Call::new(json!({"token": "x", "q": "y"})).with_debug();
    report(&caller.call("send_mail", call, Script::healthy().send()).await).clone()
}

#[tokio::test(start_paused = true)]
async fn degradation_is_told_in_the_classic_words() {
    let report = open_for(ms(12_001), |_| ()).await;

    let expected = "⚠️ The \"send_mail\" tool is temporarily unavailable due to repeated failures.\n\nThis usually means:\n\
        - The external API (GitHub, database, etc.) is down or rate limiting\n\
        - There's a network issue between the agent and the service\n\n\
        ⏱️ The system will automatically retry in 13 seconds.\n\
        Try again in a moment, or rephrase your request to use a different tool.\n\n\
        _If this persists, contact your administrator._";
    assert_eq!(report.classic, expected);
    assert!(report.is_degradation());
    assert_eq!(report.attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_slow_calls_opened_says_so_in_every_style_also_after_a_slow_probe() {
    let slow = SlowRule { after: secs(5), rate: 0.5 };
    let window =
        WindowRule { length: secs(600), min_calls: 2, failure_rate: 1.0, slow: Some(slow) };
    let caller = with_tool(settings(&env(0.0)), "send_mail", |policy| {
        policy.breaker = Some(BreakerPolicy { window: Some(window), ..BreakerPolicy::default() });
    });
    let slowly = |_| async {
        tokio::time::sleep(secs(6)).await;
        Ok("ok".to_owned())
    };
    caller.call("send_mail", json!({"n": 1}), slowly).await;
    caller.call("send_mail", json!({"n": 2}), slowly).await;
    for round in 3..5 {
        let refused =
            caller.call("send_mail", json!({"n": -round}), Script::healthy().send()).await;
        let report = report(&refused);
        assert!(
            report.message.starts_with(
                "send_mail is temporarily unavailable: calls that were too slow opened its circuit breaker."
            ),
            "{}",
            report.message
        );
        assert!(
            report.classic.starts_with(
                "⚠️ The \"send_mail\" tool is temporarily unavailable because its calls were too slow.\n\n"
            ),
            "{}",
            report.classic
        );
        let gitnexus = report.text(TextStyle::Gitnexus);
        assert!(gitnexus.contains("because calls were too slow"), "{gitnexus}");
        advance(secs(30)).await;
        caller.call("send_mail", json!({"n": round}), slowly).await;
    }
}

#[tokio::test(start_paused = true)]
async fn degradation_is_a_valid_tool_result() {
    let report = open_for(ms(12_001), |_| ()).await;
    for style in [TextStyle::Plain, TextStyle::Classic, TextStyle::Gitnexus] {
        for format in [Format::Text, Format::Json] {
            for structured in [true, false] {
                let result = report.to_tool_result(Rendering { style, format, structured });

                let parsed: rmcp::model::CallToolResult =
                    serde_json::from_value(result.clone()).unwrap();
                assert_eq!(
                    serde_json::to_value(&parsed).unwrap(),
                    result,
                    "nothing is lost or added by the official types"
                );
                assert_eq!(result["isError"], true);
                assert_eq!(result["content"].as_array().map(Vec::len), Some(1));
                assert_eq!(result.get("structuredContent").is_some(), structured);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_says_which_step_it_was_and_warns() {
    let caller = caller(&env(0.0));
    open_breaker(&caller, "test-tool").await;

    let answer = caller.call("test-tool", nothing(), Script::healthy().send()).await;

    assert_eq!(answer.final_step(), "graceful-degradation");
    assert_eq!(answer.warnings, ["test-tool: circuit open for 30000ms"]);
    assert_eq!(answer.attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn the_error_object_has_the_remaining_seconds() {
    let report = open_for(ms(12_001), |own| own.debug_on_request = false).await;

    let object = report.error_object(TextStyle::Gitnexus);
    assert_eq!(
        object,
        json!({
            "error": true, "code": "CIRCUIT_OPEN", "retryable": true, "retryAfter": 13,
            "message": "Circuit breaker open due to repeated failures. Will retry in 13 seconds. Consider checking browser connection or graph status.",
        })
    );
    let meta = report.object();
    assert_eq!(
        (meta["code"].as_str(), meta["retryAfter"].as_u64(), meta["mayHaveExecuted"].as_bool()),
        (Some("CIRCUIT_OPEN"), Some(13), Some(false))
    );
    assert!(meta.get("debug").is_none() && object.get("details").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_names_its_own_limit() {
    let options = CallerOptions { preset: Preset::Gitnexus, ..CallerOptions::default() };
    let caller = ToolCaller::with_options(settings(&env(0.0)), options).unwrap();
    let hangs = |_| std::future::pending::<Result<String, FailureSignals>>();

    let (answer, elapsed) = timed(caller.call("cypher", nothing(), hangs)).await;

    assert_eq!(elapsed, secs(120));
    let object = report(&answer).error_object(TextStyle::Gitnexus);
    assert_eq!(object["message"], "Tool 'cypher' exceeded timeout of 120s");
    assert_eq!(
        (object["code"].as_str(), object["retryable"].as_bool()),
        (Some("TIMEOUT"), Some(true))
    );
}

#[tokio::test(start_paused = true)]
async fn debug_shows_sanitized_arguments_when_asked() {
    let shown =
        open_for(secs(1), |own| own.wall_clock = Some(|| std::time::UNIX_EPOCH + ms(1500))).await;
    let debug = &shown.object()["debug"];
    assert_eq!(debug["arguments"], json!({"token": "[REDACTED]", "q": "y"}));
    assert_eq!((debug["timeoutMs"].as_u64(), debug["attempt"].as_u64()), (Some(60_000), Some(0)));
    assert_eq!(
        (&debug["tool"], &debug["timestamp"]),
        (&json!("send_mail"), &json!("1970-01-01T00:00:01.500Z"))
    );
    assert_eq!(shown.error_object(TextStyle::Plain)["details"]["timestamp"], debug["timestamp"]);
    assert_eq!(
        shown.error_object(TextStyle::Classic)["details"]["arguments"]["token"],
        "[REDACTED]"
    );
}

#[tokio::test(start_paused = true)]
async fn debug_tells_every_attempt() {
    let caller = caller(&env(0.0));
    let script = Script::failing(["503", "request timed out", "429 Too Many Requests"]);

    let answer = caller.call("get_issue", Call::new(nothing()).with_debug(), script.send()).await;

    let causes = &report(&answer).debug.as_ref().unwrap().causes;
    assert_eq!(
        causes,
        &[
            "attempt 1: 503 (UPSTREAM_ERROR)",
            "attempt 2: request timed out (TIMEOUT)",
            "attempt 3: 429 Too Many Requests (RATE_LIMITED)"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_operator_can_forbid_debug_and_can_switch_it_on() {
    let forbidden = open_for(secs(1), |own| own.debug_on_request = false).await;
    assert_eq!(forbidden.debug, None);

    let always = open_for(secs(1), |own| (own.debug, own.debug_on_request) = (true, false)).await;
    assert!(always.debug.is_some());
    assert!(always.object()["debug"].get("timestamp").is_none(), "no time of day was given");

    for (value, on) in [("true", true), ("1", false), ("TRUE", false)] {
        let lookup = |name: &str| (name == "GITNEXUS_DEBUG").then(|| value.to_owned());
        assert_eq!(debug_from_env(lookup), on);
    }
}

#[tokio::test(start_paused = true)]
async fn no_secret_of_the_arguments_or_of_an_error_reaches_a_failure() {
    let caller = ToolCaller::new(Settings { debug: true, ..settings(&env(0.0)) }).unwrap();
    let leaky = Script::down("500 from https://me:CANARY@host/x with Authorization: Bearer CANARY");

    let answer = caller.call("get_issue", json!({"password": "CANARY"}), leaky.send()).await;

    let report = report(&answer);
    let texts = json!([report.message, report.classic, report.failure.message, answer.warnings]);
    let shown = [
        report.object(),
        report.error_object(TextStyle::Plain),
        report.error_object(TextStyle::Gitnexus),
        texts,
    ];
    assert!(!serde_json::to_string(&shown).unwrap().contains("CANARY"), "{shown:?}");
}
