//! What a server leaves in writing: one line at a time, so that a test can count what processes did
//! that are gone.

use std::fs::OpenOptions;
use std::io::Write;

use super::Server;

impl Server {
    /// Adds a line to the ledger, if there is one.
    pub(super) fn note(&self, line: &str) {
        let Some(path) = &self.script.ledger else { return };
        let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) else { return };
        _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
