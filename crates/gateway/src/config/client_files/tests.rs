//! Shows the effect of install and uninstall on the files of clients.

use std::path::Path;

use super::*;

fn done(file: &str, text: &str, deed: FileAction<'_>) -> FilePlan {
    plan(Path::new(file), text, deed, &[]).unwrap_or_else(|why| panic!("{file} {why}: {text}"))
}

fn install(file: &str, text: &str) -> FilePlan {
    done(file, text, FileAction::Install { seawall: "/bin/seawall", path: "" })
}

/// Checks the text after install, and that uninstall restores the original.
#[track_caller]
fn there_and_back(file: &str, text: &str, there: &str) {
    let installed = install(file, text);
    assert_eq!(installed.text, there);
    assert_eq!(
        done(file, &installed.text, FileAction::Uninstall { seawall: "/bin/seawall" }).text,
        text
    );
    assert_eq!(install(file, &installed.text).changed(), 0, "it is done once");
}

#[test]
fn only_the_commands_change_and_all_else_stays_as_it_is_written() {
    there_and_back(
        "mcp.json",
        "{\n  // mine\n  \"mcpServers\": {\n    \"git\": {\n      \"command\": \"uvx\", // fast\n      \"args\": [\n        \"mcp-server-git\",\n        1,\n      ],\n      \"env\": {\"TOKEN\": \"${TOKEN}\"},\n    },\n  },\n  \"theme\": \"dark\"\n}\n",
        "{\n  // mine\n  \"mcpServers\": {\n    \"git\": {\n      \"command\": \"/bin/seawall\", // fast\n      \"args\": [\n        \"run\", \"--name\", \"git\", \"--\", \"uvx\",\n        \"mcp-server-git\",\n        1,\n      ],\n      \"env\": {\"TOKEN\": \"${TOKEN}\"},\n    },\n  },\n  \"theme\": \"dark\"\n}\n",
    );
    there_and_back(
        ".mcp.json",
        r#"{"mcpServers":{"a":{"args":["-y","x"],"command":"C:\\n\"px"}}}"#,
        r#"{"mcpServers":{"a":{"args":["run", "--name", "a", "--", "C:\\n\"px", "-y","x"],"command":"/bin/seawall"}}}"#,
    );
    there_and_back(
        "mcp.json",
        r#"{"servers": {"a b": {"type": "stdio", "command": "\u006epx", "args": [ /* yes */ "-y" ]}}, "inputs": []}"#,
        r#"{"servers": {"a b": {"type": "stdio", "command": "/bin/seawall", "args": ["run", "--name", "a-b", "--", "\u006epx", /* yes */ "-y" ]}}, "inputs": []}"#,
    );
}

#[test]
fn toml_is_changed_as_it_is_written_too() {
    there_and_back(
        "config.toml",
        "model = \"o3\"\n\n[mcp_servers.git] # mine\ncommand = 'uvx'\nargs = ['mcp-server-git', \"--repo\"]\n\n[mcp_servers.git.env]\nTOKEN = \"x\"\n",
        "model = \"o3\"\n\n[mcp_servers.git] # mine\ncommand = \"/bin/seawall\"\nargs = [\"run\", \"--name\", \"git\", \"--\", 'uvx', 'mcp-server-git', \"--repo\"]\n\n[mcp_servers.git.env]\nTOKEN = \"x\"\n",
    );
    there_and_back(
        "config.toml",
        "[mcp_servers]\nx = { command = \"a\", args = [ \"b\" ] }\n",
        "[mcp_servers]\nx = { command = \"/bin/seawall\", args = [ \"run\", \"--name\", \"x\", \"--\", \"a\", \"b\" ] }\n",
    );
}

#[test]
fn a_program_of_another_name_is_taken_back_too() {
    let text =
        r#"{"mcpServers":{"d":{"command":"docker","args":["run","--name","d","--","img"]}}}"#;
    let (seawall, path) = ("/opt/tools/gateway-wrap", "");
    let installed = done("m.json", text, FileAction::Install { seawall, path });
    assert_eq!(installed.changed(), 1, "docker is no Seawall, whatever its arguments");
    let again = done("m.json", &installed.text, FileAction::Install { seawall, path });
    assert_eq!(again.changed(), 0);
    assert_eq!(done("m.json", &installed.text, FileAction::Uninstall { seawall }).text, text);
}

