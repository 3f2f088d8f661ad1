//! Decides whether the server can be run for a repository: HTTP with keys, what an operator sees and
//! does, the log, the queue that survives a kill, and that its README says what is so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]
#![allow(clippy::disallowed_methods, reason = "processes are waited for in real time")]

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

const BINARY: &str = env!("CARGO_BIN_EXE_issue-manager");
const CREATE: &str = "POST /repos/acme/harbour/issues";

#[tokio::test]
async fn a_client_with_a_key_is_served_over_http_and_others_are_told_what_is_missing() {
    let server = Served::start(&["--api", "imitation"]).await;
    let client = server.client("one").await;

    let issue = call(&client, "get_issue", json!({"issue_number": 1})).await;

    assert!(text(&issue).starts_with("#1 Crane stops at noon"), "{issue:?}");
    let (status, health) = server.ask(Method::GET, "/health", None).await;
    assert_eq!((status, &health["status"]), (StatusCode::OK, &json!("ok")));
    assert!(health["uptime"].is_u64() && health["activeConnections"].is_u64(), "{health}");
    for path in ["/mcp", "/metrics", "/resilience/breakers", "/resilience/queue", "/elsewhere"] {
        let missing = server.ask(Method::GET, path, None).await;
        let error = json!({"error": "Missing X-API-Key header"});
        assert_eq!(missing, (StatusCode::UNAUTHORIZED, error), "{path}");
        let wrong = server.ask(Method::GET, path, Some("onf")).await;
        let error = json!({"error": "Invalid API key"});
        assert_eq!(wrong, (StatusCode::FORBIDDEN, error), "{path}");
    }
    let metrics = server.metrics().await;
    for sample in [
        "agent_tool_calls_total{tool=\"get_issue\"} 1",
        "agent_error_rate 0.0000",
        "tool_duration_ms_count{tool=\"get_issue\"} 1",
        "circuit_breaker_state{tool=\"get_issue\",state=\"closed\"} 1",
    ] {
        assert!(metrics.lines().any(|line| line == sample), "no {sample} in\n{metrics}");
    }
}

#[tokio::test]
async fn a_key_may_ask_sixty_times_a_minute_and_the_other_key_still_may() {
    let server = Served::start(&["--api", "imitation"]).await;

    let mut asked = 0;
    let refused = loop {
        let answer = server.ask(Method::GET, "/resilience/breakers", Some("one")).await;
        if answer.0 != StatusCode::OK {
            break answer;
        }
        asked += 1;
        assert!(asked < 600, "nobody is refused");
    };

    assert!(asked >= 60, "refused after {asked}");
    assert_eq!(refused, (StatusCode::TOO_MANY_REQUESTS, json!({"error": "Too many requests"})));
    assert_eq!(server.ask(Method::GET, "/metrics", Some("two")).await.0, StatusCode::OK);
    assert_eq!(server.ask(Method::GET, "/health", None).await.0, StatusCode::OK);
}

#[tokio::test]
async fn an_operator_sees_an_open_breaker_and_closes_it() {
    let mut server = Served::start(&["--api", "imitation", "--pause", "5ms"]).await;
    let client = server.client("one").await;
    server.fail(json!({"outage": true})).await;
    for number in 1..=2 {
        call(&client, "get_issue", json!({"issue_number": number})).await;
    }
    let refused = call(&client, "get_issue", json!({"issue_number": 3})).await;
    assert_eq!(refused.meta.unwrap().0["seawall/failure"]["code"], "CIRCUIT_OPEN");

    let (_, seen) = server.ask(Method::GET, "/resilience/breakers", Some("two")).await;
    assert_eq!(seen["breakers"]["get_issue"], "open");
    assert_eq!(seen["details"]["get_issue"]["failures"], 5);
    assert_eq!(seen["metrics"]["errors"], 3);
    server.until_metric("circuit_breaker_state{tool=\"get_issue\",state=\"open\"} 1").await;
    server.until_metric("graceful_degradation_total{tool=\"get_issue\",server=\"github\"} 1").await;
    server.until_metric("retry_attempts_total{tool=\"get_issue\",server=\"github\"} 3").await;

    server.fail(json!({})).await;
    let path = "/resilience/breakers/get_issue/reset";
    let reset = server.ask(Method::POST, path, Some("two")).await;
    assert_eq!(reset, (StatusCode::OK, json!({"status": "reset", "tool": "get_issue"})));
    let unknown = server.ask(Method::POST, "/resilience/breakers/none/reset", Some("two")).await;
    assert_eq!(unknown.0, StatusCode::NOT_FOUND);
    let live = call(&client, "get_issue", json!({"issue_number": 1})).await;
    assert!(text(&live).starts_with("#1 Crane"), "{live:?}");
    server.until_line("breaker_changed").await;
}

