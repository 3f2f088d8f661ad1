//! `seawall run`: one server from the command line; and which file is found.

use super::*;

fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

#[test]
fn a_command_gets_the_name_of_what_it_starts() {
    for (command, name) in [
        ("/opt/bin/files --all", "files"),
        ("server.exe", "server"),
        ("npx -y @modelcontextprotocol/server-github@1.2.3 --flag", "server-github"),
        ("npx --yes server-git", "server-git"),
        ("npx -p @scope/pkg cmd", "cmd"),
        ("npx -y github:someone/my-server", "my-server"),
        ("uvx mcp-server-git[extra]==1.0", "mcp-server-git"),
        ("uvx --from git+https://x.example/a.git tool-a", "tool-a"),
        ("uv run --directory /srv server.py", "server"),
        ("node --import tsx dist/index.js", "index"),
        ("python3.12 -u -m my_pkg.server", "my_pkg.server"),
        ("python /srv/serve.py", "serve"),
        ("python -c print(1)", "python"),
        ("npx", "npx"),
        ("my__server_", "my-server-"),
        ("/opt/搜索", "server"),
    ] {
        let config = Config::for_command(None, words(command)).unwrap();
        assert_eq!(config.servers[0].name, name, "{command}");
    }
}

#[test]
fn a_command_is_started_as_it_is_with_the_whole_environment() {
    let config = Config::for_command(Some("it"), words("npx -y ${A}")).unwrap();

    assert_eq!(config.source, None);
    assert_eq!(config.servers[0].name, "it");
    assert_eq!(shown(&only(config)), "stdio npx -y ${A} +env");
}

#[test]
fn a_url_gets_the_name_of_its_host() {
    for (url, name, transport) in [
        ("https://api.example/mcp", "api.example", "http? https://api.example/mcp"),
        ("wss://api.example:8/", "api.example", "ws wss://api.example:8/"),
        ("http://127.0.0.1:1/sse", "127.0.0.1", "sse http://127.0.0.1:1/sse"),
        ("http://[::1]:1", "--1", "http? http://[::1]:1/"),
    ] {
        let config = Config::for_url(None, url).unwrap();
        assert_eq!(config.servers[0].name, name);
        assert_eq!(shown(&only(config)), transport);
    }
}

#[test]
fn a_bad_command_line_is_a_problem() {
    let empty = "command: is empty; write: seawall run -- COMMAND [ARGS]";
    assert_eq!(Config::for_command(None, Vec::new()).unwrap_err().to_string(), empty);
    assert_eq!(Config::for_command(None, words("")).unwrap_err().to_string(), empty);
    let name = Config::for_command(Some("a b"), words("a")).unwrap_err();
    assert_eq!(name.to_string(), format!("name: {}", name::RULE));
    let url = Config::for_url(None, "https://me:hunter2@a.example").unwrap_err();
    assert_eq!(
        url.to_string(),
        "url: has a user name or password in it; put it into headers, as Authorization"
    );
}

#[test]
fn a_name_keeps_tools_and_paths_apart() {
    for good in ["a", "A-b_c.9", "_a", &"x".repeat(64)] {
        assert_eq!(name::fit(good).as_deref(), Some(good));
    }
    for (bad, fitted) in
        [("a__b", Some("a-b")), ("a___b", Some("a-_b")), ("a_", Some("a-")), ("ä b", Some("--b"))]
    {
        assert!(!name::is_valid(bad));
        assert_eq!(name::fit(bad).as_deref(), fitted);
    }
    assert_eq!(name::fit(&"x".repeat(65)), Some("x".repeat(64)));
    for hopeless in ["", ".", "..", "--", "___"] {
        assert_eq!(name::fit(hopeless), None, "{hopeless}");
    }
}

#[test]
fn the_first_file_of_the_list_is_found() {
    let kit = Kit::new().file(".config/seawall/config.toml", "");
    let home = kit.text_of_folder();
    let at_home = |name: &str| (name == "HOME").then(|| home.clone());
    let stated = |name: &str| (name == "SEAWALL_CONFIG").then(|| "/none/x.toml".to_owned());
    let empty = |name: &str| (name == "SEAWALL_CONFIG").then(String::new);

    assert_eq!(find(Some(Path::new("/y.toml")), &stated), Some(PathBuf::from("/y.toml")));
    assert_eq!(find(None, &stated), Some(PathBuf::from("/none/x.toml")));
    assert_eq!(find(None, &at_home), Some(kit.path(".config/seawall/config.toml")));
    assert_eq!(find(None, &empty), None);
}
