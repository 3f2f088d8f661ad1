//! What an OpenTelemetry collector gets: spans and histograms, and what servers see of the trace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

use super::admin_api::{ADMIN, AdminApi};
use super::collector::{Collector, SeenSpan};
use super::kit::{Served, Wrapped, fixture, last, until};
use super::server::{QUICK, call};
use super::upstream::{self, Asked, Upstream, answer, response, write};

const CLIENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const HTTP: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

/// A server whose tools fail in a way of their own: the first time, always, or never.
async fn server() -> Upstream {
    let (reads, writes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    Upstream::start(move |asked, mut tcp| {
        let (reads, writes) = (Arc::clone(&reads), Arc::clone(&writes));
        async move {
            let text = |text: &str| json!([{"type": "text", "text": text}]);
            let bytes = match (asked.is("tools/call"), asked.tool()) {
                (true, "get_issue") if reads.fetch_add(1, Ordering::SeqCst) == 0 => {
                    response("503 Service Unavailable", "", b"")
                }
                (true, "create_issue") if writes.fetch_add(1, Ordering::SeqCst) == 0 => {
                    response("429 Too Many Requests", "", b"")
                }
                (true, "list_issues") => {
                    answer(&asked, &json!({"content": text("no such label"), "isError": true}))
                }
                (true, "search_issues") => wrong(&asked),
                (true, "get_slowly") => {
                    let _left = tcp.read(&mut [0; 16]).await;
                    return;
                }
                (true, _) => answer(&asked, &json!({"content": text("well")})),
                _ if asked.is("tools/list") => answer(&asked, &json!({"tools": tools()})),
                _ => upstream::honest(&asked),
            };
            write(&mut tcp, &bytes).await;
        }
    })
    .await
}

fn tools() -> Value {
    let tool = |name: &str| {
        let annotations = json!({"readOnlyHint": name != "create_issue"});
        json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations})
    };
    let names = ["get_issue", "list_issues", "search_issues", "get_slowly", "create_issue"];
    names.map(tool).to_vec().into()
}

fn wrong(asked: &Asked) -> Vec<u8> {
    let error = json!({"code": -32602, "message": "no such label"});
    let body = json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}).to_string();
    response("200 OK", "content-type: application/json\r\n", body.as_bytes())
}

fn telemetry(endpoint: &str, more: &str) -> String {
    let often = "interval = \"50ms\"\nmetrics_interval = \"50ms\"\n";
    format!("[telemetry]\nendpoint = \"{endpoint}\"\n{often}{more}")
}

fn config(server: &Upstream, telemetry: &str) -> String {
    format!("{QUICK}{ADMIN}{telemetry}\n[servers.gh]\nurl = \"{}\"\ntype = \"http\"\n", server.url)
}

/// The requests for a tool as the server got them.
fn asked(server: &Upstream, tool: &str) -> Vec<Asked> {
    server
        .seen()
        .into_iter()
        .filter(|asked| asked.is("tools/call") && asked.tool() == tool)
        .collect()
}

fn header<'a>(asked: &'a Asked, name: &str) -> Option<&'a str> {
    asked.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A modern call in the middle of a client's trace.
async fn traced_call(served: &Served, tool: &str) -> Value {
    let params = json!({"name": tool, "arguments": {"n": 1}, "_meta": {
        "traceparent": CLIENT, "tracestate": "client=1", "baggage": "a=b",
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }});
    let body = json!({"jsonrpc": "2.0", "id": "seven", "method": "tools/call", "params": params});
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
        ("traceparent", HTTP),
    ];
    last(served.send(Method::POST, "/mcp/gh", &headers, &body.to_string()).await).await
}

/// The span of a call, and those of its requests in their order.
fn parted(spans: &[SeenSpan]) -> (SeenSpan, Vec<SeenSpan>) {
    let mut requests: Vec<SeenSpan> = spans.iter().filter(|span| span.kind == 3).cloned().collect();
    requests.sort_by_key(|span| span.of("seawall.attempt").to_owned());
    (spans.iter().find(|span| span.kind == 2).unwrap().clone(), requests)
}

