//! Files of other clients, read unchanged.

use super::*;
use crate::config::layer::PolicyLayer;

fn listed(config: &Config) -> Vec<String> {
    config.servers.iter().map(|it| format!("{}: {}", it.name, shown(&it.transport))).collect()
}

#[test]
fn the_file_of_claude_is_read_with_its_comments() {
    let kit = json_file(
        r#"{
  // what the team uses
  "mcpServers": {
    "git hub": { "command": "npx", "args": ["-y", "server-github",], "env": {"TOKEN": "${TOKEN}"}, "alwaysLoad": true },
    "remote": {
      "type": "http", "url": "${BASE:-https://api.example}/mcp", "headers": {"X-Key": "${KEY:-none}"},
      "timeout": 5000
    },
    /* not now
    "broken": {}, */
    "off": { "command": "${UNSET}", "args": 5, "disabled": true },
    "off too": { "command": "${UNSET}", "enabled": false },
    "mixed": {
      "command": "m", "args": null, "env": {"A": 1, "B": 2.50, "C": false, "D": null, "E": "//x"},
      "x-seawall": {"shared": true}
    },
  },
  "projects": {"servers": 3},
  "x-seawall": { "listen": "127.0.0.1:9", "grace": "1s" },
}
"#,
    )
    .var("TOKEN", "t0");

    let config = kit.good("mcp.json");

    assert_eq!(
        listed(&config),
        [
            "git-hub: stdio TOKEN=t0 npx -y server-github",
            "remote: http https://api.example/mcp x-key: none",
            "mixed: stdio A=1 B=2.50 C=false E=//x m ",
        ]
    );
    assert_eq!(config.servers.iter().map(|it| it.shared).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!((config.listen.port(), config.grace), (9, Duration::from_secs(1)));
}

#[test]
fn the_file_of_vs_code_is_read_from_its_workspace() {
    let kit = Kit::new()
        .file(
            ".vscode/mcp.json",
            r#"{
  "inputs": [{"type": "promptString", "id": "api-key", "password": true}],
  "servers": {
    "local": {
      "type": "stdio", "command": "${workspaceFolder}${/}bin${pathSeparator}server", "cwd": "sub",
      "args": ["${workspaceFolderBasename}"], "envFile": "${workspaceFolder}/.env",
      "env": {"KEY": "${input:api-key}", "B": "own", "C": null}, "dev": {"watch": "x"}
    },
    "remote": {"url": "https://api.example/sse"}
  }
}"#,
        )
        .file(".env", "# all\nA='1'\nB=2\nC=3\nexport D=\"4 # 5\"\n")
        .var("INPUT_API_KEY", "k0");

    let config = kit.good(".vscode/mcp.json");

    let folder = kit.text_of_folder();
    let base = kit.folder.path().file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(
        listed(&config),
        [
            format!(
                "local: stdio A=1 D=4 # 5 KEY=k0 B=own {folder}/bin/server {base} in {folder}/sub"
            ),
            "remote: sse https://api.example/sse".to_owned(),
        ]
    );
}

#[test]
fn the_file_of_cursor_is_read_from_its_workspace() {
    let text = r#"{"mcpServers": {"a": {"command": "${workspaceFolder}/a"}}}"#;
    let kit = Kit::new().file(".cursor/mcp.json", text);

    assert_eq!(
        listed(&kit.good(".cursor/mcp.json")),
        [format!("a: stdio {}/a ", kit.text_of_folder())]
    );
}

#[test]
fn the_file_of_codex_is_read() {
    let kit = toml_file(
        r#"
model = "x"
[mcp_servers.docs]
command = "docs"
env_vars = ["PASSED", { name = "TOO", source = "local" }, "UNSET"]
env = { OWN = "1" }
startup_timeout_sec = 10
required = true
[mcp_servers.remote]
url = "https://api.example/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { X-A = "1" }
env_http_headers = { X-B = "B" }
[mcp_servers.off]
enabled = false
"#,
    )
    .var("PASSED", "p")
    .var("TOO", "t")
    .var("TOKEN", "t0")
    .var("B", "b");

    assert_eq!(
        listed(&kit.good("seawall.toml")),
        [
            "docs: stdio PASSED=p TOO=t OWN=1 docs ",
            "remote: http? https://api.example/mcp x-a: 1 x-b: b authorization: Bearer t0",
        ]
    );
}

