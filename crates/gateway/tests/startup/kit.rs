//! What these tests stand on: `seawall serve --stdio` with one client, which is us, and HTTP
//! servers that do as they are told.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;

use super::upstream::{Asked, Upstream, honest, response, write};

pub(crate) const SEAWALL: &str = env!("CARGO_BIN_EXE_seawall");
/// No step of a test takes longer than this.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for something, but not for ever.
pub(crate) async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let look = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(what, look).await;
}

/// A program of the testkit.
pub(crate) fn program(name: &str) -> String {
    let path = PathBuf::from(SEAWALL).with_file_name(name);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace` first", path.display());
    path.to_str().unwrap().to_owned()
}

/// A configuration in a folder of its own.
pub(crate) fn configured(config: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("seawall.toml");
    std::fs::write(&file, config).unwrap();
    (folder, file)
}

/// A server behind a URL, as it stands in a configuration. Its type is stated, so no other is
/// tried.
pub(crate) fn remote(name: &str, url: &str) -> String {
    format!("[servers.{name}]\nurl = {url:?}\ntype = \"http\"\n")
}

/// A server that is a shell script, as it stands in a configuration.
pub(crate) fn shell(name: &str, script: &str) -> String {
    format!("[servers.{name}]\ncommand = \"sh\"\nargs = [\"-c\", '''{script}''']\n")
}

/// A gateway with one client.
pub(crate) struct Client {
    pub(crate) process: Child,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    /// Everything that was no answer to us.
    pub(crate) heard: Vec<Value>,
    /// The last line that was read, as it was.
    pub(crate) last_line: String,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    next: AtomicU64,
    _folder: TempDir,
}

impl Client {
    /// `seawall serve --stdio` with this configuration, before the handshake.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_with(config, None)
    }

    /// The same; what servers say is remembered in this folder.
    pub(crate) fn start_with(config: &str, state: Option<&std::path::Path>) -> Self {
        let (folder, file) = configured(config);
        let mut command = Command::new(SEAWALL);
        command.args(["serve", "--stdio", "--config"]).arg(&file);
        match state {
            Some(state) => command.env("XDG_STATE_HOME", state),
            None => command.arg("--no-catalog-cache"),
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let (kept, mut lines) =
            (Arc::clone(&log), BufReader::new(process.stderr.take().unwrap()).lines());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().unwrap().push(line);
            }
        });
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let (input, next) = (process.stdin.take().unwrap(), AtomicU64::new(1));
        Self {
            process,
            log,
            heard: Vec::new(),
            last_line: String::new(),
            input,
            output,
            next,
            _folder: folder,
        }
    }

    /// The same, past the handshake: also its result, and how long it took.
    pub(crate) async fn connect(config: &str) -> (Self, Value, Duration) {
        Self::start(config).greeted().await
    }

    /// The handshake.
    pub(crate) async fn greeted(self) -> (Self, Value, Duration) {
        let mut client = self;
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let began = Instant::now();
        let info = client.ask("initialize", params).await["result"].take();
        let took = began.elapsed();
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        (client, info, took)
    }

    /// The same of the quickest of three: what makes a client wait does so each time, what holds up
    /// the machine does not.
    pub(crate) async fn quickest(config: &str) -> (Self, Value, Duration) {
        let mut quickest = Self::connect(config).await;
        for _ in 0..2 {
            let next = Self::connect(config).await;
            quickest = if next.2 < quickest.2 { next } else { quickest };
        }
        quickest
    }

    pub(crate) async fn say(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn message(&mut self) -> Value {
        let line =
            soon("a message", self.output.next_line()).await.unwrap().expect("the gateway ended");
        self.last_line = line;
        serde_json::from_str(&self.last_line).unwrap()
    }

    /// One request and its answer; what else comes is kept.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        loop {
            let message = self.message().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.heard.push(message);
        }
    }

    /// The list of tools.
    pub(crate) async fn list(&mut self) -> Value {
        let mut answer = self.ask("tools/list", json!({})).await;
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].take()
    }

    /// The tools of the list, byte for byte.
    pub(crate) async fn raw_tools(&mut self) -> String {
        #[derive(serde::Deserialize)]
        struct Answer<'a> {
            #[serde(borrow)]
            result: List<'a>,
        }
        #[derive(serde::Deserialize)]
        struct List<'a> {
            #[serde(borrow)]
            tools: &'a serde_json::value::RawValue,
        }
        self.list().await;
        serde_json::from_str::<Answer<'_>>(&self.last_line).unwrap().result.tools.get().to_owned()
    }

    /// Waits until something was heard that is no answer.
    pub(crate) async fn hears(&mut self, method: &str, count: usize) {
        while self.count(method) < count {
            let message = self.message().await;
            self.heard.push(message);
        }
    }

    /// How often it was heard.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.heard.iter().filter(|message| message["method"] == method).count()
    }

    /// The lines that the user was shown.
    pub(crate) fn warned(&self) -> Vec<String> {
        let messages =
            self.heard.iter().filter(|message| message["method"] == "notifications/message");
        messages.map(|message| message["params"]["data"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until a line of the log contains this.
    pub(crate) async fn logs(&self, text: &str) {
        until(text, || self.log.lock().unwrap().iter().any(|line| line.contains(text))).await;
    }
}

pub(crate) const CHANGED: &str = "notifications/tools/list_changed";

/// The names on a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// What a list says of a server.
pub(crate) fn told<'a>(list: &'a Value, server: &str) -> &'a Value {
    &list["_meta"]["seawall/servers"][server]
}

/// An HTTP server that answers as a function of what it is asked and how often it was asked to
/// shake hands.
pub(crate) async fn scripted(
    answer: impl Fn(&Asked, usize) -> Vec<u8> + Clone + Send + Sync + 'static,
) -> Upstream {
    let shakes = Arc::new(Mutex::new(0));
    Upstream::start(move |asked, mut tcp| {
        let nth = {
            let mut shakes = shakes.lock().unwrap();
            *shakes += usize::from(asked.is("initialize"));
            *shakes
        };
        let bytes = answer(&asked, nth);
        async move {
            write(&mut tcp, &bytes).await;
        }
    })
    .await
}

/// A server that works.
pub(crate) async fn healthy() -> Upstream {
    scripted(|asked, _| honest(asked)).await
}

/// A server that refuses everything with this status and body.
pub(crate) async fn refusing(status: &'static str, body: &'static str) -> Upstream {
    scripted(move |_, _| response(status, "", body.as_bytes())).await
}

/// A server that takes connections and never answers.
pub(crate) async fn hung() -> Upstream {
    Upstream::start(|_, tcp| async move {
        std::future::pending::<()>().await;
        drop(tcp);
    })
    .await
}

/// An address at which nobody listens, nor will as long as these tests run: it is bound.
pub(crate) fn nobody() -> String {
    let kept = tokio::net::TcpSocket::new_v4().unwrap();
    kept.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = kept.local_addr().unwrap();
    std::mem::forget(kept);
    format!("http://{address}/mcp")
}

/// How often a server was asked to shake hands.
pub(crate) fn shakes(server: &Upstream) -> usize {
    server.seen().iter().filter(|asked| asked.is("initialize")).count()
}

/// `seawall serve`, for clients that come one after the other.
pub(crate) struct Served {
    _process: Child,
    address: String,
}

impl Served {
    /// Listens as the configuration says, at a port of its own.
    pub(crate) async fn start(config: &std::path::Path) -> Self {
        let mut command = Command::new(SEAWALL);
        command
            .args(["serve", "--no-catalog-cache", "--listen", "127.0.0.1:0", "--config"])
            .arg(config);
        let mut process =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = soon("it listens", lines.next_line()).await.unwrap().unwrap();
        let address = line
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next())
            .expect(&line)
            .to_owned();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { _process: process, address }
    }

    /// Sends one request on a connection of its own; further headers end in a line break each.
    async fn send(&self, path: &str, headers: &str, body: &Value) -> tokio::net::TcpStream {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n{headers}content-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let mut tcp = tokio::net::TcpStream::connect(&self.address).await.unwrap();
        tcp.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        tcp
    }

    /// One request and its response: the head and the body.
    async fn post_raw(&self, path: &str, headers: &str, body: &Value) -> (String, String) {
        let mut tcp = self.send(path, headers, body).await;
        let mut text = String::new();
        soon("an answer", tokio::io::AsyncReadExt::read_to_string(&mut tcp, &mut text))
            .await
            .unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// One request and its answer.
    async fn post(&self, path: &str, headers: &str, body: &Value) -> Value {
        let (head, body) = self.post_raw(path, headers, body).await;
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {head} {body}"))
    }

    /// The handshake of a new legacy client.
    pub(crate) async fn info(&self) -> Value {
        self.post("/mcp", "", &initialize(&json!({}))).await
    }

    /// A legacy client on this path, with these capabilities, past its handshake.
    pub(crate) async fn session(&self, path: &str, capabilities: &Value) -> Legacy<'_> {
        let (head, body) = self.post_raw(path, "", &initialize(capabilities)).await;
        let id = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect(&body);
        let headers = format!("mcp-session-id: {id}\r\n");
        let info: Value = serde_json::from_str(&body).unwrap();
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.post_raw(path, &headers, &initialized).await;
        Legacy { served: self, path: path.to_owned(), headers, info: info["result"].clone() }
    }

    /// One request of a modern client.
    pub(crate) async fn modern(&self, method: &str) -> Value {
        self.modern_at("/mcp", method).await
    }

    /// One request of a modern client on this path.
    pub(crate) async fn modern_at(&self, path: &str, method: &str) -> Value {
        let (headers, request) = modern(method, json!({}));
        self.post(path, &headers, &request).await
    }

    /// The lines that a modern client hears that listens for changes of the list of tools.
    pub(crate) async fn listen(&self) -> Lines<BufReader<tokio::net::TcpStream>> {
        let (headers, request) =
            modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
        BufReader::new(self.send("/mcp", &headers, &request).await).lines()
    }
}

/// A legacy client over HTTP.
pub(crate) struct Legacy<'a> {
    served: &'a Served,
    path: String,
    headers: String,
    /// What its handshake was answered with.
    pub(crate) info: Value,
}

impl Legacy<'_> {
    /// One request and its answer.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 2, "method": method, "params": params});
        self.served.post(&self.path, &self.headers, &request).await
    }

    /// Says goodbye.
    pub(crate) async fn leave(self) {
        let head = format!(
            "DELETE {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{}\r\n",
            self.path, self.served.address, self.headers
        );
        let mut tcp = tokio::net::TcpStream::connect(&self.served.address).await.unwrap();
        tcp.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        soon("it has left", tokio::io::AsyncReadExt::read_to_string(&mut tcp, &mut text))
            .await
            .unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    }
}

fn initialize(capabilities: &Value) -> Value {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
        "clientInfo": {"name": "t", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

/// The headers and the body of a modern request.
fn modern(method: &str, mut params: Value) -> (String, Value) {
    params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let headers = format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n");
    (headers, json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
}
