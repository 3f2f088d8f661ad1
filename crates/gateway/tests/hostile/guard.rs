//! Who may talk to the listener, what of a client never leaves the gateway, and where the gateway
//! never goes.

use serde_json::json;

use crate::kit::client::{initialize, modern_begin, modern_headers, modern_request};
use crate::kit::http::{raw, whole};
use crate::kit::upstream::{answer, honest, response, write};
use crate::kit::{Entry, Gateway, Legacy, Upstream, failure, http, text};

/// Lines of a head that name a host or an origin, and whether they are ours; `PORT` is the
/// listener's.
const HOSTS: [(&str, bool); 19] = [
    ("host: localhost:PORT\r\n", true),
    ("host: 127.0.0.1:PORT\r\n", true),
    ("host: [::1]:PORT\r\n", true),
    ("host: LocalHost\r\n", true),
    ("host: gateway.example\r\n", true),
    ("", false),
    ("host:\r\n", false),
    ("host: evil.example:PORT\r\n", false),
    ("host: localhost.evil.example:PORT\r\n", false),
    ("host: localhost.:PORT\r\n", false),
    ("host: user@localhost:PORT\r\n", false),
    ("host: localhost:PORT@evil.example\r\n", false),
    ("host: 127.0.0.1.evil.example\r\n", false),
    ("host: 2130706433\r\n", false),
    ("host: 0.0.0.0:PORT\r\n", false),
    ("host: localhost:99999\r\n", false),
    ("host: [::1]evil.example\r\n", false),
    ("host: localhost\r\nhost: localhost\r\n", false),
    ("host: localhost\r\nhost: evil.example\r\n", false),
];

const ORIGINS: [(&str, bool); 12] = [
    ("", true),
    ("origin: http://localhost:3000\r\n", true),
    ("origin: http://[::1]\r\n", true),
    ("origin: https://app.example\r\n", true),
    ("origin: https://evil.example\r\n", false),
    ("origin: null\r\n", false),
    ("origin:\r\n", false),
    ("origin: http://localhost.evil.example\r\n", false),
    ("origin: http://localhost@evil.example\r\n", false),
    ("origin: http://localhost/\r\n", false),
    ("origin: file://localhost\r\n", false),
    ("origin: http://localhost\r\norigin: http://localhost\r\n", false),
];

