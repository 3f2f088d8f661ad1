//! What servers say by themselves, across the eras: list changes and updated resources.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use seawall::Question;

use crate::client::session::Session;
use crate::client::stream::Stream;
use crate::protocol::edit::{self, Object, quoted};
use crate::protocol::names::{Era, SUBSCRIPTION_ID};
use crate::protocol::{Id, Message, build, scan};
use crate::upstream::Link;
use crate::upstream::call::{Call, Outlet};
use crate::upstream::reply::Reply;

use super::pool::Pool;

/// The filters of `subscriptions/listen` and the notifications they let through.
const LISTS: [(&str, &str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed", "tools"),
    ("promptsListChanged", "notifications/prompts/list_changed", "prompts"),
    ("resourcesListChanged", "notifications/resources/list_changed", "resources"),
];

// === a legacy client, a modern server ===

/// Follows what a modern server says, for a legacy session, as long as both live.
pub fn follow(session: &Arc<Session>, link: &Arc<Link>) {
    let uris = session.subscribed.lock().unwrap_or_else(PoisonError::into_inner).get(&link.server).cloned();
    let mut filter = Object::default();
    for (name, _, capability) in LISTS {
        if link.hello().is_some_and(|hello| hello.can(capability)) {
            filter.set(name, "true");
        }
    }
    if let Some(uris) = uris.filter(|uris| !uris.is_empty()) {
        let quoted: Vec<String> = uris.iter().map(|uri| quoted(uri)).collect();
        filter.set("resourceSubscriptions", format!("[{}]", quoted.join(",")));
    }
    let meta = session.opening.get().map(|opening| opening.meta.clone()).unwrap_or_default();
    let mut params = Object::default();
    params.set("_meta", meta).set("notifications", filter.json());
    let listen = build::request(&Id::number(0), "subscriptions/listen", &params.json());
    let Ok(request) = Message::parse(listen) else { return };
    let outlet = Arc::new(Follower { stream: Arc::clone(&session.general) });
    let call = Call::new(request, outlet);
    let (name, ended, link) = (link.server.clone(), link.ended.clone(), Arc::clone(link));
    let task = tokio::spawn(async move { ended.run_until_cancelled(link.request(&call)).await });
    session.follow(name, task.abort_handle());
}

/// A legacy client subscribes to a resource of a modern server, or no longer wants to.
pub fn change(session: &Arc<Session>, link: &Arc<Link>, uri: &str, wanted: bool) {
    {
        let mut subscribed = session.subscribed.lock().unwrap_or_else(PoisonError::into_inner);
        let uris = subscribed.entry(link.server.clone()).or_default();
        uris.retain(|known| known != uri);
        if wanted {
            uris.push(uri.to_owned());
        }
    }
    follow(session, link);
}

/// Passes on what a subscription brings, as a legacy client knows it.
struct Follower {
    stream: Arc<Stream>,
}

impl Outlet for Follower {
    fn is_in_passing(&self) -> bool {
        true
    }

    fn notify(&self, _link: &Arc<Link>, notification: Message) {
        if notification.method() == "notifications/subscriptions/acknowledged" {
            return;
        }
        let mut params = Object::of(notification.body_json());
        let mut meta = Object::of(notification.field_json("_meta").unwrap_or_default());
        meta.remove(SUBSCRIPTION_ID);
        if meta.is_empty() {
            params.remove("_meta");
        } else {
            params.set("_meta", meta.json());
        }
        if let Some(body) = notification.body() {
            self.stream.notify(edit::splice(notification.raw(), &mut [(body, &params.json())]));
        }
    }

    fn ask(&self, link: &Arc<Link>, question: Message, _open: Option<Question>) {
        link.refuse(&question, "a modern server asks with its answer, not with a request");
    }

    fn is_open(&self) -> bool {
        self.stream.is_read()
    }
}

// === a modern client, a legacy server ===

/// Who listens to a legacy server's own notifications.
#[derive(Default)]
pub struct Hub {
    /// Set where all calls come from one client.
    pub one_client: OnceLock<()>,
    listeners: Mutex<Vec<Listener>>,
}

struct Listener {
    id: Id,
    filter: Vec<u8>,
    outlet: Arc<dyn Outlet>,
    number: u64,
}

impl Hub {
    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlet for Hub {
    fn notify(&self, link: &Arc<Link>, notification: Message) {
        let interested: Vec<_> = {
            let listeners = self.listeners();
            let wants = |listener: &&Listener| wants(&listener.filter, &notification);
            listeners.iter().filter(wants).map(|listener| (listener.id.clone(), Arc::clone(&listener.outlet))).collect()
        };
        for (id, outlet) in interested {
            if let Some(tagged) = tagged(&notification, &id) {
                outlet.notify(link, tagged);
            }
        }
    }

    fn ask(&self, link: &Arc<Link>, question: Message, _open: Option<Question>) {
        link.refuse(&question, "no call is under way whose client could be asked");
    }

    fn is_one_client(&self) -> bool {
        self.one_client.get().is_some()
    }

    fn listed(&self, link: &Arc<Link>, changed: &[&'static str]) {
        for notification in changed.iter().filter_map(|name| Message::parse(build::notification(name, None)).ok()) {
            self.notify(link, notification);
        }
    }

    fn era(&self) -> Era {
        Era::Modern
    }

    fn is_open(&self) -> bool {
        false
    }
}

/// Whether a filter lets a notification through.
fn wants(filter: &[u8], notification: &Message) -> bool {
    let filter = Object::of(filter);
    match notification.method() {
        "notifications/resources/updated" => {
            let uris = filter.get("resourceSubscriptions").unwrap_or_default();
            let uri = notification.field_text("uri");
            let whole = scan::Span { start: 0, end: uris.len() };
            scan::elements(uris, whole).iter().any(|span| scan::text(span.of(uris)) == uri)
        }
        method => LISTS.iter().any(|(name, of, _)| *of == method && filter.get(name) == Some(b"true")),
    }
}

/// The notification with the mark of the subscription it comes on.
fn tagged(notification: &Message, id: &Id) -> Option<Message> {
    let mut whole = Object::of(notification.raw());
    whole.change("params", |params| {
        params.change("_meta", |meta| {
            meta.set(SUBSCRIPTION_ID, id.json().to_vec());
        });
    });
    Message::parse(whole.json().into()).ok()
}

/// A modern client listens to a legacy server: acknowledged at once, then told what it asked for, until it goes.
pub async fn listen(pool: &Pool, link: &Arc<Link>, call: &Call) -> Reply {
    let id = call.request.id().cloned().unwrap_or_else(|| Id::number(0));
    let asked = Object::of(call.request.field_json("notifications").unwrap_or(b"{}"));
    let mut granted = Object::default();
    for (name, _, capability) in LISTS {
        if asked.get(name) == Some(b"true") && link.hello().is_some_and(|hello| hello.can(capability)) {
            granted.set(name, "true");
        }
    }
    if let Some(uris) = asked.get("resourceSubscriptions") {
        granted.set("resourceSubscriptions", uris);
        for span in scan::elements(uris, scan::Span { start: 0, end: uris.len() }) {
            let params = [br#"{"uri":"#.as_slice(), span.of(uris), b"}"].concat();
            let _refused = link.ask("resources/subscribe", &params).await;
        }
    }
    let mut params = Object::default();
    params.set("notifications", granted.json());
    let acknowledged = build::notification("notifications/subscriptions/acknowledged", Some(&params.json()));
    if let Some(acknowledged) = Message::parse(acknowledged).ok().and_then(|message| tagged(&message, &id)) {
        call.outlet.notify(link, acknowledged);
    }
    let _listening = pool.hub.join(id.clone(), granted.json(), &call.outlet);
    link.ended.cancelled().await;
    let mut meta = Object::default();
    meta.set(SUBSCRIPTION_ID, id.json().to_vec());
    let mut result = Object::default();
    result.set("resultType", r#""complete""#).set("_meta", meta.json());
    crate::upstream::reply::answered(&result.json())
}

impl Hub {
    /// Listens until the guard is dropped.
    fn join(self: &Arc<Self>, id: Id, filter: Vec<u8>, outlet: &Arc<dyn Outlet>) -> Listening {
        let mut listeners = self.listeners();
        let number = listeners.last().map_or(0, |last| last.number + 1);
        listeners.push(Listener { id, filter, outlet: Arc::clone(outlet), number });
        Listening { hub: Arc::clone(self), number }
    }
}

struct Listening {
    hub: Arc<Hub>,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.hub.listeners().retain(|listener| listener.number != self.number);
    }
}