#[tokio::test]
async fn a_write_that_waits_is_made_once_although_the_server_is_killed() {
    let api = Served::start(&["--api", "imitation"]).await;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().to_str().unwrap();
    let options = ["--api", api.api.as_str(), "--pause", "5ms", "--store", store];
    let server = Served::start(&options).await;
    let client = server.client("one").await;
    api.fail(json!({"faults": [{"status": 429, "retry_after": 0, "times": 1_000_000}]})).await;

    let queued = call(&client, "create_issue", json!({"title": "Gull"})).await;

    assert_eq!(queued.is_error, Some(false), "{queued:?}");
    assert_eq!(queued.meta.unwrap().0["seawall/served"]["by"], "queue");
    // The first delivery has failed, and the next is a pause away: nothing is under way.
    server
        .until_queue(|item| item["state"] == "waiting" && item["attempts"].as_u64() >= Some(1))
        .await;
    drop(client);
    server.kill().await;
    api.fail(json!({})).await;
    assert_eq!(api.executed(CREATE).await, 0);

    let next = Served::start(&options).await;
    next.until_queue(|item| item["state"] == "delivered").await;
    assert_eq!(api.executed(CREATE).await, 1);
    let found = api.client("one").await;
    let found = call(&found, "search_issues", json!({"query": "gull"})).await;
    assert_eq!(text(&found), "#4 Gull (open)");
}

#[tokio::test]
async fn the_log_is_the_series_log_and_shows_no_secret() {
    let api = Served::start(&["--api", "imitation"]).await;
    let mut server = Served::start(&["--api", &api.api, "--pause", "5ms"]).await;
    api.fail(json!({"faults": [{"status": 503, "times": 1}, {"status": 404}]})).await;
    let client = server.client("one").await;

    call(&client, "get_issue", json!({"issue_number": 1, "token": "argument-secret"})).await;

    let start = server.until_line("tool_call_start").await;
    assert_eq!(start["level"], "info");
    assert_eq!(start["sessionId"].as_str().map(str::len), Some(36));
    assert_eq!(start["data"]["traceId"].as_str().map(str::len), Some(8));
    assert!(start["timestamp"].is_string() && start["duration_ms"].is_u64(), "{start}");
    let failed = server.until_line("tool_call_failed").await;
    assert!(failed["error"].as_str().unwrap().contains("404"), "{failed}");
    assert_eq!(failed["data"]["attempt"], 2);
    call(&client, "get_issue", json!({"issue_number": 2})).await;
    let complete = server.until_line("tool_call_complete").await;
    assert_eq!(complete["data"]["attempt"], 1);
    assert!(complete["data"]["outputTokens"].as_u64() > Some(0), "{complete}");
    server.until_line("tool_success").await;
    let seen = server.seen.join("\n");
    assert!(seen.contains("tool_call_retry"), "{seen}");
    for secret in ["argument-secret", "github-secret", "\"one\""] {
        assert!(!seen.contains(secret), "{seen}");
    }
}

#[tokio::test]
async fn a_signal_ends_the_server_in_order() {
    let mut server = Served::start(&["--api", "imitation"]).await;
    let client = server.client("one").await;
    call(&client, "get_issue", json!({"issue_number": 1})).await;
    drop(client);
    let id = server.process.id().unwrap().to_string();
    assert!(Command::new("kill").arg(id).status().await.unwrap().success());
    assert!(server.process.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_wrong_setting_ends_the_program_with_one_line_that_says_what_to_do() {
    let run = |arguments: &'static [&str]| async move {
        let output = Command::new(BINARY).args(arguments).env_clear().output().await.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run(&["--listen", "127.0.0.1:0"]).await;
    assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.starts_with("issue-manager: AUTH_KEYS: is not set"), "{said}");
    let (code, said) = run(&["--api", "imitation", "--store", "/dev/null/x"]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("--store: /dev/null/x"), "{said}");
}

/// The blocks of the README that a shell reads.
fn shell_blocks() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = std::fs::read_to_string(page).unwrap();
    page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_commands_of_the_readme_run() {
    let home = tempfile::tempdir().unwrap();
    let folder = Path::new(BINARY).parent().unwrap().to_str().unwrap();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut ran = 0;
    for block in shell_blocks().iter().filter(|block| !block.contains("cargo ")) {
        // Those that want GitHub itself are only read; the others run as they stand.
        let is_real = block.contains("GITHUB_TOKEN=");
        let script = match is_real {
            true => block.lines().map(|line| format!("{line} --help\n")).collect(),
            false => block.replace("127.0.0.1:3001", &free.to_string()),
        };
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &script])
            .env("PATH", &path)
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(Duration::from_secs(60), output).await.unwrap().unwrap();
        assert!(output.status.success(), "{script}\n{output:?}");
        ran += 1;
    }
    assert!(ran >= 3, "{ran}");
}

