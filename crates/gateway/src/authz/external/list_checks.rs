//! Decides how many checks of one list run at a time: `concurrency` of each authorizer, over all
//! servers of the list.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ExternalAuthorizer;

/// The checks of one list, by the authorizer that is asked.
#[derive(Debug, Default)]
pub(crate) struct ListChecks {
    places: Mutex<HashMap<usize, Arc<Semaphore>>>,
}

impl ListChecks {
    /// Waits for a place among the checks of the list. The wait is no part of the check's time: the
    /// authorizer is not asked yet.
    pub(super) async fn place(&self, at: &ExternalAuthorizer) -> Option<OwnedSemaphorePermit> {
        // The authorizer outlives the list, so its address names it.
        let key = Arc::as_ptr(&at.client) as usize;
        let places = {
            let mut all = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Semaphore::new(at.settings.concurrency));
            Arc::clone(all.entry(key).or_insert_with(new))
        };
        places.acquire_owned().await.ok()
    }
}
