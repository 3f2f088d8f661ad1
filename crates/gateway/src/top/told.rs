//! Makes rows of what the admin API answers: one table each of tools, servers and queued writes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::remote::show::{span, text};
use crate::runtime::log::plain;

/// What the gateway told last.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// The sums, each with its name; true if it is bad.
    pub(super) totals: Vec<(&'static str, String, bool)>,
    /// By [`TABLES`](super::screen::TABLES).
    pub(super) tables: [Vec<Row>; 3],
    /// Why nothing is known of a queue.
    pub(super) no_queue: Option<String>,
}

/// One row of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// The name by which the admin API knows it.
    pub(super) key: String,
    pub(super) cells: Vec<Cell>,
    pub(super) mood: Mood,
    /// All that is known, for the details.
    pub(super) facts: Vec<(String, String)>,
}

/// How a row fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mood {
    #[default]
    Well,
    Warn,
    Bad,
}

/// A text, and the number by which it is sorted, if it stands for one.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) number: Option<f64>,
}

impl Told {
    /// `now` is milliseconds since 1970.
    pub(super) fn of(
        servers: &Value,
        breakers: &Value,
        tools: &Value,
        queue: Result<&Value, String>,
        now: u64,
    ) -> Self {
        let (queue, no_queue) = match queue {
            Ok(queue) => (Some(queue), None),
            Err(why) => (None, Some(why)),
        };
        let (servers, details) = (&servers["servers"], &breakers["details"]);
        let queued = queue.map(|queue| queue["items"].as_array().map_or(&[][..], Vec::as_slice));
        Self {
            totals: totals(servers, details, &breakers["metrics"], queue),
            tables: [
                tool_rows(&tools["tools"], details),
                entries(servers).map(|(name, server)| server_row(name, server, now)).collect(),
                queued.unwrap_or_default().iter().map(|item| queue_row(item, now)).collect(),
            ],
            no_queue,
        }
    }
}

fn totals(
    servers: &Value,
    details: &Value,
    sums: &Value,
    queue: Option<&Value>,
) -> Vec<(&'static str, String, bool)> {
    let all = entries(servers).count();
    let up = entries(servers).filter(|(_, server)| is_up(server)).count();
    let open = entries(details).filter(|(_, one)| one["status"] != "closed").count();
    let sum = |key: &str| sums[key].as_u64().unwrap_or(0);
    let queued = queue.map(|queue| {
        ["waiting", "delivering"].iter().filter_map(|key| queue[*key].as_u64()).sum::<u64>()
    });
    let dead = queue.and_then(|queue| queue["dead"].as_u64()).unwrap_or(0);
    let (calls, errors) = (sum("calls"), sum("errors"));
    vec![
        ("servers", format!("{up}/{all}"), up < all),
        ("open", open.to_string(), open > 0),
        ("queued", queued.map_or_else(|| "–".to_owned(), |queued| queued.to_string()), false),
        ("given up", dead.to_string(), dead > 0),
        ("calls", calls.to_string(), false),
        ("errors", share(errors, calls), errors > 0 && errors * 10 >= calls),
        ("retries", sum("retries").to_string(), false),
        ("fallbacks", sum("fallbacks").to_string(), false),
    ]
}

fn is_up(server: &Value) -> bool {
    matches!(server["status"].as_str(), Some("up" | "starting" | "resting"))
}

/// Every tool, and every breaker that is of no one tool.
fn tool_rows(tools: &Value, breakers: &Value) -> Vec<Row> {
    let names: BTreeSet<&str> =
        entries(tools).chain(entries(breakers)).map(|(name, _)| name).collect();
    names.into_iter().map(|name| tool_row(name, &tools[name], &breakers[name])).collect()
}

fn tool_row(name: &str, tool: &Value, breaker: &Value) -> Row {
    let count = |key: &str| tool[key].as_u64();
    let (calls, errors) = (count("calls"), count("errors"));
    let errors = calls.zip(errors);
    let (state, rank, mood) = match (breaker["mode"].as_str(), breaker["status"].as_str()) {
        (Some("forced_open"), _) => ("forced open", 4.0, Mood::Bad),
        (Some("disabled"), _) => ("switched off", 1.0, Mood::Warn),
        (_, Some("open")) => ("open", 3.0, Mood::Bad),
        (_, Some("closed")) => ("closed", 0.0, Mood::Well),
        (_, Some(_)) => ("half-open", 2.0, Mood::Warn),
        _ => ("–", -1.0, Mood::Well),
    };
    let probe = breaker["retryAfterMs"].as_u64();
    Row {
        key: name.to_owned(),
        cells: vec![
            Cell::text(name),
            Cell { text: state.to_owned(), number: Some(rank) },
            probe.map_or_else(Cell::nothing, |wait| Cell {
                text: format!("in {}", span(wait)),
                number: Some(-(wait as f64)),
            }),
            Cell::count(calls),
            errors.map_or_else(Cell::nothing, |(calls, errors)| Cell {
                text: share(errors, calls),
                number: Some(if calls == 0 { -1.0 } else { errors as f64 / calls as f64 }),
            }),
            Cell::millis(tool["p50Ms"].as_f64()),
            Cell::millis(tool["p99Ms"].as_f64()),
            Cell::count(count("retries")),
        ],
        mood,
        facts: facts(tool)
            .chain(facts(breaker).map(|(key, value)| (format!("breaker {key}"), value)))
            .collect(),
    }
}

