//! Streams events to operators as they happen: first the recorded ones, then each new event.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::unfold;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either, StreamBody};
use hyper::body::Frame;
use seawall::quote;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::AdminServer;
use super::path::QueryString;
use super::respond::{self, AdminResponse};
use crate::admin::telemetry::date::iso;
use crate::admin::telemetry::ring::{EventKind, RecordedEvent, RingReader};
use crate::admin::telemetry::tell;
use crate::protocol::{limits, sse};

/// Begins an event stream.
pub(super) fn stream(admin: &Arc<AdminServer>, request: &Parts) -> AdminResponse {
    let reading = match EventReader::begin(admin, request) {
        Ok(reading) => reading,
        Err(wrong) => return *wrong,
    };
    let frames = unfold(reading, |mut reading| async move {
        let bytes = reading.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), reading))
    });
    let mut answer =
        Response::new(Either::Right(UnsyncBoxBody::new(StreamBody::new(frames).boxed_unsync())));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    answer
}

/// One reader of the event stream.
struct EventReader {
    admin: Arc<AdminServer>,
    reader: RingReader,
    wanted: EventFilter,
    /// Recorded events that were not sent yet.
    first: VecDeque<Bytes>,
    _place: OwnedSemaphorePermit,
}

/// The events that a reader wants.
struct EventFilter {
    tool: Option<String>,
    class: Option<String>,
}

impl EventFilter {
    /// Whether an event passes the filter. Classes match in any case; a gap of missed events
    /// concerns every reader.
    fn is(&self, told: &Value) -> bool {
        let is_tool = self.tool.as_ref().is_none_or(|tool| told["tool"] == **tool);
        let is_class = |class: &String| {
            told["class"].as_str().is_some_and(|told| told.eq_ignore_ascii_case(class))
        };
        told["event"] == "missed" || (is_tool && self.class.as_ref().is_none_or(is_class))
    }
}

impl EventReader {
    fn begin(admin: &Arc<AdminServer>, request: &Parts) -> Result<Self, Box<AdminResponse>> {
        let query = QueryString::read(&request.uri, &["tool", "class", "last"])?;
        let last = query.number("last", limits::EVENTS)?;
        let text = |name| query.get(name).map(str::to_owned);
        let wanted = EventFilter { tool: text("tool"), class: text("class") };
        let full = |_| {
            let why = format!("{} others read along already", limits::EVENT_READERS);
            Box::new(respond::error(StatusCode::SERVICE_UNAVAILABLE, &why))
        };
        let place = Arc::clone(&admin.readers).try_acquire_owned().map_err(full)?;
        let came_back =
            request.headers.get("last-event-id").and_then(|id| admin.number(id.to_str().ok()?));
        let reader = admin.telemetry.ring.reader(came_back);
        let mut reading = Self {
            admin: Arc::clone(admin),
            reader,
            wanted,
            first: VecDeque::new(),
            _place: place,
        };
        if came_back.is_none() {
            while let Some(told) = reading.reader.take(&admin.telemetry.ring) {
                reading.first.extend(reading.event(&told));
            }
            reading.first.drain(..reading.first.len().saturating_sub(last));
        }
        Ok(reading)
    }

    /// The next piece of the stream; `None` when the gateway shuts down.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.pop_front() {
            return Some(first);
        }
        let admin = Arc::clone(&self.admin);
        // One deadline for the loop: events that the filter drops do not postpone the keep-alive.
        let alive = Instant::now() + limits::KEEP_ALIVE;
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(alive) => return Some(Bytes::from_static(sse::COMMENT)),
                told = self.reader.next(&admin.telemetry.ring) => match self.event(&told?) {
                    Some(event) => return Some(event),
                    None => continue,
                },
                () = admin.gateway.lifecycle.closing.cancelled() => return None,
            }
        }
    }

    /// An event as the stream sends it, if the filter wants it.
    fn event(&self, RecordedEvent { number, at, what }: &RecordedEvent) -> Option<Bytes> {
        let told = match what {
            EventKind::Event(event) => tell::told(event, &self.admin.gateway.all().policies)?,
            EventKind::Shown(told) => told.clone(),
        };
        let mut told = Value::Object(told);
        if !self.wanted.is(&told) {
            return None;
        }
        if let Some(error) = told["error"].as_str() {
            let server = told["server"].as_str().and_then(|name| self.admin.gateway.server(name));
            told["error"] =
                json!(server.map_or_else(|| quote(error), |server| server.without_secrets(error)));
        }
        let id = format!("{}-{number}", self.admin.life);
        told["id"] = json!(id);
        told["time"] = json!(iso(*at));
        Some(sse::event(Some(&id), &told.to_string().into()))
    }
}

impl AdminServer {
    /// The number in an event id of this run of the gateway.
    fn number(&self, id: &str) -> Option<u64> {
        let (life, number) = id.split_once('-')?;
        number.parse().ok().filter(|_| life == self.life)
    }
}
