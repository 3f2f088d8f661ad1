//! Decides which calls run on after their clients have left: their outcome becomes known, and the
//! library's ledger keeps it for the same client's next identical call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::client::client_limits::ClientLimits;
use crate::protocol::limits;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::Reply;

/// Permits for detached calls, at most `limits::DETACHED` at a time.
#[derive(Clone)]
pub(crate) struct DetachedCalls(Arc<Semaphore>);

impl Default for DetachedCalls {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(limits::DETACHED)))
    }
}

/// The fate of a call whose client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisconnectAction {
    /// The call runs to its end.
    RunsOn,
    /// The server is told to stop and no further attempt starts. An answer that arrives all the
    /// same is awaited: for this time, or until the call's deadline.
    IsCancelled(Option<Duration>),
    /// The call ends at once: no client could be given the answer.
    Ends,
}

/// A call that runs on if it is dropped before it is answered.
pub(crate) struct Detachable {
    work: Option<BoxFuture<'static, Reply>>,
    call: GatewayCall,
    leaving: DisconnectAction,
    places: DetachedCalls,
    /// The client that waits; `None` once it was told that the call is still running.
    client: Option<WaitingClient>,
}

/// The client that waits for a call.
pub(crate) struct WaitingClient {
    /// The client's identity.
    pub client: Arc<str>,
    /// Since when the client waits.
    pub since: Instant,
    /// The shortest wait that can be a client's timeout.
    pub shortest: Duration,
    /// The timeouts learned from clients.
    pub limits: Arc<ClientLimits>,
}

impl Detachable {
    /// A call, its future, and its fate when the client leaves.
    pub(crate) fn new(
        work: BoxFuture<'static, Reply>,
        call: &GatewayCall,
        leaving: DisconnectAction,
        places: &DetachedCalls,
        client: WaitingClient,
    ) -> Self {
        Self {
            work: Some(work),
            call: call.clone(),
            leaving,
            places: places.clone(),
            client: Some(client),
        }
    }

    /// Drops this wait on purpose: the client has been told that the call is still running, so it
    /// did not give up.
    pub(crate) fn run_on(mut self) {
        self.client = None;
        self.leaving = DisconnectAction::RunsOn;
    }
}

impl Future for Detachable {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        // Already answered: a future that is polled again must not panic, and has nothing to say.
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let reply = std::task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(reply)
    }
}

impl Drop for Detachable {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        self.call.control.leave();
        // While a question was open the client waited for a person, so the time shows no timeout.
        if let Some(WaitingClient { client, since, shortest, limits }) = self.client.take()
            && self.call.control.asked().is_zero()
        {
            limits.gave_up(&client, since.elapsed(), shortest);
        }
        let limit = match self.leaving {
            DisconnectAction::Ends => return,
            DisconnectAction::RunsOn => Duration::MAX,
            DisconnectAction::IsCancelled(limit) => {
                self.call.control.make_last();
                self.call.cancel.cancel(Default::default());
                limit.unwrap_or(Duration::MAX)
            }
        };
        // During shutdown there may be no runtime left to spawn on. Beyond the limit of detached
        // calls, the future is dropped: the call ends as if its server had gone.
        let place = Arc::clone(&self.places.0).try_acquire_owned();
        if let (Ok(place), Ok(runtime)) = (place, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                // The library's ledger keeps the outcome.
                let _in_time = tokio::time::timeout(limit, work).await;
                drop(place);
            });
        }
    }
}
