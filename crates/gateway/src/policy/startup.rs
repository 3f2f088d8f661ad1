//! Startup, second half: as soon as a server is greeted, in whosever conversation, the gateway lists its tools, for everybody.
//!
//! A server is available when it was greeted and listed. A list that fails is classified, tried a few times, told, and tried
//! again in the background; nobody has to ask for it. What was listed is kept for every kind of client.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use seawall::{Connect, Disposition, LoadOptions, Signals, load_tools};
use tokio_util::sync::CancellationToken;

use crate::catalog::cached_lists::{self, LISTS, WARM_UP};
use crate::catalog::{drift, quarantine};
use crate::policy::registry::Policies;
use crate::protocol::edit::Object;
use crate::protocol::names::Era;
use crate::protocol::{Message, limits, scan};
use crate::runtime::log;
use crate::store::catalog_cache::Memory;
use crate::upstream::handshake::Opening;
use crate::upstream::look::{self, Found, holds_list};
use crate::upstream::reply::answered;
use crate::upstream::startup::Listing;
use crate::upstream::{Link, Server, WhenGreeted};

/// How long after one another a server is asked again that listed nothing at its start.
const AGAIN: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(8),
    Duration::from_secs(18),
];

/// What is done with every conversation once the server was greeted in it.
pub fn when_greeted(memory: &Arc<Memory>, policies: &Arc<Policies>) -> WhenGreeted {
    let (memory, policies) = (Arc::clone(memory), Arc::clone(policies));
    Box::new(move |server, opening, link| {
        link.note_listing(Listing::UnderWay);
        let prefer = link.client_era();
        let key = Opening { prefer, ..opening.clone() }.key(server);
        let startup = Startup {
            memory: Arc::clone(&memory),
            policies: Arc::clone(&policies),
            server: Arc::clone(server),
            opening: opening.clone(),
            era: prefer,
            key,
        };
        let (link, over) = (Arc::downgrade(link), link.over.clone());
        tokio::spawn(async move { startup.run(&link, &over).await });
    })
}

/// What a server listed last says what its tools are, until it is heard: a server that is away is not one whose tools nobody
/// knows.
pub fn recall(memory: &Memory, policies: &Policies, server: &Server) {
    for (cursor, page) in memory.pages_of_any(&server.remembered_as(), "tools/list") {
        if let Ok(page) = answered(&page) {
            policies.learn(&server.name, &cursor, &page, false);
        }
    }
}

/// Keeps what one look at a server found, for whoever comes.
pub fn keep_found(
    memory: &Arc<Memory>,
    policies: &Arc<Policies>,
    server: &Arc<Server>,
    opening: &Opening,
    found: &Found,
) {
    let startup = Startup {
        memory: Arc::clone(memory),
        policies: Arc::clone(policies),
        server: Arc::clone(server),
        opening: opening.clone(),
        era: Era::Legacy,
        key: opening.key(server),
    };
    if let Some(hello) = &found.hello {
        memory.keep_hello(&startup.key, hello);
    }
    if count(&found.pages) > 0 {
        startup.keep_tools(&found.pages);
    }
}

/// The startup of one conversation.
struct Startup {
    memory: Arc<Memory>,
    policies: Arc<Policies>,
    server: Arc<Server>,
    opening: Opening,
    /// The era of the clients.
    era: Era,
    key: String,
}

