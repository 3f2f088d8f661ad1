//! Seawall's own file.

use super::*;

#[test]
fn a_file_with_every_key_is_read_in_its_order() {
    let kit = toml_file(
        r#"
listen = "0.0.0.0:80"
grace = "2m"
allowed_hosts = ["Gateway.example", "10.0.0.1:80"]
allowed_origins = ["https://App.example"]

[servers.zeta]
command = "npx"
args = ["-y", "server"]
env = { TOKEN = "${env:TOKEN}", PORT = 0x50, DEBUG = true }
cwd = "work"
shared = true

[servers.alpha]
url = "https://search.example/mcp"
headers = { Authorization = "Bearer ${TOKEN}" }

[servers.mid]
type = "sse"
url = "http://127.0.0.1:9/events"
enabled = true
disabled = false

[servers.off]
disabled = true
command = "${UNSET}"
"#,
    )
    .var("TOKEN", "t0");

    let config = kit.good("seawall.toml");

    assert_eq!(config.listen, "0.0.0.0:80".parse().unwrap());
    assert_eq!(config.grace, Duration::from_secs(120));
    assert_eq!(config.allowed_hosts, ["gateway.example", "10.0.0.1:80"]);
    assert_eq!(config.allowed_origins, ["https://app.example"]);
    assert_eq!(config.source, Some(kit.path("seawall.toml")));
    let servers: Vec<_> = config
        .servers
        .iter()
        .map(|it| (it.name.as_str(), it.shared, shown(&it.transport)))
        .collect();
    let stdio =
        format!("stdio TOKEN=t0 PORT=80 DEBUG=true npx -y server in {}/work", kit.text_of_folder());
    assert_eq!(
        servers,
        [
            ("zeta", true, stdio),
            (
                "alpha",
                false,
                "http? https://search.example/mcp authorization: Bearer t0".to_owned()
            ),
            ("mid", false, "sse http://127.0.0.1:9/events".to_owned()),
        ]
    );
}

#[test]
fn what_is_not_said_has_its_default() {
    let config = toml_file("[servers.a]\ncommand = 'a'").good("seawall.toml");

    assert_eq!(config.listen, "127.0.0.1:7332".parse().unwrap());
    assert_eq!(config.grace, Duration::from_secs(10));
    assert!(config.allowed_hosts.is_empty() && config.allowed_origins.is_empty());
    assert!(!config.servers[0].shared);
    assert_eq!(shown(&config.servers[0].transport), "stdio a ");
}

#[test]
fn every_problem_is_told_at_once_with_its_line() {
    let problems = toml_file(include_str!("samples/wrong.toml")).problems("seawall.toml");

    assert_eq!(format!("{problems}\n"), include_str!("samples/wrong.txt"));
}

#[test]
fn a_file_without_servers_names_the_next_step() {
    let next = "seawall.toml: no servers; add one: [servers.NAME] with a command or a url";

    assert_eq!(toml_file("").problems("seawall.toml"), next);
    assert_eq!(toml_file("grace = '1s'").problems("seawall.toml"), next);
    assert_eq!(toml_file("[servers]").problems("seawall.toml"), next);
    assert_eq!(
        toml_file("[servers.a]\ncommand = 'a'\nenabled = false").problems("seawall.toml"),
        "seawall.toml:1: servers: all servers are disabled; enable one"
    );
}

#[test]
fn every_slip_of_the_syntax_is_told_and_nothing_else() {
    assert_eq!(
        toml_file("lisen = 1\n[servers.a]\ncommand = docs\ncommand = 'b'\nargs = [")
            .problems("seawall.toml"),
        "seawall.toml:3: not valid TOML: string values must be quoted, expected literal string\n\
         seawall.toml:4: not valid TOML: duplicate key\n\
         seawall.toml:5: not valid TOML: unclosed array, expected `]`"
    );
    assert_eq!(
        toml_file("servers = 1\n[servers.a]").problems("seawall.toml"),
        "seawall.toml:2: not valid TOML: cannot extend value of type integer with a dotted key"
    );
}

#[test]
fn the_own_file_may_be_json() {
    let kit = json_file(
        "{\n  \"listen\": \"127.0.0.1:1\", // ours\n  \"servers\": {\"a\": {\"command\": \"a\", \"trust\": true}},\n}",
    );

    assert_eq!(
        kit.problems("mcp.json"),
        "mcp.json:3: servers.a.trust: unknown key; known are command, args, env, cwd, url, headers, type, \
         enabled, disabled, shared, required, lazy, idle_stop, keep_warm, scopes, ext_authz, pass_header, chaos, trust_annotations, concurrency, rate, hint, policy"
    );
}

