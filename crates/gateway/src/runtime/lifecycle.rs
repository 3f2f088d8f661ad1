//! Decides how the gateway shuts down: which calls, connections and tasks it waits for, and how
//! long each may take.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The lifecycle of one gateway.
#[derive(Debug)]
pub struct Lifecycle {
    /// New calls are refused.
    pub draining: CancellationToken,
    /// Calls that are still in flight get their last answer now.
    pub closing: CancellationToken,
    /// Every remaining task ends.
    pub ended: CancellationToken,
    /// Calls in flight.
    calls: TaskTracker,
    /// Client connections.
    connections: TaskTracker,
    /// Child processes, and other tasks that must not be left behind.
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
    /// Spawns a task that must end before the gateway does.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Counts a call as in flight until the token is dropped.
    pub fn call(&self) -> tokio_util::task::task_tracker::TaskTrackerToken {
        self.calls.token()
    }

    /// Refuses new calls and waits for those in flight, at most `grace`; `hurry` cuts the wait
    /// short.
    pub async fn drain(&self, grace: Duration, hurry: impl Future<Output = ()>) {
        self.draining.cancel();
        // A tracker's `wait` ends only once it is closed and empty. A closed tracker still counts
        // calls that come in between.
        self.calls.close();
        tokio::select! {
            () = self.calls.wait() => {}
            () = tokio::time::sleep(grace) => {}
            () = hurry => {}
        }
    }

    /// Serves a client connection.
    pub fn connect(&self, connection: impl Future<Output = ()> + Send + 'static) {
        self.connections.spawn(connection);
    }

    /// Waits until the last answers have been written, at most 2 s.
    pub async fn settle(&self) {
        self.calls.close();
        self.connections.close();
        let left = async {
            self.calls.wait().await;
            self.connections.wait().await;
        };
        let _in_time = tokio::time::timeout(Duration::from_secs(2), left).await;
    }

    /// Ends every task and waits until all have ended, at most 8 s.
    pub async fn end(&self) {
        self.ended.cancel();
        self.tasks.close();
        let _in_time = tokio::time::timeout(Duration::from_secs(8), self.tasks.wait()).await;
    }
}
