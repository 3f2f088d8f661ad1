//! Decides which headers of a client a server gets: none, unless the server's own rules name them.

use http::{HeaderName, HeaderValue};

use super::problem::{ConfigPlace, Problem, Problems};
use super::suggest;
use super::tree::{ConfigField, ConfigString};

const KEYS: [&str; 4] = ["from", "to", "prefix", "default"];
/// Headers that the gateway sets itself.
const OURS: [&str; 9] = [
    "host",
    "content-type",
    "content-length",
    "accept",
    "connection",
    "transfer-encoding",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
];

/// One header of the client that becomes a header of the request to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedHeader {
    /// The client's header.
    pub from: HeaderName,
    /// The header to the server.
    pub to: HeaderName,
    /// Stands before the client's value, like `Bearer `.
    pub prefix: String,
    /// Stands in for the client's value where the client sends none; `None`: nothing is sent.
    pub default: Option<String>,
}

impl PassedHeader {
    /// The value for the server, given the client's.
    pub(crate) fn value(&self, sent: Option<&HeaderValue>) -> Option<HeaderValue> {
        let text = match sent {
            Some(sent) => sent.to_str().ok()?,
            None => self.default.as_deref()?,
        };
        let mut value = HeaderValue::from_str(&format!("{}{text}", self.prefix)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Reads `pass_header = { from = "…", to = "…" }`, or a list of these.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> Vec<PassedHeader> {
    if !section.is_list() {
        return one(section, problems).into_iter().collect();
    }
    let mut rules: Vec<PassedHeader> = Vec::new();
    for item in section.items(problems) {
        let Some(rule) = one(&item, problems) else { continue };
        problems.keep(add(&mut rules, rule, &item.place));
    }
    rules
}

/// Adds a rule; two rules for one header of the server would contradict each other.
pub(super) fn add(
    rules: &mut Vec<PassedHeader>,
    rule: PassedHeader,
    place: &ConfigPlace,
) -> Result<(), Problem> {
    if rules.iter().any(|known| known.to == rule.to) {
        return Err(place.problem(format!("{} is set already; keep one", rule.to)));
    }
    rules.push(rule);
    Ok(())
}

fn one(section: &ConfigField<'_>, problems: &mut Problems) -> Option<PassedHeader> {
    let (mut from, mut to, mut prefix, mut default) = (None, None, String::new(), None);
    for (key, value) in section.entries(problems) {
        match key {
            "from" => from = problems.keep(header(&value)),
            "to" => to = problems.keep(header(&value)),
            "prefix" => prefix = problems.keep(part(&value)).unwrap_or_default(),
            "default" => default = problems.keep(part(&value)),
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    if section.is_table() && !(section.has("from") && section.has("to")) {
        problems.push(section.place.problem(
            "needs from and to: the header of the client, and the header that the server gets",
        ));
    }
    checked(PassedHeader { from: from?, to: to?, prefix, default }, &section.place, problems)
}

/// The rule, unless the gateway sets this header itself.
pub(super) fn checked(
    rule: PassedHeader,
    place: &ConfigPlace,
    problems: &mut Problems,
) -> Option<PassedHeader> {
    if OURS.contains(&rule.to.as_str()) {
        let text = format!("{} is set by the gateway itself; choose another header", rule.to);
        problems.push(place.problem(text));
        return None;
    }
    problems.warn(warning(place, &rule));
    Some(rule)
}

/// A client's credential leaves the gateway: the operator is reminded of it.
fn warning(place: &ConfigPlace, rule: &PassedHeader) -> Problem {
    place.problem(format!(
        "every client's {} is passed on to this server as {}; the server can act in the client's name",
        rule.from, rule.to
    ))
}

fn header(value: &ConfigField<'_>) -> Result<HeaderName, Problem> {
    let ConfigString { place, text } = value.text()?;
    HeaderName::try_from(text.as_str())
        .map_err(|_| place.problem(format!("{text:?} is not the name of a header")))
}

fn part(value: &ConfigField<'_>) -> Result<String, Problem> {
    let ConfigString { place, text } = value.text()?;
    match HeaderValue::from_str(&text).is_ok_and(|value| value.to_str().is_ok()) {
        true => Ok(text),
        false => Err(place.problem("must be printable ASCII: it is sent in a header")),
    }
}
