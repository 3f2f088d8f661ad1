//! The reference of the metrics equals a scrape with everything in it; that of the events equals
//! what the admin API shows of each.
//!
//! `SEAWALL_REFERENCE=write cargo test -p seawall-gateway reference` writes both pages anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use seawall::{BreakerStatus, Cause, Event};
use seawall_testkit::page;
use serde_json::Value;

use super::breakers;
use super::counts::Counters;
use super::scrape::{self, GatewaySnapshot, ServerSnapshot};
use super::tell;
use crate::config::Config;
use crate::policy::registry::{PolicyName, PolicyRegistry};
use crate::protocol::Message;
use crate::reload::ReloadHistory;
use crate::trace::ExportCounts;

/// One event of each kind.
fn every_event() -> Vec<Event> {
    let (server, tool) = ("github".to_owned(), "get_issue".to_owned());
    let (elapsed, wait) = (Duration::from_millis(120), Duration::from_secs(12));
    let names = || (server.clone(), tool.clone());
    let reason = "the service answered 403".to_owned();
    let breaker = "github/get_issue".to_owned();
    let (from, to) = (BreakerStatus::Closed, BreakerStatus::Open);
    macro_rules! event {
        ($name:ident { $($field:ident $(: $value:expr)?),* }) => {{
            let (server, tool) = names();
            Event::$name { server, tool $(, $field $(: $value)?)* }
        }};
    }
    vec![
        event!(AttemptStarted { attempt: 1 }),
        event!(AttemptEnded { attempt: 1, elapsed, cause: Some(Cause::Timeout) }),
        event!(RetryScheduled { attempt: 1, of: 3, delay: elapsed, error: "503".to_owned() }),
        event!(RetryBudgetSpent {}),
        event!(Hedged {}),
        Event::BreakerChanged { name: breaker.clone(), from, to },
        Event::BreakerRejected { name: breaker, retry_after: wait, shadow: false },
        event!(CacheHit { shared_flight: false }),
        event!(Refused { cause: Cause::Loop }),
        event!(ToolErrorFound { counted_only: true }),
        event!(CallAllowed { elapsed, note: "{\"rule\": 7}".to_owned() }),
        event!(CallDenied { elapsed, reason: reason.clone() }),
        event!(AuthorizerUnavailable { elapsed, reason, retry_after: wait }),
        event!(FallbackServed { step: "cached".to_owned() }),
        event!(Degraded {}),
        event!(CallFinished { class: "ok", attempts: 1, elapsed }),
        Event::ServerLoaded { server, failed: None, attempts: 1, tools: 26 },
    ]
}

/// A gateway with a server whose tools are known.
fn policies() -> PolicyRegistry {
    let config = Config::for_command(Some("github"), vec!["none".to_owned()]).unwrap();
    let policies = PolicyRegistry::new(&config, None).unwrap();
    let list = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"get_issue"}]}}"#;
    policies.learn("github", "", &Message::parse(list.to_owned().into()).unwrap(), true);
    policies
}

/// A scrape of a gateway where everything happened and everything is switched on.
fn full_scrape() -> String {
    let (policies, mut counts) = (policies(), Counters::default());
    for event in every_event() {
        counts.take(&event, |_, _| PolicyName::Tool);
    }
    let (name, load) = ("github", Some("available"));
    let chaos = Some([("error", 0), ("hang", 0), ("crash", 0)]);
    let reloads = ReloadHistory {
        taken: 0,
        refused: 0,
        error: None,
        in_force_since: 0,
        tried: 0,
        needs_restart: Vec::new(),
    };
    let now = GatewaySnapshot {
        breakers: breakers::all(&policies),
        servers: vec![ServerSnapshot { name, is_up: true, reconnects: 0, load, chaos }],
        queued: Some(0),
        reloads: Some(reloads),
        fleet: Some((true, 3)),
        audited: Some((0, 0)),
        traced: Some(ExportCounts { exported: 0, dropped: 0 }),
    };
    scrape::text(&counts, &now, |_, tool| tool.to_owned())
}

/// The labels of each metric; those of the parts of a histogram are those of the whole.
fn labels(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let families: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let whole = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
        let name = whole.filter(|whole| families.contains(whole)).unwrap_or(name);
        let labels = found.entry(name).or_default();
        let inside = line.split_once('{').map_or("", |(_, rest)| rest.split('}').next().unwrap());
        labels.extend(inside.split("\",").filter_map(|pair| Some(pair.split_once('=')?.0)));
    }
    found
}

fn metrics() -> String {
    let text = full_scrape();
    let labels = labels(&text);
    let mut page = String::from(
        "# Metrics\n\n\
         `GET /metrics` of the admin address answers in the text format of Prometheus. Names of tools in labels\n\
         come from the configuration and from the servers' lists, never from clients: a name that nobody\n\
         listed is `unknown`. What alerts are made of them: [alerts.md](../alerts.md).\n\n\
         This page is written by a test from a scrape (`crates/gateway/src/admin/telemetry/scrape.rs`).\n\n\
         | metric | type | labels | what it counts |\n|---|---|---|---|\n",
    );
    let mut help = "";
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            help = said.split_once(' ').unwrap().1;
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|said| said.split_once(' '))
        {
            let known = labels.get(name).unwrap_or_else(|| panic!("{name} has no sample"));
            let shown: Vec<String> = known.iter().map(|label| format!("`{label}`")).collect();
            writeln!(page, "| `{name}` | {kind} | {} | {help} |", shown.join(", ")).unwrap();
        }
    }
    page
}

fn events() -> String {
    let source = page::read("crates/core/src/report/event.rs");
    let (policies, mut page) = (
        policies(),
        String::from(
            "# Events\n\n\
         `seawall tap`, and `GET /resilience/events` of the admin address, show what happens as it happens. Each\n\
         event has a number (`id`), a `time`, its name (`event`), and where they are known `server` and `tool`.\n\
         None has arguments or answers of tools. Beside those below there are `config_changed` and\n\
         `config_refused` ([what they say](../operating.md#a-change-of-the-configuration)), `store_away`, with an\n\
         `error`, and `store_connected` about the Redis of replicas, and `missed`, with a `count`, where events came too fast for their reader.\n\n\
         This page is written by a test that shows one event of each kind\n\
         (`crates/core/src/report/event.rs`, `crates/gateway/src/admin/telemetry/tell.rs`).\n\n\
         | event | when | example, without number and time |\n|---|---|---|\n",
        ),
    );
    let mut variants = page::variants(&source, "Event").into_iter();
    for event in every_event() {
        let (variant, when) = variants.next().unwrap();
        assert!(format!("{event:?}").starts_with(&variant), "{event:?} is not {variant}");
        let told = Value::Object(tell::told(&event, &policies).unwrap());
        let name = told["event"].as_str().unwrap();
        writeln!(page, "| `{name}` | {when} | `{told}` |").unwrap();
    }
    assert_eq!(variants.next(), None, "every_event lacks an event");
    page
}

#[test]
fn the_reference_of_the_metrics_is_what_a_scrape_says() {
    page::is_current("metrics.md", &metrics());
}

#[test]
fn the_reference_of_the_events_is_what_the_admin_api_shows() {
    page::is_current("events.md", &events());
}
