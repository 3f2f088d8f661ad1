//! Decides the fate of a call whose legacy server asks a modern client something: the call is
//! parked until the client brings the answer.
//!
//! The client gets `input_required` with a random state that only it knows; the request that brings
//! this state back continues the parked call. A call whose client does not come back is cancelled.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use seawall::Question;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::pool::PoolTurn;
use crate::protocol::edit::{JsonObject, splice};
use crate::protocol::names::{CLIENT_CAPABILITIES, LOG_LEVEL};
use crate::protocol::{Message, limits};
use crate::runtime::random::secret;
use crate::upstream::call::{CallCancel, ClientSink, GatewayCall};
use crate::upstream::{Connection, UpstreamFailure};

/// How soon further questions must follow the first to be asked together with it.
const TOGETHER: Duration = Duration::from_millis(20);

/// An event of a call whose server may ask questions.
#[derive(Debug)]
pub(crate) enum CallNews {
    /// The server asks.
    Asked(Message),
    /// The server answers.
    Answered(Result<Message, UpstreamFailure>),
}

/// The next step of a call.
#[derive(Debug)]
pub(crate) enum CallStep {
    /// The call is over.
    Answered(Result<Message, UpstreamFailure>),
    /// The client has questions to answer.
    Asking,
}

/// A call that runs on its own while its client comes and goes.
pub(crate) struct ParkedCall {
    /// The call's connection.
    connection: Arc<Connection>,
    /// The exclusive right to use the connection.
    _turn: PoolTurn,
    /// Cancels the request that began the call.
    pub cancel: Arc<CallCancel>,
    /// Unanswered questions, by the keys under which the client knows them.
    pub questions: Vec<(String, Message)>,
    sink: Arc<CurrentClient>,
    news: mpsc::Receiver<CallNews>,
    task: JoinHandle<()>,
    until: Instant,
}

impl ParkedCall {
    /// Starts a call; `stated` is the request as the client wrote it.
    pub(crate) fn start(
        connection: Arc<Connection>,
        turn: PoolTurn,
        stated: &Message,
        call: GatewayCall,
    ) -> Self {
        let (tell, news) = mpsc::channel(limits::INPUT_ROUNDS);
        let capabilities =
            JsonObject::of(stated.meta_json(CLIENT_CAPABILITIES).unwrap_or_default());
        let sink = Arc::new(CurrentClient {
            tell: tell.clone(),
            declared: capabilities.names().map(|name| name.into_owned()).collect(),
            undeclared: OnceLock::new(),
            wants_logs: stated.meta(LOG_LEVEL).is_some(),
            waiting: Mutex::new(None),
        });
        let (own, over, cancel) =
            (Arc::clone(&connection), Arc::clone(&sink), Arc::clone(&call.cancel));
        let task = tokio::spawn(async move {
            let call = GatewayCall { sink: over, ..call };
            let answer = own.request(&call).await;
            let _gone = tell.send(CallNews::Answered(answer)).await;
        });
        let until = Instant::now() + limits::PARK_TIME;
        Self { connection, _turn: turn, cancel, questions: Vec::new(), sink, news, task, until }
    }

    /// Waits for the call's next step; meanwhile the server's messages go to the client of this
    /// `call`.
    pub(crate) async fn next(&mut self, call: &GatewayCall) -> CallStep {
        self.sink.serve(Some(call));
        let step = self.step().await;
        // The client's request is answered now: until the client comes back, progress has no
        // receiver.
        self.sink.serve(None);
        step
    }

    async fn step(&mut self) -> CallStep {
        if self.is_asking() {
            return CallStep::Asking;
        }
        let mut news = self.news.recv().await;
        while let Some(CallNews::Asked(question)) = news {
            self.ask(question);
            match tokio::time::timeout(TOGETHER, self.news.recv()).await {
                Ok(more) => news = more,
                Err(_) => return CallStep::Asking,
            }
        }
        // The call ended without the answers, so the server's open questions are refused.
        for (_, question) in self.questions.drain(..) {
            self.connection.refuse(&question, "the call it was asked for is over");
        }
        match news {
            Some(CallNews::Answered(answer)) => CallStep::Answered(answer),
            Some(CallNews::Asked(_)) | None => {
                CallStep::Answered(Err(UpstreamFailure::Lost("the conversation ended".to_owned())))
            }
        }
    }

    /// A capability that the server asked for and the client has not declared.
    pub(crate) fn undeclared(&self) -> Option<&str> {
        self.sink.undeclared.get().map(String::as_str)
    }

    /// Whether the client has questions to answer.
    fn is_asking(&self) -> bool {
        !self.questions.is_empty()
    }

    fn ask(&mut self, question: Message) {
        let key = key(&question, self.questions.len());
        self.questions.push((key, question));
    }

    /// Sends the client's answers to the server; questions without an answer stay open.
    pub(crate) async fn answer(&mut self, responses: &[u8]) {
        let responses = JsonObject::of(responses);
        let mut open = Vec::new();
        for (key, question) in std::mem::take(&mut self.questions) {
            match (responses.get(&key), question.id()) {
                (Some(result), Some(id)) if result.first() == Some(&b'{') => {
                    self.connection.tell(crate::protocol::build::result(id, result)).await;
                }
                _ => open.push((key, question)),
            }
        }
        self.questions = open;
    }
}

