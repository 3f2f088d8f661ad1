//! The content of a Prometheus scrape: the counters, and the current state of breakers, servers and
//! queue.

use std::collections::{BTreeMap, BTreeSet};

use seawall::{MetricsText, ToolSamples};

use super::breakers::WatchedBreaker;
use super::counts::{AuthzCounts, BOUNDS, Counters, Histogram, ToolCounts, UNKNOWN};
use crate::protocol::limits;
use crate::reload::ReloadHistory;
use crate::trace::ExportCounts;

/// The current state of the gateway.
#[derive(Debug)]
pub(crate) struct GatewaySnapshot<'a> {
    /// The breakers by name.
    pub breakers: BTreeMap<String, WatchedBreaker>,
    /// The servers.
    pub servers: Vec<ServerSnapshot<'a>>,
    /// The number of queued writes; `None` without a store.
    pub queued: Option<usize>,
    /// How reading the configuration ended so far, where it is read again.
    pub reloads: Option<ReloadHistory>,
    /// Whether Redis is connected, and how many replicas live; `None` without Redis.
    pub fleet: Option<(bool, usize)>,
    /// Lines of the audit log, and calls that it lacks; `None` without one.
    pub audited: Option<(u64, u64)>,
    /// What became of spans for a collector; `None` without telemetry.
    pub traced: Option<ExportCounts>,
}

