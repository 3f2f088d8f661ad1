//! Lists that come later than the client could wait: kept when they come, and the client told to read again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use super::quarantine;
use super::stable::{self, Asked};
use crate::dispatch::{Caller, Reply};
use crate::session::Session;
use crate::upstream::Link;
use crate::wire::{Kind, limits};

/// How long after one another a server is asked again that listed nothing at its start.
const AGAIN: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(8),
    Duration::from_secs(18),
];

/// A list goes on for a while although nobody waits for it any more; how many do so at a time is bounded.
pub fn go_on(asked: Asked, asking: AbortOnDropHandle<Reply>) {
    let Some(place) = asked.server.load.place() else { return };
    tokio::spawn(async move {
        if let Ok(Ok(Ok(answer))) = tokio::time::timeout(limits::LIST_TIME, asking).await {
            let method = asked.call.request.method();
            let answer = quarantine::cleaned(&asked.server, asked.caller.era(), method, answer);
            if answer.kind() == Kind::Result && !stable::is_empty(method, &answer) {
                let before = asked.route.memory.list(&asked.key, &stable::name(&asked.call.request));
                let is_news = before.is_none_or(|before| !stable::is_same(method, &before, &answer));
                asked.keep(&answer);
                if let (Caller::Legacy(session, _), true) = (&asked.caller, is_news) {
                    session.general.notify(stable::changed(method));
                }
            }
        }
        drop(place);
    });
}

/// A server listed no tools although it has only just started: it is asked again until it does, or has had its time.
pub fn ask_again(session: &Arc<Session>, key: &str, link: &Arc<Link>) {
    if !session.doubts(&link.server) {
        return;
    }
    let (session, key, link) = (Arc::downgrade(session), key.to_owned(), Arc::downgrade(link));
    tokio::spawn(async move {
        let server = link.upgrade().map(|link| link.server.clone()).unwrap_or_default();
        asking_again(&session, &key, &link).await;
        if let Some(session) = session.upgrade() {
            session.doubts_no_more(&server);
        }
    });
}

async fn asking_again(session: &Weak<Session>, key: &str, link: &Weak<Link>) {
    let method = "tools/list";
    for pause in AGAIN {
        tokio::time::sleep(pause).await;
        let (Some(session), Some(link)) = (session.upgrade(), link.upgrade().filter(|link| link.is_alive())) else {
            return;
        };
        let listed = tokio::time::timeout(limits::LIST_TIME, session.list(&link, method)).await.ok().flatten();
        let listed = listed.filter(|answer| answer.kind() == Kind::Result && !stable::is_empty(method, answer));
        if let Some(answer) = listed {
            session.route.memory.keep_list(key, method, answer.body_json());
            session.general.notify(stable::changed(method));
            return;
        }
    }
}
