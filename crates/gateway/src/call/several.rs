//! Decides how one call reaches several servers: the one that owns its subject, or all that are
//! connected.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Map, Value};

use crate::call::ask::ask;
use crate::catalog::{cached_lists, uri_template};
use crate::client::caller::Caller;
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::JsonObject;
use crate::protocol::{Message, MessageKind, Span, scan};
use crate::route::Route;
use crate::translate::pool;
use crate::upstream::Server;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Refusal, Reply, answered};

/// Asks the servers one after the other until one answers with a result, which makes it the owner
/// of the resource or task. A server whose templates the resource fits is asked first. A server
/// that is away is waited for only if the resource fits its templates, or if no other is up.
pub(crate) async fn first_that_has(
    route: &Arc<Route>,
    caller: &Caller,
    call: &GatewayCall,
    what: String,
) -> Reply {
    let servers = route.set.servers.iter().map(|server| Candidate {
        fits: has_template(route, caller, call, server, &what),
        is_away: server.reconnect.last().is_some(),
        server,
    });
    let mut all: Vec<Candidate<'_>> = servers.collect();
    all.sort_by_key(|candidate| !candidate.fits);
    let (away, up): (Vec<_>, Vec<_>) = all.into_iter().partition(|candidate| candidate.is_away);
    let waits_for = |candidate: &Candidate<'_>| candidate.fits || up.is_empty();
    let (awaited, left): (Vec<_>, Vec<_>) = away.into_iter().partition(waits_for);
    let mut heard = Heard::default();
    heard.missing.extend(left.iter().map(|candidate| (candidate.server, None)));
    for candidate in &up {
        let reply = ask(route, caller, candidate.server, call).await;
        if let Some(answer) = heard.note(candidate, reply) {
            route.own(what, &candidate.server.name);
            return Ok(answer);
        }
    }
    // At the same time: each of them may be waited for as long as a call may.
    let mut asked: FuturesUnordered<_> =
        awaited
            .iter()
            .map(|candidate| async move {
                (candidate, ask(route, caller, candidate.server, call).await)
            })
            .collect();
    while let Some((candidate, reply)) = asked.next().await {
        if let Some(answer) = heard.note(candidate, reply) {
            route.own(what, &candidate.server.name);
            return Ok(answer);
        }
    }
    heard.reply(&what)
}

/// A server that may own a resource or a task.
struct Candidate<'r> {
    server: &'r Arc<Server>,
    /// The resource fits a template that the server listed.
    fits: bool,
    is_away: bool,
}

/// The words of the servers that do not own a resource or a task.
#[derive(Default)]
struct Heard<'r> {
    /// The error that tells the most, and its rank.
    said: Option<((bool, bool), Message)>,
    /// The servers that were not asked, or could not be; with the failure.
    missing: Vec<(&'r Arc<Server>, Option<Refusal>)>,
}

impl<'r> Heard<'r> {
    /// Notes a reply, unless it is the owner's. The word of a server whose template it fits tells
    /// more than another's, and any word more than that the method is unknown.
    fn note(&mut self, from: &Candidate<'r>, reply: Reply) -> Option<Message> {
        match reply {
            Ok(answer) if answer.kind() == MessageKind::Result => return Some(answer),
            Ok(answer) => {
                let rank = (from.fits, code(&answer) != Some(build::METHOD_NOT_FOUND));
                if self.said.as_ref().is_none_or(|(before, _)| *before <= rank) {
                    self.said = Some((rank, answer));
                }
            }
            Err(failed) => self.missing.push((from.server, Some(failed))),
        }
        None
    }

