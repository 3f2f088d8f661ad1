//! Formats a gateway's answers for people: aligned, without colour, in words.

use serde_json::{Map, Value};

use super::table::table;
use crate::runtime::log::plain;

/// A gateway's state at a glance.
pub(crate) fn status(
    address: &str,
    ready: &Value,
    servers: &Value,
    breakers: &Value,
    [queue, fleet, reload]: [Option<&Value>; 3],
) -> String {
    let missing = words(&ready["missing"]);
    let ready = match ready["status"].as_str().unwrap_or("unknown") {
        "not ready" if !missing.is_empty() => format!("not ready, {missing} missing"),
        other => other.to_owned(),
    };
    let queue = queue.map_or_else(|| "none; [store] gives it one".to_owned(), counted_queue);
    let reload = reload.and_then(reload_trouble);
    let rows = [
        ("gateway", format!("{ready}, at {address}")),
        ("servers", counted(&servers["servers"], |server| text(&server["status"]))),
        ("breakers", counted(&breakers["details"], breaker_state)),
        ("queue", queue),
        ("calls", calls(&breakers["metrics"])),
    ];
    let rows = rows.into_iter().chain(chaos(&servers["servers"]).map(|told| ("chaos", told)));
    let rows = rows.chain(fleet.map(|fleet| ("replicas", replicas(fleet))));
    let rows = rows.chain(reload.map(|trouble| ("config", trouble)));
    let lines: Vec<String> =
        rows.map(|(name, value)| format!("{name:<10}{}", plain(&value))).collect();
    let open = open_breakers(&breakers["details"]);
    lines.join("\n") + &open.map(|open| format!("\n\n{open}")).unwrap_or_default()
}

/// The servers to whose calls faults are added on purpose.
fn chaos(servers: &Value) -> Option<String> {
    let adds = |(name, server): (&str, &Value)| {
        Some(format!("{name}: {}", server["chaos"]["adds"].as_str()?))
    };
    let told: Vec<String> = entries(servers).filter_map(adds).collect();
    (!told.is_empty()).then(|| format!("faults are added on purpose; {}", told.join("; ")))
}

/// The replicas, and the Redis that they share: `3 live, redis connected`.
fn replicas(fleet: &Value) -> String {
    let live = fleet["replicas"].as_u64().unwrap_or(1);
    let time = span(fleet["sinceMs"].as_u64().unwrap_or(0));
    match (fleet["redis"].as_str(), fleet["why"].as_str()) {
        (Some("connected"), _) => {
            let open = |(name, votes): (&str, &Value)| {
                let of_all = if votes["quorum"] == true { ", so in all" } else { "" };
                format!("; {name} is open in {}{of_all}", text(&votes["replicas"]))
            };
            let open: String = entries(&fleet["open"]).map(open).collect();
            format!("{live} live, redis connected for {time}{open}")
        }
        (_, why) => {
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{live} at last, redis away for {time}{why}; each goes by what it knows itself")
        }
    }
}

/// What an operator must know of the configuration: that the file is not what is in force.
fn reload_trouble(reload: &Value) -> Option<String> {
    if let Some(error) = reload["error"].as_str() {
        let first = error.lines().next().unwrap_or_default();
        let more = match error.lines().count() {
            0 | 1 => String::new(),
            lines => format!(" (and {} more; `seawall reload` shows all)", lines - 1),
        };
        let since = text(&reload["inForceSince"]);
        return Some(format!("the file is refused, that of {since} is in force: {first}{more}"));
    }
    let waits = words(&reload["needsRestart"]);
    (!waits.is_empty()).then(|| format!("a restart is needed for {waits}"))
}

/// What a new configuration changed.
pub(crate) fn reloaded(answer: &Value) -> String {
    let change = &answer["change"];
    let rows = [
        ("added", "added"),
        ("removed", "removed"),
        ("opened anew", "reopened"),
        ("new rules for", "rules"),
        ("changed", "settings"),
        ("a restart is needed for", "needsRestart"),
    ];
    let lines: Vec<String> = rows
        .iter()
        .map(|(verb, key)| (verb, words(&change[*key])))
        .filter(|(_, names)| !names.is_empty())
        .map(|(verb, names)| plain(&format!("{verb}: {names}")))
        .collect();
    if lines.is_empty() { "nothing changed".to_owned() } else { lines.join("\n") }
}

fn calls(metrics: &Value) -> String {
    let number = |name: &str| metrics[name].as_u64().unwrap_or(0);
    let retries = match number("retries") {
        1 => "1 retry".to_owned(),
        retries => format!("{retries} retries"),
    };
    let rate = metrics["errorRate"].as_f64().unwrap_or(0.0) * 100.0;
    format!(
        "{}, of which {rate:.1} % failed; {retries}, {} answered by a fallback",
        number("calls"),
        number("fallbacks")
    )
}

/// Counts by state: `4 closed, 1 open`.
fn counted(all: &Value, state: impl Fn(&Value) -> String) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for state in entries(all).map(|(_, value)| state(value)) {
        match counts.iter_mut().find(|(known, _)| *known == state) {
            Some((_, count)) => *count += 1,
            None => counts.push((state, 1)),
        }
    }
    counts.sort_by(|(_, one), (_, two)| two.cmp(one));
    let parts: Vec<String> =
        counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    if parts.is_empty() { "none yet".to_owned() } else { parts.join(", ") }
}

