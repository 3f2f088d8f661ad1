//! What `serve` would fail for is told before: addresses, the store, files with secrets. A gateway
//! that runs is left alone.

use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::Place;
use super::kit::{fixture, soon};

async fn check(place: &Place) -> (i32, Value) {
    let ended = place.seawall(&["check", "--json", "--timeout", "20s"]).await;
    let told = serde_json::from_str(&ended.out)
        .unwrap_or_else(|error| panic!("{error}: {} {}", ended.out, ended.err));
    (ended.code, told)
}

fn with(settings: &str) -> Place {
    Place::toml(&format!("{settings}\n{}", fixture("it", "legacy")))
}

fn free() -> std::net::SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn an_address_that_cannot_be_had_is_told_with_who_has_it() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    let place = with(&format!(
        "listen = \"{address}\"\n[admin]\nlisten = \"192.0.2.1:7333\"\ntoken = \"x\""
    ));
    let (code, told) = check(&place).await;
    assert_eq!(
        (code, &told["ok"], &told["servers"]["it"]["ok"]),
        (4, &json!(false), &json!(true)),
        "{told}"
    );
    let listen = &told["gateway"]["listen"];
    assert_eq!(
        (&listen["problem"], &listen["at"]),
        (&json!("taken"), &json!(address.to_string())),
        "{told}"
    );
    let who = format!("(process {}) listens there", std::process::id());
    assert!(listen["text"].as_str().unwrap().ends_with(&who), "{told}");
    assert_eq!(told["gateway"]["admin"]["problem"], "no_such_address", "{told}");

    let text = place.seawall(&["check"]).await.out;
    assert!(
        text.contains(&format!("✗ listen: {address}\n    "))
            && text.contains("choose another port"),
        "{text}"
    );

    let (code, told) = check(&with("listen = \"0.0.0.0:7332\"")).await;
    assert_eq!(
        (code, &told["gateway"]["listen"]["problem"]),
        (4, &json!("open_to_others")),
        "{told}"
    );
    let same = free();
    let (code, told) =
        check(&with(&format!("listen = \"{same}\"\n[admin]\nlisten = \"{same}\""))).await;
    assert_eq!((code, &told["gateway"]["admin"]["problem"]), (4, &json!("taken")), "{told}");
}

#[tokio::test]
async fn a_store_that_cannot_be_written_is_told_and_none_is_made() {
    let place = with(&format!("listen = \"{}\"\n[store]\npath = \"new/store\"", free()));
    let (code, told) = check(&place).await;
    assert_eq!((code, &told["gateway"]["store"]["ok"]), (0, &json!(true)), "{told}");
    assert!(!place.path("new").exists(), "a check makes nothing");

    let place = with(&format!("listen = \"{}\"\n[store]\npath = \"store\"", free()));
    std::fs::write(place.path("store"), "a file").unwrap();
    let (code, told) = check(&place).await;
    assert_eq!((code, &told["gateway"]["store"]["problem"]), (4, &json!("cannot_write")), "{told}");
    std::fs::remove_file(place.path("store")).unwrap();
    std::fs::create_dir(place.path("store")).unwrap();
    std::fs::write(place.path("store/queue.redb"), "something else").unwrap();
    let (code, told) = check(&place).await;
    assert_eq!((code, &told["gateway"]["store"]["problem"]), (4, &json!("damaged")), "{told}");
    assert_eq!(std::fs::read_to_string(place.path("store/queue.redb")).unwrap(), "something else");
}

#[tokio::test]
async fn a_file_with_a_secret_that_cannot_be_read_is_told_with_its_line() {
    let ended = with("[admin]\ntoken = \"${file:admin.token}\"").seawall(&["check"]).await;
    let words = "seawall.toml:2: admin.token: ";
    assert!(ended.out.contains(words) && ended.out.contains("cannot be read"), "{}", ended.out);
    assert_eq!(ended.code, 3, "a credential is missing, and nothing else: {}", ended.out);
    let open = with("[admin]\nlisten = \"0.0.0.0:0\"\ntoken = \"${file:admin.token}\"")
        .seawall(&["check"])
        .await;
    assert!(
        open.code == 1 && open.err.contains("seawall.toml:3: admin.token: "),
        "others could reach it: {}",
        open.err
    );
}

#[tokio::test]
async fn a_gateway_that_runs_is_told_and_left_alone() {
    let (listen, admin) = (free(), free());
    let place = with(&format!(
        "listen = \"{listen}\"\n[admin]\nlisten = \"{admin}\"\n[store]\npath = \"store\""
    ));
    let mut serve = Command::new(env!("CARGO_BIN_EXE_seawall"));
    serve
        .arg("serve")
        .arg("--no-catalog-cache")
        .current_dir(place.home())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut serve = serve.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(serve.stderr.take().unwrap()).lines();
    soon(async { while !lines.next_line().await.unwrap().unwrap().contains("listening on") {} })
        .await;
    let file = std::fs::read(place.path("store/queue.redb")).unwrap();

    let (code, told) = check(&place).await;
    assert_eq!((code, &told["ok"]), (0, &json!(true)), "{told}");
    let warnings = told["warnings"].to_string();
    let pid = serve.id().unwrap();
    for what in [
        format!("listen {listen}"),
        format!("admin {admin}"),
        format!("store {}", place.path("store").display()),
    ] {
        let note = format!("{what}: a gateway that runs has it: seawall (process {pid})");
        assert!(warnings.contains(&note), "{note}: {warnings}");
    }
    assert!(
        std::fs::read(place.path("store/queue.redb")).unwrap() == file,
        "the store is as it was"
    );
    let mut tcp = tokio::net::TcpStream::connect(admin).await.unwrap();
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(tcp.read_to_string(&mut answer)).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"status":"ready"}"#),
        "{answer}"
    );
    serve.kill().await.unwrap();

    let (code, told) = check(&place).await;
    assert_eq!((code, &told["gateway"]["store"]["ok"]), (0, &json!(true)), "{told}");
    assert!(!told["warnings"].to_string().contains("a gateway that runs"), "{told}");
}

#[tokio::test]
async fn an_authorizer_and_keys_that_cannot_be_had_are_told_and_neither_is_asked_about_a_call() {
    let (away, held) = (free(), TcpListener::bind("127.0.0.1:0").unwrap());
    let issuer = "[[identity.jwt]]\nissuer = \"https://idp.example\"\naudiences = [\"a\"]\njwks = \"none.json\"";
    let place =
        with(&format!("listen = \"127.0.0.1:0\"\n{issuer}\n[ext_authz]\nservice = \"{away}\""));
    let (code, told) = check(&place).await;
    assert_eq!(code, 4, "{told}");
    let (identity, authorizer) = (&told["gateway"]["identity"], &told["gateway"]["ext_authz"]);
    assert_eq!(
        (&identity["problem"], &authorizer["problem"], &authorizer["at"]),
        (&json!("no_keys"), &json!("authorizer_away"), &json!(away.to_string())),
        "{told}"
    );
    let there = held.local_addr().unwrap();
    let (code, told) =
        check(&with(&format!("listen = \"127.0.0.1:0\"\n[ext_authz]\nservice = \"{there}\"")))
            .await;
    assert_eq!((code, &told["gateway"]["ext_authz"]["ok"]), (0, &json!(true)), "{told}");
}