impl Startup {
    /// Lists until that works, makes no sense, or the conversation is over. It is held only while it is used.
    async fn run(&self, weak: &Weak<Link>, over: &CancellationToken) {
        let mut options = self.server.startup.options();
        for round in 1.. {
            let Some(link) = weak.upgrade().filter(|link| link.is_alive()) else { return };
            if let Some(hello) = link.hello() {
                self.memory.keep_hello(&self.key, hello);
            }
            link.initialized().await;
            match self.load(&link, &options).await {
                Ok(pages) => return self.loaded(link, pages, over).await,
                // The next conversation begins anew.
                Err(_) if !link.is_alive() => return,
                Err(disposition) => {
                    link.note_listing(Listing::Failed);
                    if disposition == Disposition::Denied {
                        return;
                    }
                }
            }
            drop(link);
            options.attempts = 1;
            let pause = tokio::time::sleep(self.server.reconnect.pause(round));
            if over.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// One load: the pages of the list of tools, or what it means that there are none.
    async fn load(&self, link: &Arc<Link>, options: &LoadOptions) -> Result<Vec<Message>, Disposition> {
        let has_tools = link.hello().is_none_or(|hello| hello.can("tools"));
        let tries = Tries { startup: self, link, has_tools, pages: Mutex::default() };
        let report = load_tools([self.server.name.as_str()], &tries, options).await;
        let Some(outcome) = report.ok().and_then(|report| report.outcomes.into_iter().next()) else {
            return Err(Disposition::Permanent);
        };
        let Err(failure) = &outcome.result else {
            return Ok(tries.pages.into_inner().unwrap_or_else(PoisonError::into_inner));
        };
        // One that was lost meanwhile says so itself.
        if link.is_alive() {
            self.server.startup.unlisted(failure.clone(), outcome.attempts);
            let (name, status, error) = (&self.server.name, outcome.status(), outcome.error().unwrap_or_default());
            log::line(&format!("{name}: its tools could not be listed ({status}): {error}"));
            self.server.status.troubled(format!("its tools could not be listed: {error}"));
        }
        Err(failure.disposition)
    }

    /// The server is available. An empty list of one that has only just started is not believed yet.
    async fn loaded(&self, link: Arc<Link>, pages: Vec<Message>, over: &CancellationToken) {
        let is_doubtful = !pages.is_empty() && count(&pages) == 0 && link.age() < WARM_UP;
        let changed = if is_doubtful { Vec::new() } else { self.keep_tools(&pages) };
        self.server.startup.worked();
        link.note_listing(Listing::Done);
        link.announce_lists(&changed);
        self.keep_others(&link).await;
        let weak = Arc::downgrade(&link);
        drop(link);
        if is_doubtful {
            self.ask_again(&weak, over, pages).await;
        }
    }

    /// Asks a server again that listed nothing at its start, until it lists something or has had its time.
    async fn ask_again(&self, weak: &Weak<Link>, over: &CancellationToken, mut pages: Vec<Message>) {
        let before = self.memory.list(&self.key, "tools/list").is_some();
        for pause in AGAIN {
            if over.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
            let Some(link) = weak.upgrade() else { return };
            let asked = tokio::time::timeout(limits::LIST_TIME, look::pages(&link, &self.opening, limits::PAGES)).await;
            if let Ok(Ok(listed)) = asked {
                pages = listed;
            }
            if count(&pages) > 0 {
                let changed = self.keep_tools(&pages);
                // Clients that read the empty list must hear of this one, also if nothing was remembered.
                let changed = if before { changed } else { vec![LISTS[0].2] };
                return link.announce_lists(&changed);
            }
        }
        self.keep_tools(&pages);
    }

    /// Keeps the pages of the list of tools; gives the notification about it if it is not what clients were shown.
    fn keep_tools(&self, pages: &[Message]) -> Vec<&'static str> {
        let (method, entries, notification) = LISTS[0];
        let before = cached_lists::known(&self.memory, &self.key, self.era, method);
        let (mut name, mut changed) = (method.to_owned(), Vec::new());
        for page in pages {
            let page = cached_lists::fitted(self.era, page.body_json());
            let Ok(page) = answered(&page) else { return changed };
            let page = quarantine::cleaned(&self.server, self.era, method, page);
            if let Some(before) = before.as_ref().filter(|_| name == method)
                && !cached_lists::is_same(method, before, &page)
            {
                cached_lists::report(&self.server.name, method, drift::between(before, page.body_json(), entries));
                changed.push(notification);
            }
            self.memory.keep_list(&self.key, &name, page.body_json());
            let cursor = name.strip_prefix(method).map(str::trim_start).unwrap_or_default();
            self.policies.learn(&self.server.name, cursor, &page, true);
            name = format!("{method} {}", page.field_text("nextCursor").unwrap_or_default());
        }
        changed
    }

    /// Reads the other lists that nobody has read yet, once, so that they are there for whoever comes.
    async fn keep_others(&self, link: &Arc<Link>) {
        for (method, entries, _) in LISTS.into_iter().skip(1) {
            let can = link.hello().is_some_and(|hello| hello.can(method.split('/').next().unwrap_or_default()));
            if !can || cached_lists::known(&self.memory, &self.key, self.era, method).is_some() {
                continue;
            }
            let mut params = Object::default();
            if link.era() == Era::Modern {
                params.set("_meta", &self.opening.meta[..]);
            }
            let asked = tokio::time::timeout(limits::LIST_TIME, link.ask_for_all(method, &params.json())).await;
            if let Ok(Ok(answer)) = asked
                && holds_list(&answer, entries)
            {
                self.memory.keep_list(&self.key, method, &cached_lists::fitted(self.era, answer.body_json()));
            }
        }
    }
}

/// How many tools there are on all pages.
fn count(pages: &[Message]) -> usize {
    let tools = |page: &Message| page.field("tools").map_or(0, |list| scan::elements(page.raw(), list).len());
    pages.iter().map(tools).sum()
}

/// The attempts of one load.
struct Tries<'a> {
    startup: &'a Startup,
    link: &'a Arc<Link>,
    has_tools: bool,
    pages: Mutex<Vec<Message>>,
}

impl Connect<()> for Tries<'_> {
    async fn connect(&self, _: &str) -> Result<Vec<()>, Signals> {
        if !self.has_tools {
            return Ok(Vec::new());
        }
        let Startup { server, opening, .. } = self.startup;
        match look::pages(self.link, opening, limits::PAGES).await {
            Ok(pages) => {
                let tools = vec![(); count(&pages)];
                *self.pages.lock().unwrap_or_else(PoisonError::into_inner) = pages;
                Ok(tools)
            }
            Err(missed) => Err(server.missed(&missed)),
        }
    }
}
