//! What a person learns of a configuration before depending on it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::kit::{fixture, program};
use super::server::Faulty;
use super::{Ended, Place};

/// A server that is a shell script.
fn script(name: &str, script: &str) -> String {
    format!("[servers.{name}]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n")
}

/// An address at which every request is answered with these bytes.
async fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let _request = tcp.read(&mut [0; 65536]).await;
            let _written = tcp.write_all(answer.as_bytes()).await;
        }
    });
    url
}

const CLOSED: &str = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const NOT_THERE: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

async fn check(toml: &str) -> (i32, Value) {
    let ended = Place::toml(toml).seawall(&["check", "--json", "--timeout", "8s"]).await;
    let told = serde_json::from_str(&ended.out)
        .unwrap_or_else(|error| panic!("{error}: {} {}", ended.out, ended.err));
    (ended.code, told)
}

#[tokio::test]
async fn servers_that_are_well_are_told_with_what_they_speak() {
    let (code, told) = check(&[fixture("old", "legacy"), fixture("new", "modern")].concat()).await;
    assert_eq!((code, &told["ok"]), (0, &json!(true)), "{told}");
    for (name, era, version) in [("old", "legacy", "2025-11-25"), ("new", "modern", "2026-07-28")] {
        let server = &told["servers"][name];
        assert_eq!(
            (&server["era"], &server["version"]),
            (&json!(era), &json!(version)),
            "{server}"
        );
        assert!(
            server["tools"].as_u64() > Some(10) && server["tokens"].as_u64() > Some(100),
            "{server}"
        );
        assert_eq!(
            server["reached"],
            format!("{} --stdio --era {era}", program("seawall-fixture"))
        );
    }
}

#[tokio::test]
async fn each_trouble_has_its_name_and_its_next_step() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let remote = |name: &str, url: &str| format!("[servers.{name}]\nurl = {url:?}\n");
    let toml = [
        "[servers.missing]\ncommand = \"no-such-program\"\nargs = [\"--token\", \"hunter3\", \"a b\"]\n".to_owned(),
        script("dies", "echo the token is $KEY >&2; exit 7") + "env = { KEY = \"hunter2hunter2\" }\n",
        script("chats", "echo hello; echo again; exit 0"),
        remote("refused", &format!("http://{free}/mcp")),
        remote("nowhere", "http://no-such-host.invalid/mcp"),
        remote("closed", &answering(CLOSED).await),
        remote("elsewhere", &answering(NOT_THERE).await),
        remote(
            "nonsense",
            &answering("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\nwhat").await,
        ),
        script("rests", "exec sleep 600"),
    ]
    .concat();
    let (code, told) = check(&toml).await;
    assert_eq!(code, 4, "{told}");
    for (name, problem, text, next) in [
        ("missing", "missing_program", "there is no program \"no-such-program\"", "Install it"),
        ("dies", "ended", "its process ended (exit status: 7)", "by hand"),
        (
            "chats",
            "malformed",
            "its process ended (exit status: 0) before it answered, and ",
            "Is it an MCP server?",
        ),
        ("refused", "refused", "Connection refused", "Is it running"),
        ("nowhere", "dns", "dns error", "Is the host"),
        ("closed", "auth", "HTTP 401", "Give it a token"),
        ("elsewhere", "protocol", "404", "Is the path of its url right?"),
        ("nonsense", "malformed", "cannot be read", "Is it an MCP server"),
        ("rests", "timeout", "did not answer within 8 s", "Run the command by hand"),
    ] {
        let server = &told["servers"][name];
        let says =
            |key: &str, words: &str| server[key].as_str().is_some_and(|text| text.contains(words));
        let is_right = server["problem"] == problem && says("text", text) && says("next", next);
        assert!(is_right && server["ok"] == false, "{name}: {server}");
    }
    assert_eq!(told["servers"]["missing"]["reached"], "no-such-program --token [REDACTED] 'a b'");
    assert!(!told.to_string().contains("hunter"), "{told}");
    let dies = &told["servers"]["dies"];
    assert_eq!(
        (&dies["exit"], &dies["stderr"]),
        (&json!("exit status: 7"), &json!(["the token is ***"])),
        "{dies}"
    );
    assert_eq!(dies["reached"], "KEY=*** sh -c 'echo the token is $KEY >&2; exit 7'");
}

