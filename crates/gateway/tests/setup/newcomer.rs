//! What people stumble over on their first day: each is told in words that name the next step.

use serde_json::json;

use super::Place;
use super::kit::{fixture, program};

#[tokio::test]
async fn a_folder_that_is_not_there_is_told_as_that() {
    let toml = format!("{}cwd = \"no/such/folder\"\n", fixture("it", "legacy"));
    let place = Place::toml(&toml);
    let told = place.json(&["check"]).await;
    let it = &told["servers"]["it"];
    let text = format!("there is no folder {:?}, which is its cwd", place.path("no/such/folder"));
    assert_eq!((&it["problem"], &it["text"]), (&json!("missing_folder"), &json!(text)), "{it}");
    assert!(it["next"].as_str().unwrap().starts_with("Make it, or write another cwd"), "{it}");
}

#[tokio::test]
async fn windsurfs_address_of_a_server_is_read() {
    let place = Place::new(
        "mcp.json",
        r#"{"mcpServers": {"it": {"serverUrl": "http://127.0.0.1:9/mcp"}}}"#,
    );
    let told = place.json(&["check", "--config", "mcp.json"]).await;
    assert_eq!(told["servers"]["it"]["reached"], "http://127.0.0.1:9/mcp", "{told}");
}

#[tokio::test]
async fn a_command_without_its_dashes_is_told_with_them() {
    let place = Place::toml("");
    for (args, line) in [
        (&["run", "npx"][..], "seawall run -- npx"),
        (&["run", "npx", "-y", "foo"], "seawall run -- npx -y foo"),
        (&["run", "--name", "a", "npx", "foo bar"], "seawall run --name a -- npx 'foo bar'"),
    ] {
        let ended = place.seawall(args).await;
        assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{}", ended.err);
        assert!(
            ended.err.contains(&format!("a command stands behind `--`; write: {line}\n")),
            "{}",
            ended.err
        );
    }
}

#[tokio::test]
async fn one_of_something_is_told_as_one() {
    let server = program("seawall-scripted");
    let toml = format!("[servers.it]\ncommand = {server:?}\n");
    let ended = Place::toml(&toml).seawall(&["check"]).await;
    let end = "1 of 1 server well, 1 tool, about 18 tokens, 2 warnings\n";
    assert!(ended.out.contains("    1 tool, about ") && ended.out.ends_with(end), "{}", ended.out);
}