async fn a_retried_call(protocol: &str) {
    let (collector, server) = (Collector::start().await, server().await);
    let more = format!(
        "protocol = \"{protocol}\"\nservice_name = \"edge\"\nheaders = {{ api-key = \"k\" }}\n"
    );
    let served = Served::with(&config(&server, &telemetry(&collector.url, &more))).await;
    let said = traced_call(&served, "get_issue").await;
    assert_eq!(said["result"]["content"][0]["text"], "well", "{said}");

    let (call, requests) = parted(&collector.named("tools/call get_issue", 3).await);
    assert_eq!((call.trace.as_str(), call.parent.as_str()), (&CLIENT[3..35], &CLIENT[36..52]));
    assert_eq!((call.links, call.is_error), (vec![HTTP[36..52].to_owned()], false));
    let expected = [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "get_issue"),
        ("jsonrpc.request.id", "seven"),
        ("mcp.protocol.version", "2026-07-28"),
        ("network.transport", "tcp"),
        ("network.protocol.name", "http"),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(call.attributes, expected.into());
    assert_eq!(call.resource["service.name"], "edge");

    assert_eq!(requests.len(), 2);
    let sent = asked(&server, "get_issue");
    for (number, (request, sent)) in requests.iter().zip(&sent).enumerate() {
        assert_eq!((&request.trace, &request.parent), (&call.trace, &call.id));
        assert_eq!(request.of("seawall.attempt"), (number + 1).to_string());
        assert_eq!(request.of("seawall.server"), "gh");
        assert_eq!(request.of("server.address"), "127.0.0.1");
        assert!(server.url.contains(request.of("server.port")), "{request:?}");
        assert_eq!(request.of("mcp.protocol.version"), "2025-11-25");
        // The server is told of the very request that it got, and of nothing else.
        let meta = &sent.message["params"]["_meta"];
        let told =
            json!({"traceparent": request.context, "tracestate": "client=1", "baggage": "a=b"});
        assert_eq!(*meta, told);
        assert_eq!(header(sent, "traceparent"), Some(&*request.context));
        assert_eq!(header(sent, "tracestate"), Some("client=1"));
    }
    assert_eq!((requests[0].is_error, requests[0].of("error.type")), (true, "UPSTREAM_ERROR"));
    assert!(!requests[1].is_error);
    assert!(collector.headers().iter().all(|headers| headers["api-key"] == "k"));
}

#[tokio::test]
async fn a_retried_call_is_a_span_with_a_span_for_each_attempt_over_grpc() {
    a_retried_call("grpc").await;
}

#[tokio::test]
async fn a_retried_call_is_a_span_with_a_span_for_each_attempt_over_http() {
    a_retried_call("http/protobuf").await;
}

#[tokio::test]
async fn a_span_says_how_its_call_failed_and_what_answered_instead() {
    let (collector, server, folder) =
        (Collector::start().await, server().await, TempDir::new().unwrap());
    let more = format!(
        "[store]\npath = {:?}\n[kinds.write]\nretry = {{ attempts = 1 }}\n[tools.\"gh/get_slowly\"]\ntimeout = \"200ms\"\nretry = {{ attempts = 1 }}\n",
        folder.path().display().to_string()
    );
    let served = Served::with(&config(&server, &telemetry(&collector.url, &more))).await;
    let session = served.session("/mcp").await;
    session.ask(1, "tools/list", json!({})).await;
    for (tool, error, code) in [
        ("list_issues", "tool_error", ""),
        ("search_issues", "-32602", "-32602"),
        ("get_slowly", "timeout", ""),
    ] {
        call(&session, tool, json!({})).await;
        let (call, requests) = parted(&collector.named(&format!("tools/call {tool}"), 2).await);
        for span in [&call, &requests[0]] {
            let told = (span.of("error.type"), span.of("rpc.response.status_code"));
            assert_eq!((told, span.is_error), ((error, code), true), "{span:?}");
        }
        // The client brought no trace: it begins here.
        assert_eq!((call.parent.as_str(), call.links.len()), ("", 0));
        assert_eq!(requests[0].parent, call.id);
        assert_eq!(call.of("jsonrpc.request.id"), "7");
    }

    let queued = call(&session, "create_issue", json!({})).await;
    assert_eq!(queued["result"]["_meta"]["seawall/served"]["by"], "queue", "{queued}");
    let spans = collector.named("tools/call create_issue", 3).await;
    let call = spans.iter().find(|span| span.kind == 2).unwrap();
    assert_eq!((call.of("seawall.served.by"), call.is_error), ("queue", false));
    let refused = spans.iter().find(|span| span.parent == call.id).unwrap();
    assert_eq!(refused.of("error.type"), "RATE_LIMITED");
    // Its delivery is a trace of its own: whoever queued it may be gone.
    let delivery = spans.iter().find(|span| span.kind == 3 && span.trace != call.trace).unwrap();
    assert_eq!((delivery.parent.as_str(), delivery.is_error), ("", false));
    let sent = asked(&server, "create_issue");
    assert_eq!(sent[1].message["params"]["_meta"]["traceparent"], *delivery.context);
}

