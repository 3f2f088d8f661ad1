//! Decides the note of a fallback's answer: which fallback it is, and why the live answer is
//! missing.

use super::*;
use crate::model::style::TextStyle;

fn why(failure: &Failure) -> String {
    match failure.status {
        _ if failure.is_switched_off() => "switched off by an operator".to_owned(),
        Some(status) => status.to_string(),
        None => code_words(ErrorCode::of(failure.cause)),
    }
}

/// The label of the tool's kind, before the note of a fallback.
fn labelled(kind: Option<Kind>, natural: Kind, text: &str) -> String {
    format!("⚠️ {}. {text}", kind.unwrap_or(natural).label())
}

/// The note of a stale response.
pub(crate) fn cached(
    style: TextStyle,
    kind: Option<Kind>,
    old: Duration,
    before_a_write: bool,
    failure: &Failure,
) -> String {
    if style.is_labelled() {
        return labelled(kind, Kind::Read, "Showing cached information may be stale.");
    }
    let note = format!("Cached copy from {} ago; live read failed ({}).", age(old), why(failure));
    note + changed_since(before_a_write)
}

/// The note of a cached response for a client that asked again while the live read runs.
pub(crate) fn cached_meanwhile(
    style: TextStyle,
    kind: Option<Kind>,
    old: Duration,
    before_a_write: bool,
) -> String {
    if style.is_labelled() {
        return labelled(kind, Kind::Read, "Showing cached information may be stale.");
    }
    let note =
        format!("Cached copy from {} ago; the live read has not been answered yet.", age(old));
    note + changed_since(before_a_write)
}

fn changed_since(a_write: bool) -> &'static str {
    if a_write { " Calls made since may have changed what it shows." } else { "" }
}

/// The note of a search with a simpler query.
pub(crate) fn simplified(
    style: TextStyle,
    kind: Option<Kind>,
    query: &str,
    failure: &Failure,
) -> String {
    let query = shortened(&quote(query), LONGEST_QUERY).join(" ");
    if style.is_labelled() {
        let text = format!("Showing results for the simpler query \"{query}\".");
        return labelled(kind, Kind::Search, &text);
    }
    format!("Results for the simpler query \"{query}\"; the full search failed ({}).", why(failure))
}

/// The note of the previous page: `old` is the age of a cached page, or `None` for a live one.
pub(crate) fn previous_page(
    style: TextStyle,
    kind: Option<Kind>,
    old: Option<Duration>,
    failure: &Failure,
) -> String {
    if style.is_labelled() {
        let copy = old.map(|old| format!(", as it was {} ago", age(old))).unwrap_or_default();
        return labelled(kind, Kind::List, &format!("Showing the previous page{copy}."));
    }
    let copy = old.map(|old| format!(", a copy from {} ago", age(old))).unwrap_or_default();
    format!(
        "This is the page before the one asked for{copy}; the page asked for failed ({}).",
        why(failure)
    )
}

/// The note of another tool's answer.
pub(crate) fn alternate(other: &str, tool: &str, failure: &Failure) -> String {
    format!("Answered by {other} because {tool} failed ({}).", why(failure))
}

/// The note of a batch that was sent item by item.
pub(crate) fn one_by_one(
    style: TextStyle,
    kind: Option<Kind>,
    done: usize,
    of: usize,
    failure: &Failure,
) -> String {
    let mut note =
        format!("{done} of {of} items succeeded one by one; the batch failed ({}).", why(failure));
    if style.is_labelled() {
        note = labelled(
            kind,
            Kind::Batch,
            &format!("Processed individually: {done} of {of} succeeded."),
        );
    }
    match of.saturating_sub(done) {
        0 => {}
        1 => note.push_str(" The other one is listed with its reason."),
        others => {
            let _ = write!(note, " The {others} others are listed with their reasons.");
        }
    }
    note
}

/// The note of a queued write. `is_held`: the identical call is held back meanwhile.
pub(crate) fn queued(
    style: TextStyle,
    tool: &str,
    id: &str,
    is_held: bool,
    failure: &Failure,
) -> String {
    let note = waits(tool, id, is_held, failure);
    if style.is_labelled() { labelled(None, Kind::Write, &note) } else { note }
}

fn waits(tool: &str, id: &str, is_held: bool, failure: &Failure) -> String {
    let repeated = if is_held {
        "In this session the same call is not sent again while it waits."
    } else {
        "Repeating the call would queue a second one."
    };
    let when = match failure.retry_after {
        Some(wait) => format!(
            "when its server answers again, in about {}s at the earliest",
            whole_seconds(wait)
        ),
        None => "when its server answers again".to_owned(),
    };
    if failure.sent == Sent::Never {
        return format!(
            "{tool} was not executed yet. It is queued as {id} and will be tried {when}. {repeated}"
        );
    }
    format!(
        "{tool} may have been executed. It is queued as {id} and will be tried again {when}, which changes nothing more. {repeated}"
    )
}