#[test]
fn known_fields_of_a_wrong_type_are_problems_and_unknown_ones_are_not() {
    let kit = json_file(
        r#"{
  "mcpServers": {
    "a": {
      "command": "a",
      "args": [1],
      "env": {"X": [], "": "1"},
      "cwd": 5,
      "disabled": "no",
      "autoApprove": 7,
      "x-seawall": {"shard": true, "rate": "1/s"}
    },
    "b": {
      "url":
        "https://${UNSET}.example",
      "headers": [],
      "bearer_token_env_var": "ghp_hunter2",
      "env_http_headers": {"X-B": "hunter2"}
    },
    "c": "npx",
    "d": {"command": "a", "envFile": "none.env"},
    "e": {"command": "a", "envFile": "bad.env"}
  }
}"#,
    )
    .file("bad.env", "A=1\nhunter2\n");
    let folder = kit.text_of_folder();

    assert_eq!(
        kit.problems("mcp.json").replace(&folder, ""),
        r#"mcp.json:5: mcpServers.a.args[0]: must be a string, not a number
mcp.json:6: mcpServers.a.env.X: must be a string, a number, true or false, not a list
mcp.json:6: mcpServers.a.env."": is not a variable's name
mcp.json:7: mcpServers.a.cwd: must be a string, not a number
mcp.json:8: mcpServers.a.disabled: must be true or false, not a string
mcp.json:10: mcpServers.a.x-seawall.shard: unknown key; did you mean "shared"?
mcp.json:13: mcpServers.b.url: the variable UNSET is not set; set it, or write ${UNSET:-default}
mcp.json:15: mcpServers.b.headers: must be a table, not a list
mcp.json:16: mcpServers.b.bearer_token_env_var: names a variable that is not set; set it
mcp.json:17: mcpServers.b.env_http_headers.X-B: names a variable that is not set; set it
mcp.json:19: mcpServers.c: must be a table, not a string
mcp.json:20: mcpServers.d.envFile: none.env cannot be read: No such file or directory (os error 2)
mcp.json:21: mcpServers.e.envFile: bad.env has a line 2 that is not KEY=VALUE"#
    );
}

#[test]
fn what_stands_twice_is_a_problem() {
    let kit = json_file(
        r#"{"mcpServers": {
        "a": {"command": "a"},
        "a": {"command": "b"},
        "b": {"command": "a", "command": "b"}
        }}"#,
    );
    assert_eq!(
        kit.problems("mcp.json"),
        "mcp.json:3: mcpServers.a: stands on line 2 already; keep one\n\
         mcp.json:4: mcpServers.b.command: stands on line 4 already; keep one"
    );

    let kit = json_file(
        "{\"mcpServers\": {\"a\": {\"command\": \"a\"}},\n\"servers\": {}, \"listen\": \"x\"}",
    );
    assert_eq!(
        kit.problems("mcp.json"),
        "mcp.json:2: servers: mcpServers lists servers too; keep one of the two\n\
         mcp.json:2: listen: stands under \"x-seawall\" in this kind of file"
    );
}

#[test]
fn a_file_without_servers_names_the_next_step() {
    assert_eq!(
        json_file("{}").problems("mcp.json"),
        "mcp.json: no servers; add one under \"mcpServers\" with a command or a url"
    );
    assert_eq!(
        json_file("{\"servers\": {}}").problems("mcp.json"),
        "mcp.json:1: servers: no servers; add one with a command or a url"
    );
    assert_eq!(
        json_server("\"command\": \"a\", \"disabled\": true").problems("mcp.json"),
        "mcp.json:1: mcpServers: all servers are disabled; enable one"
    );
    assert_eq!(json_file("[]").problems("mcp.json"), "mcp.json: must be a table, not a list");
}

