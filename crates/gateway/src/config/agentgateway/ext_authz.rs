//! Decides what `extAuthz` means: the authorizer of a route's server.

use http::{HeaderName, Uri};

use super::{exactly, expression, shell, unsupported};
use crate::config::ExtAuthzConfig;
use crate::config::ext_authz::{MOST_BODY, RawExtAuthz};
use crate::config::problem::{Problem, Problems};
use crate::config::reconnect;
use crate::config::tree::{ConfigField, ConfigString};

const KEYS: [&str; 7] = [
    "host",
    "failureMode",
    "timeout",
    "policies",
    "includeRequestHeaders",
    "includeRequestBody",
    "protocol",
];
const BODY_KEYS: [&str; 3] = ["maxRequestBytes", "allowPartialMessage", "packAsBytes"];
const GRPC_KEYS: [&str; 2] = ["metadata", "context"];

/// Without includeRequestHeaders agentgateway sends every header. These are what the authorizers
/// that are known read; with every header no two checks would be the same, and none be shared.
const HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("authorization"),
    HeaderName::from_static("x-caipe-agent-context"),
    HeaderName::from_static("x-caipe-agent-context-signature"),
];
/// Without includeRequestBody agentgateway sends no body and so refuses none. Seawall sends it, and
/// gRPC takes no message of more than 4 MiB.
const LARGE_BODY: usize = 3 * 1024 * 1024;
/// agentgateway's own limit, if includeRequestBody states none.
const SMALL_BODY: usize = 8192;

pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> Option<RawExtAuthz> {
    let mut rest = ExtAuthzConfig::at(Uri::default());
    // `deny`, agentgateway's default, is a 403.
    rest.on_unavailable = 403;
    rest.headers = HEADERS.to_vec();
    rest.max_body = LARGE_BODY;
    let (mut host, mut context) = (None, Vec::new());
    for (key, value) in section.entries(problems) {
        match key {
            "host" => host = problems.keep(shell(&value)),
            "failureMode" => {
                rest.on_unavailable = failure_mode(&value, problems).unwrap_or(403);
            }
            "timeout" => {
                rest.timeout = problems.keep(reconnect::some_time(&value)).unwrap_or(rest.timeout);
            }
            "policies" => request_timeout(&mut rest, &value, problems),
            "includeRequestHeaders" => rest.headers = headers(&value, problems),
            "includeRequestBody" => rest.max_body = body(&value, problems),
            "protocol" => context = protocol(&mut rest, &value, problems),
            _ => problems.push(unsupported(&value, &KEYS)),
        }
    }
    if section.has("timeout") && section.has("policies") {
        problems.push(section.place.problem("has timeout and policies; keep one of the two"));
    }
    if section.is_table() && !section.has("host") {
        problems.push(section.place.problem("needs host: the address of the authorizer"));
    }
    Some(RawExtAuthz::of(host?, context, rest))
}

/// `deny`, or `{denyWithStatus: 403}`. An authorizer that is away must not let everybody in.
fn failure_mode(value: &ConfigField<'_>, problems: &mut Problems) -> Option<u16> {
    if !value.is_table() {
        return problems.keep(exactly(value, "deny", "Seawall fails closed")).map(|()| 403);
    }
    let mut status = None;
    for (key, value) in value.entries(problems) {
        match (key, value.count()) {
            ("denyWithStatus", Ok(403)) => status = Some(403),
            ("denyWithStatus", Ok(503)) => status = Some(503),
            ("denyWithStatus", _) => problems.push(value.place.problem("must be 403 or 503")),
            _ => problems.push(unsupported(&value, &["denyWithStatus"])),
        }
    }
    status
}

/// `policies: {http: {requestTimeout: 10s}}`: the timeout since agentgateway 1.0.
fn request_timeout(rest: &mut ExtAuthzConfig, section: &ConfigField<'_>, problems: &mut Problems) {
    for (key, value) in section.entries(problems) {
        if key != "http" {
            problems.push(unsupported(&value, &["http"]));
            continue;
        }
        for (key, value) in value.entries(problems) {
            match key {
                "requestTimeout" => {
                    let time = problems.keep(reconnect::some_time(&value));
                    rest.timeout = time.unwrap_or(rest.timeout);
                }
                _ => problems.push(unsupported(&value, &["requestTimeout"])),
            }
        }
    }
}

fn headers(value: &ConfigField<'_>, problems: &mut Problems) -> Vec<HeaderName> {
    let one = |ConfigString { place, text }: ConfigString| -> Result<HeaderName, Problem> {
        HeaderName::try_from(text.as_str())
            .map_err(|_| place.problem(format!("{text:?} is not the name of a header")))
    };
    let texts = value.texts(problems);
    texts.into_iter().filter_map(|text| problems.keep(one(text))).collect()
}

/// The largest body; a larger one is refused, never sent in part.
fn body(section: &ConfigField<'_>, problems: &mut Problems) -> usize {
    let mut most = SMALL_BODY;
    for (key, value) in section.entries(problems) {
        match key {
            "maxRequestBytes" => {
                let bytes = problems.keep(value.whole(1, MOST_BODY));
                most = bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(most);
            }
            "allowPartialMessage" => {
                if problems.keep(value.flag()) == Some(true) {
                    let text =
                        "must be false: what is decided on a part may be wrong for the whole";
                    problems.push(value.place.problem(text));
                }
            }
            // Seawall fills the raw body, which is what `true` asks for.
            "packAsBytes" => {
                if problems.keep(value.flag()) == Some(false) {
                    problems.push(value.place.problem("must be true: the body is sent as bytes"));
                }
            }
            _ => problems.push(unsupported(&value, &BODY_KEYS)),
        }
    }
    most
}

/// `protocol: {grpc: {metadata, context}}`.
fn protocol(
    rest: &mut ExtAuthzConfig,
    section: &ConfigField<'_>,
    problems: &mut Problems,
) -> Vec<(String, ConfigString)> {
    let mut context = Vec::new();
    for (key, value) in section.entries(problems) {
        if key != "grpc" {
            problems.push(unsupported(&value, &["grpc"]));
            continue;
        }
        for (key, value) in value.entries(problems) {
            match key {
                "metadata" => {
                    for (name, value) in value.entries(problems) {
                        let claims = problems.keep(expression::claims(&value)).unwrap_or_default();
                        rest.claims.insert(name.to_owned(), claims);
                    }
                }
                "context" => {
                    for (name, value) in value.entries(problems) {
                        let text = problems.keep(shell(&value));
                        context.extend(text.map(|text| (name.to_owned(), text)));
                    }
                }
                _ => problems.push(unsupported(&value, &GRPC_KEYS)),
            }
        }
    }
    context
}
