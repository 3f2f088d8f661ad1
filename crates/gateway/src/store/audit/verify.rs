//! Decides whether an audit log is whole: every line is the one that was written, behind the one
//! that was written before it, over all of its files.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::chain::{ChainEnd, FIRST, ReadLine};
use super::writer::earlier;
use crate::config::audit::KEPT;

/// What was found in an audit log.
#[derive(Debug, Default)]
pub(crate) struct AuditReport {
    /// The files, the oldest first.
    pub files: Vec<PathBuf>,
    /// Lines that were read.
    pub lines: usize,
    /// Lines that an audit log has: whole ones, also changed ones.
    pub own_lines: usize,
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
    // All numbers that a configuration can keep: a file that was taken out from between others
    // leaves a gap, and the chain shows it.
    let mut files: Vec<PathBuf> =
        (1..=KEPT).rev().map(|number| earlier(path, number)).filter(|file| file.exists()).collect();
    files.push(path.to_owned());
    let mut chain = Chain::default();
    for file in files {
        let reader = BufReader::new(File::open(&file)?);
        chain.is_new_file = true;
        for (number, line) in reader.split(b'\n').enumerate() {
            let line = String::from_utf8_lossy(&line?).into_owned();
            let place = format!("{}:{}", file.display(), number + 1);
            report.take(&line, &mut chain, &place);
            report.has_known |= known.is_some_and(|known| chain.hash() == known);
        }
        report.files.push(file);
    }
    if report.lines > 0 && report.own_lines == 0 {
        return Err(io::Error::other("it has no line of an audit log"));
    }
    report.last = chain.hash().to_owned();
    if let Some(known) = known.filter(|_| !report.has_known) {
        report.broken.push(format!("no line has the hash {known}: lines were cut off or replaced"));
    }
    Ok(report)
}

/// The chain as far as it was read.
#[derive(Default)]
struct Chain {
    end: Option<ChainEnd>,
    is_new_file: bool,
    is_cut_off: bool,
}

impl Chain {
    fn hash(&self) -> &str {
        self.end.as_ref().map_or("", |end| &end.hash)
    }
}

impl AuditReport {
    fn take(&mut self, line: &str, chain: &mut Chain, place: &str) {
        self.lines += 1;
        let is_new_file = std::mem::take(&mut chain.is_new_file);
        let was_cut_off = std::mem::take(&mut chain.is_cut_off);
        match ReadLine::of(line) {
            ReadLine::Whole(read) => {
                self.own_lines += 1;
                let missing = read.get("missing").and_then(serde_json::Value::as_u64);
                self.missing += usize::try_from(missing.unwrap_or_default()).unwrap_or_default();
                if is_new_file && !read.contains_key(FIRST) {
                    self.tell(place, "the lines before it were cut off");
                }
                match &chain.end {
                    None => {
                        let number = read.get("n").and_then(serde_json::Value::as_u64);
                        self.first = number.unwrap_or_default();
                    }
                    Some(before) if read.get("prev").is_some_and(|prev| prev == &before.hash) => {}
                    Some(_) => self.tell(
                        place,
                        "the line before it is not the one that was written: a line was changed, moved or taken out",
                    ),
                }
            }
            ReadLine::Changed => {
                self.own_lines += 1;
                self.tell(place, "the line was changed");
            }
            // One process was killed in the middle of it, and the next line proves that it was cut
            // off like this. Nothing proves that of a line behind which another was cut off.
            ReadLine::CutOff if !was_cut_off => {
                self.cut_off += 1;
                chain.is_cut_off = true;
            }
            ReadLine::CutOff | ReadLine::Foreign => {
                self.tell(place, "it is no line of an audit log");
            }
        }
        chain.end = Some(chain.end.take().unwrap_or_default().after(line));
    }

    fn tell(&mut self, place: &str, what: &str) {
        if self.broken.len() < TOLD {
            self.broken.push(format!("{place}: {what}"));
        }
    }
}
