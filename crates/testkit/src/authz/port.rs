//! A port of the loopback that stays ours while nobody listens on it: it can be shut, so that
//! connections are refused, and opened again with the same number.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::Pending;

/// The body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Answers one request; the token resets the connection that the request came on.
type Answer = dyn Fn(http::Request<Incoming>, CancellationToken) -> Pending<http::Response<Body>>
    + Send
    + Sync;

/// The port.
pub(super) struct Port {
    address: SocketAddr,
    /// Bound and never listening: nobody else gets the number while we are shut.
    _held: TcpSocket,
    answer: Arc<Answer>,
    open: Mutex<Option<Open>>,
}

struct Open {
    shut: CancellationToken,
    accepting: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shut.cancel();
    }
}

impl Port {
    /// A port that is open and answers so.
    pub(super) async fn open(
        answer: impl Fn(http::Request<Incoming>, CancellationToken) -> Pending<http::Response<Body>>
        + Send
        + Sync
        + 'static,
    ) -> io::Result<Self> {
        let held = bound(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = held.local_addr()?;
        let port = Self { address, _held: held, answer: Arc::new(answer), open: Mutex::new(None) };
        port.again().await?;
        Ok(port)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens again; nothing happens to a port that is open.
    pub(super) async fn again(&self) -> io::Result<()> {
        let mut open = self.open.lock().await;
        if open.is_none() {
            let listener = bound(self.address)?.listen(1024)?;
            let shut = CancellationToken::new();
            let accepting = tokio::spawn(accept(listener, Arc::clone(&self.answer), shut.clone()));
            *open = Some(Open { shut, accepting });
        }
        Ok(())
    }

    /// Refuses connections and has cut those that were there when it returns.
    pub(super) async fn shut(&self) {
        let Some(mut open) = self.open.lock().await.take() else { return };
        open.shut.cancel();
        _ = (&mut open.accepting).await;
    }
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept(listener: TcpListener, answer: Arc<Answer>, shut: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shut.cancelled() => break,
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve(stream, Arc::clone(&answer)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    connections.shutdown().await;
}

/// Serves HTTP/1.1 or HTTP/2, whichever the client begins, until it leaves or is reset.
async fn serve(stream: TcpStream, answer: Arc<Answer>) {
    _ = stream.set_nodelay(true);
    let Ok(same) = stream.as_fd().try_clone_to_owned() else { return };
    let reset = CancellationToken::new();
    let service = service_fn(|request| {
        let answering = answer(request, reset.clone());
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        _ = server.serve_connection(TokioIo::new(stream), service) => {}
        () = reset.cancelled() => {
            _ = rustix::net::sockopt::set_socket_linger(&same, Some(Duration::ZERO));
        }
    }
}
