//! Decides whether an audit log is whole: every line holds the hash of the line before it, over all
//! of its files.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::chain::{ChainEnd, hash};
use super::writer::earlier;

/// What was found in an audit log.
#[derive(Debug, Default)]
pub(crate) struct AuditReport {
    /// The files, the oldest first.
    pub files: Vec<PathBuf>,
    /// Lines that were read.
    pub lines: usize,
    /// The hash of the last line: kept elsewhere, it shows later that nothing was cut off.
    pub last: String,
    /// The number of the first line: those before it were in files that are not kept any more.
    pub first: u64,
    /// Lines that were cut off when their process was killed.
    pub cut_off: usize,
    /// Calls that the log itself says are missing.
    pub missing: usize,
    /// Whether the hash that was asked for is in the chain.
    pub has_known: bool,
    /// Where the chain is broken, in words.
    pub broken: Vec<String>,
}

/// Problems that are told; the first is the one that matters.
const TOLD: usize = 10;

/// Reads the log at `path` with its earlier files; `known` is the hash of a line that must be in
/// it.
pub(crate) fn verify(path: &Path, known: Option<&str>) -> io::Result<AuditReport> {
    let mut report = AuditReport::default();
    let mut kept: Vec<PathBuf> =
        (1..).map(|number| earlier(path, number)).take_while(|file| file.exists()).collect();
    kept.reverse();
    kept.push(path.to_owned());
    let mut end: Option<ChainEnd> = None;
    for file in kept {
        let reader = BufReader::new(File::open(&file)?);
        for (number, line) in reader.split(b'\n').enumerate() {
            let line = String::from_utf8_lossy(&line?).into_owned();
            let place = format!("{}:{}", file.display(), number + 1);
            end = Some(report.take(&line, end.as_ref(), &place));
            report.has_known |= known.is_some_and(|known| hash(&line) == known);
        }
        report.files.push(file);
    }
    report.last = end.unwrap_or_default().hash;
    if let Some(known) = known.filter(|_| !report.has_known) {
        report.broken.push(format!("no line has the hash {known}: lines were cut off or replaced"));
    }
    Ok(report)
}

impl AuditReport {
    fn take(&mut self, line: &str, before: Option<&ChainEnd>, place: &str) -> ChainEnd {
        self.lines += 1;
        let after = before.cloned().unwrap_or_default().after(line);
        let Ok(read) = serde_json::from_str::<Value>(line) else {
            // The next line proves that it was cut off like this, and not changed later.
            self.cut_off += 1;
            return after;
        };
        let missing = read["missing"].as_u64().unwrap_or_default();
        self.missing += usize::try_from(missing).unwrap_or_default();
        if before.is_none() {
            self.first = read["n"].as_u64().unwrap_or_default();
        }
        let is_next = before.is_none_or(|before| read["prev"] == before.hash);
        if !is_next && self.broken.len() < TOLD {
            self.broken.push(format!(
                "{place}: the line before it is not the one that was written: a line was changed, moved or taken out"
            ));
        }
        after
    }
}
