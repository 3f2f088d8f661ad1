//! Why a command got no answer of use: each reason in its own true sentence, with its exit code and
//! the next step.

use serde_json::json;

use super::admin_api::{ADMIN, AdminApi};
use super::commands::Shell;
use super::server::{End, Faulty, call};
use super::upstream::{Upstream, response, write};

/// Somebody who answers every request with this.
async fn answering(status: &'static str, body: &'static str) -> (Upstream, String) {
    let headers = "content-type: application/json\r\n";
    let somebody = Upstream::start(move |_, mut tcp| async move {
        write(&mut tcp, &response(status, headers, body.as_bytes())).await;
    })
    .await;
    let address = somebody.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    (somebody, address)
}

#[tokio::test]
async fn a_name_that_the_gateway_does_not_go_by_is_no_wrong_token() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let served = server.served(ADMIN).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    call(&session, "get_issue", json!({})).await;
    let mut shell = Shell::before(&admin);
    assert_eq!(shell.run("status").await.0, 0);
    // The same listener under a name that it was not told: somebody forwards to it.
    let behind = shell.address.trim_start_matches("http://").to_owned();
    let front = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    shell.address = front.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = front.accept().await {
            let mut far = tokio::net::TcpStream::connect(&behind).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    let told = format!(
        "seawall: {} does not go by this name: add it to allowed_hosts in the gateway's configuration, or give --admin with a name it goes by",
        shell.address
    );
    for token in [shell.token, None, Some("wrong")] {
        shell.token = token;
        for args in ["status", "breakers reset get_issue", "tap"] {
            let (code, _, said) = shell.run(args).await;
            assert_eq!((code, said.as_str()), (1, told.as_str()), "{args} {token:?}");
        }
    }
}

#[tokio::test]
async fn a_gateway_without_a_token_is_not_said_to_refuse_ours() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let served = server.served("[admin]\nlisten = \"127.0.0.1:0\"\n").await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    call(&session, "get_issue", json!({})).await;
    let shell = Shell::before(&admin);
    let (code, _, said) = shell.run("breakers reset get_issue").await;
    let told = format!(
        "seawall: {} has no admin token, so nothing can be changed there; set token under [admin] in its configuration",
        shell.address
    );
    assert_eq!((code, said.as_str()), (3, told.as_str()));
}

#[tokio::test]
async fn who_answers_and_cannot_do_it_is_not_said_to_be_away() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let served = server.served(ADMIN).await;
    let shell = Shell::before(&AdminApi::of(&served));
    let gateway = |why: &str| {
        format!("cannot do it now (503 Service Unavailable): {why}; its log may say more")
    };
    for (status, body, code, told) in [
        ("503 Service Unavailable", r#"{"error":"the queue is full"}"#, 4, gateway("the queue is full")),
        (
            "502 Bad Gateway",
            "<html>no luck</html>",
            4,
            "says 502 Bad Gateway, and not in the words of a gateway: if a proxy stands before it, is `seawall serve` running behind?".to_owned(),
        ),
        (
            "503 Service Unavailable",
            r#"{"message":"no upstream"}"#,
            4,
            "says 503 Service Unavailable, and not in the words of a gateway: if a proxy stands before it, is `seawall serve` running behind?".to_owned(),
        ),
        (
            "403 Forbidden",
            r#"{"error":"Origin","refused":"origin"}"#,
            1,
            "does not take the Origin that something on the way adds: go around it, or add it to allowed_origins in the gateway's configuration".to_owned(),
        ),
        ("403 Forbidden", r#"{"error":"policy"}"#, 3, "refuses this: policy".to_owned()),
    ] {
        let (_somebody, address) = answering(status, body).await;
        for args in ["queue retry q1", "servers", "tap"] {
            let (ended, out, said) = shell.raw(&format!("{args} --admin {address}")).await;
            let told = format!("seawall: {address} {told}");
            assert_eq!((ended, out.as_str(), said.as_str()), (code, "", told.as_str()), "{args}");
        }
    }
}
