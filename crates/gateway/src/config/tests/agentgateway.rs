//! agentgateway's file, read unchanged: what it means here, and what is refused.

use super::*;
use crate::config::agentgateway::shape::shape;

const CAIPE: &str = include_str!("samples/agentgateway.yaml");
const OWN: &str = include_str!("samples/agentgateway.toml");

fn caipe(text: &str) -> Kit {
    let vars = Kit::new().var("GITHUB_PAT", "pat-5ecret-99").var("ROOT_DIR", "/srv/files");
    vars.file("agentgateway.yaml", text)
}

/// What decides how a configuration behaves, without the places where it is written.
fn meaning(config: &Config) -> impl PartialEq + std::fmt::Debug + use<> {
    let servers = config.servers.iter().map(|server| {
        let access = ServerAccess { token_variable: None, ..server.access.clone() };
        (server.name.clone(), server.transport.clone(), shown(&server.transport), access)
    });
    let servers: Vec<_> = servers.collect();
    (
        config.listen,
        config.admin.clone(),
        config.identity.clone(),
        servers,
        config.ext_authz.clone(),
    )
}

fn warnings(config: &Config) -> Vec<String> {
    let plain = |warning: &Problem| Problem { file: None, ..warning.clone() }.to_string();
    config.warnings.iter().map(plain).collect()
}

#[test]
fn caipes_file_means_what_seawalls_own_would() {
    let own = caipe("").file("seawall.toml", OWN);
    let mut read = caipe(CAIPE).good("agentgateway.yaml");
    assert_eq!(meaning(&read), meaning(&own.good("seawall.toml")));
    assert_eq!(read.servers[2].access.token_variable.as_deref(), Some("GITHUB_PAT"));
    read.warnings.retain(|warning| !warning.text.contains("is passed on to this server"));
    assert_eq!(
        warnings(&read),
        [
            "config.adminAddr: others could reach 0.0.0.0:15000 without a token, so the admin API listens on 127.0.0.1:15000; set SEAWALL_ADMIN_TOKEN to open it",
            "config.logging: not applied: SEAWALL_LOG sets the level of Seawall's log",
        ]
    );
}

#[test]
fn the_file_is_known_by_what_it_holds() {
    let file = caipe(CAIPE);
    let text = shape(&file.good("agentgateway.yaml")).to_string();
    let json = caipe(CAIPE)
        .file("config.yaml", &text)
        .file("config.json", &text)
        .file("config", CAIPE)
        .file("c.yml", CAIPE);
    for name in ["config.yaml", "config.json", "config", "c.yml"] {
        assert_eq!(json.good(name).servers.len(), 5, "{name}");
    }
}

/// CAIPE's sidecar writes the answer back as the file: nobody may get in by that.
#[test]
fn what_is_shown_reads_as_the_same_configuration_and_holds_no_secret() {
    let kit = caipe(CAIPE);
    let config = kit.good("agentgateway.yaml");
    let shown = shape(&config).to_string();
    assert!(!shown.contains("5ecret") && !shown.contains("/srv/files"), "{shown}");
    let mut again = kit.file("again.yaml", &shown).good("again.yaml");
    assert_eq!(again.servers[2].access, config.servers[2].access);
    // Arguments and variables may hold secrets, so they are not shown.
    let (mut config, last) = (config, 4);
    config.servers.truncate(last);
    again.servers.truncate(last);
    assert_eq!(meaning(&again), meaning(&config));
}

#[test]
fn any_configuration_is_shown_without_what_may_be_secret() {
    let own = "[servers.a]\nurl = \"https://a.example/k/${A_TOKEN}/mcp?key=5ecret-query\"\n\
               headers = { X-Key = \"5ecret-header\" }\n\
               [servers.b]\ncommand = \"b\"\nargs = [\"--key=5ecret-arg\"]\nenv = { KEY = \"5ecret-env\" }\n\
               [[identity.jwt]]\nissuer = \"https://i.example\"\naudiences = [\"a\"]\njwks = \"keys.json\"\n\
               [[identity.api_keys]]\nname = \"ci\"\n\
               sha256 = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\n\
               [admin]\ntoken = \"5ecret-token\"\n[ext_authz]\nservice = \"authz:9100\"\n\
               context_extensions = { key = \"5ecret-context\" }\n";
    let config = toml_file(own).var("A_TOKEN", "5ecret").good("seawall.toml");
    let shown = shape(&config);
    let text = shown.to_string();
    assert!(!text.contains("5ecret") && !text.contains("aaaa"), "{text}");
    let listener = &shown["binds"][0]["listeners"][0];
    let route = |index: usize| &listener["routes"][index];
    assert_eq!(shown["binds"][0]["port"], 7332);
    assert_eq!(route(0)["matches"][0]["path"]["pathPrefix"], "/mcp/a");
    let target = |index: usize| &route(index)["backends"][0]["mcp"]["targets"][0];
    assert_eq!(target(0)["name"], "a");
    assert_eq!(target(0)["mcp"]["host"], "https://a.example/k/***/mcp");
    assert_eq!(*target(1), serde_json::json!({"name": "b", "stdio": {"cmd": "b"}}));
    assert_eq!(route(1)["policies"]["extAuthz"]["host"], "authz:9100");
    assert_eq!(listener["policies"]["jwtAuth"]["mode"], "strict");
}