#[tokio::test]
async fn a_url_that_says_the_wrong_thing_about_tls_is_told_as_that() {
    let plain = answering(NOT_THERE).await;
    // What a server that speaks TLS answers to anything else: an alert.
    let tls = answering("\u{15}\u{3}\u{1}\0\u{2}\u{2}\u{46}").await;
    let polite = answering(
        "HTTP/1.1 400 Bad Request\r\ncontent-length: 47\r\nconnection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.",
    )
    .await;
    let to = |name: &str, url: &str, scheme: &str| {
        format!("[servers.{name}]\nurl = {:?}\n", url.replacen("http", scheme, 1))
    };
    let toml = [
        to("https", &plain, "https"),
        to("wss", &plain, "wss"),
        to("http", &tls, "http"),
        to("ws", &tls, "ws"),
        to("polite", &polite, "http"),
    ];
    let (code, told) = check(&toml.concat()).await;
    assert_eq!(code, 4, "{told}");
    for (name, text, next) in [
        (
            "https",
            "it does not speak TLS, and its url begins with https://",
            "Write http:// in its url, or",
        ),
        (
            "wss",
            "it does not speak TLS, and its url begins with wss://",
            "Write ws:// in its url, or",
        ),
        (
            "http",
            "what it answers is no HTTP, and may be TLS",
            "If it speaks TLS, write https:// in its url.",
        ),
        (
            "ws",
            "what it answers is no HTTP, and may be TLS",
            "If it speaks TLS, write wss:// in its url.",
        ),
        ("polite", "it wants TLS, and its url begins with http://", "Write https:// in its url."),
    ] {
        let server = &told["servers"][name];
        assert_eq!(
            (&server["problem"], &server["text"]),
            (&json!("scheme"), &json!(text)),
            "{name}: {server}"
        );
        assert!(server["next"].as_str().unwrap().starts_with(next), "{name}: {server}");
    }
}

#[tokio::test]
async fn a_server_that_is_only_remembered_behind_another_gateway_is_not_well() {
    let place = Place::toml(&fixture("it", "legacy"));
    let folder = place.home().display().to_string();
    // A program that can be taken away, behind a gateway that remembers what it listed.
    std::fs::copy(program("seawall-fixture"), place.path("fixture")).unwrap();
    let fixture = place.path("fixture").display().to_string();
    let mut before = super::kit::Wrapped::remembering(place.home(), &[&fixture, "--stdio"]);
    before.initialize(json!({})).await;
    before.ask(1, "tools/list", json!({})).await;
    before.close();
    let behind = format!(
        "[servers.behind]\ncommand = {:?}\nargs = [\"run\", \"--\", {fixture:?}, \"--stdio\"]\nenv = {{ XDG_STATE_HOME = {folder:?} }}\n",
        env!("CARGO_BIN_EXE_seawall")
    );
    let (code, told) = check(&behind).await;
    assert_eq!(
        (code, &told["servers"]["behind"]["ok"]),
        (0, &json!(true)),
        "while it is there: {told}"
    );
    std::fs::remove_file(place.path("fixture")).unwrap();
    let (code, told) = check(&behind).await;
    let server = &told["servers"]["behind"];
    assert_eq!(
        (code, &server["ok"], &server["problem"]),
        (4, &json!(false), &json!("behind")),
        "{told}"
    );
    let says = |key: &str, words: &str| server[key].as_str().unwrap().contains(words);
    assert!(
        says("text", "behind it, fixture is not there: ") && says("next", "`seawall check` there"),
        "{server}"
    );
}

#[tokio::test]
async fn the_exit_code_says_what_is_missing() {
    let closed = format!(
        "[servers.a]\nurl = {:?}\nheaders = {{ Authorization = \"Bearer abcdefgh\" }}\n",
        answering(CLOSED).await
    );
    let (code, told) = check(&[closed, fixture("b", "legacy")].concat()).await;
    assert!(
        code == 3 && told["servers"]["a"]["next"].as_str().unwrap().contains("renew the token"),
        "{told}"
    );
    assert!(!told.to_string().contains("abcdefgh"));

    let broken = Place::toml("listn = 1\n[servers.a]\ncomand = \"x\"\n");
    let Ended { code, out, err } = broken.seawall(&["check"]).await;
    assert!(
        code == 1
            && out.is_empty()
            && err.contains("seawall.toml:1: ")
            && err.contains("seawall.toml:3: "),
        "{err}"
    );
    let told = broken.json(&["check"]).await;
    let lines: Vec<&Value> =
        told["problems"].as_array().unwrap().iter().map(|problem| &problem["line"]).collect();
    assert_eq!((&told["ok"], lines), (&json!(false), vec![&json!(1), &json!(3)]));
}

