//! Decides which list a client is shown while its server is away, and whether a server's new list
//! is the same as the cached one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::catalog::{drift, quarantine};
use crate::client::server_set::SessionHooks;
use crate::client::session::Session;
use crate::protocol::edit::JsonObject;
use crate::protocol::names::Era;
use crate::protocol::{Id, Message, build, scan};
use crate::runtime::log;
use crate::store::catalog_cache::CatalogCache;
use crate::translate::{subscribe, to_modern};
use crate::upstream::Connection;
use crate::upstream::call::{GatewayCall, NoClient};
use crate::upstream::probe::holds_list;

/// How long after its start an empty list of a server is not believed.
pub(crate) const WARM_UP: Duration = Duration::from_secs(30);

/// The lists: method, member that holds the entries, and notification of a change.
pub(crate) const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "notifications/tools/list_changed"),
    ("prompts/list", "prompts", "notifications/prompts/list_changed"),
    ("resources/list", "resources", "notifications/resources/list_changed"),
    ("resources/templates/list", "resourceTemplates", "notifications/resources/list_changed"),
];

/// Whether a request asks for a list.
pub(crate) fn is_list(request: &Message) -> bool {
    LISTS.iter().any(|(method, ..)| *method == request.method())
}

/// The cache name of a list, or of one page of it.
pub(crate) fn name(request: &Message) -> String {
    match request.field_text("cursor") {
        Some(cursor) => format!("{} {cursor}", request.method()),
        None => request.method().to_owned(),
    }
}

/// Logs the changes in a list for the operator.
pub(crate) fn report(server: &str, list: &str, drift: Option<String>) {
    if let Some(drift) = drift {
        log::warn_of(server, &format!("{list} is not what it was: {drift}"));
    }
}

/// The list that a method reads.
pub(crate) fn part_of(method: &str) -> (&'static str, &'static str, &'static str) {
    LISTS.into_iter().find(|(list, ..)| *list == method).unwrap_or(LISTS[0])
}

/// The notification that has a client read a list again.
pub(crate) fn changed(method: &str) -> bytes::Bytes {
    build::notification(part_of(method).2, None)
}

/// Whether a list has no entries.
pub(crate) fn is_empty(method: &str, answer: &Message) -> bool {
    answer.field(part_of(method).1).is_none_or(|list| scan::elements(answer.raw(), list).is_empty())
}

/// Whether a list has the same entries as the cached one, in the same order.
pub(crate) fn is_same(method: &str, before: &[u8], answer: &Message) -> bool {
    let entries = part_of(method).1;
    JsonObject::of(before).get(entries) == answer.field_json(entries)
}

/// The list that clients of this kind and era were shown last; else the list of any other kind of
/// client, fitted to this era.
pub(crate) fn known(
    catalog_cache: &CatalogCache,
    key: &str,
    era: Era,
    name: &str,
) -> Option<Bytes> {
    let of_any = || catalog_cache.list_of_any(key, name).map(|list| fitted(era, &list).into());
    catalog_cache.list(key, name).or_else(of_any)
}

/// A list in the form of an era: only the modern era has members that say how long an answer may be
/// cached, and for whom.
pub(crate) fn fitted(era: Era, list: &[u8]) -> Vec<u8> {
    let mut result = JsonObject::of(list);
    let is_marked =
        ["resultType", "ttlMs", "cacheScope"].iter().any(|name| result.get(name).is_some());
    match era {
        // A legacy list without these members stays byte for byte as the server sent it.
        Era::Legacy if !is_marked => return list.to_vec(),
        Era::Legacy => result.remove("resultType").remove("ttlMs").remove("cacheScope"),
        Era::Modern => result
            .set_default("resultType", r#""complete""#)
            .set_default("ttlMs", "0")
            .set_default("cacheScope", r#""private""#),
    };
    result.json()
}

/// After a server has reconnected: reads its lists other than tools. If one has changed, the client
/// is notified, once per notification. Tools are compared at startup.
async fn compare(
    catalog_cache: &CatalogCache,
    session: &Arc<Session>,
    key: &str,
    connection: &Arc<Connection>,
) {
    let mut told = Vec::new();
    for (method, entries, notification) in LISTS.into_iter().skip(1) {
        let Some(before) = catalog_cache.list(key, method) else { continue };
        let answer =
            list(session, connection, method).await.filter(|answer| holds_list(answer, entries));
        // An empty list is not believed right after a reconnect: the server may not be ready yet.
        let Some(answer) =
            answer.filter(|answer| !is_same(method, &before, answer) && !is_empty(method, answer))
        else {
            continue;
        };
        report(&connection.server, method, drift::between(&before, answer.body_json(), entries));
        catalog_cache.keep_list(key, method, answer.body_json());
        if !told.contains(&notification) {
            told.push(notification);
        }
    }
    for notification in told {
        session.general.notify(build::notification(notification, None));
    }
}

/// A list as the client would read it.
async fn list(
    session: &Arc<Session>,
    connection: &Arc<Connection>,
    method: &str,
) -> Option<Message> {
    let set = session.set();
    let server = set.find(&connection.server)?;
    let answer = match connection.era() {
        Era::Legacy => connection.ask(method, b"{}").await.ok(),
        Era::Modern => {
            let request = Message::parse(build::request(&Id::number(0), method, b"{}")).ok()?;
            let call = GatewayCall::new(request, Arc::new(NoClient));
            to_modern::exchange(session, &session.general, server, connection, &call).await.ok()
        }
    };
    answer.map(|answer| quarantine::cleaned(server, Era::Legacy, method, answer))
}

/// The hooks that the catalog runs for the connections of sessions.
#[derive(Debug)]
pub(crate) struct CatalogHooks {
    /// The last lists of all servers.
    pub catalog_cache: Arc<CatalogCache>,
}

impl SessionHooks for CatalogHooks {
    fn follow(&self, session: &Arc<Session>, connection: &Arc<Connection>) {
        subscribe::follow(session, connection);
    }

    fn compare(&self, session: &Arc<Session>, key: String, connection: &Arc<Connection>) {
        let (catalog_cache, session, connection) =
            (Arc::clone(&self.catalog_cache), Arc::clone(session), Arc::clone(connection));
        tokio::spawn(async move { compare(&catalog_cache, &session, &key, &connection).await });
    }
}
