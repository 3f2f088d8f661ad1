//! Lists that stay as they are: what a server listed last stands in while it is away, the same bytes in the same order.
//!
//! An outage shows when a tool is called, never as tools that vanish. However a list fails, the last good one stands. An
//! empty list of a server that has only just started is not believed. A server that is starting, or slow to list, keeps
//! nobody waiting who can be answered from the catalog cache.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use seawall::ServerOutcome;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{drift, late, missing, quarantine};
use crate::call::execute;
use crate::client::caller::Caller;
use crate::client::session::Session;
use crate::gateway::Route;
use crate::protocol::edit::Object;
use crate::protocol::names::Era;
use crate::protocol::{Message, build, limits, scan};
use crate::runtime::log;
use crate::store::catalog_cache::Memory;
use crate::translate::pool;
use crate::upstream::call::Call;
use crate::upstream::look::holds_list;
use crate::upstream::reply::{Refusal, Reply};
use crate::upstream::reply::{answered, with_body};
use crate::upstream::startup::Listing;
use crate::upstream::{Failure, Keeper, Link, Server, beginning};

/// How long after its start an empty list of a server is not believed.
pub const WARM_UP: Duration = Duration::from_secs(30);

/// The lists, where their entries are, and what tells clients that they have changed.
pub const LISTS: [(&str, &str, &str); 4] = [
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
    let (route, caller, server) = (Arc::clone(route), caller.clone(), Arc::clone(server));
    let asked = Asked { route, caller, server, call: call.clone(), key };
    // One that rests is not started to say what it said last.
    if keeper.as_ref().is_some_and(|keeper| keeper.is_resting())
        && let Some(list) = asked.known()
    {
        return answered(&list);
    }
    // Who said no is not asked again for a list.
    if let Some(keeper) = keeper.as_ref().filter(|keeper| asked.server.startup.is_denied() && keeper.now().is_none()) {
        let failure = keeper.starting();
        return asked.remembered(&failure).ok_or_else(|| asked.failed(failure));
    }
    let link = match asked.at_startup(keeper.as_ref()).await {
        ControlFlow::Break(reply) => return reply,
        ControlFlow::Continue(link) => link,
    };
    match asked.ask(link).await {
        Ok(answer) => asked.believed(keeper, answer).await,
        Err(refusal) => asked.without(refusal),
    }
}

impl Asked {
    /// What clients like this one were shown last; else what any other was.
    fn known(&self) -> Option<Bytes> {
        known(&self.route.memory, &self.key, self.caller.era(), &name(&self.call.request))
    }

    /// How long this list may keep others or its client waiting; for ever if there is nothing else to answer.
    fn patience(&self) -> Option<Duration> {
        (self.known().is_some() || self.route.single().is_none()).then_some(limits::LIST_WAIT)
    }

    /// The answer of a server that is starting: what it listed last, at once; if it never listed anything, what the gateway's
    /// own listing brings. Else the conversation in which it can be asked, if there is one.
    async fn at_startup(&self, keeper: Option<&Arc<Keeper>>) -> ControlFlow<Reply, Option<Arc<Link>>> {
        let is_known = self.known().is_some();
        let began = Instant::now();
        let patience = match self.patience() {
            _ if is_known => limits::CATALOG_WAIT,
            Some(patience) => self.server.startup.patience(patience),
            None => limits::LIST_TIME,
        };
        let away = is_known || self.server.reconnect.last().is_some();
        let wait = if away { patience.min(limits::CATALOG_WAIT) } else { patience.min(limits::HANDSHAKE_WAIT) };
        let link = match (keeper, self.route.pool(&self.server)) {
            (Some(keeper), _) => keeper.link(wait).await,
            (None, Some(pool)) => pool.link(&self.server, &self.call, wait).await,
            (None, None) => return ControlFlow::Continue(None),
        };
        let link = match link {
            Ok(link) => link,
            Err(failure) => {
                return self
                    .remembered(&failure)
                    .map_or(ControlFlow::Continue(None), |list| ControlFlow::Break(Ok(list)));
            }
        };
        if self.call.request.method() != "tools/list" || self.call.request.field("cursor").is_some() {
            return ControlFlow::Continue(Some(link));
        }
        let listing = tokio::time::timeout(patience.saturating_sub(began.elapsed()), link.listed()).await;
        match listing {
            Ok(Listing::Done) if link.take_unread_list() => {
                let list = self.route.memory.list(&self.key, &name(&self.call.request));
                list.map_or(ControlFlow::Continue(Some(link)), |list| ControlFlow::Break(answered(&list)))
            }
            Ok(_) => ControlFlow::Continue(Some(link)),
            // It goes on, and who was told something else hears of it.
            Err(_) => {
                let starting = Failure::Starting(Duration::ZERO);
                ControlFlow::Break(self.without(self.failed(starting)))
            }
        }
    }

    /// There is no answer of the server: what it listed last, or why there is nothing.
    fn without(&self, refusal: Refusal) -> Reply {
        let failure = match &refusal {
            Refusal::Failed(_, failure) => self.server.missing(failure),
            Refusal::Reported(report, _) => self.server.reported(report.failure.clone()),
            Refusal::Wrong(error) => self.server.refused(error.code, &beginning(&error.message)),
        };
        if let Some(list) = self.marked(&failure) {
            return Ok(list);
        }
        // A list that is only slow is told when it comes.
        let is_slow = matches!(&refusal, Refusal::Failed(_, Failure::Silent(_)));
        if let (Caller::Legacy(session, _), false) = (&self.caller, is_slow) {
            session.miss(&self.server);
        }
        Err(refusal)
    }

