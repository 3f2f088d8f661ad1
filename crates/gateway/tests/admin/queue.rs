//! The writes that wait, as an operator sees them; and what a retry or a drop does, through a crash
//! too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::admin_api::{ADMIN, AdminApi, TOKEN};
use super::kit::{Served, Session, soon, until};
use super::server::{End, Faulty, call};

const BUSY: u8 = 0;
const WELL: u8 = 1;
/// What is asked of it may be executed, and nobody hears.
const CUT: u8 = 2;
const HELD: u8 = 3;
/// It answers, and its answer is an error.
const WRONG: u8 = 4;

/// A server whose mood can be set, and what lets it go on when it holds a call.
async fn moody() -> (Faulty, Arc<AtomicU8>, Arc<Semaphore>) {
    let (mood, go) = (Arc::new(AtomicU8::new(BUSY)), Arc::new(Semaphore::new(0)));
    let (looked, held) = (Arc::clone(&mood), Arc::clone(&go));
    let server = Faulty::start(move |_, _, _| match looked.load(Ordering::SeqCst) {
        WELL => End::Text("made"),
        CUT => End::Reset,
        WRONG => End::ToolError("there is no such label"),
        HELD => End::Held(Arc::clone(&held), "held"),
        // Certainly not executed.
        _ => End::Status("429 Too Many Requests", "", "token=hunter2-canary"),
    })
    .await;
    (server, mood, go)
}

fn policies(folder: &TempDir) -> String {
    let path = folder.path().display();
    format!(
        "{ADMIN}[store]\npath = \"{path}\"\n[defaults]\nretry = {{ attempts = 1 }}\nbreaker = {{ failures = 99 }}\n"
    )
}

