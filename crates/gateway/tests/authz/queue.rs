//! A write that waits is allowed again when it is made; both sessions of a caller read its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use seawall_testkit::authz::{Authorizer, Check, Jwks, Key, KeyKind, Reply, claims};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::client::Client;
use crate::kit::upstream::{answer, honest, response, write};
use crate::kit::{Asked, Entry, Gateway, Upstream, http, until};
use crate::{calls, tools};

/// A server that is too busy for writes until it is well.
async fn busy() -> (Upstream, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(false));
    let looked = Arc::clone(&is_well);
    let server = Upstream::start(move |asked: Asked, mut tcp| {
        let is_well = looked.load(Ordering::SeqCst);
        async move {
            let said = match asked.message["method"].as_str().unwrap_or_default() {
                "tools/list" => answer(&asked, &json!({"tools": tools()})),
                "tools/call" if !is_well => response("429 Too Many Requests", "", b""),
                _ => honest(&asked),
            };
            write(&mut tcp, &said).await;
        }
    })
    .await;
    (server, is_well)
}

async fn outcome(client: &Client<'_>, session: &str, resource: &str) -> Value {
    let read = client.ask(session, "resources/read", json!({"uri": resource})).await.message();
    match read["result"]["contents"][0]["text"].as_str() {
        Some(text) => serde_json::from_str(text).unwrap(),
        None => read,
    }
}

#[tokio::test]
async fn a_queued_write_is_checked_again_and_its_caller_reads_the_outcome_in_any_session() {
    let folder = TempDir::new().unwrap();
    let ((server, is_well), authorizer) = (busy().await, Authorizer::start().await.unwrap());
    let key = Key::new(KeyKind::Es256, "k1").unwrap();
    let jwks = Jwks::start(&[&key]).await.unwrap();
    let settings = format!(
        "[store]\npath = {:?}\n[defaults]\nretry = {{ base = \"20ms\" }}\nbreaker = {{ failures = 0 }}\n\
         [[identity.jwt]]\nissuer = \"https://idp.example\"\naudiences = [\"seawall\"]\njwks = {:?}\n\
         [ext_authz]\nservice = {:?}\nclaims = {{ \"caipe.auth\" = [\"sub\"] }}\n",
        folder.path().display().to_string(),
        jwks.url(),
        authorizer.url(),
    );
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &server.url)]).await;
    let client = |subject: &str| {
        let token = key.sign(&claims(subject, "https://idp.example", "seawall", 300));
        Client::new(&gateway, "/mcp/gh").bearer(&token)
    };
    let (ann, eve) = (client("ann"), client("eve"));
    let (of_ann, of_eve) = (ann.session().await, eve.session().await);
    let mut queued = Vec::new();
    for (who, session, text) in [(&ann, &of_ann, "by ann"), (&eve, &of_eve, "by eve")] {
        let answer = who.call(session, "send_mail", json!({"text": text})).await;
        let served = &answer["result"]["_meta"]["seawall/served"];
        assert_eq!(served["code"], "QUEUED", "{answer}");
        queued.push(served["resource"].as_str().unwrap().to_owned());
    }
    // While they wait, eve loses her right.
    authorizer.decide(|check: &Check| match check.filter_metadata["caipe.auth"]["sub"].as_str() {
        Some("eve") => Reply::deny("eve has left").into(),
        _ => Reply::allow().into(),
    });
    is_well.store(true, Ordering::SeqCst);
    let again = client("ann").session().await;
    until(30, "ann's write is made", async || {
        outcome(&ann, &again, &queued[0]).await["state"] == "delivered"
    })
    .await;
    let sent = || -> Vec<Value> {
        let seen = server.seen();
        let made = seen.iter().filter(|asked| asked.is("tools/call"));
        made.map(|asked| asked.message["params"]["arguments"]["text"].clone()).collect()
    };
    // Her own view of it is denied as well, until she may see it again.
    let hidden = outcome(&eve, &of_eve, &queued[1]).await;
    assert!(hidden["error"]["message"].as_str().unwrap().contains("eve has left"), "{hidden}");
    until(30, "eve's write is given up", async || {
        authorizer.checks().iter().any(|check| {
            check.filter_metadata["caipe.auth"]["sub"] == "eve"
                && check.json()["params"]["arguments"]["text"] == "by eve"
        })
    })
    .await;
    let refused = sent().len();
    authorizer.always(Reply::allow());
    let later = eve.session().await;
    until(30, "eve's write is given up", async || {
        outcome(&eve, &later, &queued[1]).await["state"] == "dead"
    })
    .await;
    assert_eq!(sent().len(), refused);
    let told = outcome(&eve, &later, &queued[1]).await;
    assert!(told["note"].as_str().unwrap().contains("eve has left"), "{told}");
    assert_eq!(told["mayHaveExecuted"], false);
    // One try each before they waited; then ann's alone.
    assert!(sent().iter().filter(|text| **text == "by ann").count() >= 2);
    assert_eq!(calls(&server, "send_mail"), sent().len());
    let others = outcome(&ann, &again, &queued[1]).await;
    assert!(others.get("error").is_some(), "ann reads nothing of eve: {others}");
}

#[tokio::test]
async fn a_queued_write_of_a_key_that_was_taken_back_is_not_made() {
    let folder = TempDir::new().unwrap();
    let (server, is_well) = busy().await;
    let key = |name: &str| {
        let digest: String =
            Sha256::digest(name).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[[identity.api_keys]]\nname = {name:?}\nsha256 = {digest:?}\n")
    };
    let settings = format!(
        "[store]\npath = {:?}\n[defaults]\nretry = {{ base = \"20ms\" }}\nbreaker = {{ failures = 0 }}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n",
        folder.path().display().to_string(),
    );
    let serve = async |keys: String| {
        let entry = Entry::url("gh", &server.url);
        let mut gateway = Gateway::serve_with(&format!("{settings}{keys}"), &[entry]).await;
        let admin = gateway.address_said("admin at").await;
        gateway.address = gateway.address_said("listening on").await;
        (gateway, admin)
    };
    let (gateway, _) = serve(format!("{}{}", key("ci"), key("other"))).await;
    let client = Client::new(&gateway, "/mcp/gh").bearer("ci");
    let session = client.session().await;
    let answer = client.call(&session, "send_mail", json!({"text": "by ci"})).await;
    assert_eq!(answer["result"]["_meta"]["seawall/served"]["code"], "QUEUED", "{answer}");
    drop(client);
    gateway.stop().await;
    let tried = calls(&server, "send_mail");
    is_well.store(true, Ordering::SeqCst);
    let (_gateway, admin) = serve(key("other")).await;
    until(30, "the write is given up", async || {
        let path = "/resilience/queue";
        let sent = http::send(admin, ::http::Method::GET, path, &[], "".into()).await;
        http::whole(sent).await.text().contains("is not known any more")
    })
    .await;
    assert_eq!(calls(&server, "send_mail"), tried);
}
