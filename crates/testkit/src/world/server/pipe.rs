//! The way in through a child: it relays its pipes to a socket of ours, and we say what it says.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::{Out, Server};
use crate::world::process;

/// Serves the children that come until the world ends; while it is away, they are sent away.
pub(super) async fn serve(server: Arc<Server>, path: PathBuf) {
    let Ok(listener) = UnixListener::bind(&path) else { return };
    loop {
        tokio::select! {
            () = server.over.cancelled() => return,
            accepted = listener.accept() => {
                let Ok((child, _)) = accepted else { return };
                if server.health.borrow().is_away {
                    server.traced("a child was sent away");
                } else {
                    tokio::spawn(connection(Arc::clone(&server), child));
                }
            }
        }
    }
}

async fn connection(server: Arc<Server>, child: UnixStream) {
    let (cut, over) = (server.connection(), server.over.clone());
    tokio::select! {
        () = cut.cancelled() => {}
        () = over.cancelled() => {}
        () = converse(server, child) => {}
    }
}

async fn converse(server: Arc<Server>, child: UnixStream) {
    let (from, mut to) = child.into_split();
    let mut lines = BufReader::new(from).lines();
    let pid: Option<u32> =
        lines.next_line().await.ok().flatten().and_then(|line| line.parse().ok());
    let Some(pid) = pid else { return };
    server.ledger.child(server.place, pid);
    server.traced(&format!("{pid} came"));
    if server.health.borrow().hangs {
        process::send(pid, server.word(), process::STOP);
    }
    tokio::time::sleep(Duration::from_millis(server.plan.slow_start)).await;
    let (sender, mut outs) = mpsc::channel(64);
    let mut news = server.news.subscribe();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => {
                let Ok(Some(line)) = line else { return server.traced(&format!("{pid} left")) };
                server.traced(&format!("{pid} > {line}"));
                let Ok(message) = serde_json::from_str(&line) else { continue };
                tokio::spawn(Arc::clone(&server).take(message, None, sender.clone()));
                continue;
            }
            message = news.recv() => match message {
                Ok(message) => message.to_string(),
                Err(_) => continue,
            },
            Some(out) = outs.recv() => match out {
                Out::Message(message) => message.to_string(),
                Out::Raw(text) => text,
                Out::Stream | Out::Status(..) => continue,
                // Its child ends when we do.
                Out::Cut => return,
            },
        };
        server.traced(&format!("{pid} < {line}"));
        if to.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}
