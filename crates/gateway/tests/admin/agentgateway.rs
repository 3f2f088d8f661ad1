//! Seawall in agentgateway's place: its file, its paths, its `/config`, with a real process and
//! real sockets.

use std::process::Stdio;

use http::{Method, StatusCode};
use seawall_testkit::authz::{Act, Authorizer, Jwks, Key, KeyKind, Reply, claims};
use serde_json::{Value, json};

use super::admin_api::{ADMIN, AdminApi, TOKEN};
use super::kit::{Served, fixture, last, program, soon, until};
use super::reload::replace;
use super::upstream::{Upstream, honest, write};

const ISSUER: &str = "https://keycloak.example/realms/caipe";

/// What stands behind the gateway.
struct Platform {
    key: Key,
    jwks: Jwks,
    authorizer: Authorizer,
    jira: Upstream,
}

impl Platform {
    async fn start() -> Self {
        let key = Key::new(KeyKind::Es256, "one").unwrap();
        let jwks = Jwks::start(&[&key]).await.unwrap();
        let authorizer = Authorizer::start().await.unwrap();
        authorizer.always(Act::from(Reply::allow()));
        let jira = Upstream::start(|asked, mut tcp| async move {
            write(&mut tcp, &honest(&asked)).await;
        })
        .await;
        Self { key, jwks, authorizer, jira }
    }

    /// The file that the platform gives to its gateway.
    fn file(&self) -> String {
        let (jwks, authorizer, jira) = (self.jwks.url(), self.authorizer.address(), &self.jira.url);
        let fixture = program("seawall-fixture");
        format!(
            r#"binds:
- port: 0
  listeners:
  - protocol: HTTP
    policies:
      jwtAuth:
        mode: strict
        issuer: {ISSUER}
        audiences: [caipe-platform, agentgateway]
        jwks: {{ url: "{jwks}" }}
    routes:
    - matches: [{{ path: {{ pathPrefix: /mcp/jira }} }}]
      policies:
        extAuthz:
          host: {authorizer}
          failureMode: {{ denyWithStatus: 403 }}
          policies: {{ http: {{ requestTimeout: 10s }} }}
          includeRequestBody: {{ maxRequestBytes: 65536, allowPartialMessage: false, packAsBytes: true }}
          protocol:
            grpc:
              metadata:
                caipe.auth: '{{"sub": jwt.sub, "preferred_username": jwt.preferred_username}}'
        authorization: {{ rules: [ allow: 'true' ] }}
        transformations:
          request:
            set:
              authorization: '"Bearer " + default(request.headers["x-caipe-provider-token"], "")'
              x-caipe-provider-token: 'default(request.headers["x-caipe-provider-token"], "")'
      backends: [{{ mcp: {{ targets: [{{ name: jira, mcp: {{ host: "{jira}" }} }}] }} }}]
    - matches: [{{ path: {{ pathPrefix: /mcp/tools }} }}]
      backends:
      - mcp:
          targets:
          - name: tools
            stdio: {{ cmd: "{fixture}", args: [--stdio, --era, legacy], env: {{ KEY: s3cret-canary }} }}
config:
  adminAddr: 127.0.0.1:0
  logging: {{ level: info, format: json }}
"#
        )
    }

    fn token(&self) -> String {
        let mut claims = claims("user-1", ISSUER, "agentgateway", 60);
        claims["preferred_username"] = json!("ada");
        format!("Bearer {}", self.key.sign(&claims))
    }
}

/// Calls a tool once, as a modern client.
async fn call(
    served: &Served,
    path: &str,
    tool: &str,
    headers: &[(&str, &str)],
) -> (StatusCode, Value) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": tool, "arguments": {"text": "hi"}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let own =
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
    let all = [&own[..], headers].concat();
    let response = served.send(Method::POST, path, &all, &body.to_string()).await;
    (response.status(), last(response).await)
}

