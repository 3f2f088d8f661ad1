//! Decides when a file has changed: by its stamp, twice a second, so that a file that is replaced,
//! as editors and Kubernetes do it, is seen like one that is written.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::{ReloadCause, Reloader};
use crate::config::stamp::{FileStamp, FileStamps};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(500);

impl Reloader {
    /// Reads the configuration again whenever one of its files has changed, until the gateway
    /// drains.
    pub(crate) async fn watch(self: Arc<Self>) {
        let draining = self.gateway.lifecycle.draining.clone();
        // The files as they were when they were last looked at.
        let mut last = self.last_read();
        while draining.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
            let (read, seen) = (self.last_read(), self.look().await);
            // A file that is still being written differs from one look to the next.
            let is_settled = seen == last;
            last = seen;
            if !is_settled || last == read {
                continue;
            }
            let is_changed =
                |(path, stamp): &(&PathBuf, &Option<FileStamp>)| read.get(*path) != Some(*stamp);
            let changed = last.iter().find(is_changed).map(|(path, _)| path.clone());
            if self.reload(&ReloadCause::File(changed.unwrap_or_default())).await.is_err() {
                // It is tried again when a file changes again.
                self.note_read(last.clone());
            }
        }
    }

    fn last_read(&self) -> FileStamps {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the files of the configuration as they were when they were read.
    pub(super) fn note_read(&self, files: FileStamps) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = files;
    }

    async fn look(&self) -> FileStamps {
        let files = self.last_read();
        let look = move || files.into_keys().map(|path| (path.clone(), FileStamp::of(&path)));
        tokio::task::spawn_blocking(move || look().collect()).await.unwrap_or_default()
    }
}
