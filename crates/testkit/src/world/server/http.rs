//! The way in over HTTP: one connection for each request, and a stream of news for each session
//! that wants it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::{Out, Server};
use crate::world::http::{Head, STREAM, event, response, write};
use crate::world::plan::Era;

const JSON: &str = "content-type: application/json\r\n";

/// Serves at a port until the world ends; while it is away, nobody listens there.
pub(super) async fn serve(server: Arc<Server>, port: u16) {
    let mut health = server.health.subscribe();
    while !server.over.is_cancelled() {
        if health.wait_for(|health| !health.is_away).await.is_err() {
            return;
        }
        let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        loop {
            tokio::select! {
                () = server.over.cancelled() => return,
                _ = health.wait_for(|health| health.is_away) => break,
                accepted = listener.accept() => {
                    let Ok((tcp, _)) = accepted else { break };
                    tokio::spawn(connection(Arc::clone(&server), tcp));
                }
            }
        }
    }
}

async fn connection(server: Arc<Server>, mut tcp: TcpStream) {
    let (cut, over) = (server.connection(), server.over.clone());
    tokio::select! {
        () = cut.cancelled() => {}
        () = over.cancelled() => {}
        () = exchange(server, &mut tcp) => {}
    }
}

async fn exchange(server: Arc<Server>, tcp: &mut TcpStream) {
    let Some(head) = Head::read(tcp).await else { return };
    let Some(message) = head.body(tcp).await else { return };
    let session = head.header("mcp-session-id").map(str::to_owned);
    server.traced(&format!("{} {session:?} > {message}", head.method()));
    let mut health = server.health.subscribe();
    if health.wait_for(|health| !health.hangs).await.is_err() {
        return;
    }
    match head.method() {
        "POST" => post(server, tcp, message, session).await,
        "GET" if server.plan.era == Era::Legacy => news(&server, tcp, session).await,
        "DELETE" => {
            session.map(|session| server.state().sessions.remove(&session));
            _ = write(tcp, &response(200, "", "")).await;
        }
        _ => _ = write(tcp, &response(405, "", "")).await,
    }
}

async fn post(server: Arc<Server>, tcp: &mut TcpStream, message: Value, session: Option<String>) {
    let is_hello = message["method"] == "initialize" && server.plan.era == Era::Legacy;
    if is_hello {
        tokio::time::sleep(Duration::from_millis(server.plan.slow_start)).await;
    }
    let (sender, mut outs) = mpsc::channel(8);
    // A call goes on though its connection ends, as most servers do it.
    tokio::spawn(Arc::clone(&server).take(message, session, sender));
    let mut is_stream = false;
    while let Some(out) = outs.recv().await {
        let bytes = match out {
            Out::Stream => {
                is_stream = true;
                STREAM.to_vec()
            }
            Out::Message(message) if is_stream => event(&message),
            Out::Message(message) => {
                let session =
                    if is_hello { format!("{JSON}{}", open(&server)) } else { JSON.to_owned() };
                response(200, &session, &message.to_string())
            }
            Out::Raw(text) => response(200, JSON, &text),
            Out::Status(status, body) => response(status, JSON, &body),
            Out::Cut => return,
        };
        if write(tcp, &bytes).await.is_err() || !is_stream {
            return;
        }
    }
    if !is_stream {
        _ = write(tcp, &response(202, "", "")).await;
    }
}

/// The header of a new session.
fn open(server: &Server) -> String {
    let mut state = server.state();
    state.opened += 1;
    let id = format!("s{}-{}", server.place, state.opened);
    state.sessions.insert(id.clone());
    format!("mcp-session-id: {id}\r\n")
}

async fn news(server: &Server, tcp: &mut TcpStream, session: Option<String>) {
    if !session.is_some_and(|session| server.state().sessions.contains(&session)) {
        _ = write(tcp, &response(404, "", "")).await;
        return;
    }
    let mut news = server.news.subscribe();
    if write(tcp, STREAM).await.is_err() {
        return;
    }
    let mut byte = [0];
    loop {
        tokio::select! {
            // The other side left.
            _ = tcp.read(&mut byte) => return,
            message = news.recv() => {
                let Ok(message) = message else { return };
                if write(tcp, &event(&message)).await.is_err() {
                    return;
                }
            }
        }
    }
}
