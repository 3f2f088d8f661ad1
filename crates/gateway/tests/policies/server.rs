//! A server that fails as it is told, and what it saw.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::kit::{Served, Session};
use super::upstream::{self, Asked, Upstream, answer, response, write};

/// How a call ends.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// With this text.
    Text(&'static str),
    /// With this result.
    Result(Value),
    /// With so many numbered lines.
    Lines(usize),
    /// With the tool's own error.
    ToolError(&'static str),
    /// With an HTTP status, further headers, and a body.
    Status(&'static str, &'static str, &'static str),
    /// With an HTTP status, further headers, and an error of the protocol.
    Refused(&'static str, &'static str, i64, &'static str),
    /// With an error of the protocol.
    Error(i64, &'static str, Value),
    /// The connection is cut after the call was executed.
    Reset,
    /// Never; the client has to leave.
    Hang,
    /// With this text, after so long.
    After(u64, &'static str),
    /// With this text, when it is let go.
    Held(Arc<Semaphore>, &'static str),
}

/// The calls a server saw.
#[derive(Default)]
pub(crate) struct Seen {
    calls: Mutex<Vec<(String, Value, Instant)>>,
    cancelled: Mutex<u32>,
    finished: Mutex<u32>,
}

/// The server.
pub(crate) struct Faulty {
    pub(crate) url: String,
    seen: Arc<Seen>,
    _server: Upstream,
}

/// The tools of every faulty server: two that read, and one of each other kind.
const TOOLS: [(&str, &str); 9] = [
    ("get_issue", "readOnlyHint"),
    ("list_issues", "readOnlyHint"),
    ("search_issues", "readOnlyHint"),
    ("create_issue", ""),
    ("update_issue", "idempotentHint"),
    ("batch_label_issues", "idempotentHint"),
    ("cypher", "readOnlyHint"),
    ("timeout_report", "readOnlyHint"),
    ("web_search", "readOnlyHint"),
];

impl Faulty {
    /// A server whose calls end as `end` says: of which tool, its how-manyth call, with which
    /// arguments.
    pub(crate) async fn start(
        end: impl Fn(&str, usize, &Value) -> End + Send + Sync + 'static,
    ) -> Self {
        Self::answering(move |is_tool, name, count, arguments| {
            is_tool.then(|| end(name, count, arguments))
        })
        .await
    }

    /// The same for methods that are no calls of tools too; `None`: as a server that is well.
    pub(crate) async fn answering(
        end: impl Fn(bool, &str, usize, &Value) -> Option<End> + Send + Sync + 'static,
    ) -> Self {
        let seen: Arc<Seen> = Arc::default();
        let (log, end) = (Arc::clone(&seen), Arc::new(end));
        let counts: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let server = Upstream::start(move |asked, tcp| {
            let (log, end, counts) = (Arc::clone(&log), Arc::clone(&end), Arc::clone(&counts));
            async move {
                let is_call = asked.is("tools/call");
                let tool = if is_call {
                    asked.tool()
                } else {
                    asked.message["method"].as_str().unwrap_or_default()
                };
                let tool = tool.to_owned();
                if asked.is("notifications/cancelled") {
                    *log.cancelled.lock().unwrap() += 1;
                }
                let arguments = asked.message["params"]["arguments"].clone();
                let count = {
                    let mut counts = counts.lock().unwrap();
                    let count = counts.entry(tool.clone()).or_default();
                    *count += 1;
                    *count
                };
                log.calls.lock().unwrap().push((tool.clone(), arguments.clone(), Instant::now()));
                match end(is_call, &tool, count, &arguments) {
                    Some(end) => {
                        finish(&asked, tcp, end).await;
                        *log.finished.lock().unwrap() += 1;
                    }
                    None => respond(&asked, tcp).await,
                }
            }
        })
        .await;
        Self { url: server.url.clone(), seen, _server: server }
    }

    /// How often a tool was executed.
    pub(crate) fn calls(&self, tool: &str) -> usize {
        self.seen.calls.lock().unwrap().iter().filter(|(name, ..)| name == tool).count()
    }

    /// The arguments it was executed with.
    pub(crate) fn arguments(&self, tool: &str) -> Vec<Value> {
        self.seen
            .calls
            .lock()
            .unwrap()
            .iter()
            .filter(|(name, ..)| name == tool)
            .map(|(_, with, _)| with.clone())
            .collect()
    }

    /// The pauses between its executions.
    pub(crate) fn pauses(&self, tool: &str) -> Vec<Duration> {
        let calls = self.seen.calls.lock().unwrap();
        let times: Vec<Instant> =
            calls.iter().filter(|(name, ..)| name == tool).map(|(.., at)| *at).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// How many calls it was told to stop.
    pub(crate) fn cancelled(&self) -> u32 {
        *self.seen.cancelled.lock().unwrap()
    }

    /// How many calls it is done with, heard or not.
    pub(crate) fn finished(&self) -> u32 {
        *self.seen.finished.lock().unwrap()
    }

    /// A gateway before it, with these policies; the server is called `gh`.
    pub(crate) async fn served(&self, policies: &str) -> Served {
        Served::with(&self.config(policies, "")).await
    }

    /// A configuration with these policies, and with this said of the server.
    pub(crate) fn config(&self, policies: &str, of_server: &str) -> String {
        format!("{policies}\n[servers.gh]\nurl = \"{}\"\ntype = \"http\"\n{of_server}", self.url)
    }
}

async fn respond(asked: &Asked, mut tcp: tokio::net::TcpStream) {
    let bytes = if asked.is("tools/list") {
        let tool = |(name, hint): (&str, &str)| {
            let annotations =
                if hint.is_empty() { json!({"readOnlyHint": false}) } else { json!({hint: true}) };
            let mut schema = json!({"type": "object"});
            if name.starts_with("batch_") {
                schema["properties"] =
                    json!({"targets": {"type": "array"}, "labels": {"type": "array"}});
                schema["required"] = json!(["targets"]);
            }
            if name == "create_issue" {
                schema["properties"] = json!({"idempotency_key": {"type": "string"}});
            }
            let mut tool = json!({"name": name, "inputSchema": schema, "annotations": annotations});
            if let "update_issue" | "cypher" = name {
                tool["outputSchema"] = json!({"type": "object", "required": ["n"]});
            }
            tool
        };
        answer(asked, &json!({"tools": TOOLS.map(tool)}))
    } else {
        upstream::honest(asked)
    };
    write(&mut tcp, &bytes).await;
}

async fn finish(asked: &Asked, mut tcp: tokio::net::TcpStream, end: End) {
    let text = |text: &str| answer(asked, &json!({"content": [{"type": "text", "text": text}]}));
    let bytes = match end {
        End::Text(with) => text(with),
        End::Result(result) => answer(asked, &result),
        End::Lines(count) => {
            text(&(1..=count).map(|line| format!("línea {line}\n")).collect::<String>())
        }
        End::ToolError(with) => {
            answer(asked, &json!({"content": [{"type": "text", "text": with}], "isError": true}))
        }
        End::Status(status, headers, body) => response(status, headers, body.as_bytes()),
        End::Error(code, message, data) => {
            let error = json!({"code": code, "message": message, "data": data});
            let body =
                json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}).to_string();
            response("200 OK", "content-type: application/json\r\n", body.as_bytes())
        }
        End::Refused(status, headers, code, message) => {
            let error = json!({"code": code, "message": message});
            let body =
                json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}).to_string();
            response(
                status,
                &format!("content-type: application/json\r\n{headers}"),
                body.as_bytes(),
            )
        }
        End::Reset => return,
        End::Hang => {
            let _left = tcp.read(&mut [0; 16]).await;
            return;
        }
        End::After(millis, with) => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            text(with)
        }
        End::Held(go, with) => {
            let _let_go = go.acquire().await;
            text(with)
        }
    };
    write(&mut tcp, &bytes).await;
}

/// Calls a tool as a client that has listed the tools before.
pub(crate) async fn call(session: &Session<'_>, tool: &str, arguments: Value) -> Value {
    session.ask(7, "tools/call", json!({"name": tool, "arguments": arguments})).await
}

/// The failure that an answer is.
pub(crate) fn failure(answer: &Value) -> &Value {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(
        answer["result"]["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()),
        "{answer}"
    );
    &answer["result"]["_meta"]["seawall/failure"]
}

/// The first text of an answer.
pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Short pauses, so that tests do not wait.
pub(crate) const QUICK: &str = "[defaults]\nretry = { base = \"20ms\", jitter = 0.0 }\n";