#[tokio::test]
async fn agentgateways_file_serves_its_paths_to_whoever_it_lets_in() {
    let platform = Platform::start().await;
    let served = Served::file("agentgateway.yaml", &platform.file()).await;
    let token = platform.token();
    let (status, _) = call(&served, "/mcp/tools", "echo", &[]).await;
    assert_eq!(status, 401, "jwtAuth is strict");
    let known = [("authorization", token.as_str())];
    let (status, answer) = call(&served, "/mcp/tools", "test_simple_text", &known).await;
    assert!(status == 200 && answer["result"]["content"][0]["text"].is_string(), "{answer}");
    assert_eq!(platform.authorizer.count(), 0, "its route asks nobody");

    let known = [
        known[0],
        ("x-caipe-provider-token", "prov-1"),
        ("x-caipe-agent-context", "signed"),
        ("x-other", "o"),
    ];
    let (status, answer) = call(&served, "/mcp/jira", "echo", &known).await;
    assert!(status == 200 && answer["result"]["content"].is_array(), "{answer}");
    let check = platform.authorizer.checks().pop().unwrap();
    assert_eq!(
        check.filter_metadata["caipe.auth"],
        json!({"sub": "user-1", "preferred_username": "ada"})
    );
    assert_eq!(
        (check.path.as_str(), check.header("x-caipe-agent-context")),
        ("/mcp/jira", Some("signed"))
    );
    assert_eq!(check.json()["params"]["name"], "echo");
    let asked = platform.jira.seen().into_iter().find(|asked| asked.is("tools/call")).unwrap();
    for line in ["authorization: bearer prov-1\r\n", "x-caipe-provider-token: prov-1\r\n"] {
        assert!(asked.head.contains(line), "{}", asked.head);
    }

    platform.authorizer.always(Act::from(Reply::deny("denied by OpenFGA")));
    let (_, answer) = call(&served, "/mcp/jira", "echo", &known).await;
    assert!(answer.to_string().contains("denied by OpenFGA"), "{answer}");
}

#[tokio::test]
async fn config_answers_in_agentgateways_shape_and_can_be_written_back() {
    let platform = Platform::start().await;
    let served = Served::file("agentgateway.yaml", &platform.file()).await;
    let admin = AdminApi::of(&served);
    let (status, shape) = admin.get("/config").await;
    assert_eq!(status, 200);
    let listener = &shape["binds"][0]["listeners"][0];
    assert_eq!(listener["policies"]["jwtAuth"]["jwks"]["url"], platform.jwks.url());
    let route = |index: usize| &listener["routes"][index];
    let target = |index: usize| &route(index)["backends"][0]["mcp"]["targets"][0];
    assert_eq!(route(0)["matches"][0]["path"]["pathPrefix"], "/mcp/jira");
    assert_eq!(target(0)["name"], "jira");
    assert_eq!(target(0)["mcp"]["host"], platform.jira.url);
    assert_eq!(route(1)["matches"][0]["path"]["pathPrefix"], "/mcp/tools");
    assert!(!shape.to_string().contains("s3cret-canary"), "{shape}");
    let (status, _) = admin.send(Method::POST, "/config", &[]).await;
    assert_eq!(status, 405, "nothing is changed here");

    // CAIPE's sidecar writes the answer back, with its own routes.
    let mut written = shape.clone();
    written["config"]["adminAddr"] = json!("127.0.0.1:0");
    written["binds"][0]["listeners"][0]["routes"].as_array_mut().unwrap().pop();
    let again = Served::file("config.yaml", &format!("{written:#}\n")).await;
    assert_eq!(call(&again, "/mcp/jira", "echo", &[]).await.0, 401);
    let token = platform.token();
    let (status, answer) = call(&again, "/mcp/jira", "echo", &[("authorization", &token)]).await;
    assert!(status == 200 && answer["result"]["content"].is_array(), "{answer}");
    let mut once_more = AdminApi::of(&again).get("/config").await.1;
    once_more["config"]["adminAddr"] = json!("127.0.0.1:0");
    assert_eq!(once_more, written);
}

/// The file with one route more, as the platform's sidecar writes it when somebody adds a server.
fn with_route(file: &str, name: &str, url: &str) -> String {
    let route = format!(
        "    - matches: [{{ path: {{ pathPrefix: /mcp/{name} }} }}]\n      backends: [{{ mcp: {{ targets: [{{ name: {name}, mcp: {{ host: \"{url}\" }} }}] }} }}]\n"
    );
    file.replace("config:\n", &format!("{route}config:\n"))
}