#[test]
fn a_name_that_begins_with_no_letter_is_not_taken_for_an_option() {
    for (name, fitted) in [
        ("@smithery/github", "\"--name\", \"smithery-github\", "),
        ("-x", "\"--name\", \"x\", "),
        ("(beta) x", "\"--name\", \"beta--x\", "),
        ("\u{fc}n\u{ef}", "\"--name\", \"n-\", "),
        ("--", ""),
    ] {
        let file = format!(r#"{{"mcpServers": {{"{name}": {{"command": "x", "args": ["y"]}}}}}}"#);
        let text = install("mcp.json", &file).text;
        assert!(text.contains(&format!(r#"["run", {fitted}"--", "x", "y"]"#)), "{text}");
    }
}

#[test]
fn a_server_without_arguments_gets_some_after_its_command() {
    let args = |text: &str| install("mcp.json", text).text;
    let json = "{\"mcpServers\": {\r\n  \"a\": {\r\n    \"command\": \"x\"\r\n  }\r\n}}";
    let words = r#"["run", "--name", "a", "--", "x"]"#;
    assert_eq!(
        args(json),
        format!(
            "{{\"mcpServers\": {{\r\n  \"a\": {{\r\n    \"command\": \"/bin/seawall\",\r\n    \"args\": {words}\r\n  }}\r\n}}}}"
        )
    );
    assert_eq!(
        args(r#"{"mcpServers": {"a": {"command": "x", "env": {}}}}"#),
        format!(
            r#"{{"mcpServers": {{"a": {{"command": "/bin/seawall", "args": {words}, "env": {{}}}}}}}}"#
        )
    );
    assert_eq!(
        args(r#"{"mcpServers": {"a": {"command": "x", "args": [ ]}}}"#),
        format!(
            r#"{{"mcpServers": {{"a": {{"command": "/bin/seawall", "args": {}}}}}}}"#,
            words.replace(']', "  ]")
        )
    );
    let toml = |text: &str| install("config.toml", text).text;
    assert_eq!(
        toml("[mcp_servers.a]\n  command = \"x\" # mine\nenv = {}\n"),
        format!(
            "[mcp_servers.a]\n  command = \"/bin/seawall\" # mine\n  args = {words}\nenv = {{}}\n"
        )
    );
    assert_eq!(
        toml("mcp_servers.a = {command = \"x\"}"),
        format!("mcp_servers.a = {{command = \"/bin/seawall\", args = {words}}}")
    );
    assert_eq!(
        done("mcp.json", &args(json), FileAction::Uninstall { seawall: "/bin/seawall" }).text,
        json,
        "no arguments are none"
    );
}

#[test]
fn who_had_no_arguments_has_none_again_and_who_had_an_empty_list_has_it_again() {
    for text in [
        r#"{"mcpServers": {"a": {"command": "x"}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "env": {}}}}"#,
        "{\"mcpServers\": {\"a\": {\r\n\t\"command\": \"x\", // mine\r\n}}}",
        r#"{"mcpServers": {"a": {"command": "x", "args": []}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "args": [ ]}}}"#,
        "{\"mcpServers\": {\"a\": {\"args\": [\n  ], \"command\": \"x\"}}}",
    ] {
        assert_eq!(
            done(
                "mcp.json",
                &install("mcp.json", text).text,
                FileAction::Uninstall { seawall: "/bin/seawall" }
            )
            .text,
            text
        );
    }
    for text in [
        "[mcp_servers.a]\n  command = \"x\" # mine\nenv = {}\n",
        "[mcp_servers.a]\r\ncommand = \"x\"\r\n",
        "mcp_servers.a = {command = \"x\"}",
        "mcp_servers.a = {command = \"x\", env = {}}",
        "[mcp_servers.a]\ncommand = \"x\"\nargs = []\n",
    ] {
        assert_eq!(
            done(
                "config.toml",
                &install("config.toml", text).text,
                FileAction::Uninstall { seawall: "/bin/seawall" }
            )
            .text,
            text
        );
    }
    // The client has rewritten the file, each word on its own line.
    let pretty = "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"seawall\",\n      \"args\": [\n        \"run\",\n        \"--\",\n        \"x\"\n      ]\n    }\n  }\n}";
    let back = done("mcp.json", pretty, FileAction::Uninstall { seawall: "/bin/seawall" }).text;
    assert_eq!(
        back,
        "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\"\n    }\n  }\n}"
    );
}

#[test]
fn the_servers_of_single_projects_are_changed_too() {
    let text = r#"{"numStartups": 7, "mcpServers": {"a": {"command": "x"}}, "projects": {
        "/one": {"allowedTools": [], "mcpServers": {"a": {"command": "y", "args": ["-z"]}, "b": {"command": "b"}}},
        "/two": {"mcpServers": {}}, "/three": {"history": []}
    }}"#;
    let installed = install(".claude.json", text);
    let fates: Vec<_> = installed
        .servers
        .iter()
        .map(|fate| (fate.name.as_str(), fate.project.as_deref()))
        .collect();
    assert_eq!(fates, [("a", None), ("a", Some("/one")), ("b", Some("/one"))]);
    assert_eq!((installed.changed(), installed.is_untouched), (3, true));
    assert!(
        installed.text.contains(r#"["run", "--name", "a", "--", "y", "-z"]"#),
        "{}",
        installed.text
    );
    let back =
        done(".claude.json", &installed.text, FileAction::Uninstall { seawall: "/bin/seawall" });
    assert_eq!((back.text.as_str(), back.is_untouched), (text, false));
    let one = plan(
        Path::new(".claude.json"),
        text,
        FileAction::Install { seawall: "s", path: "" },
        &["b".to_owned()],
    )
    .unwrap();
    assert_eq!(one.servers.len(), 1, "also a server of a project is named alone");
    let only_projects = r#"{"projects": {"/one": {"mcpServers": {"a": {"command": "y"}}}}}"#;
    assert_eq!(install(".claude.json", only_projects).changed(), 1);
}

#[test]
fn what_is_not_started_by_a_command_stays_as_it_is() {
    let text = r#"{"mcpServers": {
        "remote": {"type": "http", "url": "https://a.example/mcp", "headers": {"Authorization": "Bearer x"}},
        "google": {"httpUrl": "https://a.example/mcp"},
        "odd": {"command": ["npx", "-y"]},
        "odder": {"command": "x", "args": "-y"},
        "twice": {"command": "x", "command": "y"},
        "empty": {},
        "ours": {"command": "seawall", "args": ["run", "https://a.example/mcp"]}
    }}"#;
    let installed = install("mcp.json", text);
    assert_eq!((installed.changed(), installed.text.as_str()), (0, text));
    let why: Vec<&str> = installed
        .servers
        .iter()
        .map(|fate| match &fate.then {
            PlannedServer::Left(why) => *why,
            PlannedServer::Changed(..) => "",
        })
        .collect();
    assert_eq!(why[..2], ["is remote: its client reaches it itself"; 2]);
    assert_eq!(why[2..6], ["has no plain command"; 4]);
    assert_eq!(why[6], "starts through Seawall already");
    let uninstalled = done("mcp.json", text, FileAction::Uninstall { seawall: "/bin/seawall" });
    assert_eq!((uninstalled.changed(), uninstalled.text.as_str()), (0, text));
}

#[test]
fn what_was_set_by_hand_before_the_command_goes_with_seawall() {
    let text = r#"{"mcpServers": {"a": {"command": "/opt/seawall", "args": ["run", "--config", "p.toml", "--", "npx", "--", "-y"]}}}"#;
    let uninstalled =
        done("mcp.json", text, FileAction::Uninstall { seawall: "/bin/seawall" }).text;
    assert_eq!(uninstalled, r#"{"mcpServers": {"a": {"command": "npx", "args": ["--", "-y"]}}}"#);
}

#[test]
fn only_those_that_are_named_change_and_who_is_not_there_is_told() {
    let text =
        r#"{"mcpServers": {"a": {"command": "x", "args": []}, "b": {"command": "y", "args": []}}}"#;
    let only = |name: &str| {
        plan(
            Path::new("m.json"),
            text,
            FileAction::Install { seawall: "seawall", path: "" },
            &[name.to_owned()],
        )
    };
    let planned = only("b").unwrap();
    assert_eq!((planned.servers.len(), planned.changed()), (1, 1));
    assert!(planned.text.contains(r#""a": {"command": "x", "args": []}"#), "{}", planned.text);
    assert_eq!(only("c").unwrap_err().to_string(), "m.json: has no server \"c\"");
}

#[test]
fn files_that_say_nothing_to_change_are_told_as_what_they_are() {
    let why = |file: &str, text: &str| {
        plan(Path::new(file), text, FileAction::Install { seawall: "seawall", path: "" }, &[])
            .unwrap_err()
            .to_string()
    };
    assert_eq!(why("m.json", "{}"), "m.json: lists no servers under \"mcpServers\"");
    assert!(
        why("seawall.toml", "[servers.a]\ncommand = \"x\"\n")
            .starts_with("seawall.toml: is Seawall's own configuration")
    );
    assert!(why("m.json", "{\"mcpServers\": {\n").starts_with("m.json:2: not valid JSON"));
}

#[test]
fn a_clients_file_is_the_projects_where_there_is_one_else_the_users() {
    let folder = tempfile::tempdir().unwrap();
    let (project, home) = (folder.path().join("project"), folder.path().join("home"));
    for path in [
        home.join(".cursor/mcp.json"),
        project.join(".cursor/mcp.json"),
        home.join(".codex/config.toml"),
    ] {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    let file = |name: &str, project: &Path| clients::file(name, project, Some(&home));
    assert_eq!(file("cursor", &project), Ok(project.join(".cursor/mcp.json")));
    assert_eq!(file("cursor", &home.join("elsewhere")), Ok(home.join(".cursor/mcp.json")));
    assert_eq!(file("codex", &project), Ok(home.join(".codex/config.toml")));
    let none = file("vscode", &project).unwrap_err();
    assert!(none.contains(".vscode/mcp.json or") && none.ends_with("give its path"), "{none}");
    assert!(
        file("emacs", &project).unwrap_err().contains("claude-desktop"),
        "the names that are known"
    );
}

proptest::proptest! {
    #[test]
    fn whatever_servers_are_called_and_given_comes_back_as_it_was(
        servers in proptest::collection::btree_map(".{1,12}", (".{0,12}", proptest::collection::vec(".{0,12}", 0..4)), 1..4),
        is_pretty in proptest::bool::ANY,
    ) {
        let servers: serde_json::Map<String, serde_json::Value> = servers
            .into_iter()
            .map(|(name, (command, args))| (name, serde_json::json!({"command": command, "args": args, "env": {"a": "b"}})))
            .collect();
        let whole = serde_json::json!({"mcpServers": servers, "other": [1, {"command": "x"}]});
        let text = if is_pretty { serde_json::to_string_pretty(&whole) } else { serde_json::to_string(&whole) }.unwrap();
        let installed = install("m.json", &text);
        proptest::prop_assert_eq!(installed.changed(), servers.len());
        let read: serde_json::Value = serde_json::from_str(&installed.text).unwrap();
        for (name, server) in &servers {
            let now = &read["mcpServers"][name];
            let args: Vec<&serde_json::Value> = now["args"].as_array().unwrap().iter().collect();
            let at = args.iter().position(|word| *word == "--").unwrap() + 1;
            proptest::prop_assert_eq!(&now["command"], "/bin/seawall");
            proptest::prop_assert_eq!(args[at], &server["command"]);
            proptest::prop_assert!(args[at + 1..].iter().copied().eq(server["args"].as_array().unwrap()));
        }
        // A list that was empty is written on one line.
        let back = done("m.json", &installed.text, FileAction::Uninstall { seawall: "/bin/seawall" }).text;
        proptest::prop_assert_eq!(back, text);
    }
}
