//! Decides how many connections a listener has, how long each may take, and how it ends.

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

/// The connection permits of a listener. When they run out, the oldest connection that has not sent
/// a whole request gives way: a client that opens connections and stays silent keeps no other
/// client out.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    room: Arc<Semaphore>,
    /// Connections that may not have sent a whole request yet, the oldest first.
    silent: Mutex<VecDeque<Weak<ConnectionActivity>>>,
}

/// A connection's permit, held until it is dropped or has to give way.
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

    /// The next connection, its peer and its permit; `None` if there is no permit for it.
    pub(crate) async fn accept(
        &self,
        tcp: &TcpListener,
    ) -> Option<(TcpStream, SocketAddr, ConnectionPermit)> {
        match tcp.accept().await {
            Ok((tcp, peer)) => {
                let _slower = tcp.set_nodelay(true);
                // Too many connections: closing at once is clearer than a connection that never
                // answers.
                Some((tcp, peer, self.place()?))
            }
            // Most likely no file descriptors are left: other connections must close first.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                None
            }
        }
    }

    /// A permit: a free one, or that of a connection that has to give way.
    pub(super) fn place(&self) -> Option<ConnectionPermit> {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let permit = Arc::clone(&self.room).try_acquire_owned().ok().or_else(|| {
            let oldest =
                std::iter::from_fn(|| silent.pop_front()).filter_map(|silent| silent.upgrade());
            oldest.into_iter().find_map(|activity| activity.give_way())
        })?;
        // Dead and active connections are removed lazily, so that the queue of silent ones stays
        // bounded.
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

/// Serves the requests of a connection until it ends. After `last` it finishes the requests in
/// flight and takes no more; at `end` it is cut off.
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
        // Boxed: a connection without a request takes no room for one, and none is moved into it.
        let (answer, busy) = (Box::pin(answer(request)), watch.begin());
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
    // No HTTP/2 pings: their replies would count as activity and keep an idle connection open.
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
