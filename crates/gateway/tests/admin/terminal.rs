//! Names that servers and clients choose, before an operator's terminal: nothing in them is obeyed.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::admin_api::{ADMIN, AdminApi};
use super::commands::Shell;
use super::kit::{soon, until};
use super::server::{End, Faulty, call};

/// Clears the screen, sets the title, begins a line anew, and says it all again in one byte each.
const EVIL: &str = "get\x1b[2J\x1b]0;mine\x07\rall\u{9b}2J\u{7f}\u{85}well";
const SHOWN: &str =
    "get\u{fffd}[2J\u{fffd}]0;mine\u{fffd}\u{fffd}all\u{fffd}2J\u{fffd}\u{fffd}well";

fn is_plain(text: &str) -> bool {
    !text.contains(|letter: char| letter.is_control() && letter != '\n')
}

/// A server with two such tools: one that fails, and one whose calls wait.
async fn evil() -> Faulty {
    Faulty::answering(|is_tool, name, _, _: &Value| match name {
        "tools/list" => {
            let schema = json!({"type": "object"});
            let of = |name: &str, reads: bool| json!({"name": name, "inputSchema": schema, "annotations": {"readOnlyHint": reads}});
            Some(End::Result(json!({"tools": [of(EVIL, true), of(&format!("set_{EVIL}"), false)]})))
        }
        _ if name == EVIL => Some(End::Status("503 Service Unavailable", "", "")),
        // Certainly not executed, so it waits.
        _ => is_tool.then_some(End::Status("429 Too Many Requests", "", "")),
    })
    .await
}

#[tokio::test]
async fn a_tool_cannot_speak_to_the_terminal_by_its_name() {
    let folder = TempDir::new().unwrap();
    let server = evil().await;
    let policies = "[defaults]\nretry = { attempts = 1 }\nloop = { mode = \"off\" }\nbreaker = { failures = 3, cooldown = \"10m\" }\n\
                    [kinds.read]\nfallback = []\n";
    let store = format!("[store]\npath = \"{}\"\n", folder.path().display());
    let served = server.served(&format!("{ADMIN}{store}{policies}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    session.ask(1, "tools/list", json!({})).await;
    let shell = Shell::before(&admin);
    for _ in 0..3 {
        call(&session, EVIL, json!({})).await;
    }
    let queued = call(&session, &format!("set_{EVIL}"), json!({})).await;
    assert_eq!(queued["result"]["_meta"]["seawall/served"]["code"], "QUEUED", "{queued}");
    until("it opened", async || admin.breakers().await["breakers"][EVIL] == "open").await;

    // Each is checked for what a terminal would obey where it is run.
    for args in ["breakers", "queue", "queue list --all", "status"] {
        assert!(shell.ok(args).await.contains(SHOWN), "{args}");
    }
    for args in ["breakers", "queue", "status"] {
        let out = shell.ok(&format!("{args} --json")).await;
        let told: Value = serde_json::from_str(&out).unwrap();
        assert!(told.to_string().contains("mine"), "{out}");
    }
    let reset = shell.ok("breakers reset --all --json").await;
    assert_eq!(serde_json::from_str::<Value>(&reset).unwrap(), json!({ "reset": [EVIL] }));
    for _ in 0..3 {
        call(&session, EVIL, json!({})).await;
    }
    until("it opened again", async || admin.breakers().await["breakers"][EVIL] == "open").await;
    assert_eq!(shell.ok("breakers reset --all").await, format!("closed: {SHOWN}"));
    let reset = shell.ok(&format!("breakers reset {EVIL}")).await;
    assert_eq!(reset, format!("{SHOWN} is closed, and its failures are forgotten"));
    let forced = shell.ok(&format!("breakers force {EVIL} open")).await;
    assert!(forced.starts_with(SHOWN), "{forced}");
    let (code, _, said) = shell.run(&format!("breakers reset {EVIL}")).await;
    assert!(code == 1 && is_plain(&said) && said.contains(SHOWN), "{said:?}");
    for args in ["--last 1000", "--last 1000 --json"] {
        let (mut child, mut lines) = shell.tap(args);
        let line = loop {
            let line = soon(lines.next_line()).await.unwrap().unwrap();
            assert!(is_plain(&line), "{line:?}");
            if line.contains("breaker_changed") {
                break line;
            }
        };
        assert!(line.contains("mine"), "{line}");
        soon(child.kill()).await.unwrap();
    }
    until("it is in the log", async || {
        served.log.lock().unwrap().iter().any(|line| line.contains("is held open"))
    })
    .await;
    let log = served.log.lock().unwrap().clone();
    assert!(log.iter().all(|line| is_plain(line)), "{log:?}");
}
