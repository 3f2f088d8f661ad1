//! Decides what each event counts as, and under which names: those of the configuration and the
//! catalog, and `unknown`.
//!
//! Clients can invent names, so none of theirs is kept: however many they try, the counters take
//! the same memory.

use std::collections::BTreeMap;
use std::time::Duration;

use seawall::{Cause, Event};
use serde_json::{Value, json};

use crate::policy::registry::PolicyName;
use crate::protocol::limits;

/// The tool name for calls of tools that no server listed.
pub(crate) const UNKNOWN: &str = "unknown";
/// The upper bounds of the histogram's buckets, in milliseconds.
pub(crate) const BOUNDS: [u32; 14] =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000];
/// How many fallback steps of one tool are counted separately.
const STEPS: usize = 16;

/// All counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The counters by server, then by tool.
    pub tools: BTreeMap<String, BTreeMap<String, ToolCounts>>,
    /// Decisions about calls, by server.
    pub authz: BTreeMap<String, AuthzCounts>,
    /// Events that came too fast to be counted.
    pub missed: u64,
}

/// Decisions of an authorizer about the calls of one server.
#[derive(Debug, Default)]
pub(crate) struct AuthzCounts {
    /// Calls that were allowed.
    pub allowed: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Calls that nobody could decide about.
    pub unavailable: u64,
    /// How long the decisions took.
    pub took: Histogram,
}

/// The counters of one tool.
#[derive(Debug, Default)]
pub(crate) struct ToolCounts {
    /// Calls that ended, by class.
    pub calls: BTreeMap<&'static str, u64>,
    /// The durations of those calls.
    pub took: Histogram,
    /// Attempts that were sent.
    pub attempts: u64,
    /// Attempts beyond the first.
    pub retries: u64,
    /// Attempts that timed out.
    pub timeouts: u64,
    /// Calls that a fallback answered, by its step.
    pub fallbacks: BTreeMap<String, u64>,
    /// Calls to which an open breaker left only an explanation.
    pub degraded: u64,
    /// Errors found in answers that the tool had not marked as errors.
    pub unmarked_errors: u64,
    /// Whether this is a method of the protocol and not a tool.
    pub is_method: bool,
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// For each of [`BOUNDS`], the calls that took longer than the bound before and no longer than
    /// this one.
    pub within: [u64; BOUNDS.len()],
    /// All calls.
    pub count: u64,
    /// The sum of their durations.
    pub sum: Duration,
}

impl Histogram {
    fn add(&mut self, took: Duration) {
        let fits = |bound: &u32| took <= Duration::from_millis(u64::from(*bound));
        if let Some(within) =
            BOUNDS.iter().position(fits).and_then(|place| self.within.get_mut(place))
        {
            *within += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
    }

    /// The duration in milliseconds that this share of the calls did not exceed, estimated within
    /// its bucket as Prometheus does; `None` without calls. The last bound stands for all beyond.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let exact = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let rank = share * exact(self.count);
        let (mut below, mut lower) = (0, 0.0);
        for (bound, within) in BOUNDS.iter().map(|bound| f64::from(*bound)).zip(self.within) {
            if within > 0 && exact(below + within) >= rank {
                return Some(lower + (bound - lower) * (rank - exact(below)) / exact(within));
            }
            (below, lower) = (below + within, bound);
        }
        (self.count > 0).then_some(lower)
    }
}

impl ToolCounts {
    /// Calls that ended.
    pub(crate) fn all(&self) -> u64 {
        self.calls.values().sum()
    }

    /// Calls that ended without a useful answer. Cancelled calls do not count: their client wanted
    /// none.
    pub(crate) fn errors(&self) -> u64 {
        let is_well = |class: &str| matches!(class, "ok" | "fallback" | "cancelled");
        self.calls.iter().filter(|(class, _)| !is_well(class)).map(|(_, count)| count).sum()
    }
}

impl Counters {
    /// Counts one event; `named` tells whether a name is a tool, a method or unknown.
    pub(crate) fn take(&mut self, event: &Event, named: impl Fn(&str, &str) -> PolicyName) {
        if let Event::CallAllowed { server, elapsed, .. }
        | Event::CallDenied { server, elapsed, .. }
        | Event::AuthorizerUnavailable { server, elapsed, .. } = event
        {
            let of = self.authz.entry(server.clone()).or_default();
            of.took.add(*elapsed);
            *match event {
                Event::CallAllowed { .. } => &mut of.allowed,
                Event::CallDenied { .. } => &mut of.denied,
                _ => &mut of.unavailable,
            } += 1;
            return;
        }
        let mut count = |server: &str, tool: &str, what: &dyn Fn(&mut ToolCounts)| {
            what(self.of(server, tool, named(server, tool)));
        };
        match event {
            Event::AttemptStarted { server, tool, .. } => {
                count(server, tool, &|of| of.attempts += 1)
            }
            Event::AttemptEnded { server, tool, cause: Some(Cause::Timeout), .. } => {
                count(server, tool, &|of| of.timeouts += 1);
            }
            Event::RetryScheduled { server, tool, .. } if !tool.is_empty() => {
                count(server, tool, &|of| of.retries += 1);
            }
            Event::Degraded { server, tool } => count(server, tool, &|of| of.degraded += 1),
            Event::ToolErrorFound { server, tool, .. } => {
                count(server, tool, &|of| of.unmarked_errors += 1)
            }
            Event::FallbackServed { server, tool, step } => count(server, tool, &|of| {
                if of.fallbacks.len() < STEPS || of.fallbacks.contains_key(step) {
                    *of.fallbacks.entry(step.clone()).or_default() += 1;
                }
            }),
            Event::CallFinished { server, tool, class, elapsed, .. } => {
                count(server, tool, &|of| {
                    *of.calls.entry(class).or_default() += 1;
                    of.took.add(*elapsed);
                })
            }
            _ => {}
        }
    }

