//! One connection of a listener: how many there may be, how long each may take, and how it ends.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::idle::{ConnectionActivity, WatchedConnection};
use crate::protocol::limits;

/// The places of a listener. When they run out, a connection that has not sent one whole request
/// gives way, the oldest first: who opens connections and says nothing keeps nobody out.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    room: Arc<Semaphore>,
    /// Connections that may not have sent a whole request yet, the oldest first.
    silent: Mutex<VecDeque<Weak<ConnectionActivity>>>,
}

/// What a connection is served in: one of so many, until it is dropped or has to give way.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    activity: Arc<ConnectionActivity>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.activity.leave();
    }
}

impl ConnectionLimit {
    pub(crate) fn new(count: usize) -> Self {
        Self { room: Arc::new(Semaphore::new(count)), silent: Mutex::default() }
    }

    /// The next connection, whose it is, and its place, if there is one for it.
    pub(crate) async fn accept(
        &self,
        tcp: &TcpListener,
    ) -> Option<(TcpStream, SocketAddr, ConnectionPermit)> {
        match tcp.accept().await {
            Ok((tcp, peer)) => {
                let _slower = tcp.set_nodelay(true);
                // Too many: closing at once is clearer than a connection that never answers.
                Some((tcp, peer, self.place()?))
            }
            // No descriptors left, most likely: others must close first.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                None
            }
        }
    }

    /// A place, if there is one, or one that has to give way.
    pub(super) fn place(&self) -> Option<ConnectionPermit> {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let permit = Arc::clone(&self.room).try_acquire_owned().ok().or_else(|| {
            let oldest =
                std::iter::from_fn(|| silent.pop_front()).filter_map(|silent| silent.upgrade());
            oldest.into_iter().find_map(|activity| activity.give_way())
        })?;
        while silent
            .front()
            .is_some_and(|first| first.upgrade().is_none_or(|activity| activity.has_begun()))
        {
            silent.pop_front();
        }
        if silent.len() >= 2 * limits::CONNECTIONS {
            silent.retain(|silent| silent.upgrade().is_some_and(|activity| !activity.has_begun()));
        }
        let activity = ConnectionActivity::new(permit);
        silent.push_back(Arc::downgrade(&activity));
        Some(ConnectionPermit { activity })
    }
}

/// Answers the requests of a connection until it is over. After `last` it finishes what it began
/// and takes no more; at `end` it ends.
pub(crate) async fn serve<B, F>(
    place: ConnectionPermit,
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    last: &CancellationToken,
    end: &CancellationToken,
    answer: impl Fn(Request<Incoming>) -> F + Send + 'static,
) where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
{
    let activity = Arc::clone(&place.activity);
    let watch = Arc::clone(&activity);
    let service = service_fn(move |request| {
        let (answer, busy) = (answer(request), watch.begin());
        async move {
            let answer = answer.await;
            drop(busy);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEADER_TIME)
        .max_buf_size(64 << 10);
    // No pings: their answers would look like use.
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(limits::STREAMS);
    let io = WatchedConnection { io, activity: Arc::clone(&activity) };
    let connection = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = activity.over() => return,
        () = last.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _over = end.run_until_cancelled(connection).await;
}
