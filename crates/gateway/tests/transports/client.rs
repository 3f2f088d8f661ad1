//! A client of the real `seawall` command: on the pipes of `run`, or over HTTP at `serve`.

use std::io::Write;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How a client reaches the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    Run,
    Serve,
}

pub(crate) const FACES: [Face; 2] = [Face::Run, Face::Serve];

/// One client, and the gateway it speaks to if it has one of its own.
pub(crate) struct Client {
    to: To,
    from: mpsc::Receiver<Value>,
    /// What came and was not looked for yet.
    pub(crate) heard: Vec<Value>,
    next: u64,
    gateway: Option<Gateway>,
}

struct Gateway {
    child: Child,
    _config: Option<NamedTempFile>,
}

enum To {
    Pipe(Option<ChildStdin>),
    Http(Box<Http>),
}

/// The client's side of streamable HTTP.
#[derive(Clone)]
struct Http {
    url: String,
    client: HttpClient<HttpConnector, Full<Bytes>>,
    session: Option<HeaderValue>,
    heard: mpsc::Sender<Value>,
}

fn seawall(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true).spawn().unwrap()
}

impl Client {
    /// A client at a gateway of its own, in front of the server at `url`.
    pub(crate) async fn of(face: Face, url: &str) -> Self {
        match face {
            Face::Run => {
                Self::piped(seawall(&["run", "--no-catalog-cache", "--name", "it", url]), None)
            }
            Face::Serve => Self::served(&json!({ "url": url })).await,
        }
    }

    /// A client on the pipes of a gateway with this server.
    pub(crate) fn configured(server: &Value) -> Self {
        let config = config(server);
        Self::piped(
            seawall(&["run", "--no-catalog-cache", "--config", config.path().to_str().unwrap()]),
            Some(config),
        )
    }

    fn piped(mut child: Child, config: Option<NamedTempFile>) -> Self {
        let (heard, from) = mpsc::channel(1024);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if heard.send(serde_json::from_str(&line).unwrap()).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(drain(child.stderr.take().unwrap()));
        let to = To::Pipe(child.stdin.take());
        Self {
            to,
            from,
            heard: Vec::new(),
            next: 1,
            gateway: Some(Gateway { child, _config: config }),
        }
    }

    /// A client over HTTP of a gateway with this server.
    pub(crate) async fn served(server: &Value) -> Self {
        let config = config(server);
        let mut child = seawall(&[
            "serve",
            "--no-catalog-cache",
            "--config",
            config.path().to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
        ]);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect(&line);
        let url = url.trim_end_matches(',').to_owned();
        tokio::spawn(drain(lines.into_inner()));
        Self { gateway: Some(Gateway { child, _config: Some(config) }), ..Self::over_http(url) }
    }

    /// Another client over HTTP of the same gateway.
    pub(crate) fn beside(&self) -> Self {
        let To::Http(http) = &self.to else { panic!("only HTTP takes several clients") };
        Self::over_http(http.url.clone())
    }

    fn over_http(url: String) -> Self {
        let (heard, from) = mpsc::channel(1024);
        let client = HttpClient::builder(TokioExecutor::new()).build_http();
        let to = To::Http(Box::new(Http { url, client, session: None, heard }));
        Self { to, from, heard: Vec::new(), next: 1, gateway: None }
    }

    /// Shakes hands; the result of `initialize`.
    pub(crate) async fn greet(&mut self) -> Value {
        let answer = self.initialize().await;
        self.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        answer["result"].clone()
    }

    /// The answer to `initialize`.
    pub(crate) async fn initialize(&mut self) -> Value {
        let capabilities = json!({ "elicitation": {}, "sampling": {} });
        let info = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": info });
        self.request("initialize", params).await
    }

