//! What the configuration keeps secret, in the mouth of a server: on its stderr, on its stdout, in
//! its errors and last words. It stands in no log and in no event.

use serde_json::{Value, json};

use super::admin_api::{ADMIN, AdminApi};
use super::kit::{Served, until};
use super::server::{End, Faulty, call};

const CANARY: &str = "canary-5ecret-77";
const QUICK: &str = "[startup]\nbackoff = \"10ms\"\n[reconnect]\nbase = \"10ms\"\n\
                     [defaults]\nretry = { base = \"10ms\", jitter = 0.0 }\nfallback = []\nloop = { mode = \"off\" }\n";

/// A server that repeats its secret wherever it can, and dies of one of its tools.
const TALKER: &str = r#"
echo "began with $KEY" >&2
echo "a word on stdout: $KEY"
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    test -n "$id" || continue
    case "$line" in
    *'"method":"initialize"'*)
        result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"t","version":"1"}}' ;;
    *'"method":"tools/list"'*)
        tool='"inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}'
        result="{\"tools\":[{\"name\":\"get_it\",$tool},{\"name\":\"get_death\",$tool}]}" ;;
    *'"get_death"'*)
        echo "dying with $KEY" >&2
        exit 3 ;;
    *)
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"503 Service Unavailable for %s"}}\n' "$id" "$KEY"
        continue ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

/// Waits until the log holds all of these.
async fn logged(served: &Served, words: &[&str]) {
    for word in words {
        until(word, async || served.log.lock().unwrap().iter().any(|line| line.contains(word)))
            .await;
    }
}

/// Everything that the gateway ever said of its servers: its log, its events, what is known of
/// them.
async fn said(served: &Served, admin: &AdminApi) -> String {
    let mut tap = admin.tap("?last=1000", &[]).await.unwrap();
    let told = tap
        .until(|event| {
            event["event"] == "call_finished" && event["tool"].as_str().unwrap().ends_with("cypher")
        })
        .await;
    assert!(
        told.iter().any(|event| event["error"].as_str().is_some_and(|error| error.contains("***"))),
        "{told:?}"
    );
    let mut said = serde_json::to_string(&told).unwrap();
    for path in ["/resilience/servers", "/resilience/breakers"] {
        said += &admin.get(path).await.1.to_string();
    }
    said + &served.log.lock().unwrap().join("\n")
}

fn silent(said: &str) {
    let at = said.find(CANARY).or_else(|| said.find("5ecret"));
    let around = |at: usize| said[at.saturating_sub(200)..].chars().take(300).collect::<String>();
    assert_eq!(at.map(around), None);
}

#[tokio::test]
async fn what_a_process_repeats_of_its_secret_is_in_no_log_and_in_no_event() {
    let server = format!(
        "[servers.a]\ncommand = \"sh\"\nargs = [\"-c\", {}]\nenv = {{ KEY = \"{CANARY}\" }}\n",
        json!(TALKER)
    );
    let last = Faulty::start(|_, _, _| End::Text("well")).await;
    let served = Served::with(&last.config(&format!("{QUICK}{ADMIN}"), &server)).await;
    let (session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    for tool in ["a__get_it", "a__get_death", "a__get_it"] {
        let answer = call(&session, tool, json!({})).await;
        assert!(answer["result"]["isError"] == true || answer["error"].is_object(), "{answer}");
    }
    logged(
        &served,
        &[
            "a: began with ***",
            "a word on stdout: ***",
            "a: dying with ***",
            "Service Unavailable for ***",
        ],
    )
    .await;
    call(&session, "gh__cypher", json!({})).await;
    silent(&said(&served, &admin).await);
}

#[tokio::test]
async fn what_a_remote_server_repeats_of_its_credentials_is_in_no_log_and_in_no_event() {
    let busy = || Some(End::Status("503 Service Unavailable", "", "no room for canary-5ecret-77"));
    let server = Faulty::answering(move |is_tool, name, count, _: &Value| match name {
        "initialize" if count == 1 => busy(),
        "get_issue" => busy(),
        "list_issues" => {
            Some(End::Error(-32603, "503 Service Unavailable: Bearer canary-5ecret-77", json!({})))
        }
        "search_issues" => Some(End::ToolError("503 Service Unavailable: canary-5ecret-77")),
        _ => is_tool.then_some(End::Text("well")),
    })
    .await;
    let hostile = Faulty::answering(|_, name, _, _: &Value| {
        (name == "initialize").then_some(End::Error(
            -32603,
            "no key like canary-5ecret-77",
            json!({}),
        ))
    })
    .await;
    let headers = format!("headers = {{ Authorization = \"Bearer {CANARY}\" }}\n");
    let other =
        format!("{headers}[servers.no]\nurl = \"{}\"\ntype = \"http\"\n{headers}", hostile.url);
    let served = Served::with(&server.config(&format!("{QUICK}{ADMIN}"), &other)).await;
    let (session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    for tool in ["get_issue", "list_issues", "search_issues"] {
        call(&session, &format!("gh__{tool}"), json!({})).await;
    }
    logged(&served, &["no room for ***", "Service Unavailable: ***", "no key like ***"]).await;
    call(&session, "gh__cypher", json!({})).await;
    silent(&said(&served, &admin).await);
}