impl Drop for ParkedCall {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A readable key for a question: the only property it asks for, or its kind.
fn key(question: &Message, others: usize) -> String {
    let kind = question.method().split('/').next().unwrap_or_default().to_owned();
    let schema = question.field_json("requestedSchema").map(JsonObject::of).unwrap_or_default();
    let properties = schema.get("properties").map(JsonObject::of).unwrap_or_default();
    let mut names = properties.names();
    let only = names.next().filter(|_| names.next().is_none()).map(|name| name.into_owned());
    match (only, others) {
        (Some(name), 0) => name,
        (_, 0) => kind,
        (_, others) => format!("{kind}_{}", others + 1),
    }
}

/// A sink to the client that waits for the call at the moment, if any does.
struct CurrentClient {
    tell: mpsc::Sender<CallNews>,
    declared: Vec<String>,
    /// The undeclared capability that the server asked for all the same.
    undeclared: OnceLock<String>,
    wants_logs: bool,
    waiting: Mutex<Option<CurrentSink>>,
}

/// The sink to the client, and the client's progress token.
type CurrentSink = (Arc<dyn ClientSink>, Option<Bytes>);

impl CurrentClient {
    fn serve(&self, call: Option<&GatewayCall>) {
        let token = |call: &GatewayCall| {
            call.request.meta("progressToken").map(|span| call.request.slice(span))
        };
        let waiting = call.map(|call| (Arc::clone(&call.sink), token(call)));
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
    }
}

impl ClientSink for CurrentClient {
    fn notify(&self, connection: &Arc<Connection>, notification: Message) {
        if notification.method() == "notifications/message" && !self.wants_logs {
            return;
        }
        // Cloned under the lock, used after it: the sink takes locks of its own.
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((sink, token)) = waiting else { return };
        match (notification.field("progressToken"), token) {
            (None, _) => sink.notify(connection, notification),
            // Each request of the client has its own progress token, and the server knows only the
            // first.
            (Some(span), Some(token)) => {
                if let Ok(renamed) =
                    Message::parse(splice(notification.raw(), &mut [(span, &token)]))
                {
                    sink.notify(connection, renamed);
                }
            }
            (Some(_), None) => {}
        }
    }

    fn ask(&self, connection: &Arc<Connection>, question: Message, _open: Option<Question>) {
        let is_known = matches!(
            question.method(),
            "elicitation/create" | "sampling/createMessage" | "roots/list"
        );
        if !is_known {
            return connection
                .refuse(&question, "a client of this protocol revision cannot be asked that");
        }
        let capability = question.method().split('/').next().unwrap_or_default();
        // The question is refused and the call goes on: the server decides whether it can do
        // without the capability, as if it spoke to the client directly, for it may have acted
        // already.
        if !self.declared.iter().any(|declared| declared == capability) {
            let _first = self.undeclared.set(capability.to_owned());
            return connection.refuse(&question, "the client has not declared this capability");
        }
        // `try_send`: this runs on the connection's read loop, which must not wait for a slow
        // client.
        if self.tell.try_send(CallNews::Asked(question.clone())).is_err() {
            connection.refuse(&question, "the client has too many questions to answer already");
        }
    }

    fn can_be_asked(&self) -> bool {
        true
    }

    fn is_open(&self) -> bool {
        true
    }
}

/// The parked calls, by the state that their clients hold.
#[derive(Default)]
pub(crate) struct ParkedCalls {
    waiting: Mutex<(HashMap<String, ParkedCall>, VecDeque<String>)>,
}

impl ParkedCalls {
    fn waiting(&self) -> MutexGuard<'_, (HashMap<String, ParkedCall>, VecDeque<String>)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks a call; returns the state to come back with. The oldest call gives way when too many
    /// wait.
    pub(crate) fn hold(&self, mut running: ParkedCall) -> String {
        let state = secret();
        let now = Instant::now();
        running.until = now + limits::PARK_TIME;
        let mut waiting = self.waiting();
        let (calls, order) = &mut *waiting;
        while let Some(oldest) = order.front() {
            let is_over = calls.get(oldest).is_none_or(|call| call.until <= now);
            if !is_over && calls.len() < limits::PARKED {
                break;
            }
            calls.remove(oldest);
            order.pop_front();
        }
        calls.insert(state.clone(), running);
        order.push_back(state.clone());
        state
    }

    /// Takes the call with this state; a state works once.
    pub(crate) fn take(&self, state: &str) -> Option<ParkedCall> {
        let mut waiting = self.waiting();
        let (calls, order) = &mut *waiting;
        let call = calls.remove(state)?;
        order.retain(|known| known != state);
        Some(call).filter(|call| call.until > Instant::now())
    }

    /// Cancels all parked calls.
    pub(crate) fn close(&self) {
        *self.waiting() = Default::default();
    }
}
