//! How a tool is treated and where that comes from, told before anything runs.

use serde_json::{Value, json};

use super::Place;
use super::kit::{Wrapped, program, until};

const FILE: &str = r#"preset = "caipe"
[timeouts]
quick = "50s"
[reconnect]
wait = "7s"
[defaults]
cache = { ttl = "5s" }
breaker = { cooldown = "40s" }
[kinds.write]
retry = { attempts = 4 }
breaker = { failures = 3 }
[servers.gh]
command = "gh"
concurrency = 4
[servers.gh.policy]
idle_timeout = "20s"
[servers.web]
url = "http://127.0.0.1:9/mcp"
[tools."gh/*"]
hedge = "p95"
[tools."gh/create_issue"]
fallback = ["cached", "queue", { text = "It is down." }]
[store]
path = "store"
"#;

fn place() -> Place {
    Place::toml(FILE)
}

fn of<'a>(told: &'a Value, key: &str) -> (&'a Value, &'a str, &'a Value, &'a Value) {
    let value = &told["values"][key];
    (&value["value"], value["from"].as_str().unwrap(), &value["place"], &value["line"])
}

#[tokio::test]
async fn every_value_is_traced_to_its_line() {
    let told = place().json(&["explain", "gh/create_issue"]).await;
    let none = Value::Null;
    for (key, value, from, place, line) in [
        ("kind", json!("write"), "name", json!("create"), none.clone()),
        ("effect", json!("write"), "name", json!("create"), none.clone()),
        ("timeout", json!("50s"), "config", json!("[timeouts] quick"), json!(3)),
        ("reconnect.wait", json!("7s"), "config", json!("[reconnect]"), json!(5)),
        ("idle_timeout", json!("20s"), "config", json!("[servers.gh.policy]"), json!(16)),
        ("retry.attempts", json!(4), "config", json!("[kinds.write]"), json!(10)),
        ("retry.base", json!("2s"), "built in", json!("kind write"), none.clone()),
        ("retry.max", json!("30s"), "built in", none.clone(), none.clone()),
        ("breaker.scope", json!("server"), "preset", json!("caipe"), json!(1)),
        ("breaker.cooldown", json!("40s"), "config", json!("[defaults]"), json!(8)),
        ("breaker.failures", json!(5), "built in", none.clone(), none.clone()),
        ("cache.ttl", none.clone(), "built in", json!("effect write"), none.clone()),
        (
            "fallback",
            json!(["queue", {"text": "It is down."}]),
            "config",
            json!(r#"[tools."gh/create_issue"]"#),
            json!(22),
        ),
        ("concurrency", json!(4), "config", json!("[servers.gh]"), json!(14)),
    ] {
        assert_eq!(of(&told, key), (&value, from, &place, &line), "{key}");
    }
    for (key, value, place, line) in [
        ("cache.ttl", json!("5s"), "[defaults]", 7),
        ("hedge", json!("p95"), r#"[tools."gh/*"]"#, 20),
        ("breaker.failures", json!(3), "[kinds.write]", 11),
        ("fallback", json!(["cached"]), r#"[tools."gh/create_issue"]"#, 22),
    ] {
        let ignored = &told["values"][key]["ignored"];
        let said = (&ignored["value"], &ignored["place"], &ignored["line"]);
        assert_eq!(said, (&value, &json!(place), &json!(line)), "{key}: {ignored}");
    }
    assert_eq!((&told["name"], &told["listed"]), (&json!("gh__create_issue"), &json!(false)));
}

#[tokio::test]
async fn the_rate_of_a_caller_is_told_with_its_line() {
    let servers = "[servers.gh]\ncommand = \"gh\"\n";
    let told = Place::toml(&format!("# Slow.\ncaller_rate = \"5/m\"\n{servers}"));
    let told = told.json(&["explain", "gh/get_issue"]).await;
    assert_eq!(of(&told, "caller_rate"), (&json!("5/m"), "config", &json!("top level"), &json!(2)));
    let none = Place::toml(servers).json(&["explain", "gh/get_issue"]).await;
    assert_eq!(of(&none, "caller_rate"), (&Value::Null, "built in", &Value::Null, &Value::Null));
    let imported =
        r#"{"mcpServers": {"gh": {"command": "gh"}}, "x-seawall": {"caller_rate": "5/m"}}"#;
    let told = Place::new(".mcp.json", imported)
        .json(&["explain", "gh/get_issue", "--config", ".mcp.json"])
        .await;
    let (rate, from, place, _) = of(&told, "caller_rate");
    assert_eq!((rate, from, place), (&json!("5/m"), "config", &json!("[x-seawall]")));
}

#[tokio::test]
async fn what_people_ask_is_answered_in_words() {
    let text = |tool: &'static str| async move { place().seawall(&["explain", tool]).await.out };
    let write = text("gh/create_issue").await;
    for words in [
        "Repeated only if it certainly did not run, up to 4 attempts: its effect is write, by its name (\"create\").",
        "if it certainly did not run, it waits until its server is well; the text \"It is down.\". Else",
        "At most 50s in all ([timeouts] quick at seawall.toml:3)",
        "up to 7s of waiting for a server that is away",
        "5 failures in a row of all tools of gh that share it open it for 40s.",
        "Note: what its server says of it is not known yet: \"seawall check\" asks it, and so does the first client",
        "5s of [defaults] at seawall.toml:7 is ignored: only tools that read are answered from a copy",
    ] {
        assert!(write.contains(words), "{words}\n{write}");
    }
    assert!(
        text("gh/get_issue")
            .await
            .contains("Yes, up to 3 attempts: it only reads, by its name (\"get\").")
    );
    let unknown = text("gh/frob").await;
    assert!(
        unknown
            .contains("If it only reads, write effect = \"read_only\" under [tools.\"gh/frob\"]."),
        "{unknown}"
    );
}

#[tokio::test]
async fn a_variable_is_named_where_it_decides() {
    let place = Place::toml(&FILE.replace("caipe", "gitnexus"));
    let place = Place { env: vec![("GITNEXUS_TIMEOUT_HEAVY", "90000")], ..place };
    let told = place.json(&["explain", "gh/cypher"]).await;
    let variable = json!("GITNEXUS_TIMEOUT_HEAVY");
    assert_eq!(of(&told, "timeout"), (&json!("90s"), "environment", &variable, &Value::Null));
    let quick = place.json(&["explain", "gh/get_issue"]).await;
    assert_eq!(of(&quick, "timeout").1, "config");
    // The number alone could be meant either way.
    let place = Place { env: vec![("GITNEXUS_TIMEOUT_QUICK", "60")], ..place };
    let ended = place.seawall(&["explain", "gh/cypher"]).await;
    assert!(
        ended.code != 0 && ended.err.contains("60 could be 60 ms or 60 s; write 60ms or 60s"),
        "{}",
        ended.err
    );
}

#[tokio::test]
async fn a_users_own_file_is_traced_too() {
    let file = r#"{
  "mcpServers": {
    "my server": {"command": "x", "x-seawall": {
      "policy": {"timeout": "9s"}
    }}
  },
  "x-seawall": {
    "kinds": {"read": {"retry": {"attempts": 7}}}
  }
}"#;
    let place = Place::new("mcp.json", file);
    let told = place.json(&["explain", "get_x", "--config", "mcp.json"]).await;
    let server = json!(r#"[mcpServers."my server".x-seawall.policy]"#);
    assert_eq!(of(&told, "timeout"), (&json!("9s"), "config", &server, &json!(4)));
    assert_eq!(
        of(&told, "retry.attempts"),
        (&json!(7), "config", &json!("[x-seawall.kinds.read]"), &json!(8))
    );
}

#[tokio::test]
async fn the_limit_of_a_users_own_file_holds_and_what_is_passed_over_is_said() {
    let file = "{\"mcpServers\": {\n\"a\": {\"command\": \"no-such-program\",\n\"timeout\": 90000},\n\"b\": {\"command\": \"x\", \"timeout\": 90}}}";
    let place = Place::new("mcp.json", file);
    let told = place.json(&["explain", "a/get_x", "--config", "mcp.json"]).await;
    assert_eq!(
        of(&told, "timeout"),
        (&json!("90s"), "config", &json!("[mcpServers.a] timeout"), &json!(3))
    );
    let passed_over = "mcp.json:4: mcpServers.b.timeout: 90 is milliseconds to some clients and seconds to others";
    let ended = place.seawall(&["explain", "a/get_x", "--config", "mcp.json"]).await;
    assert!(ended.err.contains(passed_over) && !ended.out.contains(passed_over), "{}", ended.err);
    let told = place.json(&["check", "--config", "mcp.json"]).await;
    assert!(told["warnings"][0].as_str().unwrap().starts_with(passed_over), "{told}");
    let started =
        place.seawall(&["run", "--name", "a", "--no-catalog-cache", "--config", "mcp.json"]).await;
    assert!(started.err.contains(passed_over), "{}", started.err);
}

#[tokio::test]
async fn what_a_server_said_last_time_counts_and_nothing_is_started() {
    let command = program("seawall-fixture");
    let place =
        Place::toml(&format!("[servers.it]\ncommand = {command:?}\nargs = [\"--stdio\"]\n"));
    let before = place.json(&["explain", "it/annotated"]).await;
    assert_eq!(before["listed"], false);
    assert!(!place.path("seawall").exists(), "explaining leaves nothing behind");

    let mut wrapped = Wrapped::remembering(place.home(), &[&command, "--stdio"]);
    wrapped.initialize(json!({})).await;
    let list = wrapped.ask(1, "tools/list", json!({})).await;
    let tools = list["result"]["tools"].as_array().unwrap();
    let reads = |tool: &&Value| tool["annotations"]["readOnlyHint"] == true;
    let tool = tools.iter().find(reads).unwrap()["name"].as_str().unwrap();
    until("it is remembered", async || place.json(&["explain", tool]).await["listed"] == true)
        .await;
    wrapped.close();

    let told = place.json(&["explain", tool]).await;
    assert_eq!(
        of(&told, "effect"),
        (&json!("read_only"), "annotation", &json!("readOnlyHint"), &Value::Null)
    );
    let answer = told["answers"]["repeat"].as_str().unwrap();
    assert!(answer.contains("it only reads, by its server's readOnlyHint"), "{answer}");
    let slip = place.json(&["explain", &format!("{tool}s")]).await;
    assert!(
        slip["notes"][0].as_str().unwrap().contains(&format!("did you mean {tool:?}?")),
        "{slip}"
    );
}

#[tokio::test]
async fn what_cannot_be_explained_says_why() {
    for (args, words) in [
        (["explain", "ghb/get_x"], "there is no server \"ghb\"; did you mean \"gh\"?"),
        (["explain", "get_x"], "write server/get_x (servers: gh, web)"),
        (["explain", "gh/"], "\"gh/\" names no tool: write gh/TOOL"),
        (["explain", "gh__"], "\"gh__\" names no tool: write gh/TOOL"),
        (["explain", "/x"], "there is no server \"\"; there are gh, web"),
        (
            ["explain", "a\u{1b}[2J\nb/x"],
            "there is no server \"a\\u{1b}[2J\\nb\"; there are gh, web",
        ),
    ] {
        let ended = place().seawall(&args).await;
        assert!(
            (ended.code, ended.out.as_str()) == (1, "") && ended.err.contains(words),
            "{}",
            ended.err
        );
    }
    let broken =
        Place::toml("[servers.gh]\ncommnad = \"x\"\n").seawall(&["explain", "get_x"]).await;
    assert!(broken.code == 1 && broken.err.contains("seawall.toml:2: "), "{}", broken.err);
}

#[tokio::test]
async fn no_name_speaks_to_the_terminal_or_forges_a_line() {
    let forged = "gh/get_x\u{1b}]0;title\u{7}\r\u{9b}2J\nMay a call be repeated? Yes";
    let file = FILE
        .replace("It is down.", "down\\u001b[2J\\nNote: forged")
        .replace("gh/create_issue", "gh/get_*");
    let place = Place::toml(&file);
    let ended = place.seawall(&["explain", forged]).await;
    assert_eq!(ended.code, 0, "{}", ended.err);
    let is_hostile = |letter: char| letter.is_control() && letter != '\n';
    assert!(
        !ended.out.contains(is_hostile) && !ended.err.contains(is_hostile),
        "{:?} {:?}",
        ended.out,
        ended.err
    );
    let begin = |words: &str| ended.out.lines().filter(|line| line.starts_with(words)).count();
    assert_eq!((begin("May a call be repeated?"), begin("Note: forged")), (1, 0), "{}", ended.out);
    assert!(ended.out.starts_with("gh/get_x\u{fffd}]0;title\u{fffd}"), "{}", ended.out);
    let told = place.json(&["explain", forged]).await;
    assert_eq!(told["tool"], forged.strip_prefix("gh/").unwrap(), "programs get the name as it is");
}

#[tokio::test]
async fn what_a_check_listed_is_explained_unless_nothing_is_to_be_kept() {
    let command = program("seawall-fixture");
    let place = Place::toml(&format!("[servers.a]\ncommand = {command:?}\nargs = [\"--stdio\"]\n"));
    let unknown = "is not known yet";
    assert!(place.seawall(&["explain", "a/echo_meta"]).await.out.contains(unknown));
    assert_eq!(place.seawall(&["check", "--no-catalog-cache"]).await.code, 0);
    assert!(
        place.seawall(&["explain", "a/echo_meta"]).await.out.contains(unknown),
        "it was told to keep nothing"
    );
    assert_eq!(place.seawall(&["check"]).await.code, 0);
    let known = place.seawall(&["explain", "a/echo_meta"]).await;
    assert!(known.code == 0 && !known.out.contains(unknown), "{}", known.out);
}
