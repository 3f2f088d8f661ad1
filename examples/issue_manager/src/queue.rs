//! Decides how a queued write reaches GitHub: through the gateway's durable queue, in order, one at a
//! time, once the breaker of its tool lets it pass.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use seawall::{Attempt, Call, Cause, Event, Failure, FailureSignals, Outcome, QueuedWrite, Sent};
use seawall_gateway::queue::{Delivery, QueueBounds, QueueStore, SendPermit, deliver};
use tokio_util::sync::CancellationToken;

use crate::server::Manager;
use crate::tools::{SERVER, wall_clock};
use crate::work;

/// How often a breaker is asked that names no time.
const LOOK: Duration = Duration::from_secs(1);

/// Opens the queue below a folder; an error names the folder.
pub(crate) fn open(folder: &Path) -> Result<QueueStore, String> {
    QueueStore::open(folder, QueueBounds::default(), wall_clock())
        .map_err(|error| format!("--store: {}: {error}", folder.display()))
}

/// Makes the queued writes until `stop`.
pub(crate) async fn run(manager: Arc<Manager>, store: QueueStore, stop: CancellationToken) {
    let env = manager.env.clone();
    deliver(&store, SERVER, &ToGitHub(manager), &env, &stop).await;
    store.close().await;
}

struct ToGitHub(Arc<Manager>);

impl Delivery for ToGitHub {
    type Turn = ();

    async fn ready(&self, tool: &str) {
        let Some(tool) = self.0.caller.pipeline().find(SERVER, tool) else { return };
        let Some(breaker) = tool.breaker() else { return };
        while let Err(refusal) = breaker.peek() {
            tokio::time::sleep(refusal.retry_after.clamp(Duration::from_millis(50), LOOK)).await;
        }
    }

    async fn back(&self) {
        let mut listener = self.0.env.events.subscribe();
        while let Some(event) = listener.next().await {
            if matches!(*event, Event::AttemptEnded { cause: None, .. }) {
                return;
            }
        }
        std::future::pending().await
    }

    async fn send(&self, write: QueuedWrite, leave: &SendPermit<'_>) -> Result<String, Failure> {
        let pipeline = self.0.caller.pipeline();
        let unknown = || Failure::local(Cause::Unavailable, None, "there is no such tool any more");
        // The repeat is meant, and the queue makes the retries.
        let tool = pipeline.find(SERVER, &write.tool).ok_or_else(unknown)?.once(write.effect);
        let call = Call::new(write.arguments).by(write.caller);
        let send = |attempt: Attempt| async move {
            match leave.take().await {
                true => work::attempt(&self.0.github, attempt).await,
                false => Err(FailureSignals::text("its turn has passed").with_sent(Sent::Never)),
            }
        };
        match pipeline.run(&tool, &call, send).await.outcome {
            Outcome::Live(value) => Ok(value.to_string()),
            Outcome::ToolError(error) => Ok(error.value.to_string()),
            Outcome::Failed(report) => Err(report.failure),
            Outcome::Served(_) => Err(Failure::local(
                Cause::Unavailable,
                None,
                "something else answered in its place",
            )),
        }
    }
}