    /// Says something.
    pub(crate) async fn say(&mut self, message: Value) {
        match &mut self.to {
            To::Pipe(Some(pipe)) => {
                pipe.write_all(format!("{message}\n").as_bytes()).await.unwrap()
            }
            To::Pipe(None) => panic!("the pipe is closed"),
            To::Http(http) => http.post(&message).await,
        }
    }

    /// Asks something and does not wait; its id.
    pub(crate) async fn begin(&mut self, method: &str, params: Value) -> Value {
        let id = json!(format!("id {}", self.next));
        self.next += 1;
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    /// The answer to what was asked with this id.
    pub(crate) async fn answer(&mut self, id: &Value) -> Value {
        self.find(|message| message["id"] == *id && message.get("method").is_none()).await
    }

    /// The next notification or question with this method.
    pub(crate) async fn hear(&mut self, method: &str) -> Value {
        self.find(|message| message["method"] == method).await
    }

    /// The first message that is it; what else comes is kept.
    async fn find(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(place) = self.heard.iter().position(&is_it) {
                return self.heard.remove(place);
            }
            let message = self.next().await;
            self.heard.push(message);
        }
    }

    async fn next(&mut self) -> Value {
        timeout(PATIENCE, self.from.recv())
            .await
            .expect("nothing came")
            .expect("the gateway went away")
    }

    /// Asks something; the whole answer.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.answer(&id).await
    }

    /// Calls a tool; the result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await["result"]
            .clone()
    }

    /// Says goodbye, and leaves the gateway alone.
    pub(crate) async fn leave(&mut self) {
        match &mut self.to {
            To::Pipe(pipe) => drop(pipe.take()),
            To::Http(http) => http.delete().await,
        }
    }

    /// Asks the gateway to end.
    pub(crate) fn terminate(&self) {
        let id = self.gateway.as_ref().and_then(|gateway| gateway.child.id()).unwrap();
        kill_process(Pid::from_raw(id.cast_signed()).unwrap(), Signal::TERM).unwrap();
    }

    /// Waits until the gateway has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        timeout(PATIENCE, self.gateway.as_mut().unwrap().child.wait())
            .await
            .expect("it does not end")
            .unwrap()
    }
}

fn config(server: &Value) -> NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    write!(file, "{}", json!({ "mcpServers": { "it": server } })).unwrap();
    file
}

async fn drain(mut from: impl AsyncRead + Unpin) {
    let _gone = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
}

impl Http {
    fn request(&self, method: Method, body: String) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", "2025-06-18");
        }
        request.body(Full::from(body)).unwrap()
    }

    async fn delete(&self) {
        let answer =
            timeout(PATIENCE, self.client.request(self.request(Method::DELETE, String::new())))
                .await;
        assert!(answer.unwrap().unwrap().status().is_success());
    }

    /// Sends a message; what comes back is read while the test goes on.
    async fn post(&mut self, message: &Value) {
        let answer =
            timeout(PATIENCE, self.client.request(self.request(Method::POST, message.to_string())))
                .await;
        let answer = answer.expect("no answer to a POST").unwrap();
        assert!(answer.status().is_success(), "{message}: {}", answer.status());
        self.session = answer.headers().get("mcp-session-id").cloned().or(self.session.take());
        let is_stream =
            answer.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let (heard, mut body) = (self.heard.clone(), answer.into_body());
        tokio::spawn(async move {
            let mut text = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                text.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
                while let Some(end) = text.windows(2).position(|pair| is_stream && pair == b"\n\n")
                {
                    let event: Vec<u8> = text.drain(..end + 2).collect();
                    let event = String::from_utf8(event).unwrap();
                    let data = event
                        .lines()
                        .filter_map(|line| line.strip_prefix("data: "))
                        .find(|data| !data.is_empty());
                    if let Some(data) = data {
                        let _gone = heard.send(serde_json::from_str(data).unwrap()).await;
                    }
                }
            }
            if !is_stream && !text.is_empty() {
                let _gone = heard.send(serde_json::from_slice(&text).unwrap()).await;
            }
        });
    }
}