fn server_row(name: &str, server: &Value, now: u64) -> Row {
    let has_chaos = server["chaos"].is_object();
    let mood = match server["status"].as_str() {
        Some("up" | "resting") if !has_chaos => Mood::Well,
        Some("up" | "resting") => Mood::Warn,
        Some("starting") => Mood::Warn,
        _ => Mood::Bad,
    };
    let since = server["since"].as_u64().map(|since| now.saturating_sub(since));
    let next = server["nextTryMs"].as_u64();
    Row {
        key: name.to_owned(),
        cells: vec![
            Cell::text(name),
            Cell::text(&text(&server["status"])),
            Cell::count(server["tools"].as_u64()),
            Cell::count(server["pid"].as_u64()),
            Cell::count(server["restarts"].as_u64()),
            Cell::span("", since),
            Cell::span("in ", next),
            Cell::text(&match has_chaos {
                true => format!("chaos: {}", text(&server["chaos"]["adds"])),
                false => text(&server["lastError"]),
            }),
        ],
        mood,
        facts: facts(server).collect(),
    }
}

fn queue_row(item: &Value, now: u64) -> Row {
    let age = item["enqueued"].as_u64().map(|came| now.saturating_sub(came));
    let next = item["nextAttempt"].as_u64().map(|next| next.saturating_sub(now));
    let doubt = if item["mayHaveExecuted"] == true { "may have been executed; " } else { "" };
    Row {
        key: text(&item["id"]),
        cells: vec![
            Cell::text(&text(&item["id"])),
            Cell::text(&format!("{}/{}", text(&item["server"]), text(&item["tool"]))),
            Cell::text(&text(&item["state"])),
            Cell::count(item["attempts"].as_u64()),
            Cell::span("", age),
            match next {
                Some(0) => Cell { text: "due".to_owned(), number: Some(0.0) },
                next => Cell::span("in ", next),
            },
            Cell::text(&format!("{doubt}{}", text(&item["lastError"]))),
        ],
        mood: if item["state"] == "dead" { Mood::Bad } else { Mood::Well },
        facts: facts(item).collect(),
    }
}

impl Cell {
    fn text(text: &str) -> Self {
        Self { text: plain(text), number: None }
    }

    fn nothing() -> Self {
        Self { text: "–".to_owned(), number: Some(f64::NEG_INFINITY) }
    }

    fn count(count: Option<u64>) -> Self {
        count.map_or_else(Self::nothing, |count| Self {
            text: count.to_string(),
            number: Some(count as f64),
        })
    }

    fn millis(millis: Option<f64>) -> Self {
        millis.map_or_else(Self::nothing, |millis| Self {
            text: match millis {
                ..1000.0 => format!("{millis} ms"),
                _ => format!("{:.1} s", millis / 1000.0),
            },
            number: Some(millis),
        })
    }

    fn span(before: &str, millis: Option<u64>) -> Self {
        millis.map_or_else(Self::nothing, |millis| Self {
            text: format!("{before}{}", span(millis)),
            number: Some(millis as f64),
        })
    }
}

/// Every field that holds something, lists one line for each item.
fn facts(value: &Value) -> impl Iterator<Item = (String, String)> {
    let lines = |(key, value): (&str, &Value)| -> Vec<(String, String)> {
        let one = |value: &Value| (plain(key), plain(&text(value)));
        match value {
            Value::Null => Vec::new(),
            Value::Array(items) => items.iter().map(one).collect(),
            value => vec![one(value)],
        }
    };
    entries(value).flat_map(lines).collect::<Vec<_>>().into_iter()
}

fn entries(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

/// A share of a hundred.
fn share(part: u64, all: u64) -> String {
    match all {
        0 => "–".to_owned(),
        all => format!("{:.1} %", part as f64 * 100.0 / all as f64),
    }
}
