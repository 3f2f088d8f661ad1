//! Decides how long a connection may keep its permit: a fixed time for its first request, then for
//! as long as it is used.
//!
//! A timeout on request headers misses a connection that has sent nothing, a connection that idles
//! between two requests, and a client that does not read its answer. This timer sees all three.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

use crate::protocol::limits;

/// The activity on a connection.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    state: Mutex<IdleState>,
    /// Wakes `over` when the connection has to give way to another.
    gives_way: Notify,
}

#[derive(Debug)]
struct IdleState {
    /// Requests being worked on.
    busy: usize,
    /// When the connection is given up, unless a request is being worked on.
    until: Instant,
    has_begun: bool,
    /// The connection's permit; `None` once it was taken away for another connection.
    place: Option<OwnedSemaphorePermit>,
}

impl ConnectionActivity {
    /// The activity of a connection that was just opened.
    pub(super) fn new(place: OwnedSemaphorePermit) -> Arc<Self> {
        let until = Instant::now() + limits::HEADER_TIME;
        let state = IdleState { busy: 0, until, has_begun: false, place: Some(place) };
        Arc::new(Self { state: Mutex::new(state), gives_way: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, IdleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a whole request; it is worked on until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> BusyConnection {
        let mut state = self.state();
        state.busy += 1;
        state.has_begun = true;
        BusyConnection { activity: Arc::clone(self) }
    }

    /// Notes that bytes were read or written. They count only after the first request; until then
    /// one time limit applies to all of them.
    fn moved(&self) {
        let mut state = self.state();
        if state.has_begun {
            state.until = Instant::now() + limits::IDLE;
        }
    }

    /// Whether a whole request has arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.state().has_begun
    }

    /// Takes the permit away, if no request has arrived yet; the connection is closed even if one
    /// arrives now.
    pub(super) fn give_way(&self) -> Option<OwnedSemaphorePermit> {
        let mut state = self.state();
        let place = if state.has_begun { None } else { state.place.take() };
        if place.is_some() {
            // `notify_one` stores the wake-up, so it is not lost if `over` is between two waits.
            self.gives_way.notify_one();
        }
        place
    }

    /// Returns the permit now, although other tasks may still hold this activity.
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
                // A busy connection is checked again after `IDLE`; the end of a request sets a new
                // deadline.
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

/// A request being worked on.
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

/// A byte stream that notes its activity.
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
