//! What the tests stand on: the `seawall` process on pipes or on HTTP, and the servers behind it.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// No step of a test takes longer than this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for something, but not for ever.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it took too long")
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..2_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

/// A program of the testkit.
pub(crate) fn program(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_BIN_EXE_seawall")).with_file_name(name);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace` first", path.display());
    path.to_str().unwrap().to_owned()
}

/// `seawall run`, spoken to over its pipes.
pub(crate) struct Wrapped {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Wrapped {
    pub(crate) fn run(command: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_seawall"));
        process.args(["run", "--no-catalog-cache", "--"]).args(command);
        Self::start(process)
    }

    /// With a memory that lasts in `folder`.
    pub(crate) fn remembering(folder: &std::path::Path, command: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_seawall"));
        process.env("XDG_STATE_HOME", folder).args(["run", "--"]).args(command);
        Self::start(process)
    }

    pub(crate) fn start(mut process: Command) -> Self {
        let mut child = process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { stdin: child.stdin.take(), child, lines }
    }

    pub(crate) async fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).await.unwrap();
        stdin.write_all(b"\n").await.unwrap();
    }

    pub(crate) async fn line(&mut self) -> String {
        soon(self.lines.next_line()).await.unwrap().expect("the wrapper ended")
    }

    pub(crate) async fn message(&mut self) -> Value {
        serde_json::from_str(&self.line().await).unwrap()
    }

    /// Reads until the answer to `id` comes; what else comes is given back with it.
    pub(crate) async fn answer(&mut self, id: &Value) -> (Value, Vec<Value>) {
        let mut others = Vec::new();
        loop {
            let message = self.message().await;
            if message["id"] == *id && message.get("method").is_none() {
                return (message, others);
            }
            others.push(message);
        }
    }

    pub(crate) async fn ask(&mut self, id: i64, method: &str, params: Value) -> Value {
        self.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        )
        .await;
        self.answer(&json!(id)).await.0
    }

    pub(crate) async fn initialize(&mut self, capabilities: Value) -> Value {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}});
        let answer = self.ask(0, "initialize", params).await;
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        answer
    }

    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Closes both ends, as a client does that is killed.
    #[allow(dead_code, reason = "not every suite that shares this file has clients that die")]
    pub(crate) fn die(&mut self) {
        let nothing = std::process::Command::new("true")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
            .stdout
            .take()
            .unwrap();
        self.lines = BufReader::new(ChildStdout::from_std(nothing).unwrap()).lines();
        self.stdin = None;
    }
}

/// `seawall serve`, spoken to over HTTP.
pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) url: String,
    /// What it said on stderr so far.
    #[allow(dead_code, reason = "read by the tests that share this file")]
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    /// Its configuration.
    #[allow(dead_code, reason = "read by the tests that share this file")]
    pub(crate) config: PathBuf,
    _folder: TempDir,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Served {
    /// Serves the servers of a TOML text.
    pub(crate) async fn with(servers: &str) -> Self {
        Self::file("seawall.toml", &format!("listen = \"127.0.0.1:0\"\n{servers}")).await
    }

    /// Serves a file of this name.
    pub(crate) async fn file(name: &str, text: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let config = folder.path().join(name);
        std::fs::write(&config, text).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_seawall"));
        process.args(["serve", "--no-catalog-cache", "--config"]).arg(&config);
        let mut child = process.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let url = loop {
            let line = soon(lines.next_line()).await.unwrap();
            let line =
                line.unwrap_or_else(|| panic!("the gateway ended: {:?}", log.lock().unwrap()));
            let url = line
                .split("listening on ")
                .nth(1)
                .and_then(|rest| rest.split("/mcp").next())
                .map(str::to_owned);
            log.lock().unwrap().push(line);
            if let Some(url) = url {
                break url;
            }
        };
        let said = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                said.lock().unwrap().push(line);
            }
        });
        Self {
            child,
            url,
            log,
            config,
            _folder: folder,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        soon(self.client.request(request)).await.unwrap()
    }

    /// Opens a legacy session on a path.
    pub(crate) async fn session(&self, path: &str) -> Session<'_> {
        self.session_as(path, None).await
    }

    /// The same for a client that brings a secret.
    pub(crate) async fn session_as(&self, path: &str, authorization: Option<&str>) -> Session<'_> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
            .to_string();
        let headers: Vec<_> =
            authorization.map(|secret| ("authorization", secret)).into_iter().collect();
        let response = self.send(Method::POST, path, &headers, &body).await;
        let id = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let info = last(response).await;
        let session = Session { served: self, path: path.to_owned(), id, info };
        session.tell("notifications/initialized", json!({})).await;
        session
    }

    /// One modern request on a path.
    pub(crate) async fn modern(
        &self,
        path: &str,
        method: &str,
        params: Value,
    ) -> (http::StatusCode, Value) {
        self.modern_as(path, method, params, None).await
    }

    /// The same from a client that brings a secret.
    pub(crate) async fn modern_as(
        &self,
        path: &str,
        method: &str,
        mut params: Value,
        authorization: Option<&str>,
    ) -> (http::StatusCode, Value) {
        let name =
            params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
        headers.extend(Some(("mcp-name", name.as_str())).filter(|(_, name)| !name.is_empty()));
        headers.extend(authorization.map(|secret| ("authorization", secret)));
        let response = self.send(Method::POST, path, &headers, &body).await;
        (response.status(), last(response).await)
    }
}

/// A legacy session.
pub(crate) struct Session<'a> {
    served: &'a Served,
    path: String,
    pub(crate) id: String,
    pub(crate) info: Value,
}

impl Session<'_> {
    fn headers(&self) -> [(&str, &str); 2] {
        [("mcp-session-id", &self.id), ("mcp-protocol-version", "2025-11-25")]
    }

    pub(crate) async fn tell(&self, method: &str, params: Value) {
        let body = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        let response = self.served.send(Method::POST, &self.path, &self.headers(), &body).await;
        assert_eq!(response.status(), 202);
    }

    /// Ends it, as clients do that open a session for each call.
    pub(crate) async fn end(&self) {
        let response = self.served.send(Method::DELETE, &self.path, &self.headers(), "").await;
        assert_eq!(response.status(), 200);
    }

    pub(crate) async fn raw(&self, body: &str) -> Response<Incoming> {
        self.served.send(Method::POST, &self.path, &self.headers(), body).await
    }

    pub(crate) async fn ask(&self, id: i64, method: &str, params: Value) -> Value {
        last(
            self.raw(
                &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
                    .to_string(),
            )
            .await,
        )
        .await
    }
}

/// The last message of a response: its body, or its last event.
pub(crate) async fn last(response: Response<Incoming>) -> Value {
    let (is_stream, status) = (is_stream(response.headers()), response.status());
    let body = soon(response.into_body().collect()).await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let json = if is_stream {
        text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap()
    } else {
        &text
    };
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {status} {text}"))
}

pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    headers.get("content-type").is_some_and(|kind| kind == "text/event-stream")
}

/// The TOML of a fixture on stdio.
pub(crate) fn fixture(name: &str, era: &str) -> String {
    format!(
        "[servers.{name}]\ncommand = {:?}\nargs = [\"--stdio\", \"--era\", {era:?}]\n",
        program("seawall-fixture")
    )
}

/// Processes whose parent is `pid`.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let parent = |child: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        stat.rsplit(") ").next()?.split(' ').nth(1)?.parse::<u32>().ok()
    };
    processes.filter(|child| parent(child) == Some(pid)).collect()
}