#[tokio::test]
async fn clients_and_servers_on_pipes_are_traced_too() {
    let (collector, folder) = (Collector::start().await, TempDir::new().unwrap());
    let file = folder.path().join("seawall.toml");
    let text = format!("{}\n{}", telemetry(&collector.url, ""), fixture("f", "legacy"));
    std::fs::write(&file, text).unwrap();
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
    process.args(["run", "--no-catalog-cache", "--config"]).arg(&file);
    let mut client = Wrapped::start(process);
    client.initialize(json!({})).await;
    let tools = client.ask(1, "tools/list", json!({})).await;
    let tool = tools["result"]["tools"][0]["name"].as_str().unwrap().to_owned();
    client.ask(2, "tools/call", json!({"name": tool, "arguments": {}})).await;
    let (call, requests) = parted(&collector.named(&format!("tools/call {tool}"), 2).await);
    assert_eq!(requests[0].parent, call.id);
    for span in [&call, &requests[0]] {
        assert_eq!((span.of("network.transport"), span.of("network.protocol.name")), ("pipe", ""));
        assert!(!span.attributes.contains_key("server.port"), "{span:?}");
    }
    assert_eq!(requests[0].of("seawall.server"), "f");
    let greeting = &collector.named("initialize", 1).await[0];
    assert_eq!(greeting.kind, 2);
    // What has ended before the client leaves is exported before the process ends.
    client.ask(3, "ping", json!({})).await;
    client.close();
    collector.named("ping", 1).await;
}

#[tokio::test]
async fn histograms_count_every_call_also_those_whose_trace_is_not_exported() {
    let (collector, server) = (Collector::start().await, server().await);
    let more = "sampling = 0\n";
    let served = Served::with(&config(&server, &telemetry(&collector.url, more))).await;
    let session = served.session("/mcp").await;
    session.ask(1, "tools/list", json!({})).await;
    call(&session, "get_issue", json!({})).await;
    session.ask(8, "tools/call", json!({"name": "invented", "arguments": {}})).await;
    let point = |metric: &str, tool: &str, error: &str| {
        let points = collector.points().into_iter().rev();
        let mut of = points.filter(|(name, labels, ..)| {
            let label = |key: &str| labels.get(key).map_or("", String::as_str);
            name == metric && label("gen_ai.tool.name") == tool && label("error.type") == error
        });
        of.next()
    };
    let (ours, theirs) = ("mcp.server.operation.duration", "mcp.client.operation.duration");
    until("all points", async || {
        point(ours, "get_issue", "").is_some()
            && point(theirs, "get_issue", "UPSTREAM_ERROR").is_some()
            && point(theirs, "get_issue", "").is_some()
            && point(ours, "unknown", "").is_some()
    })
    .await;
    let (_, labels, count, bounds) = point(ours, "get_issue", "").unwrap();
    let expected = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
    assert_eq!((count, bounds.as_slice()), (1, &expected[..]));
    assert_eq!(labels["mcp.method.name"], "tools/call");
    assert!(!labels.contains_key("jsonrpc.request.id"), "{labels:?}");
    assert!(collector.spans().is_empty(), "{:?}", collector.spans());
    let parent = asked(&server, "get_issue")[0].message["params"]["_meta"]["traceparent"].clone();
    assert!(parent.as_str().unwrap().ends_with("-00"), "{parent}");
}

#[tokio::test]
async fn a_collector_that_is_away_costs_spans_and_delays_no_call() {
    let server = server().await;
    // Nobody listens there any more.
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let served = Served::with(&config(&server, &telemetry(&format!("http://{away}"), ""))).await;
    let (session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    let dropped = async || {
        let metrics = admin.scrape().await.text;
        let line = "seawall_telemetry_spans_total{result=\"dropped\"} ";
        let count = metrics.lines().find_map(|text| text.strip_prefix(line)).map(str::to_owned);
        count.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{metrics}"))
    };
    for round in 1..=3 {
        let said = call(&session, "get_issue", json!({"n": round})).await;
        assert_eq!(said["result"]["content"][0]["text"], "well", "{said}");
        until("its spans are dropped", async || dropped().await >= 2 * round).await;
    }
    let log = served.log.lock().unwrap().join("\n");
    assert_eq!(log.matches("the OpenTelemetry collector takes no spans").count(), 1, "{log}");
}

#[tokio::test]
async fn without_telemetry_the_server_gets_the_clients_own_bytes() {
    let server = server().await;
    let served = Served::with(&config(&server, "")).await;
    let session = served.session("/mcp").await;
    session.ask(1, "tools/list", json!({})).await;
    let params =
        r#"{"name":"get_issue","arguments":{"n":1.00},"_meta":{"traceparent":"own", "x": 2}}"#;
    let body = format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{params}}}"#);
    last(session.raw(&body).await).await;
    let sent = asked(&server, "get_issue");
    assert_eq!(sent.len(), 2);
    for sent in sent {
        let id = sent.message["id"].to_string();
        let length = body.len() - 1 + id.len();
        assert_eq!(header(&sent, "content-length"), Some(&*length.to_string()));
        assert_eq!(sent.message["params"], serde_json::from_str::<Value>(params).unwrap());
        assert!(!sent.head.contains("traceparent"), "{}", sent.head);
    }
}
