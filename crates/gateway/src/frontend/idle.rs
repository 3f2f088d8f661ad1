//! How long a connection may hold its place: until its first request is there, and then as long as
//! it is used.
//!
//! A timer on the head of a request does not see a connection that has not begun one, one that
//! idles between two, or one whose client does not read its answer. This one does.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

use crate::protocol::limits;

/// What happens on a connection.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    state: Mutex<IdleState>,
    /// It has to give way to others.
    gives_way: Notify,
}

#[derive(Debug)]
struct IdleState {
    /// Requests that are being worked on.
    busy: usize,
    /// When the connection has to be given up, unless a request is being worked on.
    until: Instant,
    has_begun: bool,
    /// Its place among all connections; none once it had to give it to another.
    place: Option<OwnedSemaphorePermit>,
}

impl ConnectionActivity {
    /// A connection that has just been opened.
    pub(super) fn new(place: OwnedSemaphorePermit) -> Arc<Self> {
        let until = Instant::now() + limits::HEADER_TIME;
        let state = IdleState { busy: 0, until, has_begun: false, place: Some(place) };
        Arc::new(Self { state: Mutex::new(state), gives_way: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, IdleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is there; it is worked on until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> BusyConnection {
        let mut state = self.state();
        state.busy += 1;
        state.has_begun = true;
        BusyConnection { activity: Arc::clone(self) }
    }

    /// Bytes went in or out. They count only after the first request: until then there is one limit
    /// for all of them.
    fn moved(&self) {
        let mut state = self.state();
        if state.has_begun {
            state.until = Instant::now() + limits::IDLE;
        }
    }

    /// Whether a whole request was there.
    pub(super) fn has_begun(&self) -> bool {
        self.state().has_begun
    }

    /// Takes its place away, if no request was there yet; it is closed, whatever comes now.
    pub(super) fn give_way(&self) -> Option<OwnedSemaphorePermit> {
        let mut state = self.state();
        let place = if state.has_begun { None } else { state.place.take() };
        if place.is_some() {
            self.gives_way.notify_one();
        }
        place
    }

    /// Gives its place back, whoever still looks at it.
    pub(super) fn leave(&self) {
        self.state().place = None;
    }

    /// Waits until the connection has to be given up.
    pub(super) async fn over(&self) {
        loop {
            let until = {
                let state = self.state();
                if state.place.is_none() {
                    return;
                }
                if state.busy > 0 { Instant::now() + limits::IDLE } else { state.until }
            };
            if until <= Instant::now() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = self.gives_way.notified() => {}
            }
        }
    }
}

/// A request that is being worked on.
#[derive(Debug)]
pub(super) struct BusyConnection {
    activity: Arc<ConnectionActivity>,
}

impl Drop for BusyConnection {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        state.busy -= 1;
        state.until = Instant::now() + limits::IDLE;
    }
}

/// A connection that notes when it is used.
pub(super) struct WatchedConnection<T> {
    pub(super) io: T,
    pub(super) activity: Arc<ConnectionActivity>,
}

impl<T: AsyncRead + Unpin> AsyncRead for WatchedConnection<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        self.activity.moved();
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WatchedConnection<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.activity.moved();
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?;
        self.activity.moved();
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