    fn of(&mut self, server: &str, tool: &str, named: PolicyName) -> &mut ToolCounts {
        let tool =
            if named == PolicyName::Unknown || tool.len() > limits::LABEL { UNKNOWN } else { tool };
        let is_method = named == PolicyName::Method;
        let of_server = self.tools.entry(server.to_owned()).or_default();
        of_server
            .entry(tool.to_owned())
            .or_insert_with(|| ToolCounts { is_method, ..ToolCounts::default() })
    }

    /// Every tool that was called, with its server; methods of the protocol are left out.
    pub(crate) fn called(&self) -> impl Iterator<Item = (&str, &str, &ToolCounts)> {
        self.each().filter(|(.., counts)| !counts.is_method)
    }

    /// Every tool and method that was called, with its server.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, &str, &ToolCounts)> {
        self.tools.iter().flat_map(|(server, tools)| {
            tools.iter().map(move |(tool, counts)| (server.as_str(), tool.as_str(), counts))
        })
    }

    /// The share of tool calls that ended without a useful answer.
    pub(crate) fn error_rate(&self) -> f64 {
        let (errors, all) = self
            .called()
            .fold((0, 0), |(errors, all), (.., tool)| (errors + tool.errors(), all + tool.all()));
        let exact = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        if all == 0 { 0.0 } else { exact(errors) / exact(all) }
    }

    /// The sums over all tools, for people.
    pub(crate) fn sums(&self) -> Value {
        let sum =
            |of: fn(&ToolCounts) -> u64| self.called().map(|(.., tool)| of(tool)).sum::<u64>();
        json!({
            "calls": sum(ToolCounts::all),
            "errors": sum(ToolCounts::errors),
            "errorRate": self.error_rate(),
            "attempts": sum(|tool| tool.attempts),
            "retries": sum(|tool| tool.retries),
            "timeouts": sum(|tool| tool.timeouts),
            "fallbacks": sum(|tool| tool.fallbacks.values().sum()),
            "degraded": sum(|tool| tool.degraded),
            "eventsMissed": self.missed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(tool: &str, class: &'static str, millis: u64) -> Event {
        let elapsed = Duration::from_millis(millis);
        Event::CallFinished {
            server: "s".to_owned(),
            tool: tool.to_owned(),
            class,
            attempts: 1,
            elapsed,
        }
    }

    fn named(_: &str, tool: &str) -> PolicyName {
        match tool {
            "get" => PolicyName::Tool,
            "tools/list" => PolicyName::Method,
            _ => PolicyName::Unknown,
        }
    }

    #[test]
    fn names_that_nobody_listed_are_one() {
        let mut counts = Counters::default();
        for number in 0..1_000 {
            counts.take(&finished(&format!("invented {number}"), "ok", 1), named);
        }
        counts.take(&finished(&"x".repeat(limits::LABEL + 1), "ok", 1), |_, _| PolicyName::Tool);
        let all: Vec<_> =
            counts.each().map(|(server, tool, counts)| (server, tool, counts.all())).collect();
        assert_eq!(all, [("s", UNKNOWN, 1_001)]);
    }

    #[test]
    fn durations_fall_within_their_bounds() {
        let mut counts = Counters::default();
        for millis in [0, 5, 6, 120_000, 120_001] {
            counts.take(&finished("get", "ok", millis), named);
        }
        let took = &counts.tools["s"]["get"].took;
        assert_eq!((took.within[0], took.within[1], took.within[13], took.count), (2, 1, 1, 5));
        assert_eq!(took.sum, Duration::from_millis(240_012));
    }

    #[test]
    fn quantiles_lie_within_the_bucket_of_their_call() {
        let mut took = Histogram::default();
        assert_eq!(took.quantile(0.5), None);
        for millis in [1, 7, 7, 7, 200_000] {
            took.add(Duration::from_millis(millis));
        }
        // The second and a half of three calls between 5 and 10 ms, as one of them lies below 5 ms.
        assert_eq!(took.quantile(0.5), Some(7.5));
        assert_eq!(took.quantile(0.2), Some(5.0));
        assert_eq!(took.quantile(0.99), Some(120_000.0), "nobody knows how much longer");
    }

    #[test]
    fn the_error_rate_is_about_tools_and_about_calls_that_wanted_an_answer() {
        let mut counts = Counters::default();
        assert_eq!(counts.error_rate(), 0.0);
        for class in ["ok", "fallback", "cancelled", "TIMEOUT"] {
            counts.take(&finished("get", class, 1), named);
        }
        counts.take(&finished("tools/list", "TIMEOUT", 1), named);
        assert_eq!((counts.error_rate(), counts.sums()["calls"].as_u64()), (0.25, Some(4)));
    }
}