#[test]
fn how_servers_are_loaded_is_read_and_checked() {
    let config = toml_file(
        "[startup]\nattempts = 5\nbackoff = '100ms'\nmax_starting = '1m'\ndenied_text = 'legacy'\n\
         [servers.a]\ncommand = 'a'\nrequired = true",
    )
    .good("seawall.toml");
    let (backoff, max_starting) = (Duration::from_millis(100), Duration::from_secs(60));
    assert_eq!(
        config.startup,
        StartupConfig {
            attempts: 5,
            backoff,
            max_starting,
            denied_text: Some(seawall::DeniedText::Legacy)
        }
    );
    assert!(config.servers[0].required);

    assert_eq!(
        toml_file(
            "[startup]\nattempts = 1000\nbackof = '1s'\n[servers.a]\ncommand = 'a'\nrequired = 1"
        )
        .problems("seawall.toml"),
        "seawall.toml:2: startup.attempts: must be a whole number from 1 to 20, not 1000\n\
         seawall.toml:3: startup.backof: unknown key; did you mean \"backoff\"?\n\
         seawall.toml:6: servers.a.required: must be true or false, not a number"
    );
}

#[test]
fn what_variables_and_files_bring_into_an_address_or_arguments_is_shown_to_nobody() {
    let text = r#"
[servers.a]
url = "http://${env:MCP_HOST}/${file:path.txt}/mcp?k=query99value"
[servers.b]
command = "run"
args = ["--dsn=${env:DSN}", "${env:HOME}/data", "${API_TOKEN}"]
"#;
    let kit =
        toml_file(text).file("path.txt", "filesecret99yak\n").var("MCP_HOST", "mcp.example.org");
    let kit = kit
        .var("DSN", "postgres-77-zebra")
        .var("HOME", "/home/somebody")
        .var("API_TOKEN", "plainword77");
    let config = kit.good("seawall.toml");
    let said =
        "mcp.example.org filesecret99yak query99value postgres-77-zebra /home/somebody plainword77";
    let hidden = |server: usize| SecretTexts::of(&config.servers[server]).hide(said);
    assert_eq!(hidden(0), "mcp.example.org *** *** postgres-77-zebra /home/somebody plainword77");
    assert_eq!(hidden(1), "mcp.example.org filesecret99yak query99value *** /home/somebody ***");
}

#[test]
fn denials_are_told_as_the_preset_has_it_unless_that_is_set() {
    use seawall::DeniedText::{Diagnostic, Legacy};
    for (text, denied) in [
        ("", Diagnostic),
        ("preset = 'blog'\n", Diagnostic),
        ("preset = 'caipe'\n", Legacy),
        ("[startup]\ndenied_text = 'diagnostic'\n[servers.b]\ncommand = 'b'\n", Diagnostic),
        ("preset = 'caipe'\n[startup]\ndenied_text = 'diagnostic'\n", Diagnostic),
    ] {
        let config = toml_file(&format!("{text}[servers.a]\ncommand = 'a'")).good("seawall.toml");
        assert_eq!(config.startup.denied_text, Some(denied), "{text}");
    }
}

#[test]
fn a_word_for_denials_that_nobody_knows_is_told() {
    assert_eq!(
        toml_file("[startup]\ndenied_text = 'loud'\n[servers.a]\ncommand = 'a'")
            .problems("seawall.toml"),
        "seawall.toml:2: startup.denied_text: must be \"diagnostic\" or \"legacy\", not \"loud\""
    );
}

#[test]
fn a_setting_of_all_servers_under_one_of_them_is_told_where_it_belongs() {
    let file = "[servers.a]\ncommand = \"x\"\npreset = \"gitnexus\"\n";
    let mut problems = Problems::default();
    let _config = read_text(Path::new("seawall.toml"), file, &|_| None, true, &mut problems);
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("preset is set once for all servers, at the top of the file"),
        "{told:?}"
    );
}

#[test]
fn an_identity_that_would_let_everybody_in_is_refused() {
    let told = |text: &str| {
        toml_file(&format!("{text}\n[servers.a]\ncommand = 'a'\n")).problems("seawall.toml")
    };
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let key = |digest: &str| format!("[[identity.api_keys]]\nname = 'ci'\nsha256 = '{digest}'");
    assert!(told(&key(empty)).contains("is the digest of an empty key"));
    let twice = format!("{}\n{}", key(&"0".repeat(64)), key(&"0".repeat(64)));
    assert!(told(&twice).contains("stands twice"));
    assert!(told("[servers.b]\ncommand = 'b'\nscopes = ['x']").contains("needs [identity]"));
    assert!(told("[identity]\nscopes = ['x']").contains("names nobody"));
}
