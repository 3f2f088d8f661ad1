//! What servers left in writing, also those that are gone.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// A file in which scripted servers write what they did.
pub(crate) struct Ledger {
    _folder: TempDir,
    pub(crate) path: PathBuf,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        Self { path: folder.path().join("ledger"), _folder: folder }
    }

    /// The path, as an argument.
    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// How often a line stands there.
    pub(crate) fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|written| *written == line).count()
    }
}
