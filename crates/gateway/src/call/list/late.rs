//! Decides the fate of lists that arrive after the client's wait: they are cached, and the client
//! is told to read again.

use tokio_util::task::AbortOnDropHandle;

use super::ListRequest;
use crate::catalog::{cached_lists, quarantine};
use crate::client::caller::Caller;
use crate::protocol::limits;
use crate::upstream::probe::holds_list;
use crate::upstream::reply::Reply;

/// Lets a list request go on in the background for up to `LIST_TIME`; the number of such requests
/// is bounded per server.
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
        // Held to the end of the task: it bounds the requests that run in the background.
        drop(place);
    });
}