/// Asks for a write that has to wait; gives its id.
async fn queued(session: &Session<'_>, tool: &str, arguments: Value) -> String {
    let answer = call(session, tool, arguments).await;
    let served = &answer["result"]["_meta"]["seawall/served"];
    served["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

async fn items(admin: &AdminApi) -> Vec<Value> {
    let (status, answer) = admin.get("/resilience/queue").await;
    assert_eq!(status, 200, "{answer}");
    answer["items"].as_array().unwrap().clone()
}

/// Waits until an item was tried at least so often, and is in this state.
async fn tried(admin: &AdminApi, id: &str, state: &str, attempts: u64) -> Value {
    let find =
        async || items(admin).await.into_iter().find(|item| item["id"] == id).unwrap_or_default();
    until("it was tried", async || {
        let item = find().await;
        item["state"] == state && item["attempts"].as_u64() >= Some(attempts)
    })
    .await;
    find().await
}

/// Keeps what waits for this tool from being tried, and waits until nothing of it is.
async fn hold(admin: &AdminApi, tool: &str) {
    assert_eq!(admin.force(tool, "open").await.0, 200);
    until("nothing is under way", async || {
        admin.get("/resilience/queue").await.1["delivering"] == 0
    })
    .await;
}

async fn retry(admin: &AdminApi, id: &str, body: &str) -> (u16, Value) {
    admin.change(Method::POST, &format!("/resilience/queue/{id}/retry"), body).await
}

async fn forget(admin: &AdminApi, id: &str) -> (u16, Value) {
    forget_with(admin, id, "").await
}

async fn forget_with(admin: &AdminApi, id: &str, body: &str) -> (u16, Value) {
    admin.change(Method::DELETE, &format!("/resilience/queue/{id}"), body).await
}

/// What its client reads of it.
async fn became(session: &Session<'_>, id: &str) -> Value {
    let answer =
        session.ask(60, "resources/read", json!({"uri": format!("seawall://queue/{id}")})).await;
    let text = answer["result"]["contents"][0]["text"].as_str();
    text.map_or(answer.clone(), |text| serde_json::from_str(text).unwrap())
}

#[tokio::test]
async fn what_waits_is_listed_without_what_it_was_given_and_can_be_sent_at_once() {
    let folder = TempDir::new().unwrap();
    let (server, mood, _) = moody().await;
    let served = server.served(&policies(&folder)).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    assert_eq!(items(&admin).await, [] as [Value; 0]);
    let id = queued(&session, "create_issue", json!({"title": "private-canary"})).await;
    // The third pause is four seconds long.
    let item = tried(&admin, &id, "waiting", 3).await;
    let keys: BTreeSet<&str> = item.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "id",
        "tool",
        "server",
        "state",
        "isError",
        "attempts",
        "nextAttempt",
        "enqueued",
        "mayHaveExecuted",
        "lastError",
    ];
    assert_eq!(keys, BTreeSet::from(expected));
    assert_eq!((&item["tool"], &item["server"]), (&json!("create_issue"), &json!("gh")));
    let (next, came) = (item["nextAttempt"].as_u64().unwrap(), item["enqueued"].as_u64().unwrap());
    assert!((5_000..60_000).contains(&(next - came)), "{item}");
    assert!(item["lastError"].as_str().unwrap().contains("429"), "{item}");
    let (_, raw) = admin.send(Method::GET, "/resilience/queue", &[]).await;
    for secret in ["private-canary", "hunter2-canary", session.id.as_str()] {
        assert!(!raw.contains(secret), "{raw}");
    }

    assert_eq!(retry(&admin, &id, "").await, (200, json!({"status": "waiting", "id": id})));
    let due = tried(&admin, &id, "waiting", 3).await;
    let was_tried = due["attempts"].as_u64() > Some(3);
    assert!(was_tried || due["nextAttempt"].as_u64() < Some(next), "it is due now: {due}");
    mood.store(WELL, Ordering::SeqCst);
    let made = tried(&admin, &id, "delivered", 4).await;
    assert_eq!((&made["lastError"], &made["nextAttempt"]), (&Value::Null, &Value::Null));
    assert_eq!(became(&session, &id).await["result"]["content"][0]["text"], "made");
    let (status, why) = retry(&admin, &id, "").await;
    assert!(status == 409 && why["error"].as_str().unwrap().contains("made already"), "{why}");
    let made = json!(server.calls("create_issue") - 1);
    assert_eq!(
        made,
        items(&admin).await[0]["attempts"],
        "once for its client, then as often as it was tried"
    );
}

#[tokio::test]
async fn what_may_have_been_executed_is_not_repeated_by_a_slip() {
    let folder = TempDir::new().unwrap();
    let (server, mood, _) = moody().await;
    let served = server.served(&policies(&folder)).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    let id = queued(&session, "create_issue", json!({})).await;
    tried(&admin, &id, "waiting", 1).await;
    mood.store(CUT, Ordering::SeqCst);
    assert_eq!(retry(&admin, &id, "{}").await.0, 200);
    let dead = tried(&admin, &id, "dead", 2).await;
    assert_eq!(dead["mayHaveExecuted"], true, "{dead}");
    let before = server.calls("create_issue");
    mood.store(WELL, Ordering::SeqCst);
    for body in ["", "{}", r#"{"even_if_executed": false}"#] {
        let (status, why) = retry(&admin, &id, body).await;
        assert!(
            status == 409 && why["error"].as_str().unwrap().contains("even_if_executed"),
            "{why}"
        );
    }
    for body in [r#"{"even_if_executed": "yes"}"#, r#"{"even": true}"#, "true"] {
        assert_eq!(retry(&admin, &id, body).await.0, 400, "{body}");
    }
    assert_eq!(
        (became(&session, &id).await["state"].clone(), server.calls("create_issue")),
        (json!("dead"), before)
    );

    assert_eq!(retry(&admin, &id, r#"{"even_if_executed": true}"#).await.0, 200);
    tried(&admin, &id, "delivered", 3).await;
    let told = became(&session, &id).await;
    assert_eq!(
        (&told["state"], &told["mayHaveExecuted"]),
        (&json!("delivered"), &json!(true)),
        "{told}"
    );
}

#[tokio::test]
async fn what_is_dropped_is_never_made_and_what_is_under_way_cannot_be() {
    let folder = TempDir::new().unwrap();
    let (server, mood, go) = moody().await;
    let served = server.served(&policies(&folder)).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    let first = queued(&session, "create_issue", json!({"n": 1})).await;
    let second = queued(&session, "create_issue", json!({"n": 2})).await;
    hold(&admin, "create_issue").await;
    let before = server.calls("create_issue");
    mood.store(HELD, Ordering::SeqCst);
    assert_eq!(forget(&admin, &first).await, (200, json!({"status": "dropped", "id": first})));
    assert_eq!(forget(&admin, &first).await.0, 404, "it is gone");
    assert_eq!(became(&session, &first).await["error"]["code"], -32602);

    assert_eq!(admin.force("create_issue", "auto").await.0, 200);
    tried(&admin, &second, "delivering", 1).await;
    for (status, why) in [forget(&admin, &second).await, retry(&admin, &second, "").await] {
        assert!(status == 409 && why["error"].as_str().unwrap().contains("being sent"), "{why}");
    }
    go.add_permits(1);
    tried(&admin, &second, "delivered", 1).await;
    assert_eq!(server.arguments("create_issue").split_off(before), [json!({"n": 2})]);
}

#[tokio::test]
async fn a_result_that_its_client_can_still_read_is_not_dropped_by_a_slip() {
    let folder = TempDir::new().unwrap();
    let (server, mood, _) = moody().await;
    let served = server.served(&policies(&folder)).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    let id = queued(&session, "create_issue", json!({})).await;
    mood.store(WELL, Ordering::SeqCst);
    tried(&admin, &id, "delivered", 1).await;
    for body in ["", "{}", r#"{"even_if_delivered": false}"#] {
        let (status, why) = forget_with(&admin, &id, body).await;
        let why = why["error"].as_str().unwrap();
        assert!(
            status == 409 && why.contains("made already") && why.contains("even_if_delivered"),
            "{status} {why}"
        );
    }
    for body in [r#"{"even_if_delivered": 1}"#, r#"{"even_if_executed": true}"#, "true"] {
        assert_eq!(forget_with(&admin, &id, body).await.0, 400, "{body}");
    }
    assert_eq!(became(&session, &id).await["result"]["content"][0]["text"], "made");
    let (status, why) = retry(&admin, &id, r#"{"even_if_executed": true}"#).await;
    let why = why["error"].as_str().unwrap();
    assert!(status == 409 && !why.contains("even_if"), "no word makes it twice: {why}");

    let dropped = forget_with(&admin, &id, r#"{"even_if_delivered": true}"#).await;
    assert_eq!(dropped, (200, json!({"status": "dropped", "id": id})));
    assert_eq!(became(&session, &id).await["error"]["code"], -32602);
}

#[tokio::test]
async fn what_an_operator_was_answered_is_so_after_a_crash() {
    let folder = TempDir::new().unwrap();
    let (server, mood, _) = moody().await;
    let mut served = server.served(&policies(&folder)).await;
    {
        let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
        let mut ids = Vec::new();
        for n in 1..=3 {
            ids.push(queued(&session, "create_issue", json!({ "n": n })).await);
        }
        hold(&admin, "create_issue").await;
        assert_eq!(forget(&admin, &ids[0]).await.0, 200);
        assert_eq!(forget(&admin, &ids[2]).await.0, 200);
    }
    kill_process(Pid::from_raw(served.child.id().unwrap().cast_signed()).unwrap(), Signal::KILL)
        .unwrap();
    soon(served.child.wait()).await.unwrap();
    let before = server.calls("create_issue");
    mood.store(WELL, Ordering::SeqCst);

    let next = server.served(&policies(&folder)).await;
    let admin = AdminApi::of(&next);
    let left: Vec<Value> = items(&admin).await.iter().map(|item| item["id"].clone()).collect();
    assert_eq!(left, ["q2"]);
    tried(&admin, "q2", "delivered", 1).await;
    assert_eq!(server.arguments("create_issue").split_off(before), [json!({"n": 2})]);
}

#[tokio::test]
async fn a_long_queue_is_read_in_pages() {
    let folder = TempDir::new().unwrap();
    let (server, ..) = moody().await;
    let served = server.served(&policies(&folder)).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    for n in 1..=3 {
        queued(&session, "create_issue", json!({ "n": n })).await;
    }
    hold(&admin, "create_issue").await;
    let page = async |query: &str| {
        let (status, page) = admin.get(&format!("/resilience/queue{query}")).await;
        let ids = |page: &Value| -> Vec<String> {
            let items = page["items"].as_array().cloned().unwrap_or_default();
            items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
        };
        (status.as_u16(), ids(&page).join(" "), page["next"].clone(), page["waiting"].clone())
    };
    assert_eq!(page("?limit=2").await, (200, "q1 q2".to_owned(), json!("q2"), json!(3)));
    assert_eq!(page("?limit=2&after=q2").await, (200, "q3".to_owned(), Value::Null, json!(3)));
    assert_eq!(page("?state=dead%2Cdelivered").await, (200, String::new(), Value::Null, json!(3)));
    for wrong in ["?limit=x", "?limit=-1", "?after=2", "?state=gone", "?sate=dead", "?state=%ff"] {
        assert_eq!(page(wrong).await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn without_a_store_there_is_no_queue_and_without_the_key_nothing_changes() {
    let (server, ..) = moody().await;
    let served = server.served(ADMIN).await;
    let admin = AdminApi::of(&served);
    let (status, why) = admin.get("/resilience/queue").await;
    assert!(status == 404 && why["error"].as_str().unwrap().contains("[store]"), "{why}");
    assert_eq!((retry(&admin, "q1", "").await.0, forget(&admin, "q1").await.0), (404, 404));

    let folder = TempDir::new().unwrap();
    let served = server.served(&policies(&folder)).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    let id = queued(&session, "create_issue", json!({})).await;
    let (drop_it, retry_it) =
        (format!("/resilience/queue/{id}"), format!("/resilience/queue/{id}/retry"));
    for (method, path) in [(Method::DELETE, &drop_it), (Method::POST, &retry_it)] {
        assert_eq!(admin.send(method.clone(), path, &[]).await.0, 401);
        assert_eq!(admin.send(method, path, &[("x-api-key", "wrong")]).await.0, 403);
    }
    assert_eq!(admin.send(Method::POST, &drop_it, &[("x-api-key", TOKEN)]).await.0, 405);
    assert_eq!(items(&admin).await.len(), 1);
    for unknown in ["q99", "99", "q01", "q-1"] {
        assert_eq!(
            (retry(&admin, unknown, "").await.0, forget(&admin, unknown).await.0),
            (404, 404),
            "{unknown}"
        );
    }
    let served = Served::with(&format!(
        "{}[servers.gh]\nurl = \"{}\"\ntype = \"http\"\n",
        ADMIN.replace("127.0.0.1", "0.0.0.0"),
        server.url
    ))
    .await;
    assert_eq!(
        AdminApi::of(&served).send(Method::GET, "/resilience/queue", &[]).await.0,
        401,
        "off loopback reads too"
    );
}

#[tokio::test]
async fn what_waits_for_a_tool_that_is_switched_off_waits_on() {
    let folder = TempDir::new().unwrap();
    let (server, mood, _) = moody().await;
    let served = server.served(&policies(&folder)).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    let first = queued(&session, "create_issue", json!({})).await;
    let second = queued(&session, "update_issue", json!({})).await;
    hold(&admin, "create_issue").await;
    let (before, tries) =
        (server.calls("create_issue"), items(&admin).await[0]["attempts"].clone());
    mood.store(WELL, Ordering::SeqCst);
    assert_eq!(retry(&admin, &first, "").await.0, 200);
    // As long as this takes, it would have been made long ago.
    for _ in 0..100 {
        let item = &items(&admin).await[0];
        assert_eq!((&item["state"], &item["attempts"]), (&json!("waiting"), &tries));
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(forget(&admin, &first).await.0, 200);
    tried(&admin, &second, "delivered", 1).await;
    assert_eq!(server.calls("create_issue"), before);
}

#[tokio::test]
async fn what_was_answered_with_an_error_is_told_apart_and_not_sent_again() {
    let folder = TempDir::new().unwrap();
    let (server, mood, _) = moody().await;
    let served = server.served(&policies(&folder)).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    let wrong = queued(&session, "create_issue", json!({})).await;
    mood.store(WRONG, Ordering::SeqCst);
    let answered = tried(&admin, &wrong, "delivered", 1).await;
    assert_eq!(answered["isError"], true, "{answered}");
    assert!(!answered.to_string().contains("no such label"), "answers are not shown: {answered}");
    mood.store(BUSY, Ordering::SeqCst);
    // Another one: the same would be held back until somebody has looked.
    let right = queued(&session, "create_issue", json!({"title": "another"})).await;
    mood.store(WELL, Ordering::SeqCst);
    assert_eq!(tried(&admin, &right, "delivered", 1).await["isError"], false);
    let (_, all) = admin.get("/resilience/queue").await;
    assert_eq!((&all["delivered"], &all["deliveredWithError"]), (&json!(2), &json!(1)), "{all}");

    let told = became(&session, &wrong).await;
    assert_eq!(
        (&told["state"], &told["isError"], &told["result"]["isError"]),
        (&json!("delivered"), &json!(true), &json!(true))
    );
    assert_eq!(became(&session, &right).await["isError"], false);
    let line =
        format!("{wrong} (create_issue at gh) was answered with an error, and is not sent again");
    until("the log tells it", async || {
        served.log.lock().unwrap().iter().any(|told| told.contains(&line))
    })
    .await;
    assert!(
        !served.log.lock().unwrap().iter().any(|told| told.contains(&format!("{right} ("))),
        "a success is no news"
    );
    let mut tap = admin.tap("?last=1000&class=tool_error", &[]).await.unwrap();
    assert_eq!(tap.event().await.unwrap()["tool"], "create_issue");

    let calls = server.calls("create_issue");
    for (status, why) in [retry(&admin, &wrong, "").await, forget(&admin, &wrong).await] {
        let why = why["error"].as_str().unwrap();
        assert!(
            status == 409
                && why.contains("answered with an error")
                && !why.contains("made already"),
            "{why}"
        );
    }
    assert_eq!(server.calls("create_issue"), calls);
}
