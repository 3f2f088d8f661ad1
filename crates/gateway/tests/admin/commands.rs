//! The commands that talk to a running gateway: what they print, and how they end.

use std::process::Stdio;
use std::sync::atomic::Ordering;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::admin_api::{ADMIN, AdminApi, TOKEN};
use super::breakers::{ONCE, patient};
use super::kit::{Served, program, soon, until};
use super::server::{End, Faulty, call, failure};

/// An operator at a shell, before one gateway.
pub(crate) struct Shell {
    pub(crate) address: String,
    pub(crate) token: Option<&'static str>,
    home: TempDir,
}

impl Shell {
    pub(crate) fn before(admin: &AdminApi) -> Self {
        let address = admin.url.strip_prefix("http://").unwrap().to_owned();
        Self { address, token: Some(TOKEN), home: TempDir::new().unwrap() }
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
        command.args(args.split(' ')).current_dir(self.home.path()).kill_on_drop(true);
        command
            .env("HOME", self.home.path())
            .env_remove("SEAWALL_CONFIG")
            .env_remove("SEAWALL_ADMIN_TOKEN");
        if let Some(token) = self.token {
            command.env("SEAWALL_ADMIN_TOKEN", token);
        }
        command
    }

    /// Runs a command to its end: its exit code, and what it said on stdout and stderr.
    pub(crate) async fn raw(&self, args: &str) -> (i32, String, String) {
        let output = soon(self.command(args).output()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// The same at this gateway.
    pub(crate) async fn run(&self, args: &str) -> (i32, String, String) {
        self.raw(&format!("{args} --admin {}", self.address)).await
    }

    /// The same where it must work: what it printed.
    pub(crate) async fn ok(&self, args: &str) -> String {
        let (code, out, err) = self.run(args).await;
        assert_eq!((code, err.as_str()), (0, ""), "{args}: {out}");
        assert!(!out.contains(|letter: char| letter.is_control() && letter != '\n'), "{out:?}");
        assert!(out.lines().all(|line| line == line.trim_end()), "{out:?}");
        out
    }

    async fn json(&self, args: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{args} --json")).await).unwrap()
    }

    pub(crate) fn tap(&self, args: &str) -> (Child, tokio::io::Lines<BufReader<ChildStdout>>) {
        let mut command = self.command(&format!("tap {args} --admin {}", self.address));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    }
}

#[tokio::test]
async fn an_operator_sees_the_breakers_and_throws_their_switches() {
    let (server, is_well) = patient().await;
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let admin = AdminApi::of(&served);
    let shell = Shell::before(&admin);
    assert!(shell.ok("breakers").await.starts_with("no server has listed its tools yet"));
    let session = served.session("/mcp/gh").await;
    for _ in 0..3 {
        call(&session, "get_issue", json!({})).await;
    }
    let table = shell.ok("breakers").await;
    let row = |name: &str| {
        let line =
            table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{table}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("TOOL"), ["TOOL", "STATE", "FAILURES", "OPENED", "NEXT", "TRY"]);
    assert_eq!(row("get_issue")[..6], ["get_issue", "open", "3", "1", "in", "10m"], "{table}");
    assert_eq!(row("cypher"), ["cypher", "closed", "0", "0"]);
    let of_api = admin.breakers().await;
    assert_eq!(shell.json("breakers").await["breakers"], of_api["breakers"]);
    let status = shell.ok("status").await;
    assert!(
        status.contains("breakers  8 closed, 1 open\n") && status.contains("\nget_issue  open"),
        "{status}"
    );

    is_well.store(true, Ordering::SeqCst);
    let forced = shell.ok("breakers force cypher open").await;
    assert_eq!(
        forced,
        "cypher is held open: no call reaches it until it is forced to auto or closed"
    );
    assert_eq!(failure(&call(&session, "cypher", json!({})).await)["code"], "SERVER_UNAVAILABLE");
    assert!(shell.ok("breakers").await.contains("\ncypher              held open"), "{table}");
    let (code, _, said) = shell.run("breakers reset cypher").await;
    let way_out =
        "seawall: an operator holds cypher open; seawall breakers force cypher auto lets it go";
    assert_eq!((code, said.as_str()), (1, way_out));
    assert_eq!(
        shell.ok("breakers reset --all").await,
        "closed: get_issue",
        "what is held stays held"
    );
    assert_eq!(
        shell.ok("breakers reset --all").await,
        "every breaker is closed already, or held by an operator"
    );
    assert_eq!(shell.json("breakers force cypher auto").await["mode"], "auto");
    let reset = shell.ok("breakers reset get_issue").await;
    assert_eq!(reset, "get_issue is closed, and its failures are forgotten");

    let (code, _, said) = shell.run("breakers force nobody open").await;
    assert!(code == 1 && said.contains("no breaker has this name"), "{said}");
    for wrong in [
        "breakers force cypher ajar",
        "breakers reset",
        "breakers reset cypher --all",
        "queue retry",
    ] {
        assert_eq!(shell.run(wrong).await.0, 1, "{wrong}");
    }
}

#[tokio::test]
async fn a_reset_of_all_needs_the_token_also_where_nothing_is_open() {
    let (server, _) = patient().await;
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let mut shell = Shell::before(&AdminApi::of(&served));
    for token in [Some("wrong"), None] {
        shell.token = token;
        let (code, out, said) = shell.run("breakers reset --all").await;
        assert_eq!((code, out.as_str()), (3, ""), "{token:?}: {said}");
        assert!(said.contains("token"), "{said}");
    }
}

#[tokio::test]
async fn an_operator_sends_and_drops_what_waits() {
    let folder = TempDir::new().unwrap();
    let (server, is_well) = {
        let is_well = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let looked = std::sync::Arc::clone(&is_well);
        let end = move |_: &str, _, _: &Value| match looked.load(Ordering::SeqCst) {
            true => End::Text("made"),
            false => End::Status("429 Too Many Requests", "", ""),
        };
        (Faulty::start(end).await, is_well)
    };
    let store = format!("[store]\npath = \"{}\"\n", folder.path().display());
    let served =
        server.served(&format!("{ADMIN}{store}[defaults]\nretry = {{ attempts = 1 }}\n")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    let shell = Shell::before(&admin);
    assert_eq!(
        shell.ok("queue").await,
        "nothing to show: 0 waiting, 0 delivering, 0 dead, 0 delivered"
    );
    for n in 0..2 {
        call(&session, "create_issue", json!({ "n": n })).await;
    }
    let first = async || admin.get("/resilience/queue").await.1["items"][0].clone();
    until("it was tried", async || first().await["lastError"].is_string()).await;
    assert_eq!(admin.force("create_issue", "open").await.0, 200);
    until("it waits", async || admin.get("/resilience/queue").await.1["waiting"] == 2).await;
    let table = shell.ok("queue list").await;
    let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..4], ["q1", "create_issue", "gh", "waiting"], "{table}");
    assert!(
        table.contains("429") && table.ends_with("\n2 waiting, 0 delivering, 0 dead, 0 delivered"),
        "{table}"
    );
    assert_eq!(shell.ok("queue drop q2").await, "q2 is dropped");
    is_well.store(true, Ordering::SeqCst);
    assert_eq!(
        shell.ok("queue retry q1").await,
        "q1 is sent as soon as its turn comes and its server is well"
    );
    assert_eq!(admin.force("create_issue", "auto").await.0, 200);
    until("it is made", async || admin.get("/resilience/queue").await.1["delivered"] == 1).await;
    assert!(shell.ok("queue").await.starts_with("nothing to show: 0 waiting"));
    assert_eq!(shell.json("queue list --all").await["items"][0]["id"], "q1");
    let (code, _, said) = shell.run("queue retry q1").await;
    assert!(code == 1 && said.contains("made already"), "{said}");
    let (code, _, said) = shell.run("queue drop q1").await;
    let told = "seawall: q1 was delivered already, and its client can read the answer until it is forgotten after a day; \
                say --even-if-delivered if the answer is meant to go";
    assert_eq!((code, said.as_str()), (1, told));
    assert_eq!(shell.json("queue list --all").await["items"][0]["id"], "q1");
    assert_eq!(shell.ok("queue drop q1 --even-if-delivered").await, "q1 is dropped");
    assert_eq!(shell.json("queue list --all").await["items"], json!([]));
    assert!(shell.ok("status").await.contains("queue     0 waiting, 0 delivering, 0 dead"));
}

#[tokio::test]
async fn an_operator_sees_the_servers_restarts_one_and_reads_what_it_said() {
    let script = format!("echo \"hello $KEY\" >&2; exec {} --stdio", program("seawall-fixture"));
    let server = format!(
        "[servers.a]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\nenv = {{ KEY = \"canary-12345\" }}\n"
    );
    let served = Served::with(&format!("{ADMIN}{server}")).await;
    let admin = AdminApi::of(&served);
    let shell = Shell::before(&admin);
    let session = served.session("/mcp/a").await;
    session.ask(1, "tools/list", json!({})).await;
    let pids = async || admin.get("/resilience/servers").await.1["servers"]["a"]["pids"].clone();
    let before = pids().await;
    let table = shell.ok("servers").await;
    let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        (words[0], words[1], words[3]),
        ("a", "up", before[0].to_string().as_str()),
        "{table}"
    );
    assert_eq!(shell.ok("servers restart a").await, "a is started anew, for whoever uses it");
    until("another process is there", async || {
        let now = pids().await;
        now != before && now.as_array().map(Vec::len) == Some(1)
    })
    .await;
    let said = shell.ok("logs a").await;
    assert!(said.lines().any(|line| line == "hello ***"), "{said}");
    assert!(
        shell
            .json("logs a")
            .await
            .as_array()
            .is_some_and(|lines| lines.contains(&json!("hello ***")))
    );
    let (code, _, said) = shell.run("logs b").await;
    assert_eq!((code, said.as_str()), (1, "seawall: there is no server \"b\"; there are: a"));
    let (code, _, said) = shell.run("servers restart b").await;
    assert!(code == 1 && said.contains("there is no server of this name"), "{said}");
    let status = shell.ok("status").await;
    let address = &shell.address;
    assert!(
        status.starts_with(&format!("gateway   ready, at {address}\nservers   1 up\n")),
        "{status}"
    );
    assert!(status.contains("queue     none; [store] gives it one"), "{status}");
    assert_eq!(shell.json("status").await["ready"]["status"], "ready");
}

