//! A legacy stdio server that misbehaves on demand: arguments say how it lives and dies, tools say
//! what it does wrong.
//!
//! `attacks` are the tools, `lists` the pages of `tools/list`, `out` the pipe to the client,
//! `ledger` what it leaves in writing for a test that outlives it.

mod attacks;
mod ledger;
mod lists;
mod out;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};

use self::out::Out;

/// How the server lives.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "seawall-scripted")]
pub struct Script {
    /// A word that stands in the command line, so that a test can find the process and all it
    /// started.
    #[arg(long, default_value = "")]
    tag: String,
    /// Only exist: the role of grandchildren.
    #[arg(long)]
    idle: bool,
    /// Start this many grandchildren.
    #[arg(long, default_value_t = 0)]
    forks: usize,
    /// Grandchildren begin a session of their own, and so leave our process group.
    #[arg(long)]
    setsid: bool,
    /// Do not end with the process that started us, whatever was arranged.
    #[arg(long)]
    outlive: bool,
    /// A file that gets a line for each start, each handshake, each executed call and each state
    /// that was set.
    #[arg(long)]
    ledger: Option<PathBuf>,
    /// Say nothing for so many milliseconds before the first message is read.
    #[arg(long, default_value_t = 0)]
    slow_start: u64,
    /// End at the start, with a last word, unless this file is there.
    #[arg(long)]
    needs: Option<PathBuf>,
    /// End a tenth of a second after the handshake is over.
    #[arg(long)]
    mortal: bool,
    /// Ask for the client's roots as soon as the handshake is over.
    #[arg(long)]
    asks_roots: bool,
    /// Do not mind SIGTERM.
    #[arg(long)]
    ignore_term: bool,
    /// Do not mind the end of stdin.
    #[arg(long)]
    ignore_eof: bool,
    /// Read everything, answer nothing.
    #[arg(long)]
    mute: bool,
    /// Refuse `initialize` with a message of this many bytes.
    #[arg(long)]
    refuse: Option<usize>,
    /// Say things that are no messages before the first one.
    #[arg(long)]
    noise: bool,
    /// Answer `tools/list` with something that is no list.
    #[arg(long)]
    list_garbage: bool,
    /// Tools on each page of the list.
    #[arg(long, default_value_t = 1)]
    tools: usize,
    /// The length of each tool's description.
    #[arg(long, default_value_t = 8)]
    tool_bytes: usize,
    /// Pages of the list.
    #[arg(long, default_value_t = 1)]
    pages: usize,
    /// The last page points to the first again.
    #[arg(long)]
    cursor_loop: bool,
    /// The last page says `"nextCursor": null`.
    #[arg(long)]
    cursor_null: bool,
}

/// What all calls share.
struct Server {
    script: Script,
    out: Out,
    cancelled: AtomicU64,
    delayed: AtomicU64,
    answered: AtomicU64,
    pages_served: AtomicU64,
}

/// Whether the server goes on listening.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ears {
    Open,
    Shut,
}

/// Serves one client on stdin and stdout.
pub async fn serve(script: Script) {
    let mut terminate = script.ignore_term.then(|| signal(SignalKind::terminate()).ok()).flatten();
    if script.outlive {
        _ = rustix::process::set_parent_process_death_signal(None);
    }
    if script.idle {
        if script.setsid {
            _ = rustix::process::setsid();
        }
        return std::future::pending().await;
    }
    for _ in 0..script.forks {
        start_idle(&script);
    }
    let server = Arc::new(Server {
        script,
        out: Out::default(),
        cancelled: AtomicU64::new(0),
        delayed: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        pages_served: AtomicU64::new(0),
    });
    let deaf_to_signals = async {
        while let Some(terminate) = &mut terminate {
            terminate.recv().await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = Arc::clone(&server).listen() => {}
        () = deaf_to_signals => {}
    }
}

/// Starts a process that does nothing, holds our stdout and outlives us if it can.
fn start_idle(script: &Script) {
    let Ok(own) = std::env::current_exe() else { return };
    let mut command = Command::new(own);
    command.args(["--idle", "--tag", &script.tag]).stdin(Stdio::null()).stderr(Stdio::null());
    command
        .args(script.ignore_term.then_some("--ignore-term"))
        .args(script.setsid.then_some("--setsid"));
    let _child = command.spawn();
}

impl Server {
    async fn listen(self: Arc<Self>) {
        self.note("start");
        if self.script.needs.as_ref().is_some_and(|needed| !needed.exists()) {
            self.out.cry("what I need is not there");
            std::process::exit(7);
        }
        if self.script.noise {
            self.out.noise().await;
        }
        pause(self.script.slow_start).await;
        let mut lines = BufReader::new(tokio::io::stdin()).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            let Ok(message) = serde_json::from_slice::<Value>(&line) else { continue };
            if self.take(&message).await == Ears::Shut {
                return std::future::pending().await;
            }
        }
        if self.script.ignore_eof {
            std::future::pending::<()>().await;
        }
    }

    async fn take(self: &Arc<Self>, message: &Value) -> Ears {
        let id = &message["id"];
        match message["method"].as_str().unwrap_or_default() {
            _ if self.script.mute => {}
            "initialize" => match self.script.refuse {
                Some(bytes) => self.out.error(id, -32603, &"refused ".repeat(bytes / 8)).await,
                None => {
                    self.note("hello");
                    self.out.result(id, &hello(&message["params"])).await;
                }
            },
            "notifications/initialized" if self.script.mortal => {
                tokio::spawn(async {
                    pause(100).await;
                    std::process::exit(3);
                });
            }
            "notifications/initialized" if self.script.asks_roots => {
                self.out
                    .say(&json!({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"}))
                    .await;
            }
            "" if *id == "roots" => self.note(&format!("roots {}", message["result"]["roots"])),
            "logging/setLevel" | "resources/subscribe" => {
                self.note(&format!("{} {}", message["method"], message["params"]));
                self.out.result(id, &json!({})).await;
            }
            "tools/list" if self.script.list_garbage => {
                self.out.result(id, &json!({"tools": {"no": "list"}})).await
            }
            "tools/list" => self.out.result(id, &self.list(&message["params"])).await,
            "tools/call" => return self.call(message).await,
            "ping" => self.out.result(id, &json!({})).await,
            "notifications/cancelled" => {
                self.cancelled.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            _ if id.is_null() => {}
            method => self.out.error(id, -32601, &format!("unknown method {method}")).await,
        }
        Ears::Open
    }
}

fn hello(params: &Value) -> Value {
    json!({
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {"listChanged": true}, "logging": {}},
        "serverInfo": {"name": "seawall-scripted", "version": env!("CARGO_PKG_VERSION")},
    })
}

async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
