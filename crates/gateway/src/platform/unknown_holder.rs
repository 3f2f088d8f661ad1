//! Whether a file is locked. Which process holds a port or a file cannot be asked everywhere.

use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::Path;

/// A process that holds a port or a file: never found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UnknownHolder {}

impl UnknownHolder {
    /// Whether the process runs the same program as this one.
    pub(crate) fn is_ours(&self) -> bool {
        match *self {}
    }

    /// Program and pid, in words.
    pub(crate) fn words(&self) -> String {
        match *self {}
    }
}

/// The process that listens on an address: unknown.
pub(crate) fn port_holder(_address: SocketAddr) -> Option<UnknownHolder> {
    None
}

/// Whether a file is locked, by a process that is unknown. Locks it for a moment, together with
/// whoever else asks.
pub(crate) fn lock_holder(path: &Path) -> Option<Option<UnknownHolder>> {
    let locked = File::open(path).ok()?.try_lock_shared();
    matches!(locked, Err(TryLockError::WouldBlock)).then_some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_file_is_told_and_another_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert_eq!(lock_holder(&path), None);
        let file = File::create(&path).unwrap();
        assert_eq!(lock_holder(&path), None);
        file.lock().unwrap();
        assert_eq!(lock_holder(&path), Some(None));
    }
}
