//! Decides how lines of the audit log reach the disk: one process at a time, in a file that only
//! its owner can read, renamed when it is large.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::chain::ChainEnd;
use crate::config::audit::AuditConfig;
use crate::runtime::log;

/// The longest line: the end of a file is searched this far for its last one.
const LONGEST: u64 = 256 * 1024;

pub(super) enum AuditJob {
    Line(Map<String, Value>),
    /// Reports that all lines before this job are on the disk.
    Sync(oneshot::Sender<()>),
}

pub(super) struct AuditWriter {
    settings: AuditConfig,
    file: File,
    size: u64,
    end: ChainEnd,
    /// Lost lines that the log does not tell of yet.
    untold: Arc<AtomicU64>,
    /// The last write failed; it was logged once.
    is_failing: bool,
}

/// The name of an earlier file: `audit.jsonl.1` is the newest of them.
pub(super) fn earlier(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    file.try_lock().map_err(|error| match error {
        fs::TryLockError::WouldBlock => io::Error::other("another process writes it"),
        fs::TryLockError::Error(error) => error,
    })?;
    Ok(file)
}

/// The end of a file's chain, and whether its last line is cut off: its process was killed while it
/// wrote.
fn end_of(file: &mut File, size: u64) -> io::Result<(Option<ChainEnd>, bool)> {
    let from = size.saturating_sub(LONGEST);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let is_cut_off = !text.is_empty() && !text.ends_with('\n');
    let end = |end: Option<ChainEnd>, line| Some(end.unwrap_or_default().after(line));
    Ok((text.lines().fold(None, end), is_cut_off))
}

impl AuditWriter {
    pub(super) fn open(settings: &AuditConfig, untold: &Arc<AtomicU64>) -> io::Result<Self> {
        let mut file = open(&settings.path)?;
        let mut size = file.metadata()?.len();
        let (mut end, is_cut_off) = end_of(&mut file, size)?;
        if is_cut_off {
            file.write_all(b"\n")?;
            size += 1;
        }
        if end.is_none() {
            // A new file goes on with the chain of the one before it.
            let before = File::open(earlier(&settings.path, 1)).and_then(|mut before| {
                let size = before.metadata()?.len();
                end_of(&mut before, size)
            });
            end = before.ok().and_then(|(end, _)| end);
        }
        let end = end.unwrap_or_default();
        let (settings, untold) = (settings.clone(), Arc::clone(untold));
        Ok(Self { settings, file, size, end, untold, is_failing: false })
    }

    pub(super) fn run(mut self, jobs: &Receiver<AuditJob>) {
        for job in jobs {
            match job {
                AuditJob::Line(line) => self.write(line),
                AuditJob::Sync(done) => {
                    let _failed = self.file.sync_data();
                    let _gone = done.send(());
                }
            }
        }
    }

    fn write(&mut self, mut line: Map<String, Value>) {
        let lost = self.untold.swap(0, Ordering::Relaxed);
        if lost > 0 {
            line.insert("missing".to_owned(), json!(lost));
        }
        self.follow();
        let mut end = self.end.clone();
        let written = self.make_room(&line).and_then(|is_first| {
            let text = end.next(line, is_first) + "\n";
            self.file.write_all(text.as_bytes()).map(|()| text.len())
        });
        match written {
            Ok(bytes) => {
                self.size += bytes as u64;
                self.end = end;
                if std::mem::take(&mut self.is_failing) {
                    log::line("the audit log is written again");
                }
            }
            Err(error) => {
                self.untold.fetch_add(lost + 1, Ordering::Relaxed);
                self.mend();
                if !std::mem::replace(&mut self.is_failing, true) {
                    let path = self.settings.path.display();
                    log::error(&format!(
                        "the audit log {path} cannot be written: {error}; calls go on, and it will say how many are missing"
                    ));
                }
            }
        }
    }

    /// Goes on in a new file if somebody moved or removed this one, as programs that rotate logs
    /// do.
    fn follow(&mut self) {
        let path = &self.settings.path;
        let is_there = match (fs::metadata(path), self.file.metadata()) {
            (Ok(there), Ok(own)) => (there.dev(), there.ino()) == (own.dev(), own.ino()),
            (Err(error), _) => error.kind() != io::ErrorKind::NotFound,
            (_, Err(_)) => true,
        };
        if is_there {
            return;
        }
        let opened = open(path).and_then(|mut file| {
            let size = file.metadata()?.len();
            let is_cut_off = end_of(&mut file, size)?.1;
            if is_cut_off {
                file.write_all(b"\n").map(|()| (file, size + 1))
            } else {
                Ok((file, size))
            }
        });
        if let Ok((file, size)) = opened {
            let shown = path.display();
            log::warn(&format!(
                "the audit log {shown} was moved or removed; it goes on in a new file"
            ));
            (self.file, self.size) = (file, size);
        }
    }

    /// Takes back a line that was written in part.
    fn mend(&self) {
        let _next_time = self.file.set_len(self.size);
    }

    /// Begins a new file if this one has no room for the line; whether the line is its first.
    fn make_room(&mut self, line: &Map<String, Value>) -> io::Result<bool> {
        let bytes = self.end.clone().next(line.clone(), false).len() as u64 + 1;
        if self.size == 0 || self.size + bytes <= self.settings.max_size {
            return Ok(self.size == 0);
        }
        self.file.sync_data()?;
        let path = &self.settings.path;
        for number in (1..self.settings.keep).rev() {
            match fs::rename(earlier(path, number), earlier(path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(path, earlier(path, 1))?;
        (self.file, self.size) = (open(path)?, 0);
        Ok(true)
    }
}
