//! Watches a running attempt: messages of the server reset the idle timeout, a question to the
//! client stops the call's clock, and a client that wants progress gets a heartbeat.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seawall::{CallControl, FailureSignals, Question};
use serde_json::json;
use tokio::time::Instant;

use crate::protocol::edit::JsonObject;
use crate::protocol::{Message, build, limits};
use crate::upstream::call::{ClientSink, GatewayCall};
use crate::upstream::reply::{Refusal, Reply, with_body};
use crate::upstream::{Connection, UpstreamFailure};

/// The progress token of requests whose progress only the gateway wants.
const OUR_TOKEN: &str = r#""seawall""#;
/// The step that a heartbeat adds to the server's progress: progress must grow, and the server's
/// next value must not fall below it.
const A_LITTLE: f64 = 1e-6;

/// An attempt whose messages to the client are watched.
pub(crate) struct IdleTimeout {
    call: GatewayCall,
    sink: Arc<WatchedSink>,
}

struct WatchedSink {
    inner: Arc<dyn ClientSink>,
    control: Arc<CallControl>,
    heard: Mutex<LastMessage>,
    /// Whether the gateway asked for progress and the client did not.
    is_ours: bool,
}

struct LastMessage {
    at: Instant,
    /// How long the client had spent on questions at that time.
    asked: Duration,
    progress: f64,
}

impl IdleTimeout {
    /// Watches a call; `needs_progress` requests progress from the server even if the client did
    /// not.
    pub(crate) fn over(call: &GatewayCall, needs_progress: bool) -> Self {
        let sink = WatchedSink {
            inner: Arc::clone(&call.sink),
            control: Arc::clone(&call.control),
            heard: Mutex::new(LastMessage {
                at: Instant::now(),
                asked: call.control.asked(),
                progress: 0.0,
            }),
            is_ours: needs_progress && call.request.meta("progressToken").is_none(),
        };
        Self { call: call.clone(), sink: Arc::new(sink) }
    }

    /// The call to send, with the watched sink.
    pub(crate) fn call(&self) -> Result<GatewayCall, FailureSignals> {
        let mut call = GatewayCall {
            sink: Arc::clone(&self.sink) as Arc<dyn ClientSink>,
            ..self.call.clone()
        };
        if self.sink.is_ours {
            call.request = with_token(&call.request)?;
        }
        Ok(call)
    }

    /// Runs the call until it is answered or the server was silent for `idle`. The work is lent: as
    /// an argument of its own it would lie in this future twice.
    pub(crate) async fn run(
        &self,
        idle: Option<Duration>,
        mut work: Pin<&mut impl Future<Output = Reply>>,
    ) -> Reply {
        let token =
            self.call.request.meta("progressToken").map(|span| self.call.request.slice(span));
        if idle.is_none() && token.is_none() {
            return work.await;
        }
        loop {
            // Recomputed each round: a message or a question since the last round has moved the
            // deadline.
            let quiet = self.sink.quiet();
            if let Some(idle) = idle.filter(|idle| quiet >= *idle) {
                return Err(Refusal::Failed(String::new(), UpstreamFailure::Silent(idle)));
            }
            let left = idle.map_or(Duration::MAX, |idle| idle - quiet);
            let beat = if token.is_some() { limits::HEARTBEAT } else { Duration::MAX };
            match tokio::time::timeout(left.min(beat), work.as_mut()).await {
                Ok(reply) => return reply,
                Err(_) => {
                    if let Some(token) =
                        token.as_ref().filter(|_| self.sink.quiet() >= limits::HEARTBEAT)
                    {
                        self.sink.beat(token);
                    }
                }
            }
        }
    }
}

fn with_token(request: &Message) -> Result<Message, FailureSignals> {
    let mut params = JsonObject::of(request.body_json());
    params.change("_meta", |meta| {
        meta.set("progressToken", OUR_TOKEN);
    });
    with_body(request, &params.json())
        .map_err(|_| FailureSignals::text("the request cannot be written"))
}

impl WatchedSink {
    fn heard(&self) -> std::sync::MutexGuard<'_, LastMessage> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the server was silent, without the time that the client spent on questions.
    fn quiet(&self) -> Duration {
        let asked = self.control.asked();
        let heard = self.heard();
        heard.at.elapsed().saturating_sub(asked.saturating_sub(heard.asked))
    }

    /// Tells the client that the call is still running.
    fn beat(&self, token: &[u8]) {
        // No lock is held while the sink runs: the sink takes locks of its own.
        let progress = {
            let mut heard = self.heard();
            heard.progress += A_LITTLE;
            heard.progress
        };
        let mut params = JsonObject::default();
        params.set("progressToken", token).set("progress", json!(progress).to_string());
        params.set("message", r#""still waiting for the server""#);
        if let Ok(notification) =
            Message::parse(build::notification("notifications/progress", Some(&params.json())))
        {
            self.inner.say(notification);
        }
    }
}

impl ClientSink for WatchedSink {
    fn notify(&self, connection: &Arc<Connection>, notification: Message) {
        let is_progress = notification.method() == "notifications/progress";
        {
            let asked = self.control.asked();
            let mut heard = self.heard();
            (heard.at, heard.asked) = (Instant::now(), asked);
            let progress =
                notification.field_json("progress").and_then(|json| std::str::from_utf8(json).ok());
            heard.progress = progress.and_then(|text| text.parse().ok()).unwrap_or(heard.progress);
        }
        if !(is_progress && self.is_ours) {
            self.inner.notify(connection, notification);
        }
    }

    fn ask(&self, connection: &Arc<Connection>, question: Message, _open: Option<Question>) {
        let open = self.inner.can_be_asked().then(|| self.control.question());
        self.inner.ask(connection, question, open);
    }

    fn say(&self, notification: Message) {
        self.inner.say(notification);
    }

    fn can_be_asked(&self) -> bool {
        self.inner.can_be_asked()
    }

    fn pause(&self) {
        self.inner.pause();
    }

    fn is_one_client(&self) -> bool {
        self.inner.is_one_client()
    }

    fn is_open(&self) -> bool {
        self.inner.is_open()
    }
}