    /// The server's own list. One that takes too long goes on behind the client's back; so does one whose conversation ends,
    /// where there is something else to answer.
    async fn ask(&self, link: Option<Arc<Link>>) -> Reply {
        let Some(patience) = self.patience() else {
            return execute::list(self, limits::SERVER_WAIT).await;
        };
        let wait = self.server.startup.patience(patience);
        let asked = self.clone();
        let mut asking = AbortOnDropHandle::new(tokio::spawn(async move { execute::list(&asked, wait).await }));
        let is_known = self.known().is_some();
        let lost = async move {
            match link.filter(|_| is_known) {
                Some(link) => link.over.cancelled().await,
                None => std::future::pending().await,
            }
            tokio::time::sleep(limits::CATALOG_WAIT).await;
        };
        tokio::select! {
            biased;
            reply = &mut asking => {
                reply.unwrap_or_else(|_| Err(self.failed(Failure::Lost("its list could not be read".to_owned()))))
            }
            () = lost => {
                late::go_on(self.clone(), asking);
                Err(self.failed(Failure::Starting(self.server.reconnect.wait())))
            }
            () = tokio::time::sleep(patience) => {
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
        self.marked(&self.server.missing(failure))
    }

    /// What was listed last, with the word what is wrong with the server.
    fn marked(&self, outcome: &ServerOutcome<()>) -> Option<Message> {
        let list = self.known()?;
        let mut result = Object::of(&list);
        let entry = missing::entry(&self.server, outcome);
        result.change("_meta", |meta| {
            meta.set(missing::SERVERS, json!({self.server.name.as_str(): entry}).to_string());
        });
        answered(&result.json()).ok()
    }

    /// Remembers an answer; gives the one to believe. One that is no list is a list that failed, unless the server has none.
    async fn believed(&self, keeper: Option<Arc<Keeper>>, answer: Message) -> Reply {
        let request = &self.call.request;
        let answer = quarantine::cleaned(&self.server, self.caller.era(), request.method(), answer);
        if !holds_list(&answer, part_of(request.method()).1) {
            return Ok(self.marked(&self.refused(&answer)).unwrap_or(answer));
        }
        if is_empty(request.method(), &answer) && request.field("cursor").is_none() {
            let link = match (keeper, self.route.pool(&self.server)) {
                (Some(keeper), _) => keeper.now(),
                (None, Some(pool)) => pool.link(&self.server, &self.call, Duration::ZERO).await.ok(),
                (None, None) => None,
            };
            if link.is_some_and(|link| link.age() < WARM_UP) {
                return self.doubted(answer);
            }
        }
        self.keep(&answer);
        if request.method() == "tools/list" {
            self.server.startup.worked();
        }
        Ok(answer)
    }

    /// What it means that a list was answered with something else.
    fn refused(&self, answer: &Message) -> ServerOutcome<()> {
        let code = answer.field_json("code").and_then(|code| serde_json::from_slice(code).ok());
        match code {
            Some(code) => self.server.refused(code, &beginning(&answer.field_text("message").unwrap_or_default())),
            None => self.server.refused(build::INTERNAL_ERROR, "its answer is no list"),
        }
    }

    /// An empty list of a server that has only just started: what it listed before is believed. It is asked again at its
    /// startup.
    fn doubted(&self, answer: Message) -> Reply {
        match self.known() {
            Some(before) if before.as_ref() != answer.body_json() => with_body(&answer, &before),
            _ => Ok(answer),
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

/// Tells the operator what has changed in a list.
pub fn report(server: &str, list: &str, drift: Option<String>) {
    if let Some(drift) = drift {
        log::warn(&format!("{server}: {list} is not what it was: {drift}"));
    }
}

/// The list that a method reads.
pub fn part_of(method: &str) -> (&'static str, &'static str, &'static str) {
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

/// What clients of this kind and era were shown last; else what clients of any other kind were, in this era's words.
pub fn known(memory: &Memory, key: &str, era: Era, name: &str) -> Option<Bytes> {
    let of_any = || memory.list_of_any(key, name).map(|list| fitted(era, &list).into());
    memory.list(key, name).or_else(of_any)
}

/// A list in the words of an era: only the modern one says how long an answer is good, and for whom.
pub fn fitted(era: Era, list: &[u8]) -> Vec<u8> {
    let mut result = Object::of(list);
    let is_marked = ["resultType", "ttlMs", "cacheScope"].iter().any(|name| result.get(name).is_some());
    match era {
        // Byte for byte what the server said, wherever that can be.
        Era::Legacy if !is_marked => return list.to_vec(),
        Era::Legacy => result.remove("resultType").remove("ttlMs").remove("cacheScope"),
        Era::Modern => result
            .set_default("resultType", r#""complete""#)
            .set_default("ttlMs", "0")
            .set_default("cacheScope", r#""private""#),
    };
    result.json()
}

/// A server is back: if its lists of other things than tools are not what they were, the client is told, once. Its tools are
/// compared at its startup.
pub async fn compare(session: &Arc<Session>, key: &str, link: &Arc<Link>) {
    let mut told = Vec::new();
    for (method, entries, notification) in LISTS.into_iter().skip(1) {
        let Some(before) = session.route.memory.list(key, method) else { continue };
        let answer = session.list(link, method).await.filter(|answer| holds_list(answer, entries));
        let Some(answer) = answer.filter(|answer| !is_same(method, &before, answer) && !is_empty(method, answer))
        else {
            continue;
        };
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
