//! Decides whether a file is still the one that was read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files with their stamps.
pub(crate) type FileStamps = BTreeMap<PathBuf, Option<FileStamp>>;

/// Device, inode, size and time of change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of a file as it is now; `None` if it is not there. Of a link it is the target's: a
    /// ConfigMap's file is a link to a link.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        let changed = (file.ctime(), file.ctime_nsec());
        Some(Self { device: file.dev(), inode: file.ino(), size: file.size(), changed })
    }
}
