//! One connection of a listener: how many there may be, how long each may take, and how it ends.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::idle::{Activity, Watched};
use crate::wire::limits;

/// The next connection and its place, if there is one for it.
pub(crate) async fn accept(tcp: &TcpListener, room: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    match (tcp.accept().await, Arc::clone(room).try_acquire_owned()) {
        (Ok((tcp, _)), Ok(permit)) => {
            let _slower = tcp.set_nodelay(true);
            Some((tcp, permit))
        }
        // Too many: closing at once is clearer than a connection that never answers.
        (Ok(_), Err(_)) => None,
        // No descriptors left, most likely: others must close first.
        (Err(_), _) => {
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

/// Answers the requests of a connection until it is over. After `last` it finishes what it began and takes no more; at
/// `end` it ends.
pub(crate) async fn serve<B, F>(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    last: &CancellationToken,
    end: &CancellationToken,
    answer: impl Fn(Request<Incoming>) -> F + Send + 'static,
) where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
{
    let activity = Activity::new();
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
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits::HEADER_TIME).max_buf_size(64 << 10);
    // No pings: their answers would look like use.
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(limits::STREAMS);
    let io = Watched { io, activity: Arc::clone(&activity) };
    let connection = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = activity.over() => return,
        () = last.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _over = end.run_until_cancelled(connection).await;
}