/// The current state of a server.
#[derive(Debug)]
pub(crate) struct ServerSnapshot<'a> {
    /// The server's name.
    pub name: &'a str,
    /// Whether the server is up, as far as it was tried.
    pub is_up: bool,
    /// How often a connection to the server was reopened.
    pub reconnects: u64,
    /// The state of the server's load; `None` if it was never loaded.
    pub load: Option<&'static str>,
    /// How often each fault was added to its calls; `None` if its configuration asks for none.
    pub chaos: Option<[(&'static str, u64); 3]>,
}

/// The whole text; `shown` gives the name of a tool that clients know.
pub(crate) fn text(
    counts: &Counters,
    now: &GatewaySnapshot<'_>,
    shown: impl Fn(&str, &str) -> String,
) -> String {
    let mut text = MetricsText::default();
    resilience(&mut text, counts, &now.breakers);
    calls(&mut text, counts);
    decisions(&mut text, counts);
    servers(&mut text, now);
    configuration(&mut text, now.reloads.as_ref());
    fleet(&mut text, now.fleet);
    audit(&mut text, now.audited);
    traces(&mut text, now.traced);
    agents(&mut text, counts, shown);
    text.finish()
}

/// Whether Redis is there, and who else.
fn fleet(text: &mut MetricsText, fleet: Option<(bool, usize)>) {
    let Some((is_connected, replicas)) = fleet else { return };
    text.family("seawall_redis_connected", "gauge", "1 while Redis answers, 0 while it is away.");
    text.sample(&[], u8::from(is_connected));
    text.family(
        "seawall_fleet_replicas",
        "gauge",
        "Live replicas that share this Redis, this one among them; the last known while it is away.",
    );
    text.sample(&[], replicas);
}

/// How many calls were noted in the audit log.
fn audit(text: &mut MetricsText, audited: Option<(u64, u64)>) {
    let Some((noted, lost)) = audited else { return };
    text.family("seawall_audit_calls_total", "counter", "Calls noted in the audit log.");
    text.sample(&[], noted);
    text.family(
        "seawall_audit_lost_total",
        "counter",
        "Calls that the audit log lacks; it says so itself.",
    );
    text.sample(&[], lost);
}

/// What became of the spans for a collector.
fn traces(text: &mut MetricsText, traced: Option<ExportCounts>) {
    let Some(counts) = traced else { return };
    let help = "Spans that an OpenTelemetry collector took, and those that were dropped.";
    text.family("seawall_telemetry_spans_total", "counter", help);
    text.sample(&[("result", "exported")], counts.exported);
    text.sample(&[("result", "dropped")], counts.dropped);
}

/// How often the configuration was read again, and whether the last one was taken.
fn configuration(text: &mut MetricsText, reloads: Option<&ReloadHistory>) {
    let Some(reloads) = reloads else { return };
    text.family(
        "seawall_config_reloads_total",
        "counter",
        "Times the configuration was read again.",
    );
    text.sample(&[("result", "taken")], reloads.taken);
    text.sample(&[("result", "refused")], reloads.refused);
    text.family(
        "seawall_config_last_reload_successful",
        "gauge",
        "1 if the configuration read last is in force, 0 if it was refused.",
    );
    text.sample(&[], u8::from(reloads.error.is_none()));
}

/// Retries, breakers, fallbacks and degradation.
fn resilience(
    text: &mut MetricsText,
    counts: &Counters,
    breakers: &BTreeMap<String, WatchedBreaker>,
) {
    let named: Vec<_> = counts
        .each()
        .map(|(server, tool, of)| ([("server", server), ("tool", tool)], of))
        .collect();
    let tools: Vec<_> = named
        .iter()
        .map(|(labels, of)| ToolSamples {
            labels,
            retries: of.retries,
            fallbacks: &of.fallbacks,
            degraded: of.degraded,
        })
        .collect();
    let mut seen = BTreeSet::new();
    let states: Vec<_> = breakers
        .values()
        .filter(|entry| !entry.is_repeated && entry.tool.len() <= limits::LABEL)
        .filter_map(|entry| {
            let (server, tool) = (entry.server.as_str(), entry.tool.as_str());
            let breaker = entry.breaker().filter(|_| seen.insert((server, tool)))?;
            Some(([("server", server), ("tool", tool)], breaker.status()))
        })
        .collect();
    let states: Vec<_> = states.iter().map(|(labels, now)| (&labels[..], *now)).collect();
    text.resilience(&tools, &states);
}

fn calls(text: &mut MetricsText, counts: &Counters) {
    text.family("seawall_calls_total", "counter", "Calls that ended, by how.");
    for (server, tool, of) in counts.each() {
        for (class, count) in &of.calls {
            text.sample(&[("server", server), ("tool", tool), ("class", class)], count);
        }
    }
    text.family(
        "seawall_call_seconds",
        "histogram",
        "How long calls took, all attempts and pauses included.",
    );
    for (server, tool, of) in counts.each().filter(|(.., of)| of.took.count > 0) {
        histogram(text, &[("server", server), ("tool", tool)], &of.took);
    }
    text.family("seawall_attempts_total", "counter", "Attempts that went out to a server.");
    each(text, counts, |tool| tool.attempts);
    text.family("seawall_timeouts_total", "counter", "Attempts that were not answered in time.");
    each(text, counts, |tool| tool.timeouts);
    text.family(
        "seawall_unmarked_errors_total",
        "counter",
        "Errors found by tool_errors in answers not marked as such.",
    );
    each(text, counts, |tool| tool.unmarked_errors);
    text.family(
        "seawall_events_missed_total",
        "counter",
        "Events that came too fast to be counted.",
    );
    text.sample(&[], counts.missed);
}

/// Decisions about calls, where there is an authorizer.
fn decisions(text: &mut MetricsText, counts: &Counters) {
    if counts.authz.is_empty() {
        return;
    }
    type Number = fn(&AuthzCounts) -> u64;
    let families: [(&str, &str, Number); 3] = [
        ("seawall_authz_allowed_total", "Calls that were allowed.", |of| of.allowed),
        ("seawall_authz_denied_total", "Calls that were denied.", |of| of.denied),
        (
            "seawall_authz_unavailable_total",
            "Calls that were not made because nobody could say whether they are allowed.",
            |of| of.unavailable,
        ),
    ];
    for (name, help, number) in families {
        text.family(name, "counter", help);
        for (server, of) in &counts.authz {
            text.sample(&[("server", server)], number(of));
        }
    }
    let help = "How long decisions about calls took, all attempts included.";
    text.family("seawall_authz_seconds", "histogram", help);
    for (server, of) in &counts.authz {
        histogram(text, &[("server", server)], &of.took);
    }
}

fn histogram(text: &mut MetricsText, labels: &[(&str, &str)], took: &Histogram) {
    let mut sum = 0;
    for (bound, within) in BOUNDS.iter().zip(took.within) {
        sum += within;
        let bound = (f64::from(*bound) / 1000.0).to_string();
        text.part("_bucket", &[labels, &[("le", &bound)]].concat(), sum);
    }
    text.part("_bucket", &[labels, &[("le", "+Inf")]].concat(), took.count);
    text.part("_sum", labels, took.sum.as_secs_f64());
    text.part("_count", labels, took.count);
}

fn servers(text: &mut MetricsText, now: &GatewaySnapshot<'_>) {
    text.family(
        "seawall_server_up",
        "gauge",
        "0 for a server that was tried and is not there, else 1.",
    );
    for server in &now.servers {
        text.sample(&[("server", server.name)], u8::from(server.is_up));
    }
    text.family(
        "seawall_reconnects_total",
        "counter",
        "Conversations with a server that were opened again.",
    );
    for server in &now.servers {
        text.sample(&[("server", server.name)], server.reconnects);
    }
    text.family(
        "seawall_load_outcome",
        "gauge",
        "1 for how the load of a server stands, 0 for the others.",
    );
    for (server, load) in now.servers.iter().filter_map(|server| Some((server.name, server.load?)))
    {
        for status in ["available", "transient", "permanent", "denied"] {
            text.sample(&[("server", server), ("status", status)], u8::from(status == load));
        }
    }
    if now.servers.iter().any(|server| server.chaos.is_some()) {
        let help = "Faults that were added to calls on purpose, by [servers.x.chaos].";
        text.family("seawall_chaos_total", "counter", help);
    }
    for server in &now.servers {
        for (fault, count) in server.chaos.into_iter().flatten() {
            text.sample(&[("server", server.name), ("fault", fault)], count);
        }
    }
    if let Some(queued) = now.queued {
        text.family("seawall_queue_depth", "gauge", "Writes that wait for their server.");
        text.sample(&[], queued);
    }
}

/// Calls and errors over all servers, by the names that agents use.
fn agents(text: &mut MetricsText, counts: &Counters, shown: impl Fn(&str, &str) -> String) {
    text.family(
        "agent_tool_calls_total",
        "counter",
        "Calls of a tool, by the name that clients know.",
    );
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for (server, tool, of) in counts.called() {
        let name = if tool == UNKNOWN { tool.to_owned() } else { shown(server, tool) };
        *calls.entry(name).or_default() += of.all();
    }
    for (tool, count) in &calls {
        text.sample(&[("tool", tool)], count);
    }
    text.family(
        "agent_error_rate",
        "gauge",
        "The share of calls that ended without an answer of use.",
    );
    text.sample(&[], format!("{:.4}", counts.error_rate()));
}

/// One sample for every tool and method that was called.
fn each(text: &mut MetricsText, counts: &Counters, number: impl Fn(&ToolCounts) -> u64) {
    for (server, tool, of) in counts.each() {
        text.sample(&[("server", server), ("tool", tool)], number(of));
    }
}
