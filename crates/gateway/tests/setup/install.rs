//! Seawall is put before the servers of a client that is set up already, and taken away again.

use serde_json::{Value, json};
use tokio::process::Command;

use super::Place;
use super::kit::{Wrapped, program};

fn read(place: &Place, file: &str) -> String {
    std::fs::read_to_string(place.path(file)).unwrap()
}

fn servers() -> String {
    let fixture = json!(program("seawall-fixture"));
    format!(
        r#"{{
  // What the team uses.
  "mcpServers": {{
    "fixture": {{
      "command": {fixture},
      "args": ["--stdio", "--era", "legacy"],
      "env": {{"TOKEN": "hunter2hunter2"}}
    }},
    "linear": {{"url": "https://mcp.example/mcp", "headers": {{"Authorization": "Bearer hunter3hunter3"}}}}
  }}
}}
"#
    )
}

#[tokio::test]
async fn a_client_works_through_seawall_after_an_install_and_without_it_after_an_uninstall() {
    let (text, place) = (servers(), Place::new(".mcp.json", &servers()));

    let shown = place.seawall(&["install", "claude-code"]).await;
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    assert_eq!(read(&place, ".mcp.json"), text, "nothing is written before it is asked for");
    let (seawall, fixture) = (env!("CARGO_BIN_EXE_seawall"), program("seawall-fixture"));
    let expected = format!(
        "fixture (line 4)\n  - {fixture} …\n  + {seawall} run --name fixture -- {fixture} …\n\n\
         linear (line 9) is remote: its client reaches it itself\n\n\
         Nothing is written yet. To write it: seawall install claude-code --write\n"
    );
    assert_eq!(
        shown.out,
        format!(".mcp.json: 1 of 2 servers would start through Seawall\n\n{expected}")
    );
    assert!(!shown.out.contains("hunter"), "{}", shown.out);

    let shared = place
        .seawall(&["install", ".mcp.json", "--server", "fixture", "--command", "seawall"])
        .await;
    assert!(
        shared
            .out
            .ends_with("seawall install .mcp.json --server fixture --command seawall --write\n"),
        "{}",
        shared.out
    );

    let written = place.seawall(&["install", "claude-code", "--write"]).await;
    assert_eq!(written.code, 0, "{}", written.err);
    assert!(
        written.out.contains("1 of 2 servers start through Seawall from now on"),
        "{}",
        written.out
    );
    assert!(
        written.out.contains("To undo it: seawall uninstall claude-code --write"),
        "{}",
        written.out
    );
    assert_eq!(read(&place, ".mcp.json.before-seawall"), text, "what was there is kept");

    let now: Value =
        serde_json::from_str(&read(&place, ".mcp.json").replace("// What the team uses.", ""))
            .unwrap();
    let server = &now["mcpServers"]["fixture"];
    let mut process = Command::new(server["command"].as_str().unwrap());
    process.args(server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()));
    process.env("XDG_STATE_HOME", place.home());
    let mut wrapped = Wrapped::start(process);
    wrapped.initialize(json!({})).await;
    let listed = wrapped.ask(2, "tools/list", json!({})).await;
    assert!(listed["result"]["tools"].as_array().is_some_and(|tools| tools.len() > 10), "{listed}");

    let again = place.seawall(&["install", ".mcp.json", "--write"]).await;
    assert!(again.out.contains("fixture (line 4) starts through Seawall already"), "{}", again.out);
    let undone = place.seawall(&["uninstall", ".mcp.json", "--write"]).await;
    assert_eq!((undone.code, read(&place, ".mcp.json")), (0, text), "{}", undone.err);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_keeps_its_place_and_its_secrecy_and_one_copy_of_what_it_was() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("real.json", &servers());
    let mode =
        |file: &str| std::fs::metadata(place.path(file)).unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(place.path("real.json"), std::fs::Permissions::from_mode(0o600))
        .unwrap();
    std::os::unix::fs::symlink("real.json", place.path("mcp.json")).unwrap();

    for deed in ["install", "uninstall", "install", "uninstall", "install"] {
        let ended = place.seawall(&[deed, "mcp.json", "--write", "--server", "fixture"]).await;
        assert_eq!(ended.code, 0, "{}", ended.err);
        let told = format!(
            "The file as it was before Seawall: {}",
            place.path("real.json.before-seawall").display()
        );
        assert!(ended.out.contains(&told), "{}", ended.out);
        assert_eq!(read(&place, "real.json.before-seawall"), servers());
    }

    assert!(place.path("mcp.json").is_symlink());
    assert_eq!(["real.json", "real.json.before-seawall"].map(mode), [0o600; 2]);
    let left = std::fs::read_dir(place.home())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect::<Vec<_>>();
    assert_eq!(left.len(), 3, "nothing else is left behind: {left:?}");

    // What its owner changed since is what a later install keeps.
    place.seawall(&["uninstall", "mcp.json", "--write"]).await;
    let changed = servers().replace("hunter2hunter2", "hunter4hunter4");
    std::fs::write(place.path("real.json"), &changed).unwrap();
    place.seawall(&["install", "mcp.json", "--write"]).await;
    assert_eq!(read(&place, "real.json.before-seawall"), changed);
}

