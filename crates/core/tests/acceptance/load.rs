//! Loading tools: which servers load, what a failure means, and what is said about it.

use super::kit::*;
use futures_util::StreamExt;
use seawall::*;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

/// Servers that fail as scripted and then list one tool. Remembers how often each was asked.
#[derive(Default)]
struct Fleet {
    scripts: HashMap<&'static str, Script>,
    hanging: Vec<&'static str>,
    probe: Option<FailureSignals>,
    probed: Mutex<u32>,
}

impl Fleet {
    fn with(scripts: impl IntoIterator<Item = (&'static str, Script)>) -> Self {
        Self { scripts: scripts.into_iter().collect(), ..Self::default() }
    }

    fn asked(&self, server: &str) -> u32 {
        self.scripts[server].executions()
    }
}

impl ConnectServer<String> for Fleet {
    async fn connect(&self, server: &str) -> Result<Vec<String>, FailureSignals> {
        if self.hanging.contains(&server) {
            std::future::pending::<()>().await;
        }
        self.scripts[server].execute().map(|_| vec![format!("{server}_tool")])
    }

    async fn probe(&self, _: &str) -> Option<FailureSignals> {
        *self.probed.lock().unwrap() += 1;
        self.probe.clone()
    }
}

fn options(env: &Env) -> LoadOptions {
    LoadOptions { env: env.clone(), ..LoadOptions::default() }
}

async fn load(fleet: &Fleet, servers: &[&str], base: Duration) -> (LoadReport<String>, Duration) {
    let options = LoadOptions { backoff: Backoff { base, ..Backoff::LOAD }, ..options(&env(0.0)) };
    let (report, took) = timed(load_tools(servers.iter().copied(), fleet, &options)).await;
    (report.unwrap(), took)
}

#[tokio::test(start_paused = true)]
async fn a_load_retries_what_may_pass_and_nothing_else() {
    for (script, asked, status) in [
        (Script::failing(["read timeout"]), 2, "available"),
        (Script::down("Connection refused"), 1, "permanent"),
        (Script::healthy(), 1, "available"),
        (Script::down("HTTP 403 Forbidden from http://x"), 1, "denied"),
        (Script::down("read timeout"), 3, "transient"),
    ] {
        let fleet = Fleet::with([("s", script)]);
        let (report, _) = load(&fleet, &["s"], Duration::ZERO).await;

        let outcome = &report.outcomes[0];
        assert_eq!((fleet.asked("s"), outcome.attempts, outcome.status()), (asked, asked, status));
        assert_eq!(report.failed_status().is_empty(), status == "available");
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_of_a_load_are_250_and_500_ms_plus_up_to_250() {
    for (chance, expected) in [(0.0, [250, 500]), (1.0, [499, 749])] {
        let env = env(chance);
        let mut listener = env.events.subscribe();
        let fleet = Fleet::with([("s", Script::down("read timeout"))]);

        load_tools(["s"], &fleet, &options(&env)).await.unwrap();

        let pauses: Vec<u128> = listener
            .drain()
            .iter()
            .filter_map(|event| match &**event {
                Event::RetryScheduled { delay, .. } => Some(delay.as_millis()),
                _ => None,
            })
            .collect();
        assert_eq!(pauses, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn zero_attempts_is_one_and_success_does_not_wait() {
    let fleet = Fleet::with([("s", Script::down("read timeout")), ("ok", Script::healthy())]);
    let none = LoadOptions { attempts: 0, ..options(&env(0.0)) };
    load_tools(["s"], &fleet, &none).await.unwrap();
    assert_eq!(fleet.asked("s"), 1);

    let (report, elapsed) = load(&fleet, &["ok"], ms(250)).await;
    assert_eq!((report.all_tools(), elapsed), (vec![&"ok_tool".to_owned()], Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn one_hanging_server_delays_no_other() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "hung"];
    let mut fleet = Fleet::with(names.map(|name| (name, Script::failing(["read timeout"]))));
    fleet.hanging.push("hung");
    let options = options(&env(0.0));

    let (done, elapsed) =
        timed(load_each(names, &fleet, &options).unwrap().take(14).collect::<Vec<_>>()).await;
    assert_eq!(elapsed, ms(250));
    assert!(done.iter().all(|outcome| outcome.status() == "available" && outcome.attempts == 2));

    let fleet = Fleet {
        hanging: vec!["hung"],
        ..Fleet::with([("ok", Script::healthy()), ("hung", Script::healthy())])
    };
    let (report, elapsed) = timed(load_tools(["hung", "ok"], &fleet, &options)).await;
    let report = report.unwrap();
    assert_eq!(elapsed, secs(90) + ms(750), "three attempts of 30 s and two pauses");
    assert_eq!(report.failed_status(), HashMap::from([("hung", "transient")]));
    assert_eq!(report.outcomes[0].server_id, "hung", "in the order given");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_load_stops_everything() {
    struct Dropped<'a>(&'a Mutex<u32>);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let dropped = Mutex::new(0);
    let connect = |_: String| async {
        let _guard = Dropped(&dropped);
        std::future::pending::<Result<Vec<String>, FailureSignals>>().await
    };

    let cut = tokio::time::timeout(
        secs(1),
        load_tools(["a", "b", "c"], &connect, &LoadOptions::default()),
    )
    .await;

    assert!(cut.is_err());
    assert_eq!(*dropped.lock().unwrap(), 3);
}

#[test]
fn t16_every_known_text_of_a_failed_load_has_its_class() {
    use Disposition::*;
    for (text, class) in [
        ("read timeout", Transient),
        ("Request timed out", Transient),
        ("HTTP 403 Forbidden from http://gw/mcp/x: upstream call timeout", Transient),
        ("HTTP 502 Bad Gateway from http://x", Transient),
        ("HTTP 503 Service Unavailable from http://x", Transient),
        ("HTTP 408 Request Timeout from http://x", Transient),
        ("HTTP 429 Too Many Requests from http://x", Transient),
        ("Session terminated", Transient),
        ("Server disconnected without sending a response", Transient),
        ("Connection reset by peer", Transient),
        ("Cannot connect to http://x: getaddrinfo failed", Permanent),
        ("Name or service not known", Permanent),
        ("All connection attempts failed: Connection refused", Permanent),
        ("HTTP 404 Not Found from http://gw/mcp", Permanent),
        ("SSL: CERTIFICATE_VERIFY_FAILED", Permanent),
        ("MCP endpoint URL is not configured", Permanent),
        ("some unrecognized failure with no signal", Permanent),
        ("HTTP 403 Forbidden from http://x", Denied),
        ("HTTP 401 Unauthorized from http://x", Denied),
        ("403 Forbidden", Denied),
        ("HTTP 403 Forbidden from http://timeout-svc/mcp", Denied),
        ("403 Forbidden at host timeout-svc", Denied),
        ("HTTP 403 Forbidden: Authorization service unavailable", Transient),
        ("HTTP 403 Forbidden: OpenFGA check error", Transient),
        ("HTTP 403 Forbidden: denied by OpenFGA", Denied),
        ("HTTP 403 Forbidden: external authorization failed", Denied),
        ("HTTP 403 Forbidden: authorization failed", Denied),
        ("HTTP 403 Forbidden: caller lacks tool grant; upstream call timeout", Denied),
        ("Connection closed", Transient),
        ("broken pipe", Transient),
        ("Temporary failure in name resolution", Transient),
        ("Server error '503 Service Unavailable' for url 'http://x'", Transient),
        ("cannot load http://10.0.0.1.sslip.io/mcp", Permanent),
        // What an address says is no signal, of one class or another.
        ("unrecognized failure at http://gw/mcp?on=timeout", Permanent),
        ("unrecognized failure at http://timeout/mcp", Permanent),
        ("unrecognized failure at timeout.example.com", Permanent),
        ("unrecognized failure at timeout:8080", Permanent),
        ("unrecognized failure at /srv/timeout", Permanent),
        ("Session terminated at http://ssl/mcp", Transient),
        ("unrecognized failure at http://gw/http?status=403", Permanent),
        ("HTTP 400 Bad Request", Permanent),
        ("HTTP 405 Method Not Allowed", Permanent),
    ] {
        assert_eq!(classify_load_error(text, None), class, "{text}");
    }
    for (status, class) in [(503, Transient), (404, Permanent), (403, Denied)] {
        assert_eq!(classify_load_error("opaque", Some(status)), class, "{status}");
    }
    assert_eq!(
        classify_load_error("HTTP 503 Service Unavailable", Some(404)),
        Permanent,
        "an explicit status wins"
    );
}

#[test]
fn t16_the_body_decides_an_ambiguous_403() {
    let classifier = Classifier::new();
    let class = |body: &str| {
        classifier
            .classify_load(&FailureSignals::http(403, "HTTP 403 Forbidden").with_body(body))
            .disposition
    };

    for failed in [
        "Authorization service unavailable",
        "Authorization service timeout",
        "OpenFGA check error",
        "upstream call failed: x",
        "no healthy backends",
    ] {
        assert_eq!(class(failed), Disposition::Transient, "{failed}");
    }
    for denied in [
        "denied by OpenFGA",
        "external authorization failed",
        "missing authenticated subject",
        "user lacks dynamic agent grant",
        "",
        "timeout",
    ] {
        assert_eq!(class(denied), Disposition::Denied, "{denied}");
    }
    let timed_out = FailureSignals {
        transport: Some(TransportFailure::Timeout),
        ..FailureSignals::http(403, "HTTP 403 Forbidden")
    };
    assert_eq!(classifier.classify_load(&timed_out).disposition, Disposition::Transient);
}

#[test]
fn t16_a_lost_session_is_not_a_wrong_route() {
    let at_initialize = FailureSignals::http(404, "HTTP 404 Not Found");
    assert_eq!(classify(&at_initialize).cause, Cause::InvalidInput);
    assert_eq!(Classifier::new().classify_load(&at_initialize).disposition, Disposition::Permanent);

    let in_session = classify(&at_initialize.with_session());
    assert_eq!(
        (in_session.cause, in_session.disposition, in_session.sent),
        (Cause::SessionLost, Disposition::Transient, Sent::Never)
    );
}

#[tokio::test(start_paused = true)]
async fn every_class_has_its_own_exact_words() {
    let fleet = Fleet::with([
        ("ok", Script::healthy()),
        ("slow", Script::down("read timeout")),
        ("gone", Script::down("Cannot connect to http://x: getaddrinfo failed.")),
        ("closed", Script::down("HTTP 403 Forbidden from http://gw/mcp")),
    ]);

    let (report, _) = load(&fleet, &["ok", "slow", "gone", "closed"], ms(250)).await;

    let warnings = report.warnings();
    assert_eq!(
        warnings.prompt,
        [
            "**MCP servers still starting up (will retry; tools may appear shortly):** slow",
            "**MCP servers that failed to load (tools unavailable — needs attention):** gone: Cannot connect to http://x: getaddrinfo failed.",
            "**MCP servers that denied access:** closed: HTTP 403 Forbidden from http://gw/mcp",
        ]
    );
    assert_eq!(
        warnings.streamed,
        [
            "MCP server 'slow' is starting up and not ready yet — it will be retried.",
            "MCP server 'gone' is unavailable: Cannot connect to http://x: getaddrinfo failed. Tools from this server will not work.",
            "MCP server 'closed' denied access: HTTP 403 Forbidden from http://gw/mcp.",
        ]
    );
    let said = format!("{warnings:?}");
    assert_eq!(said.matches("will not work").count(), 1);
    assert_eq!(report.failed_servers(), ["slow", "gone", "closed"]);
    assert_eq!(report.failed_errors()["closed"], "HTTP 403 Forbidden from http://gw/mcp");
}

#[tokio::test(start_paused = true)]
async fn a_denial_can_be_told_in_the_words_from_before_it_was_told_apart() {
    let fleet = Fleet::with([
        ("slow", Script::down("read timeout")),
        ("closed", Script::down("HTTP 403 Forbidden")),
    ]);
    let (report, _) = load(&fleet, &["slow", "closed"], ms(250)).await;
    let warnings = report.warnings_with(DeniedText::Legacy);
    let former = "**MCP servers that failed to load (tools from these servers are unavailable):**  closed: HTTP 403 Forbidden";
    assert_eq!((warnings.prompt.len(), warnings.prompt[1].as_str()), (2, former));
    assert_eq!(
        warnings.streamed[0],
        report.warnings().streamed[0],
        "only denials have former words"
    );
    assert_eq!(warnings.streamed[1], legacy_denied_text("closed"));
    assert_eq!(
        legacy_denied_text("x"),
        "MCP server 'x' is unavailable. Tools from this server will not work."
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_load_is_retried_like_a_load_and_announced_by_whoever_knows_the_end() {
    let fleet = Fleet::with([("s", Script::down("503 Service Unavailable"))]);
    let options =
        LoadOptions { env: Env::new().with_rng(Rng::fixed(0.0)), ..LoadOptions::default() };
    let mut listener = options.env.events.subscribe();
    let outcome = load_step("s", &fleet, &options).await.unwrap();
    assert_eq!((outcome.status(), outcome.attempts, fleet.asked("s")), ("transient", 3, 3));
    let is_loaded = |event: &std::sync::Arc<Event>| matches!(**event, Event::ServerLoaded { .. });
    assert!(!listener.drain().iter().any(is_loaded));
    outcome.announce(&options.env);
    assert!(listener.drain().iter().any(is_loaded));
}

#[tokio::test(start_paused = true)]
async fn warnings_about_several_servers_are_joined_and_without_failures_there_are_none() {
    let fleet = Fleet::with([
        ("a", Script::down("timeout")),
        ("b", Script::down("timeout")),
        ("c", Script::down("ssl")),
        ("d", Script::down("ssl")),
    ]);
    let (report, _) = load(&fleet, &["a", "b", "c", "d"], ms(0)).await;
    assert_eq!(
        report.warnings().prompt,
        [
            "**MCP servers still starting up (will retry; tools may appear shortly):** a, b",
            "**MCP servers that failed to load (tools unavailable — needs attention):** c: ssl; d: ssl",
        ]
    );

    let (healthy, _) = load(&Fleet::with([("ok", Script::healthy())]), &["ok"], ms(0)).await;
    assert_eq!(healthy.warnings(), Warnings::default());
}

#[tokio::test(start_paused = true)]
async fn an_error_that_hides_what_happened_is_probed_once() {
    let mut fleet = Fleet::with([("s", Script::down("Session terminated"))]);
    fleet.probe = Some(FailureSignals::http(404, "HTTP 404 Not Found from http://gw/mcp"));
    let (report, _) = load(&fleet, &["s"], ms(0)).await;
    assert_eq!((report.outcomes[0].status(), fleet.asked("s")), ("permanent", 1));
    assert_eq!(report.failed_errors()["s"], "HTTP 404 Not Found from http://gw/mcp");

    let fleet = Fleet::with([("s", Script::down("Session terminated"))]);
    let (report, _) = load(&fleet, &["s"], ms(0)).await;
    assert_eq!((report.outcomes[0].status(), *fleet.probed.lock().unwrap()), ("transient", 1));
}

#[tokio::test(start_paused = true)]
async fn bad_options_are_told_once_and_nobody_is_connected_to() {
    let bad = [
        (LoadOptions { attempts: 101, ..LoadOptions::default() }, "attempts"),
        (LoadOptions { attempts: u32::MAX, ..LoadOptions::default() }, "attempts"),
        (
            LoadOptions {
                backoff: Backoff { max: ms(1), ..Backoff::LOAD },
                ..LoadOptions::default()
            },
            "backoff.max",
        ),
        (LoadOptions { attempt_timeout: secs(0), ..LoadOptions::default() }, "attempt_timeout"),
        (LoadOptions { attempt_timeout: secs(96), ..LoadOptions::default() }, "attempt_timeout"),
        (LoadOptions { timeout: secs(0), ..LoadOptions::default() }, "timeout"),
        (LoadOptions { timeout: Duration::MAX, ..LoadOptions::default() }, "timeout"),
        (LoadOptions { probe_timeout: secs(0), ..LoadOptions::default() }, "probe_timeout"),
    ];
    for (options, field) in bad {
        let fleet = Fleet::with([("a", Script::healthy()), ("b", Script::healthy())]);

        let told = load_tools(["a", "b"], &fleet, &options).await.unwrap_err();

        assert_eq!(
            (told.field.as_str(), fleet.asked("a") + fleet.asked("b")),
            (field, 0),
            "{told}"
        );
        assert_eq!(
            load_each(["a"], &fleet, &options).err().map(|told| told.field).as_deref(),
            Some(field)
        );
    }
    assert_eq!(LoadOptions::default().validate(), Ok(()));
}

struct Panicky;

impl ConnectServer<String> for Panicky {
    fn connect(&self, server: &str) -> impl Future<Output = Result<Vec<String>, FailureSignals>> {
        assert_ne!(server, "at once", "no such server");
        let server = server.to_owned();
        async move {
            tokio::time::sleep(secs(1)).await;
            match server.as_str() {
                "later" => panic!("{server}: out of luck"),
                "secret" => panic!("cannot reach https://me:pw@host/x\nwith token=abc"),
                "hidden" => Err("Session terminated".into()),
                _ => Ok(vec![server]),
            }
        }
    }

    async fn probe(&self, _: &str) -> Option<FailureSignals> {
        panic!("asked too much")
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_connecting_is_one_servers_failure_and_nobody_elses() {
    let report =
        load_tools(["a", "at once", "later", "hidden", "b"], &Panicky, &LoadOptions::default())
            .await
            .unwrap();

    assert_eq!(report.all_tools(), ["a", "b"]);
    assert_eq!(report.failed_servers(), ["at once", "later", "hidden"]);
    assert_eq!(report.failed_errors()["later"], "connecting panicked: later: out of luck");
    assert_eq!(report.failed_errors()["hidden"], "connecting panicked: asked too much");
    assert!(report.failed_errors()["at once"].contains("no such server"));
    for failed in &report.outcomes[1..4] {
        assert_eq!((failed.status(), failed.attempts), ("permanent", 1), "{}", failed.server_id);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panics_words_are_one_line_without_secrets() {
    let report = load_tools(["secret"], &Panicky, &LoadOptions::default()).await.unwrap();
    let line = "connecting panicked: cannot reach https://host/x with token=[REDACTED]";

    assert_eq!(report.outcomes[0].result.as_ref().unwrap_err().message, line);
    assert!(
        report.warnings().prompt[0].ends_with(&format!("secret: {line}")),
        "{:?}",
        report.warnings()
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_gives_no_reason() {
    for silent in
        [FailureSignals::text(" \n"), FailureSignals::transport(TransportFailure::Refused, "")]
    {
        let connect = |_: String| std::future::ready(Err::<Vec<String>, _>(silent.clone()));
        let report = load_tools(["a"], &connect, &LoadOptions::default()).await.unwrap();

        assert_eq!(
            report.warnings().streamed,
            [
                "MCP server 'a' is unavailable: no reason given. Tools from this server will not work."
            ]
        );
    }
}