/// The server in a process of its own, with HTTP; it ends with the test.
struct Served {
    process: Child,
    lines: Lines<BufReader<ChildStderr>>,
    seen: Vec<String>,
    url: String,
    /// The imitation of GitHub, its own or another server's.
    api: String,
    http: reqwest::Client,
}

impl Served {
    async fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(BINARY)
            .args(arguments)
            .args(["--listen", "127.0.0.1:0"])
            .env("AUTH_KEYS", "one,two")
            .env("GITHUB_TOKEN", "github-secret")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let (url, api, seen) = (String::new(), arguments[1].to_owned(), Vec::new());
        let mut server = Self { process, lines, seen, url, api, http };
        if server.api == "imitation" {
            let told = server.until_line("imitation").await;
            server.api = told["data"]["api"].as_str().unwrap().to_owned();
        }
        let told = server.until_line("listening").await;
        server.url = told["data"]["url"].as_str().unwrap().trim_end_matches("/mcp").to_owned();
        server
    }

    /// The next line of the log with this event.
    async fn until_line(&mut self, event: &str) -> Value {
        let found = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                let told: Value = serde_json::from_str(&line).unwrap();
                self.seen.push(line);
                if told["event"] == event {
                    return told;
                }
            }
            panic!("the log ended without {event}: {:?}", self.seen)
        };
        tokio::time::timeout(Duration::from_secs(30), found).await.unwrap()
    }

    async fn client(&self, key: &str) -> RunningService<RoleClient, ()> {
        let headers = HashMap::from([("x-api-key".parse().unwrap(), key.parse().unwrap())]);
        let config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", self.url))
            .custom_headers(headers);
        ().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap()
    }

    async fn ask(&self, method: Method, path: &str, key: Option<&str>) -> (StatusCode, Value) {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(key) = key {
            request = request.header("X-API-Key", key);
        }
        let response = request.send().await.unwrap();
        (response.status(), response.json().await.unwrap_or_default())
    }

    async fn metrics(&self) -> String {
        let request = self.http.get(format!("{}/metrics", self.url)).header("X-API-Key", "two");
        request.send().await.unwrap().text().await.unwrap()
    }

    /// Waits for a sample: events are counted on a thread of their own.
    async fn until_metric(&self, sample: &str) {
        let patience = Instant::now() + Duration::from_secs(20);
        while !self.metrics().await.lines().any(|line| line == sample) {
            assert!(Instant::now() < patience, "no {sample}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn until_queue(&self, is_it: impl Fn(&Value) -> bool) {
        let patience = Instant::now() + Duration::from_secs(30);
        loop {
            let (status, queue) = self.ask(Method::GET, "/resilience/queue", Some("two")).await;
            if status == StatusCode::OK && queue["items"].as_array().unwrap().iter().any(&is_it) {
                return;
            }
            assert!(Instant::now() < patience, "{queue}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn fail(&self, faults: Value) {
        let request = self.http.put(format!("{}/_faults", self.api)).json(&faults);
        request.send().await.unwrap().error_for_status().unwrap();
    }

    async fn executed(&self, route: &str) -> u64 {
        let answer = self.http.get(format!("{}/_stats", self.api)).send().await.unwrap();
        answer.json::<Value>().await.unwrap()["executed"][route].as_u64().unwrap_or(0)
    }

    /// Kills the process, as a crash does.
    async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }
}

async fn call(
    client: &RunningService<RoleClient, ()>,
    tool: &'static str,
    mut arguments: Value,
) -> CallToolResult {
    let fields = arguments.as_object_mut().unwrap();
    if tool != "search_issues" {
        let names = [("owner".to_owned(), json!("acme")), ("repo".to_owned(), json!("harbour"))];
        fields.extend(names);
    }
    let asked = CallToolRequestParams::new(tool).with_arguments(fields.clone());
    client.call_tool(asked).await.unwrap()
}

/// The first text block.
fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}
