//! Decides how a faulty HTTP server behaves on the wire. Written by hand, because no library would
//! break off in the middle of an answer. When the server dies, its port is closed and its sessions
//! are lost; after a short pause it starts again, as if a supervisor restarted it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::faulty::{Ending, Faulty};
use crate::pipe::reason;

/// How long a server that died takes to come back.
pub const RESTART: Duration = Duration::from_millis(150);
/// How often a server checks whether its plan says that it is away.
const LOOK: Duration = Duration::from_millis(10);
/// The largest request in bytes.
const REQUEST: usize = 1 << 20;

/// A server on HTTP; it stops when this is dropped.
pub struct Web {
    /// The server's URL.
    pub url: String,
    task: AbortHandle,
}

/// One life of a server, from its start to its death.
struct ServerLife {
    server: Faulty,
    sessions: Mutex<HashSet<String>>,
    next: AtomicU64,
    ended: CancellationToken,
}

impl Web {
    /// Starts a server on a free port.
    pub async fn start(server: Faulty) -> std::io::Result<Self> {
        Self::bind(server, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Starts a server at an address.
    pub async fn bind(server: Faulty, address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(live(server, listener, address)).abort_handle();
        Ok(Self { url: format!("http://{address}/mcp"), task })
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs one life after the other, always on the same port.
async fn live(server: Faulty, first: TcpListener, address: SocketAddr) {
    let mut listener = Some(first);
    // Session ids are never reused, like those of real servers.
    let mut lives = 0;
    loop {
        while server.world.plan().is_away {
            listener = None;
            tokio::time::sleep(LOOK).await;
        }
        let bound = match listener.take() {
            Some(listener) => Ok(listener),
            None => TcpListener::bind(address).await,
        };
        let Ok(bound) = bound else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        lives += 1;
        let life = Arc::new(ServerLife {
            server: server.clone(),
            sessions: Mutex::default(),
            next: AtomicU64::new(lives << 32),
            ended: CancellationToken::new(),
        });
        // If the task is aborted here, the guard still ends the connections of this life.
        let _ends_with_us = life.ended.clone().drop_guard();
        let died = accept(&life, bound).await;
        life.ended.cancel();
        if died {
            tokio::time::sleep(RESTART).await;
        }
    }
}

/// Accepts connections until the server dies (true) or goes away (false).
async fn accept(life: &Arc<ServerLife>, listener: TcpListener) -> bool {
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            // Biased, here and below: whoever comes once the server has died meets its next life.
            biased;
            () = life.ended.cancelled() => return true,
            _ = look.tick() => {
                if life.server.world.plan().is_away {
                    return false;
                }
            }
            Ok((tcp, _)) = listener.accept() => {
                let life = Arc::clone(life);
                tokio::spawn(async move {
                    let ended = life.ended.clone();
                    tokio::select! {
                        biased;
                        () = ended.cancelled() => {}
                        _gone = life.converse(tcp) => {}
                    }
                });
            }
        }
    }
}

/// A request: its first line and headers in lower case, and its message.
struct WebRequest {
    head: String,
    message: Value,
}

impl WebRequest {
    fn session(&self) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix("mcp-session-id:")).map(str::trim)
    }
}

impl ServerLife {
    fn sessions(&self) -> MutexGuard<'_, HashSet<String>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one request after the other on a connection.
    async fn converse(&self, mut tcp: TcpStream) -> std::io::Result<()> {
        let mut unread = Vec::new();
        while let Some(asked) = read(&mut tcp, &mut unread).await? {
            if asked.head.starts_with("get ") {
                tcp.write_all(&response(405, "", "")).await?;
                continue;
            }
            let is_new = asked.message["method"] == "initialize";
            let is_known = asked.session().is_some_and(|session| self.sessions().contains(session));
            if asked.head.starts_with("delete ") {
                self.sessions().remove(asked.session().unwrap_or_default());
                tcp.write_all(&response(200, "", "")).await?;
                continue;
            }
            if !is_new && !is_known {
                tcp.write_all(&response(if asked.session().is_some() { 404 } else { 400 }, "", ""))
                    .await?;
                continue;
            }
            let mut headers = String::new();
            if is_new {
                let session = format!("s{}", self.next.fetch_add(1, Ordering::Relaxed));
                headers = format!("mcp-session-id: {session}\r\n");
                self.sessions().insert(session);
            }
            let Some(ending) = self.server.hear(&asked.message) else {
                tcp.write_all(&response(202, "", "")).await?;
                continue;
            };
            self.end(ending, &headers, &mut tcp).await?;
        }
        Ok(())
    }

    async fn end(&self, ending: Ending, headers: &str, tcp: &mut TcpStream) -> std::io::Result<()> {
        let json = format!("{headers}content-type: application/json\r\n");
        match ending {
            // HTTP has no place for noise before an answer.
            Ending::Answer(answer) | Ending::Noisy(answer) => {
                tcp.write_all(&response(200, &json, &answer.to_string())).await
            }
            Ending::Later(wait, answer) => {
                tokio::time::sleep(wait).await;
                tcp.write_all(&response(200, &json, &answer.to_string())).await
            }
            Ending::Half(answer) => {
                let whole = response(200, &json, &answer.to_string());
                // The content length promises the whole answer, so the client sees a connection
                // that broke.
                tcp.write_all(&whole[..whole.len() - answer.to_string().len() / 2]).await?;
                tcp.shutdown().await?;
                Err(std::io::ErrorKind::ConnectionReset.into())
            }
            Ending::Death => {
                self.ended.cancel();
                // The token ends this connection too. Until then no answer may be written.
                std::future::pending().await
            }
            Ending::Never => {
                // Waits until the client leaves.
                while tcp.read(&mut [0; 1024]).await? > 0 {}
                Err(std::io::ErrorKind::ConnectionReset.into())
            }
            Ending::Status(status, wait) => {
                let wait =
                    wait.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
                tcp.write_all(&response(status, &wait, "")).await
            }
            Ending::Forgotten => {
                self.sessions().clear();
                tcp.write_all(&response(404, "", "")).await
            }
        }
    }
}

fn response(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let (reason, length) = (reason(status), body.len());
    format!("HTTP/1.1 {status} {reason}\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
        .into_bytes()
}

/// The next request; `None` when the client has gone.
async fn read(tcp: &mut TcpStream, unread: &mut Vec<u8>) -> std::io::Result<Option<WebRequest>> {
    loop {
        if let Some(end) = unread.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) {
            let head = String::from_utf8_lossy(&unread[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            let whole = end + length.unwrap_or(0);
            if unread.len() >= whole {
                let message = serde_json::from_slice(&unread[end..whole]).unwrap_or_default();
                unread.drain(..whole);
                return Ok(Some(WebRequest { head, message }));
            }
        }
        if unread.len() > REQUEST || tcp.read_buf(unread).await? == 0 {
            return Ok(None);
        }
    }
}
