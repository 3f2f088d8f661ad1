//! Decides what is counted beside the library's own metrics: the series' AgentMetrics. Durations are
//! a summary over the last thousand calls of a tool.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use seawall::MetricsText;
use serde_json::{Value, json};

/// How many durations of a tool are kept.
const SAMPLES: usize = 1000;

/// The counters. Only tools that exist are counted, so there are few.
#[derive(Default)]
pub(crate) struct AgentCounts(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    tools: BTreeMap<String, ToolCounts>,
    usd: f64,
}

#[derive(Default)]
struct ToolCounts {
    calls: u64,
    errors: u64,
    took: Duration,
    last: VecDeque<Duration>,
}

impl AgentCounts {
    /// Counts a call that ended.
    pub(crate) fn count(&self, tool: &str, took: Duration, is_error: bool, usd: f64) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.usd += usd;
        let of = counted.tools.entry(tool.to_owned()).or_default();
        of.calls += 1;
        of.errors += u64::from(is_error);
        of.took = of.took.saturating_add(took);
        if of.last.len() == SAMPLES {
            of.last.pop_front();
        }
        of.last.push_back(took);
    }

    /// The sums over all tools.
    pub(crate) fn sums(&self) -> Value {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |of: fn(&ToolCounts) -> u64| counted.tools.values().map(of).sum::<u64>();
        let (calls, errors) = (sum(|of| of.calls), sum(|of| of.errors));
        json!({"calls": calls, "errors": errors, "errorRate": share(errors, calls)})
    }

    /// Writes them for Prometheus.
    pub(crate) fn write(&self, text: &mut MetricsText) {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.family("agent_tool_calls_total", "counter", "Calls of a tool.");
        for (tool, of) in &counted.tools {
            text.sample(&[("tool", tool)], of.calls);
        }
        let sum = |of: fn(&ToolCounts) -> u64| counted.tools.values().map(of).sum::<u64>();
        let help = "The share of calls that ended without an answer of use.";
        text.family("agent_error_rate", "gauge", help);
        text.sample(&[], format!("{:.4}", share(sum(|of| of.errors), sum(|of| of.calls))));
        let help = "What the tokens of calls and answers cost, estimated.";
        text.family("agent_total_cost_usd", "counter", help);
        text.sample(&[], format!("{:.6}", counted.usd));
        text.family("tool_duration_ms", "summary", "How long the last 1000 calls of a tool took.");
        for (tool, of) in &counted.tools {
            let mut sorted: Vec<Duration> = of.last.iter().copied().collect();
            sorted.sort_unstable();
            for (name, permille) in [("0.5", 500), ("0.95", 950), ("0.99", 990)] {
                let place = (sorted.len() * permille / 1000).min(sorted.len().saturating_sub(1));
                let took = sorted.get(place).copied().unwrap_or_default();
                text.sample(&[("tool", tool), ("quantile", name)], millis(took));
            }
            text.part("_sum", &[("tool", tool)], millis(of.took));
            text.part("_count", &[("tool", tool)], of.calls);
        }
    }
}

/// Tokens of a text, as the series estimates them: between its words and a fourth of its letters.
pub(crate) fn tokens(text: &str) -> u32 {
    let (words, letters) = (text.split_whitespace().count(), text.chars().count());
    u32::try_from((4 * words + letters).div_ceil(8)).unwrap_or(u32::MAX)
}

fn share(part: u64, all: u64) -> f64 {
    let exact = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    if all == 0 { 0.0 } else { exact(part) / exact(all) }
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1000.0
}
