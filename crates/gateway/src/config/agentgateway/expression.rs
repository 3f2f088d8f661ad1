//! Decides which expressions are understood: the few forms that pass on a header or name claims.
//! Seawall evaluates no CEL.

use http::HeaderName;

use crate::config::PassedHeader;
use crate::config::problem::Problem;
use crate::config::tree::{ConfigField, ConfigString};

const BEARER: &str = "\"Bearer \" + ";

/// `"Bearer " + default(request.headers["x"], "")`, or without the first part.
pub(super) fn passed_header(to: &str, value: &ConfigField<'_>) -> Result<PassedHeader, Problem> {
    let ConfigString { place, text } = value.text()?;
    let (prefix, rest) = match text.trim().strip_prefix(BEARER) {
        Some(rest) => ("Bearer ", rest),
        None => ("", text.trim()),
    };
    let from = rest
        .strip_prefix("default(request.headers[\"")
        .and_then(|rest| rest.strip_suffix("\"], \"\")"))
        .and_then(|name| HeaderName::try_from(name).ok());
    let wrong = || {
        place.problem(
            "is not an expression that Seawall knows; it knows 'default(request.headers[\"NAME\"], \"\")', \
             with '\"Bearer \" + ' before it or not",
        )
    };
    let to = HeaderName::try_from(to)
        .map_err(|_| place.problem(format!("{to:?} is not the name of a header")))?;
    let from = from.ok_or_else(wrong)?;
    Ok(PassedHeader { from, to, prefix: prefix.to_owned(), default: Some(String::new()) })
}

/// The expression of a rule, if there is one.
pub(super) fn of_header(rule: &PassedHeader) -> Option<String> {
    let plain = format!("default(request.headers[\"{}\"], \"\")", rule.from);
    match (rule.prefix.as_str(), rule.default.as_deref()) {
        ("", Some("")) => Some(plain),
        ("Bearer ", Some("")) => Some(format!("{BEARER}{plain}")),
        _ => None,
    }
}

/// The claims of `{"sub": jwt.sub, "name": jwt.name}`: each under its own name.
pub(super) fn claims(value: &ConfigField<'_>) -> Result<Vec<String>, Problem> {
    let ConfigString { place, text } = value.text()?;
    let claim = |pair: &str| {
        let (name, claim) = pair.split_once(':')?;
        let name = name.trim().strip_prefix('"')?.strip_suffix('"')?;
        let is_plain =
            !name.is_empty() && name.chars().all(|c: char| c.is_ascii_alphanumeric() || c == '_');
        (is_plain && claim.trim().strip_prefix("jwt.") == Some(name)).then(|| name.to_owned())
    };
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let claims: Option<Vec<String>> = inner.and_then(|inner| inner.split(',').map(claim).collect());
    claims.ok_or_else(|| {
        place.problem(
            "is not an expression that Seawall knows; it knows '{\"CLAIM\": jwt.CLAIM, …}', each claim under its own name",
        )
    })
}

/// The expression of these claims.
pub(super) fn of_claims(claims: &[String]) -> String {
    let pairs: Vec<String> =
        claims.iter().map(|claim| format!("\"{claim}\": jwt.{claim}")).collect();
    format!("{{{}}}", pairs.join(", "))
}
