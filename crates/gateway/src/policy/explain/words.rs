//! Decides the answers to common questions about a tool, in plain words, from its policy.

use seawall::{Effect, ErrorMode, Fallback, Scope};
use serde_json::Value;

use super::origin::TracedPolicy;
use super::told::ExplainedValue;
use super::{ExplainQuery, ExplainedTool, show};
use crate::config::duration::spelled;
use crate::protocol::limits;

/// One question and its answer.
pub(super) struct ExplainedAnswer {
    /// The name of the answer, for programs.
    pub(super) name: &'static str,
    /// The question.
    pub(super) question: &'static str,
    /// The answer.
    pub(super) text: String,
}

/// The answers that follow from a policy.
pub(super) fn answers(
    asked: &ExplainQuery<'_>,
    traced: &TracedPolicy<'_>,
    explained: &ExplainedTool,
) -> Vec<ExplainedAnswer> {
    let answer = |name, question, text| ExplainedAnswer { name, question, text };
    vec![
        answer("repeat", "May a call be repeated?", repeat(asked, traced, explained)),
        answer("failure", "What if it fails?", failure(asked, traced)),
        answer("time", "How long may it take?", time(asked, traced, explained)),
        answer("breaker", "What opens its breaker?", breaker(asked, traced, explained)),
    ]
}

fn repeat(
    asked: &ExplainQuery<'_>,
    traced: &TracedPolicy<'_>,
    explained: &ExplainedTool,
) -> String {
    let (policy, attempts) = (&traced.policy, traced.policy.retry.attempts);
    if attempts == 1 {
        return format!("No: it gets one attempt{}.", from(explained, "retry.attempts"));
    }
    let why = format!("{}, {}", does(policy.effect), because(explained));
    let mut text = match policy.effect {
        Effect::ReadOnly | Effect::Idempotent => format!("Yes, up to {attempts} attempts: {why}."),
        Effect::Write | Effect::Destructive => {
            format!("Repeated only if it certainly did not run, up to {attempts} attempts: {why}.")
        }
    };
    if explained.value("effect").is_some_and(|effect| effect.from == "unknown") {
        let way =
            asked.rules.written.heading(&["tools", &format!("{}/{}", asked.server, asked.tool)]);
        text.push_str(&format!(" If it only reads, write effect = \"read_only\" under {way}."));
    }
    let listed = asked.listed.cloned().unwrap_or_default();
    if let Some(key) = listed.decide(asked.rules, asked.server, asked.of_server, asked.tool).key {
        text.push_str(&format!(
            " A call with the argument {key:?} may be repeated: by it the server knows a repeat."
        ));
    }
    if let (Some(wait), false) = (policy.uncertain_write_hold, policy.effect.is_replayable()) {
        let wait = spelled(wait);
        text.push_str(&format!(
            " After one that may have run, the same call is not sent again for {wait}, unless its client read from the server since."
        ));
    }
    text
}

/// The effect of a tool, as a clause.
fn does(effect: Effect) -> &'static str {
    match effect {
        Effect::ReadOnly => "it only reads",
        Effect::Idempotent => "repeating it changes nothing more",
        Effect::Write => "its effect is write",
        Effect::Destructive => "its effect is destructive",
    }
}

/// The origin of the effect, as the end of a sentence.
fn because(explained: &ExplainedTool) -> String {
    let Some(effect) = explained.value("effect") else { return String::new() };
    let place = effect.place.as_deref().unwrap_or_default();
    match effect.from {
        "annotation" => format!("by its server's {place}"),
        "name" => format!("by its name ({place:?})"),
        "unknown" => "since nothing says what it does".to_owned(),
        _ => format!("by {}", show::origin(effect, explained.file.as_deref())),
    }
}

/// The origin of a value, in brackets.
fn from(explained: &ExplainedTool, key: &str) -> String {
    let told = explained.value(key);
    told.map_or_else(String::new, |told| {
        format!(" ({})", show::origin(told, explained.file.as_deref()))
    })
}

fn failure(asked: &ExplainQuery<'_>, traced: &TracedPolicy<'_>) -> String {
    let policy = &traced.policy;
    let step = |step: &Fallback| match step {
        Fallback::Cached => {
            let stale = policy.cache.stale_if_error.map(spelled).unwrap_or_default();
            format!("its last good answer, if it is not older than {stale}")
        }
        Fallback::Simplify(_) => "the same search with a simpler query".to_owned(),
        Fallback::PreviousPage(_) => "the page before".to_owned(),
        Fallback::OneByOne(_) => "each item on its own".to_owned(),
        Fallback::Queue if asked.has_store => {
            "if it certainly did not run, it waits until its server is well".to_owned()
        }
        Fallback::Queue => {
            "\"queue\" is passed over, since there is no [store] where calls can wait".to_owned()
        }
        Fallback::Alternate { server, tool, .. } => format!("{server}/{tool} instead"),
        Fallback::Text(text) => format!("the text {text:?}"),
    };
    let steps: Vec<String> = policy.fallback.iter().map(step).collect();
    match steps.as_slice() {
        [] => "The failure is told at once; it has no fallback.".to_owned(),
        [only] => format!("First {only}. Else the failure is told."),
        several => format!("In this order: {}. Else the failure is told.", several.join("; ")),
    }
}