/// A sidecar that writes such an answer back is told, and the file in force stays.
#[test]
fn a_restriction_that_the_shape_has_no_words_for_is_refused_when_it_is_written_back() {
    let jwt = "[[identity.jwt]]\nissuer = \"https://i.example\"\naudiences = [\"a\"]\njwks = \"keys.json\"\n";
    let server = "[servers.a]\nurl = \"https://a.example/mcp\"\n";
    let key = format!("[[identity.api_keys]]\nname = \"ci\"\nsha256 = \"{}\"\n", "a".repeat(64));
    for (own, is_said) in [
        (format!("{server}{jwt}"), true),
        (format!("{server}{jwt}{key}"), true),
        (format!("{server}{key}"), false),
        (format!("{server}scopes = [\"s\"]\n{jwt}"), false),
        (format!("{server}[identity]\nscopes = [\"s\"]\n{jwt}"), false),
        (format!("{server}{jwt}servers = [\"a\"]\n"), false),
        (
            format!(
                "{server}{jwt}[ext_authz]\nservice = \"a:1\"\ncontext_extensions = {{ k = \"v\" }}\n"
            ),
            false,
        ),
    ] {
        let shown = shape(&toml_file(&own).good("seawall.toml")).to_string();
        let kit = Kit::new().file("again.yaml", &shown);
        match is_said {
            true => drop(kit.good("again.yaml")),
            false => {
                let problems = kit.problems("again.yaml");
                assert!(problems.contains("seawall: is not supported"), "{own}: {problems}");
            }
        }
    }
}

#[test]
fn either_version_states_its_timeout() {
    for (written, millis) in [
        ("timeout: \"5s\"", 5_000),
        ("policies: { http: { requestTimeout: 250ms } }", 250),
        ("", 10_000),
    ] {
        let text = CAIPE.replace("timeout: \"10s\"", written);
        let config = caipe(&text).good("agentgateway.yaml");
        let ServerAuthz::Own(authz) = &config.servers[0].access.authz else { panic!("{config:?}") };
        assert_eq!(authz.timeout, Duration::from_millis(millis), "{written}");
    }
    let both = "timeout: 5s\n          policies: { http: { requestTimeout: 5s } }";
    let text = CAIPE.replace("timeout: \"10s\"", both);
    assert!(caipe(&text).problems("agentgateway.yaml").contains("keep one of the two"));
}

#[test]
fn an_authorizer_is_asked_as_agentgateway_would_ask_it() {
    let authz = |from: &str, to: &str| {
        assert!(CAIPE.contains(from), "{from}");
        let config = caipe(&CAIPE.replace(from, to)).good("agentgateway.yaml");
        let ServerAuthz::Own(authz) = config.servers[0].access.authz.clone() else { panic!() };
        authz
    };
    assert_eq!(authz("failureMode: { denyWithStatus: 403 }", "").on_unavailable, 403);
    assert_eq!(authz("{ denyWithStatus: 403 }", "deny").on_unavailable, 403);
    assert_eq!(authz("denyWithStatus: 403", "denyWithStatus: 503").on_unavailable, 503);
    assert_eq!(authz("maxRequestBytes: 65536", "#").max_body, 8192);
    let nothing = caipe(&CAIPE.replace("maxRequestBytes: 65536", "maxRequestBytes: 0"));
    let told = nothing.problems("agentgateway.yaml");
    assert!(told.contains("must be a whole number from 1 to 4194304, not 0"), "{told}");
    let headers = authz("timeout: \"10s\"", "includeRequestHeaders: [x-a]").headers;
    assert_eq!(headers, [HeaderName::from_static("x-a")]);
    let grpc = authz("metadata:", "context: { cluster: $ROOT_DIR }\n              metadata:");
    assert_eq!(grpc.context_extensions["cluster"], "/srv/files");
    let only_sub = authz(", \"preferred_username\": jwt.preferred_username}", "}").claims;
    assert_eq!(only_sub["caipe.auth"], ["sub"]);
}

