//! Decides which headers go with the requests to a server: each name once, each value valid in
//! HTTP.

use http::{HeaderName, HeaderValue};

use super::Secret;
use super::expand::Variables;
use super::problem::{ConfigPlace, Problem, Problems};
use super::raw::RawServer;
use super::tree::ConfigString;

pub(super) fn resolve(
    raw: &RawServer,
    scope: &Variables<'_>,
    problems: &mut Problems,
) -> Vec<(HeaderName, Secret)> {
    // The name, its place in the file, the value, and whether the value comes from outside the
    // file.
    let mut stated: Vec<(&str, &ConfigPlace, String, bool)> = Vec::new();
    for (name, text) in &raw.headers {
        let is_filled = text.has_references();
        stated.extend(
            scope
                .expand(text, problems)
                .map(|value| (name.as_str(), &text.place, value, is_filled)),
        );
    }
    for (name, variable) in &raw.header_vars {
        stated.extend(
            named(variable, scope, problems)
                .map(|value| (name.as_str(), &variable.place, value, true)),
        );
    }
    if let Some(variable) = &raw.token_var {
        let token = named(variable, scope, problems);
        stated.extend(
            token.map(|token| ("authorization", &variable.place, format!("Bearer {token}"), true)),
        );
    }
    let mut headers: Vec<(HeaderName, Secret)> = Vec::new();
    for (name, place, value, is_filled) in stated {
        let Some(name) = problems.keep(header_name(name, place)) else { continue };
        if headers.iter().any(|(known, _)| *known == name) {
            problems.push(place.problem("sets a header that is set already; keep one"));
        } else if let Some(value) = problems.keep_filled(is_filled, header_value(place, value)) {
            headers.push((name, value));
        }
    }
    headers
}

/// The value of the variable that is named here. Some users write the token itself in place of the
/// name, so problems do not quote it.
fn named(
    variable: &ConfigString,
    scope: &Variables<'_>,
    problems: &mut Problems,
) -> Option<String> {
    let value = scope.variable(&variable.text);
    if value.is_none() {
        problems.lack(variable.place.problem("names a variable that is not set; set it"));
    }
    value
}

fn header_name(name: &str, place: &ConfigPlace) -> Result<HeaderName, Problem> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| place.problem("is not a header's name"))
}

fn header_value(place: &ConfigPlace, value: String) -> Result<Secret, Problem> {
    match HeaderValue::from_str(&value) {
        Ok(_) => Ok(Secret::new(value)),
        Err(_) => Err(place
            .problem("has a value that no header can have: only printable ASCII, no line breaks")),
    }
}
