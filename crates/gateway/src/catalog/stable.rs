//! Lists that stay as they are: what a server listed last stands in while it is away, the same bytes in the same order.
//!
//! An outage shows when a tool is called, never as tools that vanish. An empty list of a server that has only just
//! started is not believed. A server that is slow to list keeps nobody waiting who can be answered from memory.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::{drift, late, missing, quarantine};
use crate::bridge::pool;
use crate::bridge::to_modern::{answered, with_body};
use crate::call::Call;
use crate::carry;
use crate::dispatch::{Caller, Refusal, Reply};
use crate::gateway::Route;
use crate::ops::log;
use crate::session::Session;
use crate::upstream::{Failure, Keeper, Link, Server};
use crate::wire::edit::Object;
use crate::wire::{Kind, Message, build, limits, scan};

/// How long after its start an empty list of a server is not believed.
pub const WARM_UP: Duration = Duration::from_secs(30);

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
pub fn name(request: &Message) -> String {
    match request.field_text("cursor") {
        Some(cursor) => format!("{} {cursor}", request.method()),
        None => request.method().to_owned(),
    }
}

/// One list of one server, for one client.
#[derive(Clone)]
pub struct Asked {
    /// The way to the server.
    pub route: Arc<Route>,
    /// Who asks.
    pub caller: Caller,
    /// The server.
    pub server: Arc<Server>,
    /// What is asked.
    pub call: Call,
    /// The name under which is remembered what the server says to clients like this one.
    pub key: String,
}

/// One list of one server: its own if it is there, else what it listed last.
pub async fn list(route: &Arc<Route>, caller: &Caller, server: &Arc<Server>, call: &Call) -> Reply {
    let (key, keeper) = match caller {
        Caller::Legacy(session, _) => (session.key(server), session.keeper(server).ok()),
        Caller::Modern(_) => (pool::opening(call).key(server), None),
    };
    // One that rests is not started to say what it said last.
    if keeper.as_ref().is_some_and(|keeper| keeper.is_resting())
        && let Some(list) = route.memory.list(&key, &name(&call.request))
    {
        return answered(&list);
    }
    let (route, caller, server) = (Arc::clone(route), caller.clone(), Arc::clone(server));
    let asked = Asked { route, caller, server, call: call.clone(), key };
    // A server that has not failed is waited for: what it lists now is better than what it listed before.
    if let Some(keeper) = &keeper {
        // Who said no is not asked again for a list.
        if asked.server.load.is_denied() && keeper.now().is_none() {
            let failure = keeper.starting();
            return asked.remembered(&failure).ok_or_else(|| asked.failed(failure));
        }
        let wait = if asked.server.reconnect.last().is_some() { Duration::ZERO } else { limits::HANDSHAKE_WAIT };
        let left = asked.patience().map(|patience| asked.server.load.patience(patience));
        if let Err(failure) = keeper.link(left.unwrap_or(wait).min(wait)).await
            && let Some(list) = asked.remembered(&failure)
        {
            return Ok(list);
        }
    }
    match asked.ask().await {
        Ok(answer) => asked.believed(keeper, answer).await,
        Err(Refusal::Failed(name, failure)) => {
            let list = asked.remembered(&failure);
            // A list that is only slow is told when it comes.
            let is_slow = matches!(failure, Failure::Silent(_));
            if let (Caller::Legacy(session, _), None, false) = (&asked.caller, &list, is_slow) {
                session.miss(&asked.server);
            }
            list.ok_or(Refusal::Failed(name, failure))
        }
        Err(refusal) => Err(refusal),
    }
}

impl Asked {
    /// How long this list may keep others or its client waiting; for ever if there is nothing else to answer.
    fn patience(&self) -> Option<Duration> {
        let is_known = self.route.memory.list(&self.key, &name(&self.call.request)).is_some();
        (is_known || self.route.single().is_none()).then_some(limits::LIST_WAIT)
    }

