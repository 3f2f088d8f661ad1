//! Decides how this process reads its stdin and writes its stdout: as soon as they are ready, on
//! the thread that has the use of it; only where the system cannot tell when they are, on threads
//! that wait.
//!
//! stdin and stdout stay in the mode that they came in: they may be shared with other processes,
//! and stdout with stderr. A pipe is opened anew, and a socket is told call by call not to wait.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{FileType, fstat};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::stdio::{stdin, stdout};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::unix::pipe::OpenOptions;

/// The most that one read takes from a socket.
const READ: usize = 16 << 10;

/// Reads stdin.
pub(crate) fn input() -> Box<dyn AsyncRead + Send + Unpin> {
    match kind(stdin()) {
        // Linux has the pipe under this name; elsewhere it cannot be opened.
        Some(FileType::Fifo) => match OpenOptions::new().open_receiver("/proc/self/fd/0") {
            Ok(pipe) => Box::new(pipe),
            Err(_) => Box::new(tokio::io::stdin()),
        },
        Some(FileType::Socket) => match SocketEnd::of(stdin(), Interest::READABLE) {
            Ok(socket) => Box::new(socket),
            Err(_) => Box::new(tokio::io::stdin()),
        },
        _ => Box::new(tokio::io::stdin()),
    }
}

/// Writes stdout.
pub(crate) fn output() -> Box<dyn AsyncWrite + Send + Unpin> {
    match kind(stdout()) {
        Some(FileType::Fifo) => match OpenOptions::new().open_sender("/proc/self/fd/1") {
            Ok(pipe) => Box::new(pipe),
            Err(_) => Box::new(tokio::io::stdout()),
        },
        Some(FileType::Socket) => match SocketEnd::of(stdout(), Interest::WRITABLE) {
            Ok(socket) => Box::new(socket),
            Err(_) => Box::new(tokio::io::stdout()),
        },
        _ => Box::new(tokio::io::stdout()),
    }
}

fn kind(end: BorrowedFd<'_>) -> Option<FileType> {
    fstat(end).ok().map(|stat| FileType::from_raw_mode(stat.st_mode))
}

/// One direction of a socket, which node gives to its children instead of a pipe.
struct SocketEnd(AsyncFd<OwnedFd>);

impl SocketEnd {
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe, for descriptors that are closed elsewhere; this one is owned"
    )]
    fn of(end: BorrowedFd<'_>, interest: Interest) -> io::Result<Self> {
        AsyncFd::with_interest(end.try_clone_to_owned()?, interest).map(Self)
    }
}

impl AsyncRead for SocketEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let room = buffer.remaining().min(READ);
            let into = buffer.initialize_unfilled_to(room);
            let read = |end: &AsyncFd<OwnedFd>| Ok(recv(end, into, RecvFlags::DONTWAIT)?.1);
            match ready.try_io(read) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => return Poll::Ready(read.map(|count| buffer.advance(count))),
                Err(_not_ready) => {}
            }
        }
    }
}

impl AsyncWrite for SocketEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match ready.try_io(|end| Ok(send(end, bytes, flags)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(written) => return Poll::Ready(written),
                Err(_not_ready) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use rustix::fs::{OFlags, fcntl_getfl};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn waits(socket: &UnixStream) -> bool {
        !fcntl_getfl(socket).unwrap().contains(OFlags::NONBLOCK)
    }

    #[tokio::test]
    async fn a_socket_is_read_and_written_to_its_end_and_stays_in_its_mode() {
        let (near, far) = UnixStream::pair().unwrap();
        let (other, same) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        let mut reader = SocketEnd::of(near.as_fd(), Interest::READABLE).unwrap();
        let mut writer = SocketEnd::of(far.as_fd(), Interest::WRITABLE).unwrap();
        // More than a socket holds, so both sides have to wait for each other.
        let sent: Vec<u8> = (0..3 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
        let (expected, mut got) = (sent.clone(), Vec::new());
        let writing = async move {
            writer.write_all(&sent).await.unwrap();
            drop((writer, far, other));
        };
        let (_, read) = tokio::join!(writing, reader.read_to_end(&mut got));
        assert_eq!(read.unwrap(), expected.len());
        assert!(got == expected);
        assert!(waits(&same));
    }

    #[tokio::test]
    async fn a_write_to_a_socket_that_nobody_reads_fails() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut writer = SocketEnd::of(near.as_fd(), Interest::WRITABLE).unwrap();
        drop(far);
        assert_eq!(writer.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
