//! Decides how log lines for the operator are written: to stderr, each with its time and its level,
//! for people or as one JSON object. stdout belongs to MCP.
//!
//! `2026-11-17T19:40:00.123Z WARN github: could not be reached: …`, or the same as `time`, `level`,
//! `message` and, where a line is about them, `server`, `tool`, `request`. `SEAWALL_LOG` sets the
//! lowest level that is written.
//!
//! A thread of its own writes the lines: a stderr that is not read blocks the log, not the calls.
//! It removes secrets, and leaves out lines of one kind that come too fast (`log_limit`).

use std::io::Write;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use super::log_limit::{LineLimit, LineVerdict};
use crate::config::SecretTexts;
pub use crate::config::log::LogLevel as Level;
use crate::config::log::{LogConfig, LogFormat};

/// Lines that may wait for the writer thread.
const WAITING: usize = 1024;
/// How long the end of the program waits for the last lines: on a busy machine the reason for a
/// failed start takes a while to write.
const LAST_WORDS: Duration = Duration::from_secs(2);

static WRITER: OnceLock<Option<SyncSender<LogJob>>> = OnceLock::new();
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

enum LogJob {
    Line(LogLine),
    /// Reports that all lines before this job are written.
    Done(SyncSender<()>),
}

/// A line that waits to be written.
struct LogLine {
    /// `None`: the outcome of a command, or a server's own line.
    level: Option<Level>,
    time: SystemTime,
    server: String,
    tool: String,
    request: String,
    is_named: bool,
    text: String,
    /// Where the line was written from: with its server, the kind of the line. `None`: it is not
    /// limited, or has a limit of its own.
    from: Option<&'static Location<'static>>,
}

/// What a line is about; empty where it is about none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogSubject<'a> {
    pub server: &'a str,
    pub tool: &'a str,
    /// The id of a client's request, as JSON.
    pub request: &'a str,
    /// Whether the words name all that, so that a line for people does not repeat it.
    pub is_named: bool,
}

/// While set, no line is written: a command's report repeats those that matter.
static IS_HUSHED: AtomicBool = AtomicBool::new(false);
/// Whether lines are JSON objects.
static IS_JSON: AtomicBool = AtomicBool::new(false);
/// The level of the configuration.
static CONFIGURED: OnceLock<Level> = OnceLock::new();
/// What no line may hold.
static SECRETS: RwLock<Option<SecretTexts>> = RwLock::new(None);

/// Suppresses all lines until called with `false`.
pub(crate) fn hush(is_hushed: bool) {
    IS_HUSHED.store(is_hushed, Ordering::Relaxed);
}

/// Writes lines as the configuration wants them.
pub(crate) fn configure(log: &LogConfig) {
    IS_JSON.store(log.format == LogFormat::Json, Ordering::Relaxed);
    if let Some(level) = log.level {
        let _once = CONFIGURED.set(level);
    }
}

/// Removes these texts from lines from now on, beside those of before: calls under way may still
/// use the old ones.
pub(crate) fn hide(secrets: SecretTexts) {
    let mut hidden = SECRETS.write().unwrap_or_else(PoisonError::into_inner);
    *hidden = Some(match hidden.take() {
        Some(before) => before.and(secrets),
        None => secrets,
    });
}

/// The lowest level that `SEAWALL_LOG` names.
static LEAST: OnceLock<Option<Level>> = OnceLock::new();

fn least() -> Level {
    let said = || std::env::var("SEAWALL_LOG").ok().and_then(|name| Level::named(&name));
    LEAST.get_or_init(said).or(CONFIGURED.get().copied()).unwrap_or(Level::Info)
}

/// Whether lines of a level are written; whoever builds one for nothing wastes time.
pub(crate) fn writes(level: Level) -> bool {
    level <= least()
}

/// Writes one line of a level. A stderr that is gone or full is ignored.
#[track_caller]
pub fn at(level: Level, text: &str) {
    about(level, LogSubject::default(), text);
}

/// Writes one line of a level about a server, a tool, a request.
#[track_caller]
pub(crate) fn about(level: Level, subject: LogSubject<'_>, text: &str) {
    if writes(level) {
        put(Some(level), subject, text.to_owned(), Some(Location::caller()));
    }
}

/// Writes a line of the level INFO.
#[track_caller]
pub fn line(text: &str) {
    at(Level::Info, text);
}

/// Writes a line of the level WARN.
#[track_caller]
pub(crate) fn warn(text: &str) {
    at(Level::Warn, text);
}

/// Writes a line of the level INFO about a server.
#[track_caller]
pub(crate) fn line_of(server: &str, text: &str) {
    about(Level::Info, LogSubject { server, ..LogSubject::default() }, text);
}

/// Writes a line of the level WARN about a server.
#[track_caller]
pub(crate) fn warn_of(server: &str, text: &str) {
    about(Level::Warn, LogSubject { server, ..LogSubject::default() }, text);
}

/// Writes a line of the level ERROR.
#[track_caller]
pub fn error(text: &str) {
    at(Level::Error, text);
}

/// Tells the user of a command its outcome: not a log line, so without a time.
pub fn tell(text: &str) {
    let text = format!("seawall: {}", plain(text));
    put(None, LogSubject::default(), text, None);
}

/// Writes a line of a server's stderr. For people it stays as it is: the wrapper shows the same
/// output as its server.
pub(crate) fn foreign(server: &str, text: &str) {
    let subject = LogSubject { server, ..LogSubject::default() };
    let is_json = IS_JSON.load(Ordering::Relaxed);
    put(is_json.then_some(Level::Info), subject, text.to_owned(), None);
}