    /// The reply where no server is known to own it. A server that the caller may not use is not
    /// away: where only such a one may have it, the caller reads what it reads of a denied call.
    fn reply(self, what: &str) -> Reply {
        let is_denied =
            |(_, failed): &(_, Option<Refusal>)| matches!(failed, Some(Refusal::NotAllowed(..)));
        let (denied, away): (Vec<_>, Vec<_>) = self.missing.into_iter().partition(is_denied);
        let is_fitting = self.said.as_ref().is_some_and(|((fits, _), _)| *fits);
        match self.said {
            Some((_, answer)) if denied.is_empty() && away.is_empty() => Ok(answer),
            Some((_, answer)) if is_fitting || !away.is_empty() => {
                Err(may_be_elsewhere(&answer, &away, &denied).into())
            }
            _ => {
                let failed = away.into_iter().chain(denied).find_map(|(_, failed)| failed);
                Err(failed.unwrap_or_else(|| {
                    RpcError::new(build::INVALID_PARAMS, format!("no server has {what:?}")).into()
                }))
            }
        }
    }
}

/// The code of an error answer.
fn code(error: &Message) -> Option<i64> {
    serde_json::from_slice(error.field_json("code")?).ok()
}

/// Whether a resource fits a template that the server listed.
fn has_template(
    route: &Route,
    caller: &Caller,
    call: &GatewayCall,
    server: &Server,
    what: &str,
) -> bool {
    if !call.request.method().starts_with("resources/") {
        return false;
    }
    let key = match caller {
        Caller::Legacy(session, _) => session.key(server),
        Caller::Modern(_) => pool::handshake(call).key(server),
    };
    let (method, entries, _) = cached_lists::part_of("resources/templates/list");
    let fits = |template: &[u8]| {
        let template = JsonObject::of(template);
        let text = template.get("uriTemplate").and_then(scan::text);
        text.is_some_and(|text| uri_template::fits(&text, what))
    };
    let pages = route.catalog_cache.pages_of_any(&key, method);
    pages.iter().any(|(_, page)| {
        let page = JsonObject::of(page);
        let list = page.get(entries).unwrap_or_default();
        let listed = scan::elements(list, Span { start: 0, end: list.len() });
        listed.into_iter().any(|span| fits(span.of(list)))
    })
}

/// The servers that were not asked, or could not be; with the failure.
type Missing<'r> = [(&'r Arc<Server>, Option<Refusal>)];

/// A server's own error, with the servers that were not asked: one of them may have it.
fn may_be_elsewhere(error: &Message, away: &Missing<'_>, denied: &Missing<'_>) -> RpcError {
    let text = error.field_text("message").unwrap_or_default();
    let data = error.field_json("data").and_then(|data| serde_json::from_slice(data).ok());
    let mut data: Map<String, Value> = data.unwrap_or_default();
    let mut told = Vec::new();
    for (key, servers, why) in
        [("away", away, "away now"), ("denied", denied, "which this caller may not use")]
    {
        let names: Vec<&str> = servers.iter().map(|(server, _)| server.name.as_str()).collect();
        if !names.is_empty() {
            told.push(format!("{}, {why}", names.join(", ")));
            data.insert(key.to_owned(), names.into());
        }
    }
    let message = format!("{text} (not asked, and may have it: {})", told.join("; "));
    RpcError::new(code(error).unwrap_or(build::INTERNAL_ERROR), message).with(data.into())
}

/// Sends a call to every connected server; succeeds if one of them knows the method, or if others
/// are not connected yet. Servers that connect later get the session's log level then, so the call
/// does not wait for them.
pub(crate) async fn everywhere(route: &Arc<Route>, caller: &Caller, call: &GatewayCall) -> Reply {
    let is_there = |server: &&Arc<Server>| match caller {
        Caller::Legacy(session, _) => {
            session.connections().iter().any(|connection| connection.server == server.name)
        }
        Caller::Modern(_) => true,
    };
    let there: Vec<&Arc<Server>> = route.set.servers.iter().filter(is_there).collect();
    let answers =
        futures_util::future::join_all(there.iter().map(|server| ask(route, caller, server, call)))
            .await;
    let is_known = answers
        .iter()
        .any(|answer| answer.as_ref().is_ok_and(|answer| answer.kind() == MessageKind::Result));
    if let Caller::Legacy(session, _) = caller {
        session.set_log_level(&call.request);
    }
    if is_known || there.len() < route.set.servers.len() {
        return answered(b"{}");
    }
    answers.into_iter().next().unwrap_or_else(|| answered(b"{}"))
}
