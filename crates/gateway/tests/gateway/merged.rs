//! Several servers on one endpoint: their own names, their own answers, and a dead one costs itself
//! only.

use http::Method;
use serde_json::{Value, json};

use super::kit::{Served, Wrapped, fixture, last, until};

fn names(list: &Value, of: &str) -> Vec<String> {
    let items = list["result"][of].as_array().unwrap_or_else(|| panic!("{list}"));
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_tool_is_there_under_the_name_of_its_server() {
    let served =
        Served::with(&format!("{}{}", fixture("zeta", "legacy"), fixture("alpha", "modern"))).await;
    let alone = served.session("/mcp/zeta").await;
    let own = names(&alone.ask(1, "tools/list", json!({})).await, "tools");
    let all = served.session("/mcp").await;
    let list = all.ask(1, "tools/list", json!({})).await;
    let merged = names(&list, "tools");

    let expected: Vec<String> = ["zeta", "alpha"]
        .iter()
        .flat_map(|server| own.iter().map(move |name| format!("{server}__{name}")))
        .collect();
    assert_eq!(merged, expected, "in the order of the configuration");
    assert_eq!(
        all.ask(2, "tools/list", json!({})).await["result"],
        list["result"],
        "the same every time"
    );
    assert!(all.info["result"]["capabilities"]["tools"].is_object());

    for server in ["zeta", "alpha"] {
        let call = all
            .ask(
                3,
                "tools/call",
                json!({"name": format!("{server}__echo_meta"), "arguments": {"a": 1}}),
            )
            .await;
        assert_eq!(call["result"]["structuredContent"]["name"], "echo_meta", "{call}");
    }
    let (status, answer) = served
        .modern("/mcp", "tools/call", json!({"name": "zeta__echo_meta", "arguments": {}}))
        .await;
    assert_eq!(
        (status.as_u16(), &answer["result"]["structuredContent"]["name"]),
        (200, &json!("echo_meta")),
        "{answer}"
    );
}

#[tokio::test]
async fn with_prefix_always_a_second_server_changes_no_name() {
    const ALWAYS: &str = "prefix = \"always\"\n";
    let alone = Served::with(&format!("{ALWAYS}{}", fixture("it", "legacy"))).await;
    let one = alone.session("/mcp").await;
    let prefixed = names(&one.ask(1, "tools/list", json!({})).await, "tools");
    assert!(prefixed.iter().all(|name| name.starts_with("it__")), "{prefixed:?}");
    let call = one.ask(2, "tools/call", json!({"name": "it__echo_meta", "arguments": {}})).await;
    assert_eq!(call["result"]["structuredContent"]["name"], "echo_meta", "{call}");
    let (_, modern) = alone.modern("/mcp", "tools/list", json!({})).await;
    assert_eq!(names(&modern, "tools"), prefixed);

    let two =
        Served::with(&format!("{}{}", fixture("it", "legacy"), fixture("other", "legacy"))).await;
    let merged = names(&two.session("/mcp").await.ask(1, "tools/list", json!({})).await, "tools");
    assert_eq!(merged[..prefixed.len()], prefixed);

    // Whoever reaches one server by its own path, or wraps it, has its own names.
    let own = names(&alone.session("/mcp/it").await.ask(1, "tools/list", json!({})).await, "tools");
    let folder = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("seawall.toml");
    std::fs::write(&config, format!("{ALWAYS}{}", fixture("it", "legacy"))).unwrap();
    let mut run = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
    run.args(["run", "--no-catalog-cache", "--config"]).arg(&config);
    let mut wrapped = Wrapped::start(run);
    wrapped.initialize(json!({})).await;
    assert_eq!(names(&wrapped.ask(1, "tools/list", json!({})).await, "tools"), own);
    assert!(own.iter().map(|name| format!("it__{name}")).eq(prefixed), "{own:?}");
}

#[tokio::test]
async fn a_name_nobody_has_is_an_error_that_tells_how_names_look() {
    let served = Served::with(&format!("{}{}", fixture("a", "both"), fixture("b", "both"))).await;
    let all = served.session("/mcp").await;
    for name in ["echo_meta", "c__echo_meta", "__x"] {
        let answer = all.ask(1, "tools/call", json!({"name": name})).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(
            answer["error"]["message"].as_str().unwrap().contains("<server>__<name>"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn prompts_resources_templates_and_completions_find_their_server() {
    let served =
        Served::with(&format!("{}{}", fixture("a", "legacy"), fixture("b", "legacy"))).await;
    let alone = served.session("/mcp/a").await;
    let all = served.session("/mcp").await;
    let own = names(&alone.ask(1, "prompts/list", json!({})).await, "prompts");
    assert_eq!(names(&all.ask(1, "prompts/list", json!({})).await, "prompts").len(), own.len() * 2);
    let prompt = all.ask(2, "prompts/get", json!({"name": "b__test_simple_prompt"})).await;
    assert!(prompt["result"]["messages"].is_array(), "{prompt}");

    let resources = all.ask(3, "resources/list", json!({})).await;
    let uri = resources["result"]["resources"][0]["uri"].as_str().unwrap().to_owned();
    let read = all.ask(4, "resources/read", json!({"uri": uri})).await;
    assert_eq!(read["result"], alone.ask(4, "resources/read", json!({"uri": uri})).await["result"]);
    let missing = all.ask(5, "resources/read", json!({"uri": "nowhere://x"})).await;
    assert!(missing["error"]["code"].is_i64(), "{missing}");

    let complete = json!({"ref": {"type": "ref/prompt", "name": "a__test_prompt_with_arguments"}, "argument": {"name": "arg1", "value": "p"}});
    let completion = all.ask(6, "completion/complete", complete).await;
    assert!(completion["result"]["completion"]["values"].is_array(), "{completion}");
}

#[tokio::test]
async fn a_dead_server_costs_its_own_tools_only() {
    let dead = "[servers.dead]\ncommand = \"/nonexistent/server\"\n[servers.gone]\nurl = \"http://127.0.0.1:9/mcp\"\n";
    let served = Served::with(&format!("{dead}{}", fixture("good", "both"))).await;
    let all = served.session("/mcp").await;
    let instructions = all.info["result"]["instructions"].as_str().unwrap();
    assert!(instructions.contains("dead") && instructions.contains("gone"), "{instructions}");
    let list = all.ask(1, "tools/list", json!({})).await;
    assert!(names(&list, "tools").iter().all(|name| name.starts_with("good__")));
    assert!(list["result"]["_meta"]["seawall/servers"]["dead"]["reason"].is_string(), "{list}");

    let call = all.ask(2, "tools/call", json!({"name": "dead__x", "arguments": {}})).await;
    assert_eq!(call["result"]["isError"], true, "{call}");
    assert_eq!(call["result"]["_meta"]["seawall/failure"]["mayHaveExecuted"], false, "{call}");
    let call = all.ask(3, "tools/call", json!({"name": "good__echo_meta", "arguments": {}})).await;
    assert_eq!(call["result"]["structuredContent"]["name"], "echo_meta");
}

#[tokio::test]
async fn who_comes_later_does_not_wait_for_a_server_that_is_away() {
    let dead = "[servers.dead]\ncommand = \"/nonexistent/server\"\n[servers.gone]\nurl = \"http://127.0.0.1:9/mcp\"\n";
    let served = Served::with(&format!("{dead}{}", fixture("good", "both"))).await;
    let began = tokio::time::Instant::now();
    served.session("/mcp").await;
    // A server may take so long to start that a client is worth keeping; after that nobody waits.
    until("a start has had its time", async || {
        began.elapsed() > std::time::Duration::from_millis(4_100)
    })
    .await;
    let began = tokio::time::Instant::now();
    for _ in 0..5 {
        served.session("/mcp").await;
    }
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(3), "five handshakes took {took:?}");
}

#[tokio::test]
async fn a_path_that_leads_nowhere_says_where_to_go() {
    let served = Served::with(&fixture("a", "both")).await;
    for path in ["/", "/mcp/unknown", "/mcpx", "/mcp/a/b"] {
        let response = served.send(Method::POST, path, &[], "{}").await;
        assert_eq!(response.status(), 404, "{path}");
        assert!(
            last(response).await["error"]["message"].as_str().unwrap().contains("/mcp/<server>")
        );
    }
}

#[tokio::test]
async fn a_listener_that_others_could_reach_is_refused_at_the_start() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("seawall.toml");
    std::fs::write(&config, fixture("a", "both")).unwrap();
    let mut serve = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
    serve.args(["serve", "--no-catalog-cache", "--listen", "0.0.0.0:0", "--config"]).arg(&config);
    let output = super::kit::soon(serve.output()).await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(
        text.contains("refusing to listen on 0.0.0.0:0") && text.contains("say who may call"),
        "{text}"
    );
}
