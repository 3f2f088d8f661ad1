//! Decides how log lines are written: the series' AgentLogger, one JSON object to a line, on stderr.
//! stdout belongs to MCP.
//!
//! A thread of its own writes: a stderr that nobody reads blocks the log and no call. Lines that
//! find the queue full are counted, and the next line says how many.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use seawall::iso;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::tools::wall_clock;

/// Lines that may wait for the writer.
const WAITING: usize = 1024;

/// Where the lines of all sessions go.
#[derive(Clone)]
pub(crate) struct Log {
    lines: SyncSender<Line>,
    lost: Arc<AtomicU64>,
}

enum Line {
    Text(String),
    /// All lines before are written.
    Done(SyncSender<()>),
}

/// The lines of one session, and its age.
pub(crate) struct SessionLog {
    log: Log,
    pub(crate) id: String,
    began: Instant,
}

impl Log {
    pub(crate) fn start() -> std::io::Result<Self> {
        let (lines, waiting) = sync_channel::<Line>(WAITING);
        std::thread::Builder::new().name("log".into()).spawn(move || {
            for line in waiting {
                match line {
                    // Whoever closed stderr wants no lines.
                    Line::Text(text) => drop(writeln!(std::io::stderr(), "{text}")),
                    Line::Done(told) => drop(told.send(())),
                }
            }
        })?;
        Ok(Self { lines, lost: Arc::default() })
    }

    /// The log of a new session; its lines carry its id.
    #[expect(clippy::disallowed_methods, reason = "lines tell how old their session is")]
    pub(crate) fn session(&self) -> SessionLog {
        SessionLog { log: self.clone(), id: Uuid::new_v4().to_string(), began: Instant::now() }
    }

    /// Waits until the lines so far are written, or for as long as that may take.
    pub(crate) fn finish(&self) {
        let (tell, told) = sync_channel(1);
        if self.lines.try_send(Line::Done(tell)).is_ok() {
            let _unwritten = told.recv_timeout(Duration::from_secs(2));
        }
    }
}

impl SessionLog {
    pub(crate) fn info(&self, event: &str, data: Value) {
        self.line("info", event, data, None);
    }

    pub(crate) fn warn(&self, event: &str, data: Value) {
        self.line("warn", event, data, None);
    }

    pub(crate) fn error(&self, event: &str, data: Value, error: &str) {
        self.line("error", event, data, Some(error));
    }

    fn line(&self, level: &str, event: &str, mut data: Value, error: Option<&str>) {
        let lost = self.log.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            data["linesLost"] = lost.into();
        }
        let mut line = json!({
            "timestamp": iso(wall_clock()),
            "level": level,
            "sessionId": self.id,
            "event": event,
            "data": data,
            "duration_ms": u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        if let Some(error) = error {
            line["error"] = error.into();
        }
        if self.log.lines.try_send(Line::Text(line.to_string())).is_err() {
            self.log.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}
