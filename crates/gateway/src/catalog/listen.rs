//! One subscription to several servers: acknowledged once, by all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;

use crate::bridge::to_modern::answered;
use crate::call::{Call, Outlet};
use crate::dispatch::{Caller, Reply, exchange};
use crate::gateway::Route;
use crate::upstream::Link;
use crate::wire::Message;
use crate::wire::edit::Object;
use crate::wire::names::SUBSCRIPTION_ID;

/// Listens to every server until the client goes or all servers are done.
pub async fn all(route: &Arc<Route>, caller: &Caller, call: &Call) -> Reply {
    let outlet =
        Arc::new(FirstAcknowledged { outlet: Arc::clone(&call.outlet), is_acknowledged: AtomicBool::new(false) });
    let call = Call { outlet, ..call.clone() };
    join_all(route.servers.iter().map(|server| exchange(route, caller, server, &call))).await;
    let id = call.request.id().map(|id| id.json().to_vec()).unwrap_or_default();
    let mut meta = Object::default();
    meta.set(SUBSCRIPTION_ID, id);
    let mut result = Object::default();
    result.set("resultType", r#""complete""#).set("_meta", meta.json());
    answered(&result.json())
}

/// Lets the first acknowledgement through; the others say nothing new.
struct FirstAcknowledged {
    outlet: Arc<dyn Outlet>,
    is_acknowledged: AtomicBool,
}

impl Outlet for FirstAcknowledged {
    fn notify(&self, link: &Arc<Link>, notification: Message) {
        let is_acknowledgement = notification.method() == "notifications/subscriptions/acknowledged";
        if !is_acknowledgement || !self.is_acknowledged.swap(true, Ordering::AcqRel) {
            self.outlet.notify(link, notification);
        }
    }

    fn ask(&self, link: &Arc<Link>, question: Message) {
        self.outlet.ask(link, question);
    }

    fn is_open(&self) -> bool {
        self.outlet.is_open()
    }
}
