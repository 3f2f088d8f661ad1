//! Decides what the audit log says of a call: one line of JSON, chained to the line before it by a
//! hash.
//!
//! A thread of its own writes the lines (`writer`): a slow disk delays the log, not the calls.
//! Lines that find no room are counted, and the next line says how many are missing.

mod chain;
mod redact;
pub(crate) mod verify;
mod writer;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use seawall::iso;
use serde_json::{Map, Value, json};

use crate::config::audit::{AuditArguments, AuditConfig};
use crate::runtime::log::plain;
use writer::{AuditJob, AuditWriter};

/// Lines that may wait for the writer thread.
const WAITING: usize = 8192;
/// How long the end of the program waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(5);

/// One call, as the audit log tells it.
pub(crate) struct AuditedCall<'a> {
    pub caller: String,
    pub server: &'a str,
    pub tool: &'a str,
    pub effect: &'static str,
    /// `answered`, `tool_error`, `served by …`, `failed`, `denied`, `not authorized in time`,
    /// `too large to be authorized`, `cut off`.
    pub outcome: String,
    /// The error code of a failure.
    pub code: Option<&'static str>,
    /// Whether a failed call may have been executed.
    pub may_have_executed: bool,
    /// Whether the answer is that of an identical call.
    pub is_joined: bool,
    /// Whether it was an attempt to deliver a queued write.
    pub is_queued: bool,
    pub attempts: u32,
    pub elapsed: Duration,
    pub arguments: &'a Value,
}

/// The audit log; off until it is opened.
#[derive(Default)]
pub(crate) struct AuditLog {
    open: OnceLock<OpenAudit>,
    written: AtomicU64,
    lost: AtomicU64,
    /// Lost lines that the log does not tell of yet.
    untold: Arc<AtomicU64>,
}

struct OpenAudit {
    jobs: SyncSender<AuditJob>,
    arguments: AuditArguments,
}

impl AuditLog {
    /// Opens the file and goes on with its chain.
    pub(crate) fn open(&self, settings: &AuditConfig) -> io::Result<()> {
        let writer = AuditWriter::open(settings, &self.untold)?;
        let (jobs, waiting) = sync_channel(WAITING);
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || writer.run(&waiting))?;
        let _once = self.open.set(OpenAudit { jobs, arguments: settings.arguments });
        Ok(())
    }

    /// Whether calls are noted; whoever describes one for nothing wastes time.
    pub(crate) fn is_on(&self) -> bool {
        self.open.get().is_some()
    }

    /// Lines that were handed to the writer, and lines that found no room.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }

    /// Notes one call.
    pub(crate) fn note(&self, call: &AuditedCall<'_>) {
        let Some(open) = self.open.get() else { return };
        let line = call.line(open.arguments);
        if open.jobs.try_send(AuditJob::Line(line)).is_ok() {
            self.written.fetch_add(1, Ordering::Relaxed);
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.untold.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines so far are on the disk, at most `LAST_LINES`.
    pub(crate) async fn close(&self) {
        let Some(jobs) = self.open.get().map(|open| open.jobs.clone()) else { return };
        let (done, wait) = tokio::sync::oneshot::channel();
        let asked = tokio::task::spawn_blocking(move || jobs.send(AuditJob::Sync(done)));
        let _in_time = tokio::time::timeout(LAST_LINES, async { (asked.await, wait.await) }).await;
    }
}

impl AuditedCall<'_> {
    fn line(&self, arguments: AuditArguments) -> Map<String, Value> {
        let mut line = Map::new();
        let mut say = |key: &str, value: Value| line.insert(key.to_owned(), value);
        say("time", json!(iso(now())));
        say("caller", json!(plain(&self.caller)));
        say("server", json!(self.server));
        // A server's own word: whoever prints the log must not print its control characters.
        say("tool", json!(plain(self.tool)));
        say("effect", json!(self.effect));
        say("outcome", json!(self.outcome));
        if let Some(code) = self.code {
            say("code", json!(code));
        }
        let marks = [
            ("mayHaveExecuted", self.may_have_executed),
            ("joined", self.is_joined),
            ("queued", self.is_queued),
        ];
        for (mark, _) in marks.into_iter().filter(|(_, is_set)| *is_set) {
            say(mark, json!(true));
        }
        say("attempts", json!(self.attempts));
        say("ms", json!(u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX)));
        match arguments {
            AuditArguments::Digest => say("arguments", json!(redact::digest(self.arguments))),
            AuditArguments::Redacted => say("arguments", redact::redacted(self.arguments)),
            AuditArguments::Omitted => None,
        };
        line
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the log tells when it was; nothing is decided by it"
)]
fn now() -> SystemTime {
    SystemTime::now()
}