    /// The server's own list. One that takes too long goes on behind the client's back.
    async fn ask(&self) -> Reply {
        let Some(patience) = self.patience() else {
            return carry::list(self, limits::SERVER_WAIT).await;
        };
        let wait = self.server.load.patience(patience);
        let asked = self.clone();
        let mut asking = AbortOnDropHandle::new(tokio::spawn(async move { carry::list(&asked, wait).await }));
        match tokio::time::timeout(patience, &mut asking).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => Err(self.failed(Failure::Lost("its list could not be read".to_owned()))),
            Err(_) => {
                late::go_on(self.clone(), asking);
                Err(self.failed(Failure::Silent(patience)))
            }
        }
    }

    fn failed(&self, failure: Failure) -> Refusal {
        Refusal::Failed(self.server.name.clone(), failure)
    }

    /// What was listed last, with the word that the server is away.
    fn remembered(&self, failure: &Failure) -> Option<Message> {
        let list = self.route.memory.list(&self.key, &name(&self.call.request))?;
        let mut result = Object::of(&list);
        let entry = missing::entry(&self.server, &self.server.missing(failure));
        result.change("_meta", |meta| {
            meta.set(missing::SERVERS, json!({self.server.name.as_str(): entry}).to_string());
        });
        answered(&result.json()).ok()
    }

    /// Remembers an answer; gives the one to believe.
    async fn believed(&self, keeper: Option<Arc<Keeper>>, answer: Message) -> Reply {
        let request = &self.call.request;
        let answer = quarantine::cleaned(&self.server, self.caller.era(), request.method(), answer);
        if answer.kind() != Kind::Result {
            return Ok(answer);
        }
        if is_empty(request.method(), &answer) && request.field("cursor").is_none() {
            let link = match (keeper, self.route.pool(&self.server)) {
                (Some(keeper), _) => keeper.now(),
                (None, Some(pool)) => pool.link(&self.server, &self.call, Duration::ZERO).await.ok(),
                (None, None) => None,
            };
            if let Some(link) = link.filter(|link| link.age() < WARM_UP) {
                return self.doubted(&link, answer);
            }
        }
        self.keep(&answer);
        Ok(answer)
    }

    /// An empty list of a server that has only just started: what it listed before is believed, or it is asked again.
    fn doubted(&self, link: &Arc<Link>, answer: Message) -> Reply {
        let (request, memory) = (&self.call.request, &self.route.memory);
        match memory.list(&self.key, &name(request)) {
            Some(before) if before.as_ref() != answer.body_json() => with_body(&answer, &before),
            Some(_) => Ok(answer),
            None => {
                if let (Caller::Legacy(session, _), "tools/list") = (&self.caller, request.method()) {
                    late::ask_again(session, &self.key, link);
                } else {
                    self.keep(&answer);
                }
                Ok(answer)
            }
        }
    }

    /// Remembers a list.
    pub fn keep(&self, answer: &Message) {
        keep(&self.route, &self.key, &self.server.name, &self.call.request, answer);
    }
}

/// Remembers a list, and tells the operator what has changed in it.
fn keep(route: &Route, key: &str, server: &str, request: &Message, answer: &Message) {
    let name = name(request);
    let (_, entries, _) = part_of(request.method());
    if let Some(before) = route.memory.list(key, &name) {
        report(server, &name, drift::between(&before, answer.body_json(), entries));
    }
    route.memory.keep_list(key, &name, answer.body_json());
    if request.method() == "tools/list" {
        route.policies.learn(server, &request.field_text("cursor").unwrap_or_default(), answer, true);
    }
}

fn report(server: &str, list: &str, drift: Option<String>) {
    if let Some(drift) = drift {
        log::line(&format!("{server}: {list} is not what it was: {drift}"));
    }
}

fn part_of(method: &str) -> (&'static str, &'static str, &'static str) {
    LISTS.into_iter().find(|(list, ..)| *list == method).unwrap_or(LISTS[0])
}

/// What tells a client to read a list again.
pub fn changed(method: &str) -> bytes::Bytes {
    build::notification(part_of(method).2, None)
}

/// Whether a list has nothing on it.
pub fn is_empty(method: &str, answer: &Message) -> bool {
    answer.field(part_of(method).1).is_none_or(|list| scan::elements(answer.raw(), list).is_empty())
}

/// Whether a list has the same entries as one that is remembered, in the same order.
pub fn is_same(method: &str, before: &[u8], answer: &Message) -> bool {
    let entries = part_of(method).1;
    Object::of(before).get(entries) == answer.field_json(entries)
}

/// A server is back: if what it lists is not what was listed, the client is told, once.
pub async fn compare(session: &Arc<Session>, key: &str, link: &Arc<Link>) {
    let mut told = Vec::new();
    for (method, entries, notification) in LISTS {
        let Some(before) = session.route.memory.list(key, method) else { continue };
        let Some(answer) = session.list(link, method).await.filter(|answer| answer.kind() == Kind::Result) else {
            continue;
        };
        if is_same(method, &before, &answer) || is_empty(method, &answer) {
            continue;
        }
        report(&link.server, method, drift::between(&before, answer.body_json(), entries));
        session.route.memory.keep_list(key, method, answer.body_json());
        if !told.contains(&notification) {
            told.push(notification);
        }
    }
    for notification in told {
        session.general.notify(build::notification(notification, None));
    }
}
