//! Decides when a server is available, in the second half of its startup: after the handshake of
//! any connection, the gateway lists the server's tools, for all clients.
//!
//! A server is available once handshake and listing have worked. A failed listing is classified,
//! retried a few times, reported, and tried again in the background; no client has to ask for it.
//! The list is cached for every kind of client.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use seawall::{ConnectServer, Disposition, FailureSignals, LoadOptions, load_tools};
use tokio_util::sync::CancellationToken;

use crate::catalog::cached_lists::{self, LISTS, WARM_UP};
use crate::catalog::{drift, quarantine};
use crate::policy::registry::{NewestPolicies, PolicyRegistry};
use crate::protocol::edit::JsonObject;
use crate::protocol::names::Era;
use crate::protocol::{Message, limits, scan};
use crate::runtime::log;
use crate::store::catalog_cache::CatalogCache;
use crate::upstream::handshake::HandshakeParams;
use crate::upstream::probe::{self, ProbeResult, holds_list};
use crate::upstream::reply::answered;
use crate::upstream::startup::ListingProgress;
use crate::upstream::{Connection, GreetedHook, Server};

/// The pauses before a server that listed no tools at its start is asked again.
const AGAIN: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(8),
    Duration::from_secs(18),
];

/// The hook that runs for every connection once its handshake is done.
pub(crate) fn when_greeted(
    catalog_cache: &Arc<CatalogCache>,
    policies: &Arc<NewestPolicies>,
) -> GreetedHook {
    let (catalog_cache, policies) = (Arc::clone(catalog_cache), Arc::clone(policies));
    Box::new(move |server, handshake, connection| {
        connection.note_listing(ListingProgress::UnderWay);
        let prefer = connection.client_era();
        let key = HandshakeParams { prefer, ..handshake.clone() }.key(server);
        let startup = ConnectionStartup {
            catalog_cache: Arc::clone(&catalog_cache),
            policies: Arc::clone(&policies),
            server: Arc::clone(server),
            handshake: handshake.clone(),
            era: prefer,
            key,
        };
        let (connection, over) = (Arc::downgrade(connection), connection.over.clone());
        tokio::spawn(async move { startup.run(&connection, &over).await });
    })
}

/// Resolves policies from the cached list of a server until the server itself lists its tools: the
/// tools of a server that is away are not unknown.
pub(crate) fn recall(catalog_cache: &CatalogCache, policies: &PolicyRegistry, server: &Server) {
    for (cursor, page) in catalog_cache.pages_of_any(&server.remembered_as(), "tools/list") {
        if let Ok(page) = answered(&page) {
            policies.learn(&server.name, &cursor, &page, false);
        }
    }
}

/// Caches the handshake and the tools that one probe of a server found, for later clients.
pub(crate) fn keep_found(
    catalog_cache: &Arc<CatalogCache>,
    policies: &PolicyRegistry,
    server: &Arc<Server>,
    handshake: &HandshakeParams,
    found: &ProbeResult,
) {
    let startup = ConnectionStartup {
        catalog_cache: Arc::clone(catalog_cache),
        policies: Arc::clone(policies.newest()),
        server: Arc::clone(server),
        handshake: handshake.clone(),
        era: Era::Legacy,
        key: handshake.key(server),
    };
    if let Some(info) = &found.info {
        catalog_cache.keep_server_info(&startup.key, info);
    }
    if count(&found.pages) > 0 {
        startup.keep_tools(&found.pages);
    }
}

/// The startup of one connection.
struct ConnectionStartup {
    catalog_cache: Arc<CatalogCache>,
    policies: Arc<NewestPolicies>,
    server: Arc<Server>,
    handshake: HandshakeParams,
    /// The era of the clients.
    era: Era,
    key: String,
}