fn counted_queue(queue: &Value) -> String {
    let states =
        ["waiting", "delivering", "dead"].map(|state| format!("{} {state}", text(&queue[state])));
    states.join(", ")
}

fn open_breakers(details: &Value) -> Option<String> {
    let rows: Vec<_> =
        entries(details).filter(|(_, detail)| breaker_state(detail) != "closed").collect();
    (!rows.is_empty()).then(|| breaker_table(rows.into_iter()))
}

/// A table of all breakers.
pub(crate) fn breakers(answer: &Value) -> String {
    match entries(&answer["details"]).next() {
        None => "no server has listed its tools yet; breakers are here once one has".to_owned(),
        Some(_) => breaker_table(entries(&answer["details"])),
    }
}

fn breaker_table<'a>(breakers: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    let row = |(name, detail): (&str, &Value)| {
        let wait = detail["retryAfterMs"]
            .as_u64()
            .map(|wait| format!("in {}", span(wait)))
            .unwrap_or_default();
        vec![
            name.to_owned(),
            breaker_state(detail),
            text(&detail["failures"]),
            text(&detail["trips"]),
            wait,
        ]
    };
    table(&["TOOL", "STATE", "FAILURES", "OPENED", "NEXT TRY"], breakers.map(row).collect())
}

/// The effective state of a breaker, forced or decided by itself.
fn breaker_state(detail: &Value) -> String {
    match detail["mode"].as_str() {
        Some("forced_open") => "held open".to_owned(),
        Some("disabled") => "left out".to_owned(),
        _ => text(&detail["status"]),
    }
}

/// The new state of a forced breaker.
pub(crate) fn forced(answer: &Value) -> String {
    let tool = plain(&text(&answer["tool"]));
    let deed = match answer["mode"].as_str() {
        Some("forced_open") => {
            format!("{tool} is held open: no call reaches it until it is forced to auto or closed")
        }
        Some("disabled") => {
            format!(
                "{tool} is left out: every call passes and nothing is counted, until it is forced to auto"
            )
        }
        _ => format!("{tool} decides by itself again, and starts {}", text(&answer["status"])),
    };
    deed + &covered(answer)
}

/// The other tools that share the forced breaker, on a line of its own.
fn covered(answer: &Value) -> String {
    let by = match answer["scope"].as_str() {
        Some("server") => "all that share the breaker of its server",
        Some("global") => "all that share the one breaker of all servers",
        _ => return String::new(),
    };
    let more =
        answer["more"].as_u64().filter(|more| *more > 0).map(|more| format!(" and {more} more"));
    format!(
        "\nthis holds for {by}: {}{}",
        plain(&words(&answer["tools"])),
        more.unwrap_or_default()
    )
}

/// A table of all servers. `now` is milliseconds since 1970.
pub(crate) fn servers(answer: &Value, now: u64) -> String {
    let row = |(name, server): (&str, &Value)| {
        let since = server["since"]
            .as_u64()
            .map(|since| span(now.saturating_sub(since)))
            .unwrap_or_default();
        let tools = if server["tools"].is_null() { "-".to_owned() } else { text(&server["tools"]) };
        let (restarts, error) = (text(&server["restarts"]), text(&server["lastError"]));
        let status = match (server["status"].as_str().unwrap_or_default(), server["load"].as_str())
        {
            ("unlisted", Some(load)) => format!("unlisted ({load})"),
            (status, _) => status.to_owned(),
        };
        vec![name.to_owned(), status, tools, text(&server["pid"]), restarts, since, error]
    };
    let head = ["SERVER", "STATUS", "TOOLS", "PID", "RESTARTS", "SINCE", "LAST ERROR"];
    table(&head, entries(&answer["servers"]).map(row).collect())
}

/// A table of the queued writes. `now` is milliseconds since 1970.
pub(crate) fn queue(answer: &Value, now: u64) -> String {
    let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |item: &Value| {
        let age = item["enqueued"]
            .as_u64()
            .map(|came| span(now.saturating_sub(came)))
            .unwrap_or_default();
        let next = item["nextAttempt"].as_u64().map(|next| match next.saturating_sub(now) {
            0 => "due".to_owned(),
            wait => format!("in {}", span(wait)),
        });
        let note = match (item["mayHaveExecuted"] == true, text(&item["lastError"])) {
            (true, note) if !note.contains("may have been executed") => {
                format!("may have been executed; {note}")
            }
            (_, note) => note,
        };
        let state = if item["isError"] == true { ", with an error" } else { "" };
        let state = text(&item["state"]) + state;
        let [id, tool, server, attempts] =
            ["id", "tool", "server", "attempts"].map(|key| text(&item[key]));
        [id, tool, server, state, attempts]
            .into_iter()
            .chain([age, next.unwrap_or_default(), note])
            .collect()
    };
    let sums = ["waiting", "delivering", "dead", "delivered"]
        .map(|key| format!("{} {key}", text(&answer[key])));
    let wrong = answer["deliveredWithError"].as_u64().filter(|wrong| *wrong > 0);
    let sums = sums.join(", ")
        + &wrong.map(|wrong| format!(", {wrong} of them with an error")).unwrap_or_default();
    if items.is_empty() {
        return format!("nothing to show: {sums}");
    }
    let head = ["ID", "TOOL", "SERVER", "STATE", "TRIES", "AGE", "NEXT TRY", "NOTE"];
    let more = answer["next"]
        .as_str()
        .map(|next| format!("; more: seawall queue list --after {}", plain(next)))
        .unwrap_or_default();
    format!("{}\n{sums}{more}", table(&head, items.iter().map(row).collect()))
}

