//! State of a connection for the catalog and for its next client: whether the gateway has listed
//! the server's tools, and whether the server holds state of one client.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use super::Connection;
use crate::protocol::limits;
use crate::protocol::names::Era;
use crate::upstream::startup::ListingProgress;

impl Connection {
    /// The progress of listing the server's tools.
    pub fn listing(&self) -> ListingProgress {
        *self.listing.borrow()
    }

    /// Notes the progress of the listing.
    pub(crate) fn note_listing(&self, listing: ListingProgress) {
        // Set before the progress is published: a client that waits for `Done` may use the list at
        // once.
        *self.unread_list.lock().unwrap_or_else(PoisonError::into_inner) =
            (listing == ListingProgress::Done).then(Instant::now);
        self.listing.send_replace(listing);
    }

    /// Watches the progress of the listing.
    pub(crate) fn watch_listing(&self) -> watch::Receiver<ListingProgress> {
        self.listing.subscribe()
    }

    /// Waits for the end of the listing; the end of the connection counts as
    /// `ListingProgress::Failed`.
    pub async fn listed(&self) -> ListingProgress {
        let mut listing = self.listing.subscribe();
        let ended = listing.wait_for(|listing| *listing != ListingProgress::UnderWay);
        let ended = self.over.run_until_cancelled(ended).await;
        ended.and_then(Result::ok).map_or(ListingProgress::Failed, |listing| *listing)
    }

    /// Whether a client's first list request may be answered with the list that the gateway read at
    /// the start: once, while that list is fresh, and unless the server has announced a change.
    pub(crate) fn take_unread_list(&self) -> bool {
        let unread = self.unread_list.lock().unwrap_or_else(PoisonError::into_inner).take();
        unread.is_some_and(|read| read.elapsed() < limits::LIST_FRESH)
    }

    /// The server has announced that its tools changed.
    pub(super) fn forget_unread_list(&self) {
        self.unread_list.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Tells all clients of this connection that the gateway has read the server's lists, and which
    /// of them have changed.
    pub(crate) fn announce_lists(self: &Arc<Self>, changed: &[&'static str]) {
        self.general.listed(self, changed);
    }

    /// The era of the clients that use the connection.
    pub(crate) fn client_era(&self) -> Era {
        self.general.era()
    }

    /// Notes that the server exchanged a message on behalf of one client: a request, a notification
    /// or a question.
    pub(crate) fn note_private(&self) {
        self.is_private.store(true, Ordering::Relaxed);
    }

    /// Whether the server may hold state of one client that another client must not see.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private.load(Ordering::Relaxed)
    }
}
