//! Decides which headers go with the requests to a server: each name once, each value fit to be sent.

use http::{HeaderName, HeaderValue};

use super::Secret;
use super::expand::Scope;
use super::problem::{Place, Problem, Problems};
use super::raw::RawServer;
use super::tree::Text;

pub(super) fn resolve(raw: &RawServer, scope: &Scope<'_>, problems: &mut Problems) -> Vec<(HeaderName, Secret)> {
    let mut stated: Vec<(&str, &Place, String)> = Vec::new();
    for (name, text) in &raw.headers {
        stated.extend(scope.expand(text, problems).map(|value| (name.as_str(), &text.place, value)));
    }
    for (name, variable) in &raw.header_vars {
        stated.extend(named(variable, scope, problems).map(|value| (name.as_str(), &variable.place, value)));
    }
    if let Some(variable) = &raw.token_var {
        let token = named(variable, scope, problems);
        stated.extend(token.map(|token| ("authorization", &variable.place, format!("Bearer {token}"))));
    }
    let mut headers: Vec<(HeaderName, Secret)> = Vec::new();
    for (name, place, value) in stated {
        let header =
            header(name, place, value).and_then(|header| match headers.iter().any(|(it, _)| *it == header.0) {
                true => Err(place.problem("sets a header that is set already; keep one")),
                false => Ok(header),
            });
        headers.extend(problems.keep(header));
    }
    headers
}

/// The value of the variable that is named here. Some write the token itself, so the name is not repeated.
fn named(variable: &Text, scope: &Scope<'_>, problems: &mut Problems) -> Option<String> {
    let value = scope.variable(&variable.text);
    problems.keep(value.ok_or_else(|| variable.place.problem("names a variable that is not set; set it")))
}

fn header(name: &str, place: &Place, value: String) -> Result<(HeaderName, Secret), Problem> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| place.problem("is not a header's name"))?;
    if HeaderValue::from_str(&value).is_err() {
        return Err(place.problem("has a value that no header can have: only printable ASCII, no line breaks"));
    }
    Ok((name, Secret::new(value)))
}
