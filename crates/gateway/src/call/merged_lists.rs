//! Decides the merged lists: the entries of all servers, in the order of the configuration, under
//! their public names.
//!
//! A server that cannot be reached costs its own entries only. Most clients read one page, so a
//! page holds all entries up to a bound; beyond it the list goes on under a cursor.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::{Map, Value};

use crate::authz::AuthzRefusal;
use crate::call::authorize::{authorize, filtered};
use crate::call::list::list;
use crate::catalog::{names, quarantine};
use crate::client::caller::Caller;
use crate::client::missing;
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::{self, JsonObject, quoted};
use crate::protocol::names::Era;
use crate::protocol::{Message, MessageKind, limits, scan};
use crate::route::Route;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Refusal, Reply, answered, with_body};
use crate::upstream::{Server, UpstreamFailure, beginning};

/// Entries of one page.
const PAGE: usize = 1_000;

/// One server's share of a merged list.
#[derive(Default)]
struct ListPart {
    entries: Vec<Bytes>,
    bytes: usize,
    ttl: Option<u64>,
    is_private: bool,
    /// Which entries were left out, and why.
    left_out: Option<String>,
    /// Why the server is missing, or its list not the newest.
    status: Option<Value>,
    quarantined: Vec<Value>,
    /// Why the caller may not list the server.
    not_allowed: Option<Box<AuthzRefusal>>,
}

impl ListPart {
    /// The server's status for programs, in the result's `_meta`.
    fn trouble(&self) -> Option<Value> {
        self.status.clone().or_else(|| self.left_out.as_deref().map(missing::partial))
    }
}

/// The merged list of all servers.
pub(crate) async fn merged(route: &Arc<Route>, caller: &Caller, call: &GatewayCall) -> Reply {
    let (key, id) = match call.request.method() {
        "tools/list" => ("tools", "name"),
        "prompts/list" => ("prompts", "name"),
        "resources/list" => ("resources", "uri"),
        _ => ("resourceTemplates", "uriTemplate"),
    };
    let start = match call.request.field_text("cursor") {
        None => 0,
        Some(cursor) => {
            cursor.strip_prefix("at-").and_then(|place| place.parse().ok()).ok_or_else(|| {
                Refusal::Wrong(RpcError::new(
                    build::INVALID_PARAMS,
                    "this cursor was not given out here; list from the start",
                ))
            })?
        }
    };
    // One limit for the checks of all servers.
    let call = &GatewayCall { list_checks: Some(Arc::default()), ..call.clone() };
    let parts =
        join_all(route.set.servers.iter().map(|server| part(route, caller, server, call, key)))
            .await;
    if let Some(outage) = nobody_can_say(&parts) {
        return Err(Refusal::NotAllowed(String::new(), outage));
    }
    let mut seen = HashSet::new();
    let mut entries = Vec::new();
    let (mut troubles, mut quarantined) = (Map::new(), Map::new());
    for (server, part) in route.set.servers.iter().zip(&parts) {
        troubles.extend(part.trouble().map(|trouble| (server.name.clone(), trouble)));
        if !part.quarantined.is_empty() {
            quarantined.insert(server.name.clone(), part.quarantined.clone().into());
        }
        for entry in &part.entries {
            entries.extend(public_entry(route, server, entry, id, &mut seen));
        }
    }
    answered(&page(caller.era(), key, &entries, start, &parts, [troubles, quarantined]))
}

/// The outage, if no server may be listed because nobody can say whether it may: an empty list
/// would look like the truth.
fn nobody_can_say(parts: &[ListPart]) -> Option<Box<AuthzRefusal>> {
    let outages: Option<Vec<_>> = parts.iter().map(|part| part.not_allowed.as_ref()).collect();
    outages?.into_iter().find(|refusal| refusal.is_outage()).cloned()
}