fn time(asked: &ExplainQuery<'_>, traced: &TracedPolicy<'_>, explained: &ExplainedTool) -> String {
    let (policy, own) = (&traced.policy, &traced.own);
    let (whole, wait) = (spelled(policy.timeout), spelled(asked.wait.min(policy.timeout)));
    let origin = from(explained, "timeout");
    let awaited = match asked.rules.tells_loss_at_once() {
        true => format!(
            "up to {wait} of waiting for a server that is starting; one that is away is not waited for"
        ),
        false => format!("up to {wait} of waiting for a server that is away"),
    };
    let mut text =
        format!("At most {whole} in all{origin}: attempts, pauses and fallbacks, and {awaited}.");
    if let Some(limit) = policy.attempt_timeout {
        text.push_str(&format!(" One attempt takes at most {}.", spelled(limit)));
    }
    if let Some(idle) = own.idle_timeout {
        text.push_str(&format!(
            " An attempt of which nothing is heard for {} is given up.",
            spelled(idle)
        ));
    }
    // A "still running" answer that would come after the end of the call is never sent, so it is
    // not mentioned.
    let told = own.client_timeout.map(|cap| cap - (cap / 10).min(limits::CAP_MARGIN));
    if let Some(told) = told.filter(|told| *told < policy.timeout) {
        text.push_str(&format!(" After {} its client is told that it still runs.", spelled(told)));
    }
    text
}

fn breaker(
    asked: &ExplainQuery<'_>,
    traced: &TracedPolicy<'_>,
    explained: &ExplainedTool,
) -> String {
    let policy = &traced.policy;
    let number =
        |key| explained.value(key).and_then(|told| told.value.as_u64()).unwrap_or_default();
    if policy.breaker.is_none() {
        return format!("Nothing: it has none{}.", from(explained, "breaker.failures"));
    }
    let whose = match policy.scope {
        Scope::Tool => String::new(),
        Scope::Server => format!(" of all tools of {} that share it", asked.server),
        Scope::Global => " of all tools that share it".to_owned(),
    };
    let cooldown = explained
        .value("breaker.cooldown")
        .map_or(&Value::Null, |told: &ExplainedValue| &told.value);
    let throttling =
        explained.value("breaker.trip_on_429").is_some_and(|told| told.value == Value::Bool(true));
    let counted = if throttling {
        "Timeouts, lost connections, 5xx and 429"
    } else {
        "Timeouts, lost connections and 5xx"
    };
    let soft = match (
        &policy.tool_errors.patterns.iter().any(|error| error.mode == ErrorMode::Fail),
        policy.tool_errors.marked,
    ) {
        (true, _) => {
            ", unless it plainly carries such a status or a pattern of tool_errors finds one that may pass"
        }
        (false, true) => ", unless it plainly carries such a status",
        (false, false) => "",
    };
    let failures = match number("breaker.failures") {
        1 => "One failure".to_owned(),
        several => format!("{several} failures in a row"),
    };
    let tried = match number("breaker.probes") {
        1 => "one".to_owned(),
        several => several.to_string(),
    };
    let succeeded = match number("breaker.successes") {
        1 => "one succeeds".to_owned(),
        several => format!("{several} succeed"),
    };
    let cooldown = cooldown.as_str().unwrap_or_default();
    let then = match number("breaker.slow_start") {
        0 => String::new(),
        slow_start => format!(
            ", then {slow_start} at once and more with each that succeeds, for another {cooldown}"
        ),
    };
    let shares = shares(explained);
    format!(
        "{failures}{whose} open it for {cooldown}.{shares} After that, calls are tried {tried} at a time until {succeeded}{then}. \
         {counted} count; a tool's own error does not{soft}.",
    )
}

/// The share of failed or slow calls that opens a breaker, if it has a window.
fn shares(explained: &ExplainedTool) -> String {
    let value = |key: &str| explained.value(key).map_or(&Value::Null, |told| &told.value);
    let percent = |key: &str| value(key).as_f64().map(|share| format!("{:.0} %", share * 100.0));
    let Some(failed) = percent("breaker.failure_rate") else { return String::new() };
    let text = |key: &str| value(key).as_str().unwrap_or_default().to_owned();
    let slow = percent("breaker.slow_call_rate")
        .map(|rate| format!(", or {rate} that took longer than {}", text("breaker.slow_call")));
    format!(
        " So do {failed} that failed{} of the last {}, if they were {} calls or more.",
        slow.unwrap_or_default(),
        text("breaker.window"),
        value("breaker.min_calls"),
    )
}
