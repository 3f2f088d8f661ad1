//! A child's stderr: logged for the operator, its end kept for error texts and the status.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::AsyncRead;

use super::status::ServerStatus;
use crate::config::{SecretTexts, Transport};
use crate::protocol::lines::{LineReader, PipeLine};

/// The longest line of stderr that is shown, in bytes.
const STDERR_LINE: usize = 8 << 10;
/// The last lines of stderr that are kept.
const STDERR_KEPT: usize = 10;
/// The most characters of those lines in an error text.
const STDERR_SHOWN: usize = 300;
/// The most characters shown of a stdout line that is no message.
const SHOWN: usize = 200;

/// The output of one process outside the protocol.
pub(super) struct StderrTail {
    name: String,
    is_plain: bool,
    secrets: Arc<SecretTexts>,
    last: Mutex<VecDeque<String>>,
    noise: AtomicU64,
    status: Arc<ServerStatus>,
}

impl StderrTail {
    pub(super) fn new(
        name: &str,
        transport: &Transport,
        secrets: &Arc<SecretTexts>,
        status: &Arc<ServerStatus>,
    ) -> Self {
        let is_plain = matches!(transport, Transport::Stdio { inherit_env: true, .. });
        let (name, status, secrets) = (name.to_owned(), Arc::clone(status), Arc::clone(secrets));
        Self { name, is_plain, secrets, last: Mutex::default(), noise: AtomicU64::new(0), status }
    }

    /// Takes a line of stderr.
    fn line(&self, line: &[u8]) {
        let raw = String::from_utf8_lossy(line);
        let line = self.secrets.hide(&raw);
        if self.is_shown(line.len()) {
            if self.is_plain {
                crate::runtime::log::foreign(&self.name, &raw);
            } else {
                crate::runtime::log::said(&self.name, &line);
            }
        }
        self.status.said(&seawall::quote(&line));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.push_back(line);
        if last.len() > STDERR_KEPT {
            last.pop_front();
        }
    }

    /// Takes a line of stdout that is no message.
    pub(super) fn noise(&self, line: &[u8]) {
        self.noise.fetch_add(1, Ordering::Relaxed);
        self.status.noise();
        // Secrets are removed before the line is cut, so that no beginning of a secret is left.
        let start = String::from_utf8_lossy(line.get(..STDERR_LINE).unwrap_or(line));
        let shown: String = self.secrets.hide(&start).chars().take(SHOWN).collect();
        if !shown.trim().is_empty() && self.is_shown(shown.len()) {
            let text = format!("not a message on stdout, skipped: {shown}");
            crate::runtime::log::warn_of(&self.name, &text);
        }
    }

    /// Whether a line of `bytes` is shown; logs the number of lines left out before it first.
    fn is_shown(&self, bytes: usize) -> bool {
        let left_out = self.status.flood.lets(bytes);
        self.tell_left_out(left_out.unwrap_or_default());
        left_out.is_some()
    }

    fn tell_left_out(&self, lines: u64) {
        if lines > 0 {
            let text = format!("{lines} lines left out: it said too much at once");
            crate::runtime::log::warn_of(&self.name, &text);
        }
    }

    /// Logs the end of a process: its exit, if it ended by itself, and its stdout lines that were
    /// no messages.
    pub(super) fn ended(&self, exit: Option<&str>) {
        self.tell_left_out(self.status.flood.left_out());
        let noise = match self.noise.load(Ordering::Relaxed) {
            0 => String::new(),
            1 => "; 1 line on its stdout was no message and was skipped".to_owned(),
            lines => format!("; {lines} lines on its stdout were no messages and were skipped"),
        };
        let how = exit.map_or_else(String::new, |exit| format!(" ({exit})"));
        if exit.is_some() || !noise.is_empty() {
            crate::runtime::log::warn_of(&self.name, &format!("its process ended{how}{noise}"));
        }
    }

    /// The last stderr lines, as the end of a sentence.
    pub(super) fn last(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> =
            last.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
        let text = words.join(" / ");
        let start = text.char_indices().rev().nth(STDERR_SHOWN).map_or(0, |(start, _)| start);
        if text.is_empty() {
            text
        } else {
            format!("; it last said: {}", seawall::quote(&text[start..]))
        }
    }
}

/// Reads a child's stderr to its end.
pub(super) async fn listen(stderr: impl AsyncRead + Unpin, said: Arc<StderrTail>) {
    let mut lines = LineReader::new(stderr, STDERR_LINE);
    while let Ok(Some(line)) = lines.next().await {
        match line {
            PipeLine::Whole(line) => said.line(&line),
            PipeLine::TooLong(_) => said.line(b"(a line that is too long to show)"),
        }
    }
}