#[tokio::test]
async fn an_operator_reads_along_until_it_is_enough_or_over() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    let shell = Shell::before(&admin);
    call(&session, "get_issue", json!({})).await;
    let (mut all, mut told) = shell.tap("--last 1000 --class ok --tool get_issue");
    let line = soon(told.next_line()).await.unwrap().unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1..3], ["call_finished", "get_issue"], "{line}");
    assert!(words[0].len() == "09:05:03.120".len() && words.contains(&"class=ok"), "{line}");
    call(&session, "cypher", json!({})).await;
    call(&session, "get_issue", json!({})).await;
    let next = soon(told.next_line()).await.unwrap().unwrap();
    assert!(next.contains("get_issue"), "only what is wanted: {next}");
    kill_process(Pid::from_raw(all.id().unwrap().cast_signed()).unwrap(), Signal::INT).unwrap();
    assert_eq!(soon(all.wait()).await.unwrap().code(), Some(0));

    let (mut json, mut told) = shell.tap("--last 1 --class ok --json");
    let event: Value =
        serde_json::from_str(&soon(told.next_line()).await.unwrap().unwrap()).unwrap();
    assert_eq!(event["event"], "call_finished");
    kill_process(Pid::from_raw(served.child.id().unwrap().cast_signed()).unwrap(), Signal::TERM)
        .unwrap();
    assert_eq!(soon(json.wait()).await.unwrap().code(), Some(0));
    assert_eq!(soon(told.next_line()).await.unwrap(), None);
}