#[tokio::test]
async fn the_matrix_of_hosts_and_origins_on_the_running_listener() {
    let allowed =
        "allowed_hosts = [\"gateway.example\"]\nallowed_origins = [\"https://app.example\"]";
    let gateway = Gateway::serve_with(allowed, &[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let port = gateway.address.port().to_string();
    for (host, host_is_ours) in HOSTS {
        for (origin, origin_is_ours) in ORIGINS {
            for request in
                ["POST /mcp/a", "GET /mcp/a", "DELETE /mcp/a", "OPTIONS /mcp", "POST /nowhere"]
            {
                let head = format!(
                    "{request} HTTP/1.1\r\n{host}{origin}connection: close\r\ncontent-length: 0\r\n\r\n"
                );
                let answer = raw(gateway.address, head.replace("PORT", &port).as_bytes()).await;
                let is_refused = answer.starts_with("HTTP/1.1 403 ")
                    || answer.starts_with(
                        "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n",
                    );
                assert_eq!(!is_refused, host_is_ours && origin_is_ours, "{head}{answer}");
                assert!(
                    !answer.to_ascii_lowercase().contains("access-control-allow"),
                    "{head}{answer}"
                );
            }
        }
    }
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_foreign_host_in_the_request_line_is_refused_whatever_the_header_says() {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    for (target, is_ours) in [
        ("http://localhost/mcp", true),
        ("http://evil.example/mcp", false),
        ("http://localhost@evil.example/mcp", false),
    ] {
        let head = format!(
            "POST {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        let answer = raw(gateway.address, head.as_bytes()).await;
        let status = if is_ours { "HTTP/1.1 415 " } else { "HTTP/1.1 403 " };
        assert!(answer.starts_with(status), "{target}: {answer}");
    }
    Legacy::connect(&gateway, "/mcp/a").await.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn nothing_that_says_who_the_client_is_reaches_a_server() {
    let upstream = Upstream::start(async |asked, mut tcp| {
        write(&mut tcp, &honest(&asked)).await;
    })
    .await;
    let entry = Entry::url("a", &upstream.url).with("headers = { \"x-own\" = \"ours\" }");
    let gateway = Gateway::serve(&[entry]).await;
    let secrets = [
        ("authorization", "Bearer canary-1"),
        ("proxy-authorization", "Basic canary-2"),
        ("cookie", "session=canary-3"),
        ("x-api-key", "canary-4"),
        ("x-own", "canary-5"),
        ("x-forwarded-for", "canary-6"),
        ("forwarded", "for=canary-7"),
        ("referer", "http://localhost/canary-8"),
        ("origin", "http://localhost"),
        ("user-agent", "canary-9"),
    ];
    let info = http::post(
        gateway.address,
        "/mcp/a",
        &secrets,
        crate::kit::client::initialize().to_string(),
    )
    .await;
    let session = info.headers["mcp-session-id"].to_str().unwrap();
    let call = crate::kit::client::tool_call(1, "echo", json!({"text": "x"})).to_string();
    let headers = [secrets.as_slice(), &[("mcp-session-id", session)]].concat();
    assert_eq!(text(&http::post(gateway.address, "/mcp/a", &headers, call).await.message()), "x");

    let request =
        modern_request(1, "tools/call", json!({"name": "echo", "arguments": {"text": "y"}}));
    let own = modern_headers(&request);
    let headers: Vec<_> =
        own.iter().map(|(name, value)| (*name, value.as_str())).chain(secrets).collect();
    let body = request.to_string().into();
    let modern = http::send(gateway.address, ::http::Method::POST, "/mcp/a", &headers, body).await;
    assert_eq!(text(&whole(modern).await.message()), "y");

    let seen = upstream.seen();
    assert!(seen.iter().filter(|asked| asked.is("tools/call")).count() == 2);
    for asked in seen {
        assert!(
            !asked.head.contains("canary") && asked.head.contains("x-own: ours"),
            "{}",
            asked.head
        );
        assert!(!asked.head.contains(session) && !asked.head.contains("origin:"), "{}", asked.head);
        assert!(
            asked.head.contains(&format!("host: {}\r\n", &upstream.url[7..upstream.url.len() - 4])),
            "{}",
            asked.head
        );
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Upstream::start(async |asked, mut tcp| {
        write(&mut tcp, &honest(&asked)).await;
    })
    .await;
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let location = format!("location: {}\r\n", target.url);
        let upstream = Upstream::start(move |asked, mut tcp| {
            let location = location.clone();
            async move {
                let bytes = match asked.tool() {
                    "away" => response(status, &location, b""),
                    _ => honest(&asked),
                };
                write(&mut tcp, &bytes).await;
            }
        })
        .await;
        let gateway = Gateway::serve(&[Entry::url("a", &upstream.url)]).await;
        let client = Legacy::connect(&gateway, "/mcp/a").await;
        let answer = client.call("away", json!({})).await;
        assert!(failure(&answer).contains(&format!("HTTP {status}")), "{answer}");
        client.works("echo").await;
        gateway.stop().await;
    }
    assert_eq!(target.seen().len(), 0, "the gateway went where a server sent it");
}

#[tokio::test]
async fn a_handshake_follows_a_redirect_within_its_origin_and_names_one_to_another() {
    let other = Upstream::start(async |asked, mut tcp| {
        write(&mut tcp, &honest(&asked)).await;
    })
    .await;
    let elsewhere = other.url.clone();
    let upstream = Upstream::start(move |asked, mut tcp| {
        let location = match asked.head.split(' ').nth(1) {
            Some("/mcp") => Some("/mcp/".to_owned()),
            Some("/away") => Some(elsewhere.clone()),
            _ => None,
        };
        let redirected = location
            .map(|to| response("307 Temporary Redirect", &format!("location: {to}\r\n"), b""));
        async move {
            write(&mut tcp, &redirected.unwrap_or_else(|| honest(&asked))).await;
        }
    })
    .await;
    let away = upstream.url.replace("/mcp", "/away");
    let gateway = Gateway::serve(&[Entry::url("a", &upstream.url), Entry::url("b", &away)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    client.works("echo").await;
    let calls = upstream.seen().into_iter().filter(|asked| asked.tool() == "echo");
    let paths: Vec<String> =
        calls.map(|asked| asked.head.split(' ').nth(1).unwrap_or_default().to_owned()).collect();
    assert_eq!(paths, ["/mcp/"], "only the handshake takes the way round");

    let refused = http::post(gateway.address, "/mcp/b", &[], initialize().to_string()).await;
    let refused = refused.text();
    assert!(refused.contains(&format!("it redirects to {}", other.url)), "{refused}");
    assert_eq!(other.seen().len(), 0, "the gateway went where a server sent it");
    gateway.stop().await;
}

#[tokio::test]
async fn arguments_never_change_where_a_call_goes_or_which_headers_it_has() {
    let upstream = Upstream::start(async |asked, mut tcp| {
        let tools = json!([{"name": "echo", "inputSchema": {"type": "object", "properties":
            {"text": {"type": "string", "x-mcp-header": "Text"}}}}]);
        let bytes = match asked.message["method"].as_str().unwrap_or_default() {
            "server/discover" => answer(
                &asked,
                &json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
            ),
            "tools/list" => answer(&asked, &json!({"resultType": "complete", "tools": tools})),
            "initialize" => response("400 Bad Request", "", b""),
            _ => honest(&asked),
        };
        write(&mut tcp, &bytes).await;
    })
    .await;
    let gateway = Gateway::serve(&[Entry::url("a", &upstream.url)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    for evil in [
        "x\r\nx-injected: 1",
        "x\nhost: evil.example",
        "../../admin",
        "?a=b#c",
        "\u{e9}\u{0}",
        "=?base64?eA==?=",
    ] {
        assert_eq!(text(&client.call("echo", json!({"text": evil})).await), evil);
        let asked = upstream.seen().into_iter().rfind(|asked| asked.is("tools/call")).unwrap();
        assert!(asked.head.starts_with("post /mcp http/1.1\r\n"), "{}", asked.head);
        assert!(
            !asked.head.contains("\nx-injected") && !asked.head.contains("evil.example"),
            "{}",
            asked.head
        );
        let names = asked.head.lines().filter(|line| line.starts_with("mcp-param-")).count();
        assert_eq!(names, 1, "{}", asked.head);
    }
    let request =
        modern_request(1, "tools/call", json!({"name": "other", "arguments": {"text": "x"}}));
    assert!(whole(modern_begin(gateway.address, "/mcp/a", &request).await).await.status == 200);
    gateway.stop().await;
}