/// One page of the merged list.
fn page(
    era: Era,
    key: &str,
    entries: &[Vec<u8>],
    start: usize,
    parts: &[ListPart],
    [troubles, quarantined]: [Map<String, Value>; 2],
) -> Vec<u8> {
    let mut result = JsonObject::default();
    let shown = entries.iter().skip(start).take(PAGE).map(Vec::as_slice);
    result.set(key, edit::array(shown));
    if start + PAGE < entries.len() {
        result.set("nextCursor", quoted(&format!("at-{}", start + PAGE)));
    }
    if era == Era::Modern {
        let ttl = parts.iter().map(|part| part.ttl.unwrap_or(0)).min().unwrap_or(0);
        let is_own = |part: &ListPart| part.is_private || part.not_allowed.is_some();
        let scope = if parts.iter().any(is_own) { "private" } else { "public" };
        // An incomplete list must not be cached: the missing server may be back any moment.
        let ttl = if troubles.is_empty() { ttl } else { 0 };
        result
            .set("resultType", r#""complete""#)
            .set("ttlMs", ttl.to_string())
            .set("cacheScope", quoted(scope));
    }
    for (name, told) in [(missing::SERVERS, troubles), (quarantine::QUARANTINED, quarantined)] {
        if !told.is_empty() {
            result.change("_meta", |meta| {
                meta.set(name, Value::Object(told).to_string());
            });
        }
    }
    result.json()
}

/// An entry under its public name; a name appears once. A URI that an earlier server has listed
/// already stays with that server.
fn public_entry(
    route: &Route,
    server: &Server,
    entry: &Bytes,
    id: &str,
    seen: &mut HashSet<String>,
) -> Option<Vec<u8>> {
    let mut object = JsonObject::of(entry);
    let own = object.get(id).and_then(scan::text)?.into_owned();
    if id == "name" {
        let public = names::public(&server.name, &own);
        object.set("name", quoted(&public));
        return seen.insert(public).then(|| object.json());
    }
    if !seen.insert(own.clone()) {
        return None;
    }
    route.own(own, &server.name);
    Some(entry.to_vec())
}

/// All pages of one server, within bounds of count and time.
async fn part(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
    key: &str,
) -> ListPart {
    let mut part = ListPart::default();
    let pages = pages(route, caller, server, call, key, &mut part);
    // `part` is filled through a reference, so the pages read before a timeout still count.
    let failed = match tokio::time::timeout(limits::LIST_TIME, pages).await {
        Ok(Ok(())) => return part,
        Ok(Err(Refusal::Failed(_, failure))) => server.missing(&failure),
        Ok(Err(Refusal::Reported(report, _))) => server.reported(report.failure.clone()),
        Ok(Err(Refusal::NotAllowed(_, refusal))) => {
            let failed = server.reported(refusal.failure());
            part.not_allowed = Some(refusal);
            failed
        }
        Ok(Err(Refusal::Wrong(error))) => server.refused(error.code, &beginning(&error.message)),
        Err(_) => server.missing(&UpstreamFailure::Silent(limits::LIST_TIME)),
    };
    part.status = Some(missing::entry(server, &failed));
    part
}

async fn pages(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
    key: &str,
    part: &mut ListPart,
) -> Result<(), Refusal> {
    let allowed = authorize(route, server, call).await?;
    let call = &allowed;
    let mut cursors = HashSet::new();
    let mut params = JsonObject::of(call.request.body_json());
    params.remove("cursor");
    for _ in 0..limits::PAGES {
        let request = with_body(&call.request, &params.json())?;
        let page = GatewayCall { request, ..call.clone() };
        let answer = list(route, caller, server, &page).await?;
        let answer = filtered(route, server, caller.era(), &page, answer).await?;
        if answer.kind() == MessageKind::Error {
            let code = answer.field_json("code").and_then(|code| serde_json::from_slice(code).ok());
            let text = answer.field_text("message").unwrap_or_default().into_owned();
            // A server without this method has nothing to list.
            let is_unknown = code == Some(build::METHOD_NOT_FOUND);
            let error = RpcError::new(code.unwrap_or(build::INTERNAL_ERROR), text);
            return if is_unknown { Ok(()) } else { Err(error.into()) };
        }
        let told = |name| {
            let told: Value = serde_json::from_slice(answer.meta_json(name)?).ok()?;
            told.get(&server.name).cloned()
        };
        part.status = told(missing::SERVERS).or(part.status.take());
        if let Some(Value::Array(tools)) = told(quarantine::QUARANTINED) {
            part.quarantined.extend(tools);
        }
        part.left_out = take(part, &answer, key);
        let cursor = answer.field_text("nextCursor").filter(|_| part.left_out.is_none());
        let Some(cursor) = cursor else { return Ok(()) };
        params.set("cursor", quoted(&cursor));
        if !cursors.insert(cursor.into_owned()) {
            part.left_out = Some("its pages go in circles; what they brought is listed".to_owned());
            return Ok(());
        }
    }
    part.left_out = Some(format!("more than {} pages; the others are left out", limits::PAGES));
    Ok(())
}

/// Takes the entries of a page as far as the limits allow; returns why entries were left out.
fn take(part: &mut ListPart, answer: &Message, key: &str) -> Option<String> {
    let mut left_out = None;
    for span in answer.field(key).map(|list| scan::elements(answer.raw(), list)).unwrap_or_default()
    {
        let bytes = part.bytes + span.end - span.start;
        if part.entries.len() == limits::LISTED {
            left_out =
                Some(format!("more than {} entries; the others are left out", limits::LISTED));
        } else if bytes > limits::LIST_BYTES {
            left_out =
                Some(format!("larger than {} bytes; the rest is left out", limits::LIST_BYTES));
        }
        if left_out.is_some() {
            break;
        }
        part.bytes = bytes;
        // A copy, so that an entry does not keep its whole page in memory.
        part.entries.push(Bytes::copy_from_slice(span.of(answer.raw())));
    }
    let ttl =
        answer.field_json("ttlMs").and_then(|ttl| std::str::from_utf8(ttl).ok()?.parse().ok());
    part.ttl = Some(part.ttl.unwrap_or(u64::MAX).min(ttl.unwrap_or(0)));
    part.is_private |= answer.field_text("cacheScope").as_deref() != Some("public");
    left_out
}
