//! Start and end: who is still at work, and how long they may be when the gateway is asked to go.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The life of one gateway.
#[derive(Debug)]
pub struct Lifecycle {
    /// No new calls are taken.
    pub draining: CancellationToken,
    /// Calls that are still under way get their last answer now.
    pub closing: CancellationToken,
    /// Everything ends.
    pub ended: CancellationToken,
    /// Calls under way.
    calls: TaskTracker,
    /// Connections of clients.
    connections: TaskTracker,
    /// Children, and whatever must not be left behind.
    tasks: TaskTracker,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            calls: TaskTracker::new(),
            connections: TaskTracker::new(),
            tasks: TaskTracker::new(),
        }
    }
}

impl Lifecycle {
    /// Runs something that must have ended before the gateway does.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Counts a call as under way until the token is dropped.
    pub fn call(&self) -> tokio_util::task::task_tracker::TaskTrackerToken {
        self.calls.token()
    }

    /// Refuses new calls, waits for those under way, at most `grace`; `hurry` cuts the wait short.
    pub async fn drain(&self, grace: Duration, hurry: impl Future<Output = ()>) {
        self.draining.cancel();
        self.calls.close();
        tokio::select! {
            () = self.calls.wait() => {}
            () = tokio::time::sleep(grace) => {}
            () = hurry => {}
        }
    }

    /// Serves a connection.
    pub fn connect(&self, connection: impl Future<Output = ()> + Send + 'static) {
        self.connections.spawn(connection);
    }

    /// Waits until the last answers have left, within bounds.
    pub async fn settle(&self) {
        self.calls.close();
        self.connections.close();
        let left = async {
            self.calls.wait().await;
            self.connections.wait().await;
        };
        let _in_time = tokio::time::timeout(Duration::from_secs(2), left).await;
    }

    /// Ends everything and waits until it has ended, within bounds.
    pub async fn end(&self) {
        self.ended.cancel();
        self.tasks.close();
        let _in_time = tokio::time::timeout(Duration::from_secs(8), self.tasks.wait()).await;
    }
}
