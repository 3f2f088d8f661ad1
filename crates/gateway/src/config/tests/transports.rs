//! The transport that a server gets, and the URLs and headers that are valid.

use super::*;

fn transport(fields: &str) -> String {
    shown(&only(json_server(fields).good("mcp.json")))
}

fn problem(fields: &str) -> String {
    json_server(fields).problems("mcp.json").replace("mcp.json:1: mcpServers.it", "it")
}

#[test]
fn the_stated_type_wins_in_every_spelling() {
    for spelling in ["http", "streamable-http", "streamable_http", "streamableHttp", "HTTP"] {
        for key in ["type", "transport"] {
            let fields = format!(
                "\"{key}\": \"{spelling}\", \"url\": \"https://a.example/sse\", \"command\": \"x\""
            );
            assert_eq!(transport(&fields), "http https://a.example/sse", "{key} {spelling}");
        }
    }
    assert_eq!(
        transport(r#""type": "sse", "url": "https://a.example/mcp""#),
        "sse https://a.example/mcp"
    );
    assert_eq!(
        transport(r#""type": "websocket", "url": "wss://a.example""#),
        "ws wss://a.example/"
    );
    assert_eq!(transport(r#""type": "ws", "url": "ws://a.example""#), "ws ws://a.example/");
    assert_eq!(
        transport(r#""type": "stdio", "command": "a", "url": "https://a.example""#),
        "stdio a "
    );
    assert_eq!(transport(r#""type": "local", "command": "a", "args": []"#), "stdio a ");
}

#[test]
fn without_a_type_the_fields_tell() {
    assert_eq!(transport(r#""command": "a", "url": "https://a.example""#), "stdio a ");
    assert_eq!(
        transport(r#""httpUrl": "https://a.example/sse", "url": "https://b.example""#),
        "http https://a.example/sse"
    );
    assert_eq!(transport(r#""url": "wss://a.example/sse""#), "ws wss://a.example/sse");
    assert_eq!(
        transport(r#""url": "https://a.example/v1/sse?x=1""#),
        "sse https://a.example/v1/sse?x=1"
    );
    assert_eq!(transport(r#""url": "https://a.example/sse/""#), "sse https://a.example/sse/");
    assert_eq!(transport(r#""url": "https://a.example/assets""#), "http? https://a.example/assets");
    assert_eq!(transport(r#""url": "HTTPS://a.example:8080""#), "http? https://a.example:8080/");
    assert_eq!(transport(r#""url": "http://[::1]:80/mcp""#), "http? http://[::1]:80/mcp");
}

#[test]
fn a_server_lacks_what_its_transport_needs() {
    assert_eq!(problem(""), "it: needs a command or a url");
    assert_eq!(problem(r#""type": "stdio", "url": "https://a.example""#), "it: needs a command");
    assert_eq!(problem(r#""type": "http", "command": "a""#), "it: needs a url");
    assert_eq!(problem(r#""command": " ""#), "it.command: must not be empty");
    assert_eq!(problem(r#""command": ["a", "b"]"#), "it.command: must be a string, not a list");
    assert_eq!(
        problem(r#""command": "a", "args": ["\u0000"]"#),
        "it.args[0]: has a NUL character, which no process can be given"
    );
}

#[test]
fn a_url_is_of_a_known_scheme_and_free_of_passwords() {
    let scheme = "it.url: must start with http://, https://, ws:// or wss://; no other way (unix://, pipe://) is supported";
    let invalid = "it.url: is not a valid URL; write it like \"https://server.example/mcp\"";

    for url in ["unix:///tmp/s#/mcp", "pipe:///x", "file:///etc/passwd", "ftp://a.example"] {
        assert_eq!(problem(&format!("\"url\": \"{url}\"")), scheme, "{url}");
    }
    let bad = [
        "",
        "a.example",
        "http://",
        "http:///mcp",
        "http://a b",
        "http://a:b",
        "http://a:99999",
        "http://ä.example",
    ];
    for url in bad {
        assert_eq!(problem(&format!("\"url\": \"{url}\"")), invalid, "{url}");
    }
    for url in
        ["https://user:hunter2@a.example", "https://hunter2@a.example/mcp", "http://a:hun ter2@b"]
    {
        assert_eq!(
            problem(&format!("\"url\": \"{url}\"")),
            "it.url: has a user name or password in it; put it into headers, as Authorization"
        );
    }
    assert_eq!(
        problem(r#""type": "ws", "url": "https://a.example""#),
        "it.url: must start with ws:// or wss://, or its type be \"http\" or \"sse\""
    );
    assert_eq!(
        problem(r#""type": "sse", "url": "wss://a.example""#),
        "it.url: must start with http:// or https://, or its type be \"ws\""
    );
}

#[test]
fn headers_can_be_sent_and_stand_once() {
    let with =
        |headers: &str| problem(&format!("\"url\": \"https://a.example\", \"headers\": {headers}"));

    let unfit = "has a value that no header can have: only printable ASCII, no line breaks";
    assert_eq!(with(r#"{"X-A": "hunter2\r\nX-B: 1"}"#), format!("it.headers.X-A: {unfit}"));
    assert_eq!(with(r#"{"X-A": "hunter2\u0007"}"#), format!("it.headers.X-A: {unfit}"));
    assert_eq!(with(r#"{"X A": "1"}"#), "it.headers.\"X A\": is not a header's name");
    assert_eq!(with(r#"{"X-A": 1}"#), "it.headers.X-A: must be a string, not a number");
    assert_eq!(
        with(r#"{"X-A": "1", "x-a": "2"}"#),
        "it.headers.x-a: sets a header that is set already; keep one"
    );
}
