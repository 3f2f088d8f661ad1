//! The presets as a client meets them: whose words are said, and which label a tool of each kind
//! gets.

use serde_json::{Value, json};

use super::server::{End, Faulty, QUICK, call, failure, text};

const DOWN: End = End::Status("503 Service Unavailable", "", "");
/// A tool of each kind, and its label.
const LABELS: [(&str, &str); 5] = [
    ("get_issue", "Live data unavailable"),
    ("create_issue", "Try again later"),
    ("search_issues", "Search unavailable"),
    ("list_issues", "Browsing limited"),
    ("batch_label_issues", "Batch unavailable"),
];

fn by(answer: &Value) -> &str {
    answer["result"]["_meta"]["seawall/served"]["by"]
        .as_str()
        .unwrap_or_else(|| panic!("no fallback: {answer}"))
}

/// Fails wherever a fallback can answer, and works where that asks the server.
fn limps(tool: &str, count: usize, with: &Value) -> End {
    match tool {
        "get_issue" if count == 1 => End::Text("issue 7"),
        "search_issues" if with["query"] == "login bug" => End::Text("3 found"),
        "list_issues" if with["page"] == 1 && count == 1 => End::Text("page one"),
        "batch_label_issues"
            if with["targets"].as_array().is_some_and(|items| items.len() == 1) =>
        {
            End::Text("done")
        }
        "create_issue" => End::Status("429 Too Many Requests", "", ""),
        _ => DOWN,
    }
}

/// Calls a tool of each kind so that its fallback answers.
async fn fall_back(served: &super::kit::Served) -> Vec<(&'static str, Value)> {
    let session = served.session("/mcp/gh").await;
    call(&session, "get_issue", json!({})).await;
    call(&session, "list_issues", json!({"page": 1})).await;
    let arguments = [
        json!({}),
        json!({}),
        json!({"query": "\"login bug\" is:open"}),
        json!({"page": 2}),
        json!({"targets": [1, 2, 3]}),
    ];
    let mut answers = Vec::new();
    for ((tool, _), arguments) in LABELS.into_iter().zip(arguments) {
        answers.push((tool, call(&session, tool, arguments).await));
    }
    answers
}

#[tokio::test]
async fn the_blog_preset_speaks_the_classic_words_and_labels_each_kind() {
    let server = Faulty::start(limps).await;
    let folder = tempfile::TempDir::new().unwrap();
    let store = format!("[store]\npath = {:?}\n", folder.path());
    let served = server.served(&format!("preset = \"blog\"\n{QUICK}{store}")).await;
    let answers = fall_back(&served).await;
    let steps = ["cached", "queue", "simplify", "previous_page", "split_batch"];
    for (((tool, answer), (_, label)), step) in answers.iter().zip(LABELS).zip(steps) {
        assert_eq!(by(answer), step, "{tool}: {answer}");
        assert!(text(answer).starts_with(&format!("⚠️ {label}. ")), "{tool}: {answer}");
    }
    assert_eq!(
        text(&answers[0].1),
        "⚠️ Live data unavailable. Showing cached information may be stale."
    );
    assert_eq!(
        text(&answers[4].1),
        "⚠️ Batch unavailable. Processed individually: 3 of 3 succeeded."
    );

    let session = served.session("/mcp/gh").await;
    let failed = call(&session, "get_issue", json!({"n": 8})).await;
    assert!(text(&failed).starts_with("❌ Failed after multiple attempts.\n\nError: "), "{failed}");
}

#[tokio::test]
async fn the_blog_preset_speaks_plainly_where_the_file_says_so() {
    let server = Faulty::start(limps).await;
    let served =
        server.served(&format!("preset = \"blog\"\n{QUICK}[messages]\nstyle = \"plain\"\n")).await;
    for (tool, answer) in fall_back(&served).await {
        assert!(!text(&answer).contains('⚠'), "{tool}: {answer}");
    }
}

#[tokio::test]
async fn a_tool_that_no_fallback_can_answer_for_is_labelled_by_its_kind() {
    let server = Faulty::start(|_, _, _| DOWN).await;
    let open =
        "[defaults]\nretry = { attempts = 1 }\nbreaker = { failures = 1, cooldown = \"60s\" }\n";
    let served = server.served(open).await;
    let session = served.session("/mcp/gh").await;
    for (tool, label) in LABELS {
        call(&session, tool, json!({"n": 1})).await;
        let answer = call(&session, tool, json!({"n": 2})).await;
        assert_eq!(failure(&answer)["code"], "CIRCUIT_OPEN", "{tool}: {answer}");
        assert!(
            text(&answer).starts_with(&format!("{tool} is temporarily unavailable")),
            "{tool}: {answer}"
        );
        assert!(text(&answer).ends_with(&format!(" {label}.")), "{tool}: {answer}");
    }
}

