//! Decides when a silent server is given up and another connection replaces this one.
//!
//! A call that its caller has given up, and since whose sending the server has sent nothing at all,
//! makes the server suspect: the gateway pings it. Any message then, also an error, shows that the
//! server is alive. A server that handles one request at a time is silent while it works, so it is
//! not given up before the suspect call's deadline, nor while a call that was sent earlier still
//! waits for its answer.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::Connection;
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::limits;
use crate::protocol::names::{CLIENT_CAPABILITIES, Era, MODERN, PROTOCOL_VERSION};
use crate::upstream::{UpstreamFailure, seconds};

/// How often a suspect server is checked for calls that still protect it.
const LOOK: Duration = Duration::from_millis(250);

impl Connection {
    /// Notes that the server has sent something.
    pub fn hear(&self) {
        self.heard.store(self.millis(), Ordering::Relaxed);
    }

    /// Milliseconds since the connection began, and at least one: zero means never.
    pub(super) fn millis(&self) -> u64 {
        u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// The caller has given up waiting for the answer to `call`: starts a liveness check, unless
    /// one runs.
    pub(super) fn suspect(self: &Arc<Self>, call: SentRequest) {
        let may_be_hung = self.is_silent(&call) && self.info().is_some() && self.is_alive();
        if !may_be_hung || self.is_suspect.swap(true, Ordering::Relaxed) {
            return;
        }
        // Called from `Drop`, which can run after the runtime has ended.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (connection, over) = (Arc::downgrade(self), self.over.clone());
        runtime.spawn(async move {
            over.run_until_cancelled(examine(&connection, &call)).await;
            if let Some(connection) = connection.upgrade() {
                connection.is_suspect.store(false, Ordering::Relaxed);
            }
        });
    }

    /// Whether the server has sent nothing since `call` was sent.
    fn is_silent(&self, call: &SentRequest) -> bool {
        self.heard.load(Ordering::Relaxed) <= call.at
    }

    fn replace(&self, call: &SentRequest) {
        let silence = self.age().saturating_sub(Duration::from_millis(call.at));
        let text = format!(
            "it answered nothing for {} s, not even a ping, and is replaced",
            seconds(silence)
        );
        self.lose(UpstreamFailure::Lost(text));
    }

    /// Whether a call that was sent before request `number` still waits for its answer.
    fn is_busy_since_before(&self, number: u64) -> bool {
        self.open().pending.iter().any(|(other, pending)| *other < number && pending.is_work)
    }

    /// Sends the one request that every server can answer.
    async fn ping(self: &Arc<Self>) {
        let mut meta = JsonObject::default();
        meta.set(PROTOCOL_VERSION, quoted(MODERN)).set(CLIENT_CAPABILITIES, "{}");
        let mut params = JsonObject::default();
        params.set("_meta", meta.json());
        let _any_answer = match self.era() {
            Era::Legacy => self.ask("ping", b"{}").await,
            Era::Modern => self.ask("server/discover", &params.json()).await,
        };
    }
}

/// A request that the server may be working on.
#[derive(Clone, Debug)]
pub(super) struct SentRequest {
    pub(super) number: u64,
    /// When the request was sent, in milliseconds since the connection began.
    pub(super) at: u64,
    /// The deadline of the call.
    pub(super) ends: Instant,
}

/// Pings a server twice; gives it up if it stays silent and no other call can be keeping it busy.
/// Holds the connection only during a ping: a connection without other holders must be dropped.
async fn examine(connection: &Weak<Connection>, call: &SentRequest) {
    for _ in 0..2 {
        let pinged = Instant::now();
        let Some(asked) = connection.upgrade() else { return };
        let _any_answer = tokio::time::timeout(limits::PING, asked.ping()).await;
        if !asked.is_silent(call) {
            return;
        }
        drop(asked);
        // A ping that failed at once, or could not be written, gives the server its full time as
        // well.
        tokio::time::sleep_until(pinged + limits::PING).await;
    }
    loop {
        let Some(connection) = connection.upgrade() else { return };
        if !connection.is_silent(call) {
            return;
        }
        if Instant::now() >= call.ends && !connection.is_busy_since_before(call.number) {
            return connection.replace(call);
        }
        drop(connection);
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::protocol::server_info::ServerInfo;
    use crate::protocol::{Id, Message, build};
    use crate::upstream::Wire;
    use crate::upstream::call::{GatewayCall, NoClient};
    use crate::upstream::pipe::{PipeMessage, PipeWriter};

    fn connection() -> (Arc<Connection>, PipeMessage) {
        let (pipe, outgoing) = PipeWriter::new();
        let connection =
            Connection::new("it", Wire::Pipe(pipe), Arc::new(NoClient), CancellationToken::new());
        let info =
            ServerInfo { era: Era::Legacy, version: "2025-11-25".to_owned(), result: "{}".into() };
        assert!(connection.info.set(info).is_ok());
        (connection, outgoing)
    }

    /// A call with a timeout of `limit` seconds.
    async fn call(connection: &Arc<Connection>, limit: u64) {
        let request = build::request(&Id::number(1), "tools/call", br#"{"name":"x"}"#);
        let ends = Some(Instant::now() + Duration::from_secs(limit));
        let call = GatewayCall {
            ends,
            ..GatewayCall::new(Message::parse(request).unwrap(), Arc::new(NoClient))
        };
        let _answer =
            tokio::time::timeout(Duration::from_secs(limit), connection.request(&call)).await;
    }

    async fn lasts(connection: &Connection) -> Option<u64> {
        let began = Instant::now();
        let ended =
            tokio::time::timeout(Duration::from_secs(600), connection.ended.cancelled()).await;
        ended.ok().map(|()| began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_nothing_is_given_up_ten_seconds_after_its_call() {
        let (connection, mut outgoing) = connection();
        call(&connection, 60).await;
        assert_eq!(lasts(&connection).await, Some(10));
        let mut sent = Vec::new();
        while let Ok(message) = outgoing.try_recv() {
            sent.push(Message::parse(message).unwrap().method().to_owned());
        }
        assert_eq!(sent.iter().filter(|method| *method == "ping").count(), 2, "{sent:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_is_heard_clears_it() {
        for answer in [
            r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","method":"x/y"}"#,
        ] {
            let (connection, _outgoing) = connection();
            call(&connection, 60).await;
            tokio::time::sleep(Duration::from_secs(8)).await;
            connection.receive(Message::parse(answer.into()).unwrap(), None);
            assert_eq!(lasts(&connection).await, None, "{answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_may_be_busy_with_an_earlier_call_is_waited_for() {
        let (connection, _outgoing) = connection();
        let (long, short) = (call(&connection, 120), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            call(&connection, 5).await;
            call(&connection, 600).await;
        });
        let ended = async {
            let lasted = lasts(&connection).await;
            assert_eq!(
                lasted,
                Some(120),
                "as long as the first call may take, and no later call keeps it"
            );
        };
        tokio::join!(long, short, ended);
    }

    #[tokio::test(start_paused = true)]
    async fn one_whose_client_left_early_has_all_the_time_of_its_call() {
        let (connection, _outgoing) = connection();
        let _left = tokio::time::timeout(Duration::from_secs(5), call(&connection, 60)).await;
        assert_eq!(lasts(&connection).await, Some(55));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_heard_since_is_not_even_asked() {
        let (connection, mut outgoing) = connection();
        let heard = async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            connection.hear();
        };
        tokio::join!(call(&connection, 60), heard);
        assert_eq!(lasts(&connection).await, None);
        while let Ok(message) = outgoing.try_recv() {
            assert_ne!(Message::parse(message).unwrap().method(), "ping");
        }
    }
}
