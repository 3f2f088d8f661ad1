//! Adds faults to the calls of a server whose configuration asks for it, as if the server failed.
//!
//! A call that meets a fault is not sent. What is told of it stays true: that it may have been
//! executed says less than is known, and is never wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seawall::Rng;

use super::{Connection, UpstreamFailure};
use crate::config::ChaosConfig;
use crate::upstream::call::GatewayCall;

/// The faults, by the name that metrics have for each.
const FAULTS: [&str; 3] = ["error", "hang", "crash"];

/// The faults of one server.
#[derive(Debug)]
pub(crate) struct ServerChaos {
    config: ChaosConfig,
    rng: Rng,
    struck: [AtomicU64; FAULTS.len()],
}

impl ServerChaos {
    pub(super) fn new(config: ChaosConfig) -> Self {
        Self { config, rng: Rng::seeded(config.seed.into()), struck: Default::default() }
    }

    /// What is added, in words.
    pub(crate) fn told(&self) -> String {
        self.config.told()
    }

    /// How many calls each fault has struck so far.
    pub(crate) fn struck(&self) -> [(&'static str, u64); FAULTS.len()] {
        let mut struck = FAULTS.map(|name| (name, 0));
        for ((_, count), now) in struck.iter_mut().zip(&self.struck) {
            *count = now.load(Ordering::Relaxed);
        }
        struck
    }

    /// Delays a call of a tool, and lets it fail if its turn has come. It was not sent yet.
    pub(crate) async fn strike(
        &self,
        connection: &Arc<Connection>,
        call: &GatewayCall,
    ) -> Result<(), UpstreamFailure> {
        if call.request.method() != "tools/call" {
            return Ok(());
        }
        // Drawn before the delay: calls meet their faults in the order in which they come.
        let fault = self.draw();
        tokio::select! {
            () = tokio::time::sleep(self.config.latency) => {}
            () = call.cancel.cancelled() => return Err(UpstreamFailure::NotAsked),
        }
        let Some(fault) = fault else { return Ok(()) };
        if let Some(count) = self.struck.get(fault) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let why = || "chaos in the configuration of its server".to_owned();
        match FAULTS.get(fault) {
            Some(&"error") => Err(UpstreamFailure::Status {
                status: 503,
                text: format!("Service Unavailable ({})", why()),
                retry_after: None,
            }),
            Some(&"hang") => Err(hang(connection, call).await),
            _ => {
                // Ends for all its calls, as a crash does.
                connection.lose(UpstreamFailure::Lost(why()));
                Err(UpstreamFailure::Lost(why()))
            }
        }
    }

    fn draw(&self) -> Option<usize> {
        let mut left = self.rng.unit();
        [self.config.error_rate, self.config.hang_rate, self.config.crash_rate].iter().position(
            |rate| {
                left -= rate;
                left < 0.0
            },
        )
    }
}

/// Waits until the connection ends or nobody waits any more; a timeout of the call drops this.
async fn hang(connection: &Connection, call: &GatewayCall) -> UpstreamFailure {
    tokio::select! {
        () = call.cancel.cancelled() => UpstreamFailure::Cancelled,
        () = connection.ended.cancelled() => {
            UpstreamFailure::Lost("the conversation ended".to_owned())
        }
    }
}