#[tokio::test]
async fn what_will_surprise_is_told_before_it_does() {
    let tools = json!([
        {"name": "get_x", "inputSchema": {"type": "object"}},
        {"name": "get.x", "inputSchema": {"type": "object"}},
        {"name": "frob", "inputSchema": {"type": "object"}},
        {"name": "broken"},
        {"name": "y".repeat(61), "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
    ]);
    let info = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "b", "version": "1"}});
    let answer =
        |id: u8, result: &Value| json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    // Our ids are counted from 1: the handshake, then the list.
    let lines = [answer(1, &info), answer(2, &json!({"tools": tools}))];
    let server = format!(
        "echo Welcome; read a; echo '{}'; read b; read c; echo '{}'; read d",
        lines[0], lines[1]
    );
    let toml = [
        "[tools.\"odd/get_xs\"]\ntimeout = \"5s\"\n[tools.\"odd/get_*\"]\nfallback = [{ tool = \"it/slw\" }]\n"
            .to_owned(),
        script("odd", &server),
        fixture("it", "legacy"),
    ]
    .concat();
    let (code, told) = check(&toml).await;
    assert_eq!(code, 0, "{told}");
    let odd = told["servers"]["odd"]["warnings"].to_string();
    for words in [
        "1 line on its stdout was no message",
        r#"so they are left out: \"broken\": its inputSchema is missing"#,
        "longer than 64 letters, which some clients refuse: odd__yyy",
        "so they count as writes; set their effect under [tools]: frob",
        "3 of 4 tools have no annotations",
    ] {
        assert!(odd.contains(words), "{words}: {odd}");
    }
    let notes = told["notes"].to_string();
    assert!(notes.contains("has its own process of odd, it; clients without sessions"), "{notes}");
    let all = told["warnings"].to_string();
    for words in [
        r#"seawall.toml:1: [tools.\"odd/get_xs\"] fits no tool; did you mean \"get_x\"?"#,
        r#"it/slw is to stand in for others, and it has no such tool; did you mean \"slow\"?"#,
        "cannot tell these names apart: odd__get_x, odd__get.x",
        "without a [store] no write waits",
    ] {
        assert!(all.contains(words), "{words}: {all}");
    }
    assert!(!all.contains("odd/get_*"), "{all}");
}

#[tokio::test]
async fn no_tool_is_called_and_nothing_is_left_behind() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&asked);
    let server = Faulty::answering(move |_, method, _, _| {
        heard.lock().unwrap().push(method.to_owned());
        None
    })
    .await;
    // It stays when its stdin ends and when it is asked to go, and has started another that does
    // too.
    let stubborn = "trap '' TERM; (trap '' TERM; sleep 611) & sleep 612";
    let toml = format!("[servers.gh]\nurl = \"{}\"\n{}", server.url, script("stubborn", stubborn));
    let place = Place::toml(&toml);
    let ended = place.seawall(&["check", "--timeout", "2s", "--no-catalog-cache"]).await;
    assert!(ended.code == 4 && ended.out.contains("✓ gh: http://127.0.0.1:"), "{}", ended.out);
    assert!(
        ended.out.contains("✗ stubborn: ") && ended.err.is_empty(),
        "{} {}",
        ended.out,
        ended.err
    );
    let methods = asked.lock().unwrap().clone();
    let harmless = ["initialize", "notifications/initialized", "tools/list", "server/discover", ""];
    assert!(methods.iter().all(|method| harmless.contains(&method.as_str())), "{methods:?}");
    assert!(methods.contains(&"tools/list".to_owned()), "{methods:?}");
    assert!(!place.path("seawall").exists(), "nothing is remembered");
    for seconds in ["611", "612"] {
        let sleeper = format!("sleep\0{seconds}\0");
        let mut left = usize::MAX;
        for _ in 0..200 {
            left = running(&sleeper);
            if left == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(left, 0, "{sleeper:?} still runs");
    }
}

/// Processes with this command line.
fn running(command: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| {
            std::fs::read_to_string(entry.path().join("cmdline")).is_ok_and(|line| line == command)
        })
        .count()
}
