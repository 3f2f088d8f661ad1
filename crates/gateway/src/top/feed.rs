//! Decides when the gateway is asked, and what becomes of a gateway that is away: it is asked again
//! every second, and its events are followed anew.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::told::Told;
use crate::protocol::limits;
use crate::protocol::sse::SseDecoder;
use crate::remote::client::{AdminClient, RemoteError, encoded};
use crate::remote::show;
use crate::runtime::clock;

/// How often the gateway is asked.
const EVERY: Duration = Duration::from_secs(1);
/// After a refusal of the token: the gateway slows down whoever guesses.
const REFUSED: Duration = Duration::from_secs(10);
/// Messages that wait to be shown.
const WAITING: usize = 256;
/// Events from before that are shown.
const BEFORE: usize = 100;

const NO_QUEUE: &str = "this gateway has no queue; [store] in its configuration gives it one";

/// One thing that the gateway tells.
#[derive(Debug)]
pub(super) enum News {
    /// Its state.
    Told(Box<Told>),
    /// It has no useful answer, and why.
    Lost(String),
    /// Something happened: the line, and the tool or server that it is about.
    Event(String, String),
    /// A change was made, or not: what came of it.
    Changed(String),
}

/// One change that an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Closes the breaker of a tool.
    Reset(String),
    /// Holds the breaker of a tool `open` or `closed`, or lets it decide by itself (`auto`).
    Force(String, &'static str),
    /// Starts a server anew.
    Restart(String),
    /// Sends a queued write at once.
    Retry(String),
    /// Forgets a queued write.
    Drop(String),
}

impl Change {
    fn request(&self) -> (Method, String, String) {
        let (method, path, body) = match self {
            Self::Reset(tool) => (Method::POST, format!("breakers/{}/reset", encoded(tool)), None),
            Self::Force(tool, state) => {
                let path = format!("breakers/{}/force", encoded(tool));
                (Method::POST, path, Some(json!({ "state": state })))
            }
            Self::Restart(name) => {
                (Method::POST, format!("servers/{}/restart", encoded(name)), None)
            }
            Self::Retry(id) => {
                (Method::POST, format!("queue/{}/retry", encoded(id)), Some(json!({})))
            }
            Self::Drop(id) => (Method::DELETE, format!("queue/{}", encoded(id)), Some(json!({}))),
        };
        (
            method,
            format!("/resilience/{path}"),
            body.map_or_else(String::new, |body| body.to_string()),
        )
    }

    fn done(&self) -> String {
        match self {
            Self::Reset(tool) => format!("the breaker of {tool} was reset"),
            Self::Force(tool, "auto") => format!("the breaker of {tool} decides by itself again"),
            Self::Force(tool, state) => format!("the breaker of {tool} is held {state}"),
            Self::Restart(name) => format!("{name} is being restarted"),
            Self::Retry(id) => format!("{id} is sent as soon as its server is well"),
            Self::Drop(id) => format!("{id} is dropped"),
        }
    }
}

/// What the gateway tells, until this is dropped.
pub(super) struct Feed {
    client: Arc<AdminClient>,
    to: mpsc::Sender<News>,
    heard: mpsc::Receiver<News>,
    ended: CancellationToken,
    _ends_with_us: DropGuard,
}

impl Feed {
    pub(super) fn start(client: Arc<AdminClient>) -> Self {
        let (to, heard) = mpsc::channel(WAITING);
        let ended = CancellationToken::new();
        let feed =
            Self { client, to, heard, ended: ended.clone(), _ends_with_us: ended.drop_guard() };
        feed.spawn(state(Arc::clone(&feed.client), feed.to.clone()));
        feed.spawn(events(Arc::clone(&feed.client), feed.to.clone()));
        feed
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        tokio::spawn(async move { ended.run_until_cancelled(task).await });
    }

    pub(super) async fn next(&mut self) -> News {
        let heard = self.heard.recv().await;
        heard.unwrap_or_else(|| News::Lost("the feed has ended".to_owned()))
    }

    /// What has come already.
    pub(super) fn waiting(&mut self) -> Option<News> {
        self.heard.try_recv().ok()
    }

    /// Asks for a change, and for the state after it.
    pub(super) fn change(&self, change: Change) {
        let (client, to) = (Arc::clone(&self.client), self.to.clone());
        self.spawn(async move {
            let (method, path, body) = change.request();
            let text = match client.ask(method, &path, &body).await {
                Ok(_) => change.done(),
                Err(error) => format!("not done: {}", why(&error)),
            };
            let _gone = to.send(News::Changed(text)).await;
            if let Ok(told) = read(&client).await {
                let _gone = to.send(News::Told(Box::new(told))).await;
            }
        });
    }
}

fn why(error: &RemoteError) -> &str {
    match error {
        RemoteError::Unreachable(why) | RemoteError::Auth(why) | RemoteError::Refused(_, why) => {
            why
        }
    }
}

fn pause(error: &RemoteError) -> Duration {
    if matches!(error, RemoteError::Auth(_)) { REFUSED } else { EVERY }
}

async fn state(client: Arc<AdminClient>, to: mpsc::Sender<News>) {
    loop {
        let (heard, pause) = match read(&client).await {
            Ok(told) => (News::Told(Box::new(told)), EVERY),
            Err(error) => (News::Lost(why(&error).to_owned()), pause(&error)),
        };
        if to.send(heard).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

async fn read(client: &AdminClient) -> Result<Told, RemoteError> {
    let servers = client.get("/resilience/servers").await?;
    let breakers = client.get("/resilience/breakers").await?;
    let tools = client.get("/resilience/tools").await?;
    let path =
        format!("/resilience/queue?limit={}&state=waiting,delivering,dead", limits::QUEUE_PAGE);
    let queue = match client.get(&path).await {
        Err(RemoteError::Refused(StatusCode::NOT_FOUND, _)) => Err(NO_QUEUE.to_owned()),
        // A store that cannot be read now: everything else is known all the same.
        Err(RemoteError::Unreachable(why)) => Err(why),
        queue => Ok(queue?),
    };
    let queue = queue.as_ref().map_err(String::clone);
    Ok(Told::of(&servers, &breakers, &tools, queue, clock::now()))
}

/// Follows the events, and begins anew where they end.
async fn events(client: Arc<AdminClient>, to: mpsc::Sender<News>) {
    let mut last = BEFORE;
    loop {
        let followed = follow(&client, &to, last).await;
        // What happened before is known now. What happened while the gateway was away is not.
        last = if followed.is_ok() { 0 } else { last };
        if to.is_closed() {
            return;
        }
        tokio::time::sleep(followed.map_or_else(|error| pause(&error), |()| EVERY)).await;
    }
}

async fn follow(
    client: &AdminClient,
    to: &mpsc::Sender<News>,
    last: usize,
) -> Result<(), RemoteError> {
    let mut body = client.stream(&format!("/resilience/events?last={last}")).await?;
    let mut decoder = SseDecoder::new(limits::FROM_CLIENT);
    while let Some(Ok(frame)) = body.frame().await {
        decoder.push(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
        while let Ok(Some(event)) = decoder.event() {
            let Ok(Value::Object(told)) = serde_json::from_slice(&event.data) else { continue };
            let about = told.get("tool").or(told.get("server")).and_then(Value::as_str);
            let about = about.unwrap_or_default().to_owned();
            if to.send(News::Event(show::event(&told), about)).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