#[test]
fn the_admin_api_is_open_to_others_only_with_a_token() {
    let token = caipe(CAIPE).var("SEAWALL_ADMIN_TOKEN", "t0ken").good("agentgateway.yaml");
    let admin = token.admin.unwrap();
    assert_eq!(admin.listen, "0.0.0.0:15000".parse().unwrap());
    assert_eq!(admin.token.unwrap().expose(), "t0ken");
    for (written, listen) in [("localhost:15001", "127.0.0.1:15001"), ("\"[::1]:9\"", "[::1]:9")] {
        let config = caipe(&CAIPE.replace("0.0.0.0:15000", written)).good("agentgateway.yaml");
        assert_eq!(config.admin.unwrap().listen, listen.parse().unwrap());
    }
    let without = caipe(CAIPE.split("\nconfig:").next().unwrap()).good("agentgateway.yaml");
    assert_eq!(without.admin.unwrap().listen, "127.0.0.1:15000".parse().unwrap());
}

#[test]
fn a_missing_variable_costs_its_server_only() {
    let config = Kit::new().file("a.yaml", CAIPE).good("a.yaml");
    let incomplete: Vec<_> = config
        .servers
        .iter()
        .filter(|server| matches!(server.transport, Transport::Incomplete { .. }))
        .map(|server| server.name.as_str())
        .collect();
    assert_eq!(incomplete, ["github", "files"]);
    assert!(!shape(&config).to_string().contains("GITHUB_PAT"));
}

/// The sample with one text replaced, and what is said of it.
fn said(from: &str, to: &str) -> String {
    assert!(CAIPE.contains(from), "{from}");
    caipe(&CAIPE.replacen(from, to, 1)).problems("agentgateway.yaml")
}

