//! Calls whose clients have gone: they run on, so that what they come to is known, and is there for
//! the same client's next identical call (the library's ledger keeps it).

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

/// The places for calls that run on without their clients.
#[derive(Clone)]
pub(crate) struct DetachedCalls(Arc<Semaphore>);

impl Default for DetachedCalls {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(limits::DETACHED)))
    }
}

/// What is done with a call when its client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisconnectAction {
    /// It runs to its end.
    RunsOn,
    /// Its server is told to stop, and no attempt follows; an answer that comes all the same is
    /// waited for: this long, or until the deadline of the call.
    IsCancelled(Option<Duration>),
    /// Nothing is waited for: nobody could be given the answer.
    Ends,
}

/// A call that runs on when nobody waits for it any more.
pub(crate) struct Detachable {
    work: Option<BoxFuture<'static, Reply>>,
    call: GatewayCall,
    leaving: DisconnectAction,
    places: DetachedCalls,
    /// Unless it was answered.
    client: Option<WaitingClient>,
}

/// The client that waits for a call.
pub(crate) struct WaitingClient {
    /// Who it is.
    pub client: Arc<str>,
    /// Since when it waits.
    pub since: Instant,
    /// How soon nobody gives up.
    pub shortest: Duration,
    /// What is known of how long clients wait.
    pub limits: Arc<ClientLimits>,
}

impl Detachable {
    /// A call and its work, and what is done with it when its client goes.
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

    /// Its client is told that it runs on.
    pub(crate) fn run_on(mut self) {
        self.client = None;
        self.leaving = DisconnectAction::RunsOn;
    }
}

impl Future for Detachable {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
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
        // A client that was asked something has waited for a person.
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
        // At the very end there is nobody left to run it; and too many of them end as if their
        // servers had.
        let place = Arc::clone(&self.places.0).try_acquire_owned();
        if let (Ok(place), Ok(runtime)) = (place, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                // What it comes to is kept in the ledger.
                let _in_time = tokio::time::timeout(limit, work).await;
                drop(place);
            });
        }
    }
}