#[tokio::test]
async fn the_previous_page_is_the_copy_that_is_held_and_asked_for_only_without_one() {
    let server =
        Faulty::start(|_, count, _| if count == 1 { End::Text("page one") } else { DOWN }).await;
    let served =
        server.served("[defaults]\nretry = { attempts = 1 }\nbreaker = { failures = 2 }\n").await;
    let session = served.session("/mcp/gh").await;
    call(&session, "list_issues", json!({"page": 1})).await;
    // Also while the breaker is open: nobody has to be asked.
    for _ in 0..3 {
        let answer = call(&session, "list_issues", json!({"page": 2})).await;
        assert_eq!(by(&answer), "previous_page", "{answer}");
        assert!(
            text(&answer).starts_with("This is the page before the one asked for, a copy from "),
            "{answer}"
        );
        assert_eq!(answer["result"]["content"][1]["text"], "page one");
        assert!(answer["result"]["_meta"]["seawall/served"]["age"].is_u64(), "{answer}");
    }
    let asked = server.arguments("list_issues");
    assert_eq!(asked.iter().filter(|with| with["page"] == 1).count(), 1, "{asked:?}");
}

#[tokio::test]
async fn gitnexuss_words_are_said_with_its_preset_only() {
    let server = Faulty::start(|_, _, _| DOWN).await;
    for (settings, is_theirs) in [
        ("preset = \"gitnexus\"\n", true),
        ("preset = \"gitnexus\"\n[messages]\nformat = \"text\"\n", true),
        ("preset = \"gitnexus\"\n[messages]\nstyle = \"plain\"\n", false),
        ("[messages]\nstyle = \"classic\"\nformat = \"json\"\n", false),
        ("preset = \"blog\"\n[messages]\nformat = \"json\"\n", false),
        ("preset = \"caipe\"\n", false),
    ] {
        let policy =
            "[defaults]\nretry = { attempts = 1 }\nbreaker = { failures = 1 }\nfallback = []\n";
        let served = server.served(&format!("{settings}{policy}")).await;
        let session = served.session("/mcp/gh").await;
        call(&session, "get_issue", json!({})).await;
        let answer = call(&session, "get_issue", json!({})).await;
        assert_eq!(failure(&answer)["code"], "CIRCUIT_OPEN", "{settings}: {answer}");
        let said = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        let theirs = ["browser", "graph status", "GitNexus"].iter().any(|word| said.contains(word));
        assert_eq!(theirs, is_theirs, "{settings}: {said}");
    }
}

#[tokio::test]
async fn a_copy_stands_in_for_a_tools_own_error_that_carries_an_upstream_failure() {
    let server = Faulty::start(|_, count, with| match (count, with["n"].as_u64()) {
        (1, _) => End::Text("issue 7"),
        (_, Some(7)) => End::ToolError("GitHub API: 503 Service Unavailable"),
        _ => End::ToolError("no such issue"),
    })
    .await;
    let served = server.served(&format!("{QUICK}breaker = {{ failures = 20 }}\n")).await;
    let session = served.session("/mcp/gh").await;
    call(&session, "get_issue", json!({"n": 7})).await;
    let answer = call(&session, "get_issue", json!({"n": 7})).await;
    assert_eq!((by(&answer), server.calls("get_issue")), ("cached", 1 + 3), "{answer}");
    assert!(text(&answer).ends_with("live read failed (503)."), "{answer}");
    assert_eq!(answer["result"]["content"][1]["text"], "issue 7");
    // Without a copy the tool's own words are passed on, with what became of the call.
    let answer = call(&session, "get_issue", json!({"n": 7, "again": true})).await;
    assert_eq!(text(&answer), "GitHub API: 503 Service Unavailable", "{answer}");
    assert_eq!(failure(&answer)["retryable"], true, "{answer}");
    // What the caller did wrong stays byte for byte.
    let answer = call(&session, "get_issue", json!({"n": 8})).await;
    assert_eq!((text(&answer), answer["result"].get("_meta")), ("no such issue", None), "{answer}");
}

const DRESSED: &str = "[tools.\"gh/*\"]\ntool_errors = [\n  { json = \"error\", transient = [\"retry later\"] },\n  { text = \"^Error:\" },\n]\n";

