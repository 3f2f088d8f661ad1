//! Decides how log lines for the operator are written: to stderr, each with its time and its level.
//! stdout belongs to MCP.
//!
//! `2026-11-17T19:40:00.123Z WARN github: could not be reached: …`. `SEAWALL_LOG` sets the lowest
//! level that is written.
//!
//! A thread of its own writes the lines: a stderr that is not read blocks the log, not the calls.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

/// Lines that may wait for the writer thread.
const WAITING: usize = 1024;
/// How long the end of the program waits for the last lines: on a busy machine the reason for a
/// failed start takes a while to write.
const LAST_WORDS: Duration = Duration::from_secs(2);

static WRITER: OnceLock<Option<SyncSender<LogJob>>> = OnceLock::new();
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

enum LogJob {
    Line(String),
    /// Reports that all lines before this job are written.
    Done(SyncSender<()>),
}

/// While set, no line is written: a command's report repeats those that matter.
static IS_HUSHED: AtomicBool = AtomicBool::new(false);

/// Suppresses all lines until called with `false`.
pub(crate) fn hush(is_hushed: bool) {
    IS_HUSHED.store(is_hushed, Ordering::Relaxed);
}

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// An operation cannot be done until an operator or user acts.
    Error,
    /// A state that should be otherwise.
    Warn,
    /// An event that an operator may want to know.
    Info,
    /// Details that help only in finding a fault.
    Debug,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warn => "WARN",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
        }
    }

    fn named(name: &str) -> Option<Self> {
        let levels = [Self::Error, Self::Warn, Self::Info, Self::Debug];
        levels.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(name))
    }
}

/// The lowest level that is written.
static LEAST: OnceLock<Level> = OnceLock::new();

fn least() -> Level {
    let said = || std::env::var("SEAWALL_LOG").ok().and_then(|name| Level::named(&name));
    *LEAST.get_or_init(|| said().unwrap_or(Level::Info))
}

/// Writes one line of a level. A stderr that is gone or full is ignored.
pub fn at(level: Level, text: &str) {
    if level <= least() {
        put(stamped(now(), level, text));
    }
}

/// Writes a line of the level INFO.
pub fn line(text: &str) {
    at(Level::Info, text);
}

/// Writes a line of the level WARN.
pub(crate) fn warn(text: &str) {
    at(Level::Warn, text);
}

/// Writes a line of the level ERROR.
pub fn error(text: &str) {
    at(Level::Error, text);
}

/// Tells the user of a command its outcome: not a log line, so without a time.
pub fn tell(text: &str) {
    put(format!("seawall: {}", plain(text)));
}

fn stamped(now: SystemTime, level: Level, text: &str) -> String {
    format!("{} {} {}", seawall::iso(now), level.as_str(), plain(text))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person is told when it was; nothing is decided by it"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Writes a line of a server's stderr unchanged: the wrapper shows the same output as its server.
pub fn foreign(text: &str) {
    put(text.to_owned());
}

fn put(line: String) {
    if IS_HUSHED.load(Ordering::Relaxed) {
        return;
    }
    match WRITER.get_or_init(start) {
        Some(writer) => {
            // Never blocks: calls log too, and a full channel means that stderr is not read.
            if writer.try_send(LogJob::Line(line)).is_err() {
                LEFT_OUT.fetch_add(1, Ordering::Relaxed);
            }
        }
        None => write(&line),
    }
}

/// Waits until all lines so far are written, at most `LAST_WORDS`.
pub fn flush() {
    if let Some(Some(writer)) = WRITER.get() {
        let (done, wait) = sync_channel(1);
        if writer.try_send(LogJob::Done(done)).is_ok() {
            let _in_time = wait.recv_timeout(LAST_WORDS);
        }
    }
}

fn start() -> Option<SyncSender<LogJob>> {
    let (writer, jobs) = sync_channel(WAITING);
    std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&jobs)).ok()?;
    Some(writer)
}

fn write_all(jobs: &Receiver<LogJob>) {
    for job in jobs {
        match job {
            LogJob::Line(line) => write(&line),
            LogJob::Done(done) => {
                let _gone = done.try_send(());
            }
        }
        // `put` counts the lines that found the channel full. Up to `WAITING` older lines may
        // follow this notice.
        let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let text = format!("{left_out} lines were left out here, because stderr was not read");
            write(&stamped(now(), Level::Warn, &text));
        }
    }
}

fn write(line: &str) {
    let _gone = writeln!(std::io::stderr().lock(), "{line}");
}

/// Replaces characters that a terminal would obey: much of the text comes from servers.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(
            |letter| if seawall::is_unseen(letter) && letter != '\t' { '\u{fffd}' } else { letter },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_time_and_a_level() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_794_944_400_123);
        let line = stamped(at, Level::Warn, "github: away\n2026-11-17T19:40:00.000Z INFO forged");
        assert_eq!(
            line,
            "2026-11-17T19:40:00.123Z WARN github: away\u{fffd}2026-11-17T19:40:00.000Z INFO forged"
        );
        assert_eq!(
            (Level::named("warn"), Level::named("WARN"), Level::named("x")),
            (Some(Level::Warn), Some(Level::Warn), None)
        );
        assert!(Level::Error < Level::Warn && Level::Info < Level::Debug);
    }

    #[test]
    fn a_server_cannot_speak_to_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\rc\td\u{9b}"), "a\u{fffd}[2Jb\u{fffd}c\td\u{fffd}");
        assert_eq!(
            plain("a\u{202e}b\u{2066}c\u{200f}\u{61c}é"),
            "a\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}é"
        );
    }
}