#[test]
fn names_are_made_to_fit_as_long_as_they_differ() {
    let kit = json_file(
        r#"{"mcpServers": {
        "my server": {"command": "a"},
        "my/server": {"command": "b"},
        "??": {"command": "c"}
        }}"#,
    );

    let rule = name::RULE;
    assert_eq!(
        kit.problems("mcp.json"),
        format!(
            "mcp.json:3: mcpServers.\"my/server\": would be called \"my-server\", as \"my server\" is; rename one\n\
             mcp.json:4: mcpServers.\"??\": {rule}"
        )
    );
}

/// The call timeout of each server, and the warnings about it.
fn limits(kit: &Kit, file: &str) -> (Vec<Option<Duration>>, Vec<String>) {
    let config = kit.good(file);
    let warnings = config
        .warnings
        .iter()
        .map(|warning| warning.to_string().replace(&kit.text_of_folder(), ""));
    let limits = config.servers.iter().map(|server| &server.rules.layer);
    let limit = |layer: &PolicyLayer| layer.says("timeout").then(|| layer.alone().timeout);
    (limits.map(limit).collect(), warnings.collect())
}

#[test]
fn how_long_a_client_lets_calls_run_is_honoured_or_told() {
    let file = r#"{"mcpServers": {
"long": {"command": "a", "timeout": 600000},
"unclear": {"command": "a", "timeout": 60},
"hour": {"command": "a", "timeout": 3600},
"text": {"command": "a", "timeout": "30s"},
"two": {"command": "a", "timeout": {"startup": 1, "request": 2}},
"ever": {"command": "a", "timeout": 2147483647},
"ours": {"command": "a", "x-seawall": {"policy": {"timeout": "9s"}}, "timeout": 60},
"none": {"command": "a", "timeout": null},
"off": {"command": "a", "timeout": 60, "disabled": true}
}}"#;
    let (limits_found, warnings) = limits(&json_file(file), "mcp.json");
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(
        limits_found,
        [seconds(600), None, None, None, None, seconds(7 * 24 * 3600), seconds(9), None]
    );
    let next = r#"say timeout = "60s" under x-seawall.policy of this server"#;
    let unclear = "is milliseconds to some clients and seconds to others, so it is passed over";
    assert_eq!(
        warnings,
        [
            format!("/mcp.json:3: mcpServers.unclear.timeout: 60 {unclear}; {next}"),
            format!("/mcp.json:4: mcpServers.hour.timeout: 3600 {unclear}; {next}"),
            format!(
                "/mcp.json:5: mcpServers.text.timeout: is not a number, so it is passed over; {next}"
            ),
            format!(
                "/mcp.json:6: mcpServers.two.timeout: is not a number, so it is passed over; {next}"
            ),
            "/mcp.json:7: mcpServers.ever.timeout: counts as 7 days: no call is waited for longer"
                .to_owned(),
        ]
    );

    let cline = r#"{"mcpServers": {"a": {"command": "a", "timeout": 60}, "b": {"command": "b", "timeout": -1}}}"#;
    let (limits_found, warnings) =
        limits(&Kit::new().file("cline_mcp_settings.json", cline), "cline_mcp_settings.json");
    assert_eq!((limits_found, warnings.len()), (vec![seconds(60), None], 1), "{warnings:?}");
}

#[test]
fn the_limits_of_codex_are_in_seconds() {
    let codex =
        "[mcp_servers.a]\ncommand = \"a\"\ntool_timeout_sec = 1.5\nstartup_timeout_sec = 30\n";
    let (limits_found, warnings) = limits(&toml_file(codex), "seawall.toml");
    assert_eq!(limits_found, [Some(Duration::from_millis(1500))]);
    assert_eq!(
        warnings,
        [
            "/seawall.toml:4: mcp_servers.a.startup_timeout_sec: is passed over; how long calls wait for a server that starts \
          is said by wait = \"60s\" under x-seawall.reconnect"
        ]
    );
    let said = format!("{codex}[x-seawall.reconnect]\nwait = \"30s\"\n");
    assert!(limits(&toml_file(&said), "seawall.toml").1.is_empty());
}
