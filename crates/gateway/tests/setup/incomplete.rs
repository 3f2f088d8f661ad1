//! A server whose configuration refers to something that is not there costs its own tools only, and
//! everybody learns why.

use serde_json::{Value, json};

use super::Place;
use super::kit::{Served, fixture, program};

/// Three servers that lack something, and one that lacks nothing.
fn servers() -> String {
    let fixture_with = |name: &str, more: &str| {
        format!(
            "[servers.{name}]\ncommand = {:?}\nargs = [\"--stdio\"]\n{more}\n",
            program("seawall-fixture")
        )
    };
    [
        fixture("well", "legacy"),
        fixture_with("variable", "env = { KEY = \"hunter2hunter2\", TOKEN = \"${env:UNSET_API_TOKEN}\" }"),
        "[servers.file]\nurl = \"https://mcp.example/mcp\"\nheaders = { Authorization = \"Bearer ${file:no.txt}\" }\n"
            .to_owned(),
        fixture_with("input", "env = { TOKEN = \"${input:api-key}\" }"),
    ]
    .concat()
}

#[tokio::test]
async fn an_unset_variable_costs_its_server_and_the_others_serve() {
    let served = Served::with(&servers()).await;
    let session = served.session("/mcp").await;
    let listed = session.ask(1, "tools/list", json!({})).await;
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert!(names.len() > 10 && names.iter().all(|name| name.starts_with("well__")), "{names:?}");
    let missing = &listed["result"]["_meta"]["seawall/servers"];
    for (name, reason) in [
        ("variable", "the variable UNSET_API_TOKEN is not set (servers.variable.env.TOKEN)"),
        ("file", "no.txt cannot be read"),
        (
            "input",
            "the variable INPUT_API_KEY is not set, which is the input \"api-key\" (servers.input.env.TOKEN)",
        ),
    ] {
        assert_eq!(missing[name]["status"], "permanent", "{missing}");
        assert!(
            missing[name]["reason"].as_str().is_some_and(|text| text.contains(reason)),
            "{name}: {missing}"
        );
    }
    let called = session
        .ask(2, "tools/call", json!({"name": "well__test_simple_text", "arguments": {}}))
        .await;
    assert!(
        called["result"]["content"][0]["text"].is_string() && called["result"]["isError"] != true,
        "{called}"
    );

    let refused = session
        .ask(3, "tools/call", json!({"name": "variable__test_simple_text", "arguments": {}}))
        .await;
    let failure = &refused["result"]["_meta"]["seawall/failure"];
    assert_eq!(
        (&failure["code"], &failure["retryable"]),
        (&json!("SERVER_UNAVAILABLE"), &json!(false)),
        "{refused}"
    );
    let text = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("variable") && text.contains("UNSET_API_TOKEN is not set"), "{text}");

    let log = served.log.lock().unwrap().join("\n");
    assert!(
        log.contains("seawall.toml:8: servers.variable.env.TOKEN: the variable UNSET_API_TOKEN"),
        "{log}"
    );
    assert!(
        ![log, listed.to_string(), refused.to_string()].concat().contains("hunter2"),
        "no secret is told"
    );
}

#[tokio::test]
async fn check_tells_what_is_not_there_and_that_only_credentials_are_missing() {
    let ended = Place::toml(&servers()).seawall(&["check", "--json", "--timeout", "8s"]).await;
    let told: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((ended.code, &told["servers"]["well"]["ok"]), (3, &json!(true)), "{told}");
    let unset = &told["servers"]["variable"];
    let text = "seawall.toml:7: servers.variable.env.TOKEN: the variable UNSET_API_TOKEN is not set; set it, or write \
                ${UNSET_API_TOKEN:-default}";
    assert_eq!(
        (&unset["problem"], &unset["text"]),
        (&json!("incomplete"), &json!(text)),
        "{unset}"
    );
    assert!(
        unset["next"].as_str().unwrap().starts_with("Set it where `seawall` is started"),
        "{unset}"
    );
    assert!(!ended.out.contains("hunter2"), "{}", ended.out);
}

#[tokio::test]
async fn a_mistake_of_the_file_refuses_it_with_all_that_is_not_there() {
    let place = Place::toml(&format!("{}[servers.wrong]\ncomand = \"x\"\n", servers()));
    let ended = place.seawall(&["serve"]).await;
    assert_eq!(ended.code, 1, "{}", ended.err);
    for words in
        ["servers.wrong.comand: unknown key", "UNSET_API_TOKEN is not set", "no.txt cannot be read"]
    {
        assert!(ended.err.contains(words), "{words}: {}", ended.err);
    }
}

#[tokio::test]
async fn a_required_server_that_lacks_a_variable_fails_the_start() {
    let toml = "[servers.must]\ncommand = \"true\"\nenv = { TOKEN = \"${UNSET_API_TOKEN}\" }\nrequired = true\n";
    let ended = Place::toml(toml).seawall(&["serve"]).await;
    let why = "the required server \"must\" did not load (permanent, 1 attempt): ";
    assert!(
        ended.code == 4 && ended.err.contains(why) && ended.err.contains("is not set"),
        "{}",
        ended.err
    );
}
