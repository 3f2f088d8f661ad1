//! Decides when Redis counts as away: when it cannot be reached, and when it does not answer.
//!
//! A command that gets no answer in time makes the link suspect: every further one fails at once
//! until Redis has answered a ping. So Redis that hangs costs one call its wait, and not each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisError, Value};
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::{Instant, sleep, timeout};

use super::{RedisMessage, RedisTrouble};
use crate::runtime::log;

/// How long a connection may take, greeting and subscriptions included.
const CONNECT: Duration = Duration::from_secs(2);
/// How often an idle connection is asked whether it lives.
const PING: Duration = Duration::from_secs(1);
/// The pause before the second try to connect, which doubles up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Messages that wait for a reader; one that is slower reads the keys.
const MESSAGES: usize = 256;
/// Commands that wait for their answers at a time; further ones wait for a place.
const IN_FLIGHT: usize = 256;

/// Whether there is a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedisState {
    /// It was not reached yet, or no more.
    Away {
        /// Since when.
        since: Instant,
        /// What went wrong last; empty before the first try.
        why: String,
    },
    /// It answers.
    Connected {
        /// Since when.
        since: Instant,
    },
}

impl RedisState {
    /// Whether it answers.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self, Self::Connected { .. })
    }
}

/// The connection, and what is known of it.
pub(super) struct Link {
    client: Client,
    channels: Vec<String>,
    connection: RwLock<Option<MultiplexedConnection>>,
    state: watch::Sender<RedisState>,
    messages: broadcast::Sender<RedisMessage>,
    is_suspect: AtomicBool,
    doubt: Notify,
}

impl Link {
    pub(super) fn new(client: Client, channels: Vec<String>) -> Self {
        let away = RedisState::Away { since: Instant::now(), why: String::new() };
        Self {
            client,
            channels,
            connection: RwLock::new(None),
            state: watch::Sender::new(away),
            messages: broadcast::Sender::new(MESSAGES),
            is_suspect: AtomicBool::new(false),
            doubt: Notify::new(),
        }
    }

    pub(super) fn state(&self) -> watch::Receiver<RedisState> {
        self.state.subscribe()
    }

    pub(super) fn messages(&self) -> broadcast::Receiver<RedisMessage> {
        self.messages.subscribe()
    }

    /// Runs commands on the connection, at most for `within`.
    pub(super) async fn run<T, F>(
        &self,
        within: Duration,
        work: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, RedisTrouble>
    where
        F: Future<Output = Result<T, RedisError>>,
    {
        if self.is_suspect.load(Ordering::Acquire) {
            return Err(RedisTrouble::Away);
        }
        let connection = self.connection.read().unwrap_or_else(PoisonError::into_inner).clone();
        let connection = connection.ok_or(RedisTrouble::Away)?;
        let ended = match timeout(within, work(connection)).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) if is_of_command(&error) => {
                return Err(RedisTrouble::Failed(error.to_string()));
            }
            Ok(Err(error)) => RedisTrouble::Failed(error.to_string()),
            Err(_) => RedisTrouble::Late,
        };
        self.is_suspect.store(true, Ordering::Release);
        self.doubt.notify_one();
        Err(ended)
    }

    /// Keeps the connection for as long as it is polled.
    pub(super) async fn keep(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            match timeout(CONNECT, self.connect()).await {
                Ok(Ok(connection)) => {
                    pause = FIRST_PAUSE;
                    self.is_suspect.store(false, Ordering::Release);
                    self.put(Some(connection.clone()));
                    self.tell(None);
                    let why = self.watch(connection).await;
                    self.put(None);
                    self.tell(Some(why));
                }
                Ok(Err(error)) => self.tell(Some(error.to_string())),
                Err(_) => self.tell(Some(format!("no connection within {CONNECT:?}"))),
            }
            // Replicas that lost Redis together do not come back together.
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let messages = self.messages.clone();
        let hear = move |push: PushInfo| -> Result<(), ()> {
            // Without a reader a message is dropped.
            let _heard = message(push).map(|message| messages.send(message));
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            // Every command has its own time.
            .set_response_timeout(None)
            .set_concurrency_limit(IN_FLIGHT)
            .set_push_sender(hear);
        let mut connection =
            self.client.get_multiplexed_async_connection_with_config(&config).await?;
        for channel in &self.channels {
            connection.subscribe(channel).await?;
        }
        Ok(connection)
    }

    /// Asks now and then whether Redis lives, and at once when somebody doubts it; returns why it
    /// counts as away.
    async fn watch(&self, mut connection: MultiplexedConnection) -> String {
        loop {
            let _whichever = timeout(PING, self.doubt.notified()).await;
            let ping = ::redis::cmd("PING");
            match timeout(PING, ping.query_async::<Value>(&mut connection)).await {
                Ok(Ok(_)) => self.is_suspect.store(false, Ordering::Release),
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return format!("no answer within {PING:?}"),
            }
        }
    }

    fn put(&self, connection: Option<MultiplexedConnection>) {
        *self.connection.write().unwrap_or_else(PoisonError::into_inner) = connection;
    }

    /// Notes that it is away for a reason, or connected; the log gets one line for each change.
    fn tell(&self, away: Option<String>) {
        let since = Instant::now();
        self.state.send_if_modified(|state| match (away, state) {
            (None, state) => {
                log::line("Redis is connected");
                *state = RedisState::Connected { since };
                true
            }
            (Some(new), RedisState::Away { why, .. }) if !why.is_empty() => {
                *why = new;
                false
            }
            (Some(why), state) => {
                log::warn(&format!(
                    "Redis is away ({why}): this replica goes by what it knows itself until Redis is back"
                ));
                *state = RedisState::Away { since, why };
                true
            }
        });
    }
}

/// Whether Redis refused the command itself: the connection is as good as before.
fn is_of_command(error: &RedisError) -> bool {
    !(error.is_io_error() || error.is_connection_dropped() || error.is_timeout())
}

fn message(push: PushInfo) -> Option<RedisMessage> {
    let PushInfo { kind: PushKind::Message, data } = push else { return None };
    let mut data = data.into_iter();
    match (data.next()?, data.next()?) {
        (Value::BulkString(channel), Value::BulkString(value)) => {
            Some(RedisMessage { channel: String::from_utf8(channel).ok()?, value })
        }
        _ => None,
    }
}