fn dressed(_: &str, count: usize, with: &Value) -> End {
    match with["how"].as_str() {
        Some("busy") => {
            End::Text("{\"error\": \"a checkpoint is in progress. Please retry later\"}")
        }
        Some("soon") if count == 1 => End::Text("{\"error\": \"retry later\"}"),
        Some("wrong") => End::Text("{\"error\": \"no such group\"}"),
        Some("text") => End::Text("Error: no such file"),
        Some("large") => End::Lines(20_000),
        _ => End::Text("{\"error\": null, \"rows\": []}"),
    }
}

#[tokio::test]
async fn an_error_dressed_as_success_is_a_failure_where_the_file_says_so() {
    let server = Faulty::start(dressed).await;
    let served = server.served(&format!("{QUICK}{DRESSED}")).await;
    let session = served.session("/mcp/gh").await;
    let ask = async |tool: &str, how: &str| call(&session, tool, json!({"how": how})).await;

    let answer = ask("get_issue", "soon").await;
    assert_eq!(
        (answer["result"].get("_meta"), server.calls("get_issue")),
        (None, 2),
        "retried, and well: {answer}"
    );
    let answer = ask("get_issue", "busy").await;
    assert!(
        text(&answer).starts_with("{\"error\": \"a checkpoint"),
        "the server's own words: {answer}"
    );
    assert_eq!(
        (&failure(&answer)["code"], &failure(&answer)["attempts"]),
        (&json!("UPSTREAM_ERROR"), &json!(3))
    );
    for how in ["wrong", "text"] {
        let answer = ask("search_issues", how).await;
        assert_eq!(
            (&failure(&answer)["code"], &failure(&answer)["attempts"]),
            (&json!("VALIDATION_ERROR"), &json!(1))
        );
    }
    let answer = ask("create_issue", "busy").await;
    let told = failure(&answer);
    assert_eq!(
        (&told["mayHaveExecuted"], server.calls("create_issue")),
        (&json!(true), 1),
        "{answer}"
    );
    for how in ["fine", "large"] {
        let answer = ask("list_issues", how).await;
        assert!(
            answer["result"].get("isError").is_none() && answer["result"].get("_meta").is_none(),
            "{how}"
        );
    }
}

#[tokio::test]
async fn an_error_dressed_as_success_is_passed_on_untouched_where_it_is_only_counted() {
    let server = Faulty::start(dressed).await;
    let counted = "[defaults]\ntool_errors = [{ json = \"error\", mode = \"count\" }]\n";
    let served = server.served(counted).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "get_issue", json!({"how": "busy"})).await;
    assert!(
        answer["result"].get("isError").is_none() && answer["result"].get("_meta").is_none(),
        "{answer}"
    );
    assert_eq!(server.calls("get_issue"), 1);
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_split_where_nothing_of_it_was_done() {
    let too_many = "targets: must be 1 to 2 items, not 3";
    let server = Faulty::start(move |_, _, with| match with["targets"].as_array().map(Vec::len) {
        Some(1) => End::Text("done"),
        _ if with["how"] == "status" => End::Status("413 Payload Too Large", "", ""),
        _ if with["how"] == "code" => End::Error(-32602, too_many, json!(null)),
        _ if with["how"] == "sdk" => {
            End::ToolError("MCP error -32602: Array must contain at most 2 element(s)")
        }
        _ => End::ToolError("at most 2 items, please"),
    })
    .await;
    for (effect, hows) in [
        ("write", &["status", "code", "sdk"][..]),
        ("idempotent", &["status", "code", "sdk", "words"]),
    ] {
        let served =
            server.served(&format!("[tools.\"gh/batch_*\"]\neffect = \"{effect}\"\n")).await;
        let session = served.session("/mcp/gh").await;
        for how in hows {
            let answer =
                call(&session, "batch_label_issues", json!({"targets": [1, 2, 3], "how": how}))
                    .await;
            assert_eq!(by(&answer), "split_batch", "{effect} {how}: {answer}");
            assert!(text(&answer).starts_with("3 of 3 items succeeded one by one"), "{answer}");
        }
        // Words prove nothing of a write.
        let answer =
            call(&session, "batch_label_issues", json!({"targets": [1, 2, 3, 4], "how": "words"}))
                .await;
        assert_eq!(text(&answer) == "at most 2 items, please", effect == "write", "{answer}");
    }
    let before = server.calls("batch_label_issues");
    let served = server.served("").await;
    let session = served.session("/mcp/gh").await;
    call(&session, "batch_label_issues", json!({"targets": [1], "how": "code"})).await;
    assert_eq!(server.calls("batch_label_issues"), before + 1, "one item cannot be taken apart");
}