#[tokio::test]
async fn a_route_that_the_platforms_sidecar_adds_is_served_without_a_restart() {
    let platform = Platform::start().await;
    let served = Served::file("agentgateway.yaml", &platform.file()).await;
    let admin = AdminApi::of(&served);
    let token = platform.token();
    let known = [("authorization", token.as_str())];
    let works = async |path: &str, tool: &str| {
        let (status, answer) = call(&served, path, tool, &known).await;
        status == 200 && answer["result"]["content"].is_array()
    };
    assert!(works("/mcp/tools", "test_simple_text").await);
    let servers = async || admin.get("/resilience/servers").await.1["servers"].clone();
    let pids = servers().await["tools"]["pids"].clone();
    assert!(pids[0].is_number(), "{pids}");
    let (status, _) = call(&served, "/mcp/wiki", "echo", &known).await;
    assert_eq!(status, 404);

    let more = with_route(&platform.file(), "wiki", &platform.jira.url);
    replace(&served.config, &more);
    until("the new route serves", async || works("/mcp/wiki", "echo").await).await;
    let paths = async || {
        let shape = admin.get("/config").await.1;
        let routes = shape["binds"][0]["listeners"][0]["routes"].as_array().unwrap().clone();
        let path = |route: Value| route["matches"][0]["path"]["pathPrefix"].clone();
        routes.into_iter().map(path).collect::<Vec<_>>()
    };
    assert_eq!(
        paths().await,
        ["/mcp/jira", "/mcp/tools", "/mcp/wiki"],
        "the sidecar reads it back"
    );
    assert!(works("/mcp/jira", "echo").await && works("/mcp/tools", "test_simple_text").await);
    assert_eq!(servers().await["tools"]["pids"], pids, "the others notice nothing");

    replace(&served.config, &platform.file());
    let gone = async || call(&served, "/mcp/wiki", "echo", &known).await.0 == 404;
    until("the route that was taken away is gone", gone).await;
    assert_eq!(paths().await, ["/mcp/jira", "/mcp/tools"]);
}

#[tokio::test]
async fn any_gateway_tells_its_config_to_whoever_may_read() {
    let admin = ADMIN.replace("127.0.0.1", "0.0.0.0");
    let served = Served::with(&format!("{admin}{}", fixture("it", "legacy"))).await;
    let admin = AdminApi::of(&served);
    assert_eq!(admin.send(Method::GET, "/config", &[]).await.0, 401);
    let key = [("x-api-key", TOKEN), ("host", "seawall.internal")];
    let (status, body) = admin.send(Method::GET, "/config", &key).await;
    assert_eq!(status, 200, "{body}");
    let shape: Value = serde_json::from_str(&body).unwrap();
    let route = &shape["binds"][0]["listeners"][0]["routes"][0];
    assert_eq!(route["matches"][0]["path"]["pathPrefix"], "/mcp/it");
    assert!(!body.contains(TOKEN) && !body.contains("--era"), "{body}");
}

#[tokio::test]
async fn a_file_is_checked_and_one_without_identity_is_not_served_to_others() {
    let platform = Platform::start().await;
    let folder = tempfile::TempDir::new().unwrap();
    let seawall = async |command: &str, text: &str| {
        let path = folder.path().join("agentgateway.yaml");
        std::fs::write(&path, text).unwrap();
        let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
        process.args([command, "--config"]).arg(&path).stdin(Stdio::null()).kill_on_drop(true);
        process.env("XDG_STATE_HOME", folder.path());
        let output = soon(process.output()).await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    };
    let good = platform.file();
    let (code, said) = seawall("check", &good).await;
    assert!(code == 0 && said.contains("tools") && said.contains("jira"), "{said}");
    let wrong = good.replace("protocol: HTTP\n", "protocol: HTTP\n    tcpRoutes: []\n");
    for command in ["check", "serve"] {
        let (code, said) = seawall(command, &wrong).await;
        let told = "agentgateway.yaml:5: binds[0].listeners[0].tcpRoutes: is not supported in agentgateway's file";
        assert!(code != 0 && said.contains(told), "{code} {said}");
    }
    let (start, rest) = good.split_once("    policies:\n").unwrap();
    let open = format!("{start}{}", &rest[rest.find("    routes:").unwrap()..]);
    let (code, said) = seawall("serve", &open).await;
    assert!(code != 0 && said.contains("refusing to listen on 0.0.0.0:0"), "{code} {said}");
}
