//! Translates the notifications that servers send by themselves: list changes and updated
//! resources.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use seawall::Question;

use crate::client::session::Session;
use crate::client::stream::ClientStream;
use crate::protocol::edit::{self, JsonObject, quoted};
use crate::protocol::names::{Era, SUBSCRIPTION_ID};
use crate::protocol::{Id, Message, build, scan};
use crate::upstream::Connection;
use crate::upstream::call::{ClientSink, GatewayCall};
use crate::upstream::reply::Reply;

use super::pool::ConnectionPool;

/// The filters of `subscriptions/listen`, the notifications they let through, and the capabilities
/// they need.
const LISTS: [(&str, &str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed", "tools"),
    ("promptsListChanged", "notifications/prompts/list_changed", "prompts"),
    ("resourcesListChanged", "notifications/resources/list_changed", "resources"),
];

// === a legacy client, a modern server ===

/// Subscribes a legacy session to a modern server's notifications, until the connection or the
/// session ends.
pub(crate) fn follow(session: &Arc<Session>, connection: &Arc<Connection>) {
    let uris = session.subscribed(&connection.server);
    let mut filter = JsonObject::default();
    for (name, _, capability) in LISTS {
        if connection.info().is_some_and(|info| info.can(capability)) {
            filter.set(name, "true");
        }
    }
    if !uris.is_empty() {
        let quoted: Vec<String> = uris.iter().map(|uri| quoted(uri)).collect();
        filter.set("resourceSubscriptions", format!("[{}]", quoted.join(",")));
    }
    let meta = session.handshake.get().map(|handshake| handshake.meta.clone()).unwrap_or_default();
    let mut params = JsonObject::default();
    params.set("_meta", meta).set("notifications", filter.json());
    let listen = build::request(&Id::number(0), "subscriptions/listen", &params.json());
    let Ok(request) = Message::parse(listen) else { return };
    let sink = Arc::new(SubscriptionFollower { stream: Arc::clone(&session.general) });
    let call = GatewayCall::new(request, sink);
    let (name, ended, connection) =
        (connection.server.clone(), connection.ended.clone(), Arc::clone(connection));
    let task =
        tokio::spawn(async move { ended.run_until_cancelled(connection.request(&call)).await });
    session.follow(name, task.abort_handle());
}

/// Adds or removes a legacy client's subscription to a resource of a modern server.
pub(crate) fn change(
    session: &Arc<Session>,
    connection: &Arc<Connection>,
    uri: &str,
    wanted: bool,
) {
    session.subscribe(&connection.server, uri, wanted);
    // The modern era cannot change a subscription, so a new one replaces the old.
    follow(session, connection);
}

/// Passes on a subscription's notifications in the legacy form.
struct SubscriptionFollower {
    stream: Arc<ClientStream>,
}

impl ClientSink for SubscriptionFollower {
    fn is_in_passing(&self) -> bool {
        true
    }

    fn notify(&self, _link: &Arc<Connection>, notification: Message) {
        if notification.method() == "notifications/subscriptions/acknowledged" {
            return;
        }
        let mut params = JsonObject::of(notification.body_json());
        let mut meta = JsonObject::of(notification.field_json("_meta").unwrap_or_default());
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

    fn ask(&self, connection: &Arc<Connection>, question: Message, _open: Option<Question>) {
        connection.refuse(&question, "a modern server asks with its answer, not with a request");
    }

    fn is_open(&self) -> bool {
        self.stream.is_read()
    }
}

// === a modern client, a legacy server ===

/// The subscribers to a legacy server's own notifications.
#[derive(Default)]
pub(crate) struct SubscriptionHub {
    /// Set if all calls come from one client.
    pub one_client: OnceLock<()>,
    listeners: Mutex<Vec<Subscriber>>,
}

struct Subscriber {
    id: Id,
    filter: Vec<u8>,
    sink: Arc<dyn ClientSink>,
    number: u64,
}

impl SubscriptionHub {
    fn listeners(&self) -> MutexGuard<'_, Vec<Subscriber>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSink for SubscriptionHub {
    fn notify(&self, connection: &Arc<Connection>, notification: Message) {
        // Collected under the lock, notified after it: a sink takes locks of its own.
        let interested: Vec<_> = {
            let listeners = self.listeners();
            let wants = |listener: &&Subscriber| wants(&listener.filter, &notification);
            listeners
                .iter()
                .filter(wants)
                .map(|listener| (listener.id.clone(), Arc::clone(&listener.sink)))
                .collect()
        };
        for (id, sink) in interested {
            if let Some(tagged) = tagged(&notification, &id) {
                sink.notify(connection, tagged);
            }
        }
    }

    fn ask(&self, connection: &Arc<Connection>, question: Message, _open: Option<Question>) {
        connection.refuse(&question, "no call is under way whose client could be asked");
    }

    fn is_one_client(&self) -> bool {
        self.one_client.get().is_some()
    }

    fn listed(&self, connection: &Arc<Connection>, changed: &[&'static str]) {
        for notification in
            changed.iter().filter_map(|name| Message::parse(build::notification(name, None)).ok())
        {
            self.notify(connection, notification);
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
    let filter = JsonObject::of(filter);
    match notification.method() {
        "notifications/resources/updated" => {
            let uris = filter.get("resourceSubscriptions").unwrap_or_default();
            let uri = notification.field_text("uri");
            let whole = scan::Span { start: 0, end: uris.len() };
            scan::elements(uris, whole).iter().any(|span| scan::text(span.of(uris)) == uri)
        }
        method => {
            LISTS.iter().any(|(name, of, _)| *of == method && filter.get(name) == Some(b"true"))
        }
    }
}

/// The notification tagged with the id of its subscription.
fn tagged(notification: &Message, id: &Id) -> Option<Message> {
    let mut whole = JsonObject::of(notification.raw());
    whole.change("params", |params| {
        params.change("_meta", |meta| {
            meta.set(SUBSCRIPTION_ID, id.json().to_vec());
        });
    });
    Message::parse(whole.json().into()).ok()
}

/// Subscribes a modern client to a legacy server: acknowledges at once, then passes on the
/// notifications it asked for, until the client leaves or the connection ends.
pub(crate) async fn listen(
    pool: &ConnectionPool,
    connection: &Arc<Connection>,
    call: &GatewayCall,
) -> Reply {
    let id = call.request.id().cloned().unwrap_or_else(|| Id::number(0));
    let asked = JsonObject::of(call.request.field_json("notifications").unwrap_or(b"{}"));
    let mut granted = JsonObject::default();
    for (name, _, capability) in LISTS {
        if asked.get(name) == Some(b"true")
            && connection.info().is_some_and(|info| info.can(capability))
        {
            granted.set(name, "true");
        }
    }
    if let Some(uris) = asked.get("resourceSubscriptions") {
        granted.set("resourceSubscriptions", uris);
        for span in scan::elements(uris, scan::Span { start: 0, end: uris.len() }) {
            let params = [br#"{"uri":"#.as_slice(), span.of(uris), b"}"].concat();
            let _refused = connection.ask("resources/subscribe", &params).await;
        }
    }
    let mut params = JsonObject::default();
    params.set("notifications", granted.json());
    let acknowledged =
        build::notification("notifications/subscriptions/acknowledged", Some(&params.json()));
    if let Some(acknowledged) =
        Message::parse(acknowledged).ok().and_then(|message| tagged(&message, &id))
    {
        call.sink.notify(connection, acknowledged);
    }
    let _listening = pool.hub.join(id.clone(), granted.json(), &call.sink);
    connection.ended.cancelled().await;
    let mut meta = JsonObject::default();
    meta.set(SUBSCRIPTION_ID, id.json().to_vec());
    let mut result = JsonObject::default();
    result.set("resultType", r#""complete""#).set("_meta", meta.json());
    crate::upstream::reply::answered(&result.json())
}

impl SubscriptionHub {
    /// Subscribes until the returned guard is dropped.
    fn join(self: &Arc<Self>, id: Id, filter: Vec<u8>, sink: &Arc<dyn ClientSink>) -> Subscription {
        let mut listeners = self.listeners();
        // Larger than every number in use, for new subscribers are added at the end.
        let number = listeners.last().map_or(0, |last| last.number + 1);
        listeners.push(Subscriber { id, filter, sink: Arc::clone(sink), number });
        Subscription { hub: Arc::clone(self), number }
    }
}

struct Subscription {
    hub: Arc<SubscriptionHub>,
    number: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.listeners().retain(|listener| listener.number != self.number);
    }
}
