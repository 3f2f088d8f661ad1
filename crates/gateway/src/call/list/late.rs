//! Lists that come later than the client could wait: kept when they come, and the client told to
//! read again.

use tokio_util::task::AbortOnDropHandle;

use super::ListRequest;
use crate::catalog::{cached_lists, quarantine};
use crate::client::caller::Caller;
use crate::protocol::limits;
use crate::upstream::probe::holds_list;
use crate::upstream::reply::Reply;

/// A list goes on for a while although nobody waits for it any more; how many do so at a time is
/// bounded.
pub(crate) fn go_on(asked: ListRequest, asking: AbortOnDropHandle<Reply>) {
    let Some(place) = asked.server.startup.place() else { return };
    tokio::spawn(async move {
        if let Ok(Ok(Ok(answer))) = tokio::time::timeout(limits::LIST_TIME, asking).await {
            let method = asked.call.request.method();
            let answer = quarantine::cleaned(&asked.server, asked.caller.era(), method, answer);
            if holds_list(&answer, cached_lists::part_of(method).1)
                && !cached_lists::is_empty(method, &answer)
            {
                let before = asked
                    .route
                    .catalog_cache
                    .list(&asked.key, &cached_lists::name(&asked.call.request));
                let is_news =
                    before.is_none_or(|before| !cached_lists::is_same(method, &before, &answer));
                asked.keep(&answer);
                if let (Caller::Legacy(session, _), true) = (&asked.caller, is_news) {
                    session.general.notify(cached_lists::changed(method));
                }
            }
        }
        drop(place);
    });
}