/// An answer as JSON with invisible characters escaped, so that a terminal does not obey them: JSON
/// itself allows some of them unescaped.
pub(crate) fn json(answer: &Value) -> String {
    let mut text = String::new();
    for letter in answer.to_string().chars() {
        match seawall::is_unseen(letter) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => text.push(letter),
        }
    }
    text
}

/// An event on one line: its time, its name, its tool, and the rest.
pub(crate) fn event(event: &Map<String, Value>) -> String {
    let field = |name: &str| event.get(name).map(text).unwrap_or_default();
    let time = field("time");
    let time = time.split_once('T').map_or(time.as_str(), |(_, time)| time).trim_end_matches('Z');
    let about = if event.contains_key("tool") { field("tool") } else { field("server") };
    let is_told = |key: &str| matches!(key, "id" | "time" | "event" | "tool" | "server");
    let rest = event.iter().filter(|(key, value)| !is_told(key) && !value.is_null()).map(
        |(key, value)| {
            let value = text(value);
            if value.contains(' ') { format!("{key}={value:?}") } else { format!("{key}={value}") }
        },
    );
    let rest: Vec<String> = rest.collect();
    plain(format!("{time}  {:<18}  {about:<24}  {}", field("event"), rest.join(" ")).trim_end())
}

/// A span of milliseconds, rounded for people.
pub(crate) fn span(millis: u64) -> String {
    match millis.div_ceil(1000) {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7_200 => format!("{}m", s / 60),
        s @ 7_200..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

fn entries(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn words(list: &Value) -> String {
    list.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ")
}

/// A value as a person writes it; empty for null.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line_a_terminal_cannot_be_fooled_by() {
        let told = json!({
            "id": "ab-1", "time": "2026-07-28T09:05:03.120Z", "event": "retry_scheduled", "server": "gh", "tool": "get_issue",
            "attempt": 1, "cause": null, "error": "503\n\u{1b}[2J gone",
        });
        assert_eq!(
            event(told.as_object().unwrap()),
            "09:05:03.120  retry_scheduled     get_issue                 attempt=1 error=\"503\\n\\u{1b}[2J gone\""
        );
    }

    #[test]
    fn a_switch_is_told_with_all_that_it_concerns() {
        let answer = |scope: &str, more: u64| {
            json!({
                "tool": "a__x", "mode": "forced_open", "status": "open", "scope": scope, "tools": ["a__w\u{1b}", "a__x"], "more": more,
            })
        };
        let held = "a__x is held open: no call reaches it until it is forced to auto or closed";
        assert_eq!(forced(&answer("tool", 0)), held);
        let shared = "this holds for all that share the breaker of its server: a__w\u{fffd}, a__x";
        assert_eq!(forced(&answer("server", 0)), format!("{held}\n{shared}"));
        let shared = "this holds for all that share the one breaker of all servers: a__w\u{fffd}, a__x and 7 more";
        assert_eq!(forced(&answer("global", 7)), format!("{held}\n{shared}"));
    }

    #[test]
    fn a_queue_is_shown_with_what_must_be_known_of_it() {
        let item = |id: &str, state: &str, next: Option<u64>, may: bool, error: Option<&str>| {
            json!({
                "id": id, "tool": "create", "server": "gh", "state": state, "attempts": 2, "enqueued": 1_000,
                "nextAttempt": next, "mayHaveExecuted": may, "lastError": error,
            })
        };
        let answer = json!({
            "items": [
                item("q1", "waiting", Some(190_000), false, Some("429")),
                item("q2", "dead", None, true, Some("the gateway stopped")),
                { "id": "q3", "tool": "create", "server": "gh", "state": "delivered", "isError": true, "attempts": 1, "enqueued": 1_000 },
            ],
            "waiting": 1, "delivering": 0, "dead": 1, "delivered": 3, "deliveredWithError": 1, "next": "q3",
        });
        let expected = "\
ID  TOOL    SERVER  STATE                     TRIES  AGE  NEXT TRY  NOTE
q1  create  gh      waiting                   2      60s  in 2m     429
q2  create  gh      dead                      2      60s            may have been executed; the gateway stopped
q3  create  gh      delivered, with an error  1      60s
1 waiting, 0 delivering, 1 dead, 3 delivered, 1 of them with an error; more: seawall queue list --after q3";
        assert_eq!(queue(&answer, 61_000), expected);
    }
}