#[tokio::test]
async fn each_end_has_its_code_and_says_what_to_do() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    call(&session, "get_issue", json!({})).await;
    let mut shell = Shell::before(&admin);
    let file = shell.home.path().join("seawall.toml");
    let write = |admin: &str| {
        std::fs::write(&file, format!("{admin}\n[servers.gh]\nurl = \"http://127.0.0.1:1/mcp\"\n"))
            .unwrap();
    };
    write(&format!(
        "[admin]\nlisten = \"{}\"\ntoken = \"${{env:SEAWALL_ADMIN_TOKEN}}\"",
        shell.address
    ));
    for args in ["breakers reset get_issue --config seawall.toml", "breakers reset get_issue"] {
        let (code, _, said) = shell.raw(args).await;
        assert_eq!((code, said.as_str()), (0, ""), "{args}: the file says where, and which token");
    }
    shell.token = None;
    let (code, _, said) = shell.raw("status").await;
    assert_eq!((code, said.as_str()), (0, ""), "whoever is on this machine may read without it");
    let (code, _, said) = shell.raw("breakers reset get_issue").await;
    assert!(code == 3 && said.contains("wants its admin token: set SEAWALL_ADMIN_TOKEN"), "{said}");
    let (code, _, said) = shell.run("breakers reset get_issue").await;
    assert!(code == 3 && said.contains("wants its admin token: set SEAWALL_ADMIN_TOKEN"), "{said}");
    shell.token = Some("wrong");
    let (code, _, said) = shell.run("breakers reset get_issue").await;
    assert!(code == 3 && said.contains("does not take this token"), "{said}");
    assert!(!said.contains("wrong"), "{said}");
    assert_eq!(shell.run("status").await.0, 0, "whoever is on this machine may read");

    write("");
    let (code, _, said) = shell.raw("status").await;
    assert!(code == 1 && said.contains("has no [admin] section"), "{said}");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for args in ["status", "breakers reset x", "tap"] {
        let (code, _, said) = shell.raw(&format!("{args} --admin {free}")).await;
        let told = format!(
            "seawall: no gateway answers at {free}: is `seawall serve` running, and does its configuration have [admin]?"
        );
        assert_eq!((code, said), (4, told), "{args}");
    }
    let (code, _, said) = shell.raw(&format!("status --admin {}", served.url)).await;
    assert!(
        code == 4 && said.contains("is no admin API of Seawall"),
        "the clients' own port: {said}"
    );
    assert_eq!(shell.raw("status --admin http://x/y").await.0, 1);
}