/// What is replaced, by what, the line of the problem, and words of it.
const WRONG: [(&str, &str, usize, &str); 37] = [
    (
        "binds:",
        "llm: {}\nbinds:",
        3,
        "llm: is not supported in agentgateway's file; read here: binds, config",
    ),
    (
        "- port: 4000",
        "- port: 4000\n  tunnelProtocol: direct",
        5,
        "binds[0].tunnelProtocol: is not supported",
    ),
    ("- port: 4000", "- port: 70000", 4, "binds[0].port: must be a whole number"),
    ("- port: 4000\n  listeners", "- listeners", 4, "binds[0]: needs port"),
    ("protocol: HTTP", "protocol: HTTPS", 6, "\"HTTPS\" is not supported, only \"HTTP\""),
    (
        "protocol: HTTP",
        "protocol: HTTP\n    tls: {cert: a, key: b}",
        7,
        "listeners[0].tls: is not supported",
    ),
    ("protocol: HTTP", "hostname: a.example", 6, "\"a.example\" is not supported, only \"*\""),
    ("mode: strict", "mode: optional", 9, "let in whoever shows no token"),
    ("mode: strict", "location: {}", 8, "needs mode: strict"),
    (
        "mode: strict",
        "mode: strict\n        forward: true",
        10,
        "jwtAuth.forward: is not supported",
    ),
    ("[caipe-platform, agentgateway]", "[]", 8, "needs audiences"),
    (
        "          url: http://keycloak",
        "          file: http://keycloak",
        13,
        "must be an http(s):// URL, or stand under file",
    ),
    (
        "      jwtAuth:",
        "      cors: {}\n      jwtAuth:",
        8,
        "policies.cors: is not supported in agentgateway's file; read here: jwtAuth",
    ),
    (
        "- matches: [{",
        "- hostnames: [a]\n      matches: [{",
        15,
        "routes[0].hostnames: is not supported",
    ),
    ("pathPrefix: /mcp/argocd", "exact: /mcp/argocd", 15, "path.exact: is not supported"),
    (
        "pathPrefix: /mcp/argocd",
        "pathPrefix: /argocd",
        15,
        "\"/argocd\" is not supported, only \"/mcp/NAME\"",
    ),
    (
        "{ path: { pathPrefix: /mcp/argocd } }",
        "{ path: { pathPrefix: /mcp/argocd }, method: GET }",
        15,
        "method: is not supported",
    ),
    ("/mcp/jira }", "/mcp/argocd }", 37, "another route has the path /mcp/argocd already"),
    (
        "        extAuthz:",
        "        cors: {}\n        extAuthz:",
        17,
        "routes[0].policies.cors: is not supported",
    ),
    ("host: caipe-openfga", "backend: caipe-openfga", 18, "extAuthz.backend: is not supported"),
    (
        "{ denyWithStatus: 403 }",
        "allow",
        19,
        "\"allow\" is not supported, only \"deny\": Seawall fails closed",
    ),
    ("denyWithStatus: 403", "denyWithStatus: 200", 19, "must be 403 or 503"),
    ("timeout: \"10s\"", "timeout: 10", 20, "timeout: must be a string, not a number"),
    ("timeout: \"10s\"", "policies: { tcp: {} }", 20, "policies.tcp: is not supported"),
    ("timeout: \"10s\"", "cache: {}", 20, "cache: is not supported"),
    ("allowPartialMessage: false", "allowPartialMessage: true", 23, "must be false"),
    ("packAsBytes: true", "packAsBytes: false", 24, "must be true"),
    (
        "            grpc:",
        "            http: {}\n            grpc:",
        26,
        "protocol.http: is not supported",
    ),
    (
        "jwt.sub,",
        "jwt.email,",
        28,
        "is not an expression that Seawall knows; it knows '{\"CLAIM\": jwt.CLAIM",
    ),
    ("allow: 'true'", "allow: 'jwt.sub == \"a\"'", 31, "rules in CEL are not evaluated here"),
    ("allow: 'true'", "deny: 'true'", 31, "deny: is not supported"),
    (
        "default(request.headers[\"x-caipe-provider-token\"], \"\")",
        "jwt.sub",
        42,
        "is not an expression that Seawall knows; it knows 'default(",
    ),
    (
        "request:\n            set:",
        "response:\n            set:",
        40,
        "transformations.response: is not supported",
    ),
    ("key: \"$GITHUB_PAT\"", "key: ghp_5ecret", 61, "must name a variable"),
    (
        "port: 8000, path: /mcp",
        "port: 8000",
        48,
        "write host as a URL alone, or host, port and path",
    ),
    ("stdio: {", "openapi: {", 69, "openapi: is not supported"),
    ("  logging:", "  tracing: {}\n  logging:", 73, "config.tracing: is not supported"),
];

#[test]
fn what_is_not_supported_is_named_with_its_line() {
    let mut wrong = Vec::new();
    for (from, to, line, words) in WRONG {
        let told = said(from, to);
        let is_told = |told: &str| {
            told.starts_with(&format!("agentgateway.yaml:{line}: ")) && told.contains(words)
        };
        if !told.lines().any(is_told) || told.contains("ghp_") {
            wrong.push(format!("{to}\n{told}\nnot {line}: {words}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_platform_may_begin_without_routes() {
    let none = format!("{}routes: []\n", CAIPE.split("routes:").next().unwrap());
    let config = caipe(&none).good("agentgateway.yaml");
    assert!(config.servers.is_empty() && config.identity.is_some());
    assert!(warnings(&config)[0].ends_with("no routes, so nothing is served"));
}

#[test]
fn several_where_seawall_has_one_are_refused() {
    for (from, to, words) in [
        (
            "config:\n",
            "- port: 1\n  listeners: []\nconfig:\n",
            "binds[1]: a second bind is not supported here",
        ),
        (
            "    routes:",
            "    routes: []\n  - routes:",
            "listeners[1]: a second listener is not supported",
        ),
        (
            "- name: argocd",
            "- { name: b, mcp: { host: b } }\n          - name: argocd",
            "targets[1]: a second target",
        ),
        ("config:\n", "config: {}\nconfig:\n", "stands on line 71 already; keep one"),
    ] {
        let told = said(from, to);
        assert!(told.contains(words), "{told}");
    }
    let text = "transformations and backendAuth both set authorization";
    let told = said(
        "        transformations:",
        "        backendAuth: { key: $A }\n        transformations:",
    );
    assert!(told.contains(text), "{told}");
}
