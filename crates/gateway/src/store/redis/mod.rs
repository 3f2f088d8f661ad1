//! Decides how the gateway speaks to the Redis that replicas share: which keys there are, and that
//! nobody waits for an answer longer than they said.
//!
//! A command fails at once while Redis is away, and nothing is ever repeated here: the caller knows
//! what to do without Redis. `link` keeps the one connection; `seal` signs values.

mod link;
mod seal;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Client, Cmd, FromRedisValue, IntoConnectionInfo, ProtocolVersion};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use self::link::Link;
pub(crate) use self::link::RedisState;
use self::seal::Seal;
use crate::config::RedisConfig;

/// The version of the keys and values: a gateway never reads those of another version.
const VERSION: &str = "v1";
/// The longest that anything a call waits for may take.
pub(crate) const CALL_WAIT: Duration = Duration::from_millis(50);
/// The longest that work beside the calls waits for an answer.
pub(crate) const TASK_WAIT: Duration = Duration::from_secs(1);

/// Why a command has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RedisTrouble {
    /// There is no connection; nothing was sent.
    #[error("Redis is away")]
    Away,
    /// No answer came in time; the command may have been executed.
    #[error("Redis did not answer in time")]
    Late,
    /// The connection ended, or Redis refused the command.
    #[error("Redis: {0}")]
    Failed(String),
}

/// A script that Redis runs as one step.
pub(crate) struct RedisScript(::redis::Script);

impl RedisScript {
    /// A script from its text.
    pub(crate) fn new(text: &str) -> Self {
        Self(::redis::Script::new(text))
    }
}

/// What was published on a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedisMessage {
    /// The channel.
    pub channel: String,
    /// The sealed value.
    pub value: Vec<u8>,
}

/// One connection to Redis, with the keys of one fleet.
pub(crate) struct Redis {
    link: Arc<Link>,
    seal: Seal,
    prefix: String,
    wait_replicas: u32,
}

impl Redis {
    /// A handle that has no connection yet; `channels` are those that it will hear, by the last
    /// part of their names.
    pub(crate) fn new(config: &RedisConfig, channels: &[&str]) -> Result<Self, String> {
        let prefix = format!("{}:{VERSION}", config.prefix);
        let named = channels.iter().map(|channel| format!("{prefix}:{channel}")).collect();
        let info = config.url.expose().into_connection_info();
        let info = info.map_err(|error| error.to_string())?;
        // The third version of the protocol brings messages on the connection of the commands.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings));
        let client = client.map_err(|error| error.to_string())?;
        Ok(Self {
            link: Arc::new(Link::new(client, named)),
            seal: Seal::new(config.key.expose()),
            prefix,
            wait_replicas: config.wait_replicas,
        })
    }

    /// Connects, and connects again whenever the connection ends, until `stop`.
    pub(crate) fn keep(&self, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        let link = Arc::clone(&self.link);
        async move {
            stop.run_until_cancelled(link.keep()).await;
        }
    }

    /// Whether there is a connection, and since when; changes are seen by the receiver.
    pub(crate) fn state(&self) -> watch::Receiver<RedisState> {
        self.link.state()
    }

    /// What is published on the channels from now on. Messages can be lost: whoever counts on them
    /// reads the keys too, now and then.
    pub(crate) fn messages(&self) -> broadcast::Receiver<RedisMessage> {
        self.link.messages()
    }

    /// The whole name of a key or a channel.
    pub(crate) fn key(&self, parts: &[&str]) -> String {
        let mut key = self.prefix.clone();
        for part in parts {
            key.push(':');
            key.push_str(part);
        }
        key
    }

    /// The value with a signature that counts for this key only.
    pub(crate) fn seal(&self, key: &str, value: &[u8]) -> Vec<u8> {
        self.seal.close(key, value)
    }

    /// The value of a sealed one; `None`: nobody of this fleet wrote it under this key.
    pub(crate) fn unseal<'a>(&self, key: &str, sealed: &'a [u8]) -> Option<&'a [u8]> {
        self.seal.open(key, sealed)
    }

    /// Runs a script.
    pub(crate) async fn eval<T: FromRedisValue>(
        &self,
        script: &RedisScript,
        keys: &[String],
        arguments: &[&[u8]],
        within: Duration,
    ) -> Result<T, RedisTrouble> {
        let mut invocation = script.0.prepare_invoke();
        keys.iter().for_each(|key| {
            invocation.key(key);
        });
        arguments.iter().for_each(|argument| {
            invocation.arg(*argument);
        });
        self.link
            .run(within, async |mut connection| invocation.invoke_async(&mut connection).await)
            .await
    }

    /// Runs one command.
    pub(crate) async fn command<T: FromRedisValue>(
        &self,
        command: &Cmd,
        within: Duration,
    ) -> Result<T, RedisTrouble> {
        self.link
            .run(within, async |mut connection| command.query_async(&mut connection).await)
            .await
    }

    /// The value of a key that this fleet wrote.
    #[cfg(test)]
    pub(crate) async fn get(
        &self,
        key: &str,
        within: Duration,
    ) -> Result<Option<Vec<u8>>, RedisTrouble> {
        let mut get = ::redis::cmd("GET");
        get.arg(key);
        let sealed: Option<Vec<u8>> = self.command(&get, within).await?;
        Ok(sealed.and_then(|sealed| self.unseal(key, &sealed).map(<[u8]>::to_vec)))
    }

    /// Writes a value that lasts for `ttl`.
    #[cfg(test)]
    pub(crate) async fn set(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
        within: Duration,
    ) -> Result<(), RedisTrouble> {
        let mut set = ::redis::cmd("SET");
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        set.arg(key).arg(self.seal(key, value)).arg("PX").arg(millis);
        self.command(&set, within).await
    }

    /// Publishes a value to all replicas that hear the channel, this one too.
    pub(crate) async fn publish(
        &self,
        channel: &str,
        value: &[u8],
        within: Duration,
    ) -> Result<(), RedisTrouble> {
        let channel = self.key(&[channel]);
        let mut publish = ::redis::cmd("PUBLISH");
        publish.arg(&channel).arg(self.seal(&channel, value));
        let _heard: i64 = self.command(&publish, within).await?;
        Ok(())
    }

    /// Waits until the configured number of Redis's replicas has what this connection wrote; false:
    /// they had not within the time. It holds up every other command of this connection, so who
    /// needs it has a handle of its own.
    pub(crate) async fn is_replicated(&self, within: Duration) -> Result<bool, RedisTrouble> {
        if self.wait_replicas == 0 {
            return Ok(true);
        }
        let mut wait = ::redis::cmd("WAIT");
        let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX).max(1);
        wait.arg(self.wait_replicas).arg(millis);
        let have: u32 = self.command(&wait, within + CALL_WAIT).await?;
        Ok(have >= self.wait_replicas)
    }
}
