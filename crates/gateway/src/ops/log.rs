//! What the operator reads: lines on stderr. stdout belongs to MCP.
//!
//! Lines are written by a thread of their own: a stderr that nobody reads stops the lines, not the calls.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that wait to be written.
const WAITING: usize = 1024;
/// How long the end of the program waits for them: on a busy machine the reason for a failed start takes a while.
const LAST_WORDS: Duration = Duration::from_secs(2);

static WRITER: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

enum Job {
    Line(String),
    /// Everything before this is written.
    Done(SyncSender<()>),
}

/// While set, nothing is written: a report says what matters of it.
static IS_HUSHED: AtomicBool = AtomicBool::new(false);

/// Writes nothing until it is unset again.
pub fn hush(is_hushed: bool) {
    IS_HUSHED.store(is_hushed, Ordering::Relaxed);
}

/// Writes one line. A stderr that is gone or full is no reason to stop.
pub fn line(text: &str) {
    put(format!("seawall: {}", plain(text)));
}

/// Writes a server's line as it is: the wrapper shows what its server shows.
pub fn foreign(text: &str) {
    put(text.to_owned());
}

fn put(line: String) {
    if IS_HUSHED.load(Ordering::Relaxed) {
        return;
    }
    match WRITER.get_or_init(start) {
        Some(writer) => {
            if writer.try_send(Job::Line(line)).is_err() {
                LEFT_OUT.fetch_add(1, Ordering::Relaxed);
            }
        }
        None => write(&line),
    }
}

/// Waits until what was said is written, but not for long.
pub fn flush() {
    if let Some(Some(writer)) = WRITER.get() {
        let (done, wait) = sync_channel(1);
        if writer.try_send(Job::Done(done)).is_ok() {
            let _in_time = wait.recv_timeout(LAST_WORDS);
        }
    }
}

fn start() -> Option<SyncSender<Job>> {
    let (writer, jobs) = sync_channel(WAITING);
    std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&jobs)).ok()?;
    Some(writer)
}

fn write_all(jobs: &Receiver<Job>) {
    for job in jobs {
        match job {
            Job::Line(line) => write(&line),
            Job::Done(done) => {
                let _gone = done.try_send(());
            }
        }
        let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            write(&format!("seawall: {left_out} lines were left out here, because stderr was not read"));
        }
    }
}

fn write(line: &str) {
    let _gone = writeln!(std::io::stderr().lock(), "{line}");
}

/// The text without what a terminal would obey: much of it comes from servers.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|letter| if seawall::is_unseen(letter) && letter != '\t' { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_speak_to_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\rc\td\u{9b}"), "a\u{fffd}[2Jb\u{fffd}c\td\u{fffd}");
    }
}