impl ConnectionStartup {
    /// Lists the tools until that works, is denied, or the connection is over. Holds the connection
    /// only while it is used.
    async fn run(&self, weak: &Weak<Connection>, over: &CancellationToken) {
        let mut options = self.server.startup.options();
        for round in 1.. {
            let Some(connection) = weak.upgrade().filter(|connection| connection.is_alive()) else {
                return;
            };
            if let Some(info) = connection.info() {
                self.catalog_cache.keep_server_info(&self.key, info);
            }
            connection.initialized().await;
            match self.load(&connection, &options).await {
                Ok(pages) => return self.loaded(connection, pages, over).await,
                // The connection was lost; its successor starts over.
                Err(_) if !connection.is_alive() => return,
                Err(disposition) => {
                    connection.note_listing(ListingProgress::Failed);
                    if disposition == Disposition::Denied {
                        return;
                    }
                }
            }
            // A strong reference during the pause would keep the connection open after its last
            // client left.
            drop(connection);
            options.attempts = 1;
            let pause = tokio::time::sleep(self.server.reconnect.pause(round));
            if over.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// One load: the pages of the tool list, or the disposition of the failure.
    async fn load(
        &self,
        connection: &Arc<Connection>,
        options: &LoadOptions,
    ) -> Result<Vec<Message>, Disposition> {
        let has_tools = connection.info().is_none_or(|info| info.can("tools"));
        let tries = LoadAttempts { startup: self, connection, has_tools, pages: Mutex::default() };
        let report = load_tools([self.server.name.as_str()], &tries, options).await;
        let Some(outcome) = report.ok().and_then(|report| report.outcomes.into_iter().next())
        else {
            return Err(Disposition::Permanent);
        };
        let Err(failure) = &outcome.result else {
            return Ok(tries.pages.into_inner().unwrap_or_else(PoisonError::into_inner));
        };
        // A connection that was lost meanwhile reports that itself.
        if connection.is_alive() {
            self.server.startup.unlisted(failure.clone(), outcome.attempts);
            let (name, status, error) =
                (&self.server.name, outcome.status(), outcome.error().unwrap_or_default());
            log::line_of(name, &format!("its tools could not be listed ({status}): {error}"));
            self.server.status.troubled(format!("its tools could not be listed: {error}"));
        }
        Err(failure.disposition)
    }

    /// The server is available. An empty list of a server that has only just started is not
    /// believed yet.
    async fn loaded(
        &self,
        connection: Arc<Connection>,
        pages: Vec<Message>,
        over: &CancellationToken,
    ) {
        let is_doubtful = !pages.is_empty() && count(&pages) == 0 && connection.age() < WARM_UP;
        let changed = if is_doubtful { Vec::new() } else { self.keep_tools(&pages) };
        self.server.startup.worked();
        // Cache and policies are updated before the listing counts as done: waiting list requests
        // are answered from the cache.
        connection.note_listing(ListingProgress::Done);
        connection.announce_lists(&changed);
        self.keep_others(&connection).await;
        let weak = Arc::downgrade(&connection);
        drop(connection);
        if is_doubtful {
            self.ask_again(&weak, over, pages).await;
        }
    }

    /// Asks a server that listed no tools at its start again, until it lists some or all pauses are
    /// over.
    async fn ask_again(
        &self,
        weak: &Weak<Connection>,
        over: &CancellationToken,
        mut pages: Vec<Message>,
    ) {
        let before = self.catalog_cache.list(&self.key, "tools/list").is_some();
        for pause in AGAIN {
            if over.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
            let Some(connection) = weak.upgrade() else { return };
            let asked = tokio::time::timeout(
                limits::LIST_TIME,
                probe::pages(&connection, &self.handshake, limits::PAGES),
            )
            .await;
            if let Ok(Ok(listed)) = asked {
                pages = listed;
            }
            if count(&pages) > 0 {
                let changed = self.keep_tools(&pages);
                // Clients that read the empty list must be notified of this one, even if no list
                // was cached before.
                let changed = if before { changed } else { vec![LISTS[0].2] };
                return connection.announce_lists(&changed);
            }
        }
        self.keep_tools(&pages);
    }

    /// Caches the pages of the tool list and resolves their policies; returns the notification to
    /// send if the list differs from the one that clients were shown.
    fn keep_tools(&self, pages: &[Message]) -> Vec<&'static str> {
        let (method, entries, notification) = LISTS[0];
        let before = cached_lists::known(&self.catalog_cache, &self.key, self.era, method);
        let (mut name, mut changed) = (method.to_owned(), Vec::new());
        for page in pages {
            let page = cached_lists::fitted(self.era, page.body_json());
            let Ok(page) = answered(&page) else { return changed };
            let page = quarantine::cleaned(&self.server, self.era, method, page);
            if let Some(before) = before.as_ref().filter(|_| name == method)
                && !cached_lists::is_same(method, before, &page)
            {
                cached_lists::report(
                    &self.server.name,
                    method,
                    drift::between(before, page.body_json(), entries),
                );
                changed.push(notification);
            }
            self.catalog_cache.keep_list(&self.key, &name, page.body_json());
            let cursor = name.strip_prefix(method).map(str::trim_start).unwrap_or_default();
            self.policies.learn(&self.server.name, cursor, &page, true);
            name = format!("{method} {}", page.field_text("nextCursor").unwrap_or_default());
        }
        changed
    }

    /// Reads the other lists that are not cached yet, once, so that later clients find them.
    async fn keep_others(&self, connection: &Arc<Connection>) {
        for (method, entries, _) in LISTS.into_iter().skip(1) {
            let can = connection
                .info()
                .is_some_and(|info| info.can(method.split('/').next().unwrap_or_default()));
            if !can
                || cached_lists::known(&self.catalog_cache, &self.key, self.era, method).is_some()
            {
                continue;
            }
            let mut params = JsonObject::default();
            if connection.era() == Era::Modern {
                params.set("_meta", &self.handshake.meta[..]);
            }
            let asked = tokio::time::timeout(
                limits::LIST_TIME,
                connection.ask_for_all(method, &params.json()),
            )
            .await;
            if let Ok(Ok(answer)) = asked
                && holds_list(&answer, entries)
            {
                self.catalog_cache.keep_list(
                    &self.key,
                    method,
                    &cached_lists::fitted(self.era, answer.body_json()),
                );
            }
        }
    }
}

/// The number of tools on all pages.
fn count(pages: &[Message]) -> usize {
    let tools = |page: &Message| {
        page.field("tools").map_or(0, |list| scan::elements(page.raw(), list).len())
    };
    pages.iter().map(tools).sum()
}

/// The attempts of one load.
struct LoadAttempts<'a> {
    startup: &'a ConnectionStartup,
    connection: &'a Arc<Connection>,
    has_tools: bool,
    pages: Mutex<Vec<Message>>,
}

impl ConnectServer<()> for LoadAttempts<'_> {
    async fn connect(&self, _: &str) -> Result<Vec<()>, FailureSignals> {
        if !self.has_tools {
            return Ok(Vec::new());
        }
        let ConnectionStartup { server, handshake, .. } = self.startup;
        match probe::pages(self.connection, handshake, limits::PAGES).await {
            Ok(pages) => {
                let tools = vec![(); count(&pages)];
                *self.pages.lock().unwrap_or_else(PoisonError::into_inner) = pages;
                Ok(tools)
            }
            Err(missed) => Err(server.missed(&missed)),
        }
    }
}
