//! Lists that stay as they are: what a server listed last stands in while it is away, the same bytes in the same order.
//!
//! An outage shows when a tool is called, never as tools that vanish. An empty list of a server that has only just
//! started is not believed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::bridge::pool;
use crate::bridge::to_modern::{answered, with_body};
use crate::call::Call;
use crate::dispatch::{Caller, Refusal, Reply, once};
use crate::gateway::Route;
use crate::ops::memory::Memory;
use crate::session::Session;
use crate::upstream::{Failure, Link, Server, seconds};
use crate::wire::edit::Object;
use crate::wire::{Kind, Message, limits, scan};

/// How long after its start an empty list of a server is not believed, if it had one before.
const WARM_UP: Duration = Duration::from_secs(30);

/// The lists, and where their entries are.
const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "notifications/tools/list_changed"),
    ("prompts/list", "prompts", "notifications/prompts/list_changed"),
    ("resources/list", "resources", "notifications/resources/list_changed"),
    ("resources/templates/list", "resourceTemplates", "notifications/resources/list_changed"),
];

/// Whether a request asks for a list.
pub fn is_list(request: &Message) -> bool {
    LISTS.iter().any(|(method, ..)| *method == request.method())
}

/// The name of a list, or of one page of it.
fn name(request: &Message) -> String {
    match request.field_text("cursor") {
        Some(cursor) => format!("{} {cursor}", request.method()),
        None => request.method().to_owned(),
    }
}

/// One list of one server: its own if it is there, else what it listed last.
pub async fn list(route: &Arc<Route>, caller: &Caller, server: &Arc<Server>, call: &Call) -> Reply {
    let (key, keeper) = match caller {
        Caller::Legacy(session, _) => (session.key(server), session.keeper(server).ok()),
        Caller::Modern => (pool::opening(call).key(server), None),
    };
    // One that rests is not started to say what it said last.
    if keeper.as_ref().is_some_and(|keeper| keeper.is_resting())
        && let Some(list) = route.memory.list(&key, &name(&call.request))
    {
        return answered(&list);
    }
    // A server that has not failed is waited for: what it lists now is better than what it listed before.
    if let Some(keeper) = &keeper {
        let wait = if server.reconnect.last().is_some() { Duration::ZERO } else { limits::HANDSHAKE_WAIT };
        if let Err(failure) = keeper.link(wait).await
            && let Some(list) = remembered(route, &key, server, call, &failure)
        {
            return Ok(list);
        }
    }
    // A merged list does not wait long for one of its servers.
    let wait = if route.single().is_some() { server.reconnect.patience() } else { limits::FIRST_LIST };
    match once(route, caller, server, call, wait).await {
        Ok(answer) => believed(&route.memory, &key, keeper.and_then(|keeper| keeper.now()).as_deref(), call, answer),
        Err(Refusal::Failed(name, failure)) => {
            let list = remembered(route, &key, server, call, &failure);
            if let (Caller::Legacy(session, _), None) = (caller, &list) {
                session.miss(server);
            }
            list.ok_or(Refusal::Failed(name, failure))
        }
        Err(refusal) => Err(refusal),
    }
}

/// What was listed last, with the word that the server is away.
fn remembered(route: &Route, key: &str, server: &Server, call: &Call, failure: &Failure) -> Option<Message> {
    let list = route.memory.list(key, &name(&call.request))?;
    let mut result = Object::of(&list);
    result.change("_meta", |meta| {
        let mut status = json!({"status": "transient", "reason": format!("its server {failure}")});
        if let Failure::Starting { retry_in, .. } = failure {
            status["retryAfter"] = seconds(*retry_in).max(1).into();
        }
        meta.set("seawall/servers", json!({server.name.as_str(): status}).to_string());
    });
    answered(&result.json()).ok()
}

/// Remembers an answer; gives the one to believe.
fn believed(memory: &Memory, key: &str, link: Option<&Link>, call: &Call, answer: Message) -> Reply {
    if answer.kind() != Kind::Result {
        return Ok(answer);
    }
    let name = name(&call.request);
    if entries(&call.request, &answer) == 0
        && link.is_some_and(|link| link.age() < WARM_UP)
        && let Some(before) = memory.list(key, &name)
        && before.as_ref() != answer.body_json()
    {
        return with_body(&answer, &before);
    }
    memory.keep_list(key, &name, answer.body_json());
    Ok(answer)
}

fn entries(request: &Message, answer: &Message) -> usize {
    let key = LISTS.iter().find(|(method, ..)| *method == request.method()).map_or("", |(_, key, _)| key);
    answer.field(key).map_or(0, |list| scan::elements(answer.raw(), list).len())
}

/// A server is back: if what it lists is not what was listed, the client is told, once.
pub async fn compare(session: &Arc<Session>, key: &str, link: &Arc<Link>) {
    let mut told = Vec::new();
    for (method, entries, notification) in LISTS {
        let Some(before) = session.route.memory.list(key, method) else { continue };
        let Some(answer) = session.list(link, method).await.filter(|answer| answer.kind() == Kind::Result) else {
            continue;
        };
        let is_same = Object::of(&before).get(entries) == answer.field_json(entries);
        let is_empty = answer.field(entries).is_none_or(|list| scan::elements(answer.raw(), list).is_empty());
        if !is_same && !is_empty && !told.contains(&notification) {
            session.route.memory.keep_list(key, method, answer.body_json());
            crate::ops::log::line(&format!("{}: {method} is not what it was", link.server));
            told.push(notification);
        }
    }
    for notification in told {
        session.general.notify(crate::wire::build::notification(notification, None));
    }
}