/// Writes what a server said, which has a limit of its own.
pub(crate) fn said(server: &str, text: &str) {
    if writes(Level::Info) {
        let subject = LogSubject { server, ..LogSubject::default() };
        put(Some(Level::Info), subject, text.to_owned(), None);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person is told when it was; nothing is decided by it"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

fn put(
    level: Option<Level>,
    subject: LogSubject<'_>,
    text: String,
    from: Option<&'static Location<'static>>,
) {
    if IS_HUSHED.load(Ordering::Relaxed) {
        return;
    }
    let LogSubject { server, tool, request, is_named } = subject;
    let (server, tool, request) = (server.to_owned(), tool.to_owned(), request.to_owned());
    let line = LogLine { level, time: now(), server, tool, request, is_named, text, from };
    match WRITER.get_or_init(start) {
        Some(writer) => {
            // Never blocks: calls log too, and a full channel means that stderr is not read.
            if writer.try_send(LogJob::Line(line)).is_err() {
                LEFT_OUT.fetch_add(1, Ordering::Relaxed);
            }
        }
        None => write(&line.written()),
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
    let mut limit = LineLimit::default();
    for job in jobs {
        match job {
            LogJob::Line(line) => write_limited(&line, &mut limit),
            LogJob::Done(done) => {
                let _gone = done.try_send(());
            }
        }
        // `put` counts the lines that found the channel full. Up to `WAITING` older lines may
        // follow this notice.
        let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let text = format!("{left_out} lines were left out here, because stderr was not read");
            write(&LogLine::of_the_log("", text).written());
        }
    }
}

/// Writes a line unless there are too many of its kind. Errors are always written: there are few,
/// and each says what an operator has to do.
fn write_limited(line: &LogLine, limit: &mut LineLimit) {
    let verdict = match line.from.filter(|_| line.level != Some(Level::Error)) {
        Some(from) => limit.judge((from.file(), from.line()), &line.server, line.time),
        None => LineVerdict::Written(0),
    };
    let LineVerdict::Written(left_out) = verdict else { return };
    if left_out > 0 {
        let text = format!("{left_out} lines like the next one were left out: they came too fast");
        write(&LogLine::of_the_log(&line.server, text).written());
    }
    write(&line.written());
}

impl LogLine {
    /// A line about the log itself.
    fn of_the_log(server: &str, text: String) -> Self {
        Self {
            level: Some(Level::Warn),
            time: now(),
            server: server.to_owned(),
            tool: String::new(),
            request: String::new(),
            is_named: false,
            text,
            from: None,
        }
    }

    fn written(&self) -> String {
        match (self.level, IS_JSON.load(Ordering::Relaxed)) {
            (None, _) => self.text.clone(),
            (Some(level), true) => self.json(level),
            (Some(level), false) => self.human(level),
        }
    }

    fn human(&self, level: Level) -> String {
        let time = seawall::iso(self.time);
        let text = plain(&hidden(&self.text));
        match (self.server.as_str(), self.request.as_str()) {
            _ if self.is_named => format!("{time} {} {text}", level.as_str()),
            ("", "") => format!("{time} {} {text}", level.as_str()),
            ("", request) => {
                format!("{time} {} request {}: {text}", level.as_str(), plain(request))
            }
            (server, _) => format!("{time} {} {server}: {text}", level.as_str()),
        }
    }

    /// The fields in the order of their use; those without a value are left out.
    fn json(&self, level: Level) -> String {
        let fields = [
            ("time", seawall::iso(self.time)),
            ("level", level.as_str().to_ascii_lowercase()),
            ("message", plain(&hidden(&self.text))),
            ("server", self.server.clone()),
            ("tool", plain(&self.tool)),
            ("request", plain(self.request.trim_matches('"'))),
        ];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let fields = fields.map(|(key, value)| (key.to_owned(), Value::from(value)));
        Value::Object(fields.collect::<Map<_, _>>()).to_string()
    }
}

fn hidden(text: &str) -> String {
    let secrets = SECRETS.read().unwrap_or_else(PoisonError::into_inner);
    secrets.as_ref().map_or_else(|| text.to_owned(), |secrets| secrets.hide(text))
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

    fn line(server: &str, text: &str) -> LogLine {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_794_944_400_123);
        LogLine { time, ..LogLine::of_the_log(server, text.to_owned()) }
    }

    #[test]
    fn a_line_has_a_time_and_a_level() {
        let line = line("github", "away\n2026-11-17T19:40:00.000Z INFO forged");
        assert_eq!(
            line.human(Level::Warn),
            "2026-11-17T19:40:00.123Z WARN github: away\u{fffd}2026-11-17T19:40:00.000Z INFO forged"
        );
        assert_eq!(
            (Level::named("warn"), Level::named("WARN"), Level::named("x")),
            (Some(Level::Warn), Some(Level::Warn), None)
        );
        assert!(Level::Error < Level::Warn && Level::Info < Level::Debug);
    }

    #[test]
    fn a_line_for_programs_has_the_fields_that_it_is_about() {
        let line = line("github", "away \"\n");
        let about = LogLine { tool: "get".into(), request: "\"seven\"".into(), ..line };
        assert_eq!(
            about.json(Level::Warn),
            r#"{"level":"warn","message":"away \"�","request":"seven","server":"github","time":"2026-11-17T19:40:00.123Z","tool":"get"}"#
        );
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
