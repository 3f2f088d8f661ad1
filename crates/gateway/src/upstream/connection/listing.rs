//! What the catalog and the next client want to know of a conversation: whether the server's tools
//! were listed in it, and whether the server knows anything of its client.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use super::Connection;
use crate::protocol::limits;
use crate::protocol::names::Era;
use crate::upstream::startup::ListingProgress;

impl Connection {
    /// How far the listing of the server's tools has come.
    pub fn listing(&self) -> ListingProgress {
        *self.listing.borrow()
    }

    /// Notes how far it has come.
    pub fn note_listing(&self, listing: ListingProgress) {
        *self.unread_list.lock().unwrap_or_else(PoisonError::into_inner) =
            (listing == ListingProgress::Done).then(Instant::now);
        self.listing.send_replace(listing);
    }

    /// Hears how far it comes.
    pub fn watch_listing(&self) -> watch::Receiver<ListingProgress> {
        self.listing.subscribe()
    }

    /// How it ended, once it has.
    pub async fn listed(&self) -> ListingProgress {
        let mut listing = self.listing.subscribe();
        let ended = listing.wait_for(|listing| *listing != ListingProgress::UnderWay);
        let ended = self.over.run_until_cancelled(ended).await;
        ended.and_then(Result::ok).map_or(ListingProgress::Failed, |listing| *listing)
    }

    /// Whether the list that the gateway read at the start is as good as one that is read now:
    /// once, for a while, and unless the server says that it has changed.
    pub fn take_unread_list(&self) -> bool {
        let unread = self.unread_list.lock().unwrap_or_else(PoisonError::into_inner).take();
        unread.is_some_and(|read| read.elapsed() < limits::LIST_FRESH)
    }

    /// The server says that its tools have changed.
    pub(super) fn forget_unread_list(&self) {
        self.unread_list.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Tells everybody who uses it that the server's lists were read, and which have changed.
    pub fn announce_lists(self: &Arc<Self>, changed: &[&'static str]) {
        self.general.listed(self, changed);
    }

    /// The era of the clients that use it.
    pub fn client_era(&self) -> Era {
        self.general.era()
    }

    /// Notes that the server was told or asked something on behalf of one client, or asked it
    /// something.
    pub fn note_private(&self) {
        self.is_private.store(true, Ordering::Relaxed);
    }

    /// Whether the server may know something of one client that another must not meet.
    pub fn is_private(&self) -> bool {
        self.is_private.load(Ordering::Relaxed)
    }
}
