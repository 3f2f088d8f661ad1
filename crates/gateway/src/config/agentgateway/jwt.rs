//! Decides what `jwtAuth` means: the issuers of the tokens that clients must show.

use super::{exactly, shell, unsupported};
use crate::config::identity::{RawIdentity, RawJwt};
use crate::config::problem::Problems;
use crate::config::tree::{ConfigField, ConfigString};

const KEYS: [&str; 5] = ["mode", "issuer", "audiences", "jwks", "providers"];
const PROVIDER_KEYS: [&str; 3] = ["issuer", "audiences", "jwks"];
const JWKS_KEYS: [&str; 2] = ["url", "file"];

/// Reads one issuer, or the list `providers`.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> Option<RawIdentity> {
    let before = problems.count();
    let mut single = RawJwt::at(&section.place);
    let mut issuers = Vec::new();
    for (key, value) in section.entries(problems) {
        match key {
            "mode" => {
                let why = "it would let in whoever shows no token";
                problems.keep(exactly(&value, "strict", why));
            }
            "providers" => {
                let items = value.items(problems);
                issuers.extend(items.iter().map(|item| provider(item, problems)));
            }
            _ => set(&mut single, key, &value, &KEYS, problems),
        }
    }
    if section.is_table() && !section.has("mode") {
        let text = "needs mode: strict; without it agentgateway lets in whoever shows no token";
        problems.push(section.place.problem(text));
    }
    if !section.has("providers") {
        issuers.push(single);
    } else if PROVIDER_KEYS.into_iter().any(|key| section.has(key)) {
        problems.push(section.place.problem("has an issuer and providers; keep one of the two"));
    }
    for issuer in &issuers {
        lacks(issuer, problems);
    }
    (problems.count() == before).then(|| RawIdentity::of(section.place.clone(), issuers))
}

fn provider(item: &ConfigField<'_>, problems: &mut Problems) -> RawJwt {
    let mut issuer = RawJwt::at(&item.place);
    for (key, value) in item.entries(problems) {
        set(&mut issuer, key, &value, &PROVIDER_KEYS, problems);
    }
    issuer
}

fn set(
    issuer: &mut RawJwt,
    key: &str,
    value: &ConfigField<'_>,
    known: &[&str],
    problems: &mut Problems,
) {
    match key {
        "issuer" => issuer.issuer = problems.keep(shell(value)),
        "audiences" => {
            let items = value.items(problems);
            issuer.audiences = items.iter().filter_map(|item| problems.keep(shell(item))).collect();
        }
        "jwks" => issuer.jwks = jwks(value, problems),
        _ => problems.push(unsupported(value, known)),
    }
}

/// `jwks: {url: …}` or `jwks: {file: …}`.
fn jwks(section: &ConfigField<'_>, problems: &mut Problems) -> Option<ConfigString> {
    let mut found = None;
    for (key, value) in section.entries(problems) {
        if !JWKS_KEYS.contains(&key) {
            problems.push(unsupported(&value, &JWKS_KEYS));
            continue;
        }
        let Some(text) = problems.keep(shell(&value)) else { continue };
        // Seawall tells a URL from a file by its scheme.
        if (key == "url") != text.text.contains("://") {
            let text = "must be an http(s):// URL, or stand under file";
            problems.push(value.place.problem(text));
        }
        if found.replace(text).is_some() {
            problems.push(section.place.problem("has a url and a file; keep one of the two"));
        }
    }
    found
}

fn lacks(issuer: &RawJwt, problems: &mut Problems) {
    let mut needs = |key: &str| problems.push(issuer.place.problem(format!("needs {key}")));
    if issuer.issuer.is_none() {
        needs("issuer");
    }
    if issuer.jwks.is_none() {
        needs("jwks with url or file");
    }
    if issuer.audiences.is_empty() {
        needs("audiences: a token for somebody else must not be accepted");
    }
}