#[tokio::test]
async fn a_command_in_one_string_is_wrapped_word_by_word_and_works() {
    let fixture = program("seawall-fixture");
    let text =
        format!(r#"{{"mcpServers": {{"it": {{"command": "{fixture} --stdio --era legacy"}}}}}}"#);
    let place = Place::new("mcp.json", &text);
    let shown = place.seawall(&["install", "mcp.json", "--write"]).await;
    assert!(
        shown.out.contains(&format!("run --name it -- {fixture} --stdio --era legacy …")),
        "{}",
        shown.out
    );
    let now: Value = serde_json::from_str(&read(&place, "mcp.json")).unwrap();
    let words = json!(["run", "--name", "it", "--", fixture, "--stdio", "--era", "legacy"]);
    assert_eq!(now["mcpServers"]["it"]["args"], words);

    let place = Place::new("mcp.json", &text);
    let told = place.json(&["check", "--config", "mcp.json"]).await;
    assert_eq!(told["servers"]["it"]["ok"], true, "the gateway reads it so too: {told}");
}

#[tokio::test]
async fn the_servers_that_claude_code_keeps_for_one_project_are_found() {
    let fixture = json!(program("seawall-fixture"));
    let text = format!(
        r#"{{"numStartups": 3, "projects": {{"/home/me/shop": {{"mcpServers": {{"fixture": {{"command": {fixture}}}}}}}}}}}"#
    );
    let place = Place::new(".claude.json", &text);
    let written = place.seawall(&["install", "claude-code", "--write"]).await;
    assert_eq!(written.code, 0, "{}", written.err);
    assert!(written.out.contains("1 of 1 server starts through Seawall"), "{}", written.out);
    assert!(written.out.contains("fixture of /home/me/shop (line 1)"), "{}", written.out);
    let undone = place.seawall(&["uninstall", "claude-code", "--write"]).await;
    assert_eq!((undone.code, read(&place, ".claude.json")), (0, text), "{}", undone.err);

    let served = place.seawall(&["serve", "--config", ".claude.json"]).await;
    let told = "projects.\"/home/me/shop\".mcpServers: only for this project, so not served: fixture; to serve";
    assert!(
        served.code == 1 && served.err.contains(told),
        "a gateway says whom it passes over: {}",
        served.err
    );
}

#[tokio::test]
async fn what_cannot_be_done_is_told_and_nothing_is_written() {
    let place = Place::new(
        "broken.json",
        "{\"mcpServers\": {\n  \"a\": {\"command\": \"x\" \"args\": []}}}",
    );
    for (args, why) in [
        (["install", "broken.json"], "broken.json:2: not valid JSON"),
        (
            ["install", "nowhere.json"],
            "nowhere.json: there is no such file, and no client that is known: claude-desktop,",
        ),
        (["uninstall", "windsurf"], "windsurf has no file at"),
    ] {
        let ended = place.seawall(&[args.as_slice(), &["--write"]].concat()).await;
        assert_eq!(ended.code, 1, "{}", ended.out);
        assert!(ended.err.contains(why), "{}", ended.err);
    }
    assert_eq!(std::fs::read_dir(place.home()).unwrap().count(), 1);
}
