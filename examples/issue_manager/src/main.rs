//! GitHub's issues over MCP so that an agent keeps working when GitHub does not. Decides how the
//! program starts and ends.
//!
//! ```text
//! agent ── stdio or HTTP (MCP, rmcp) ── Session ── seawall::ToolCaller ── HTTP (hyper) ── GitHub
//! ```
//!
//! Everything the library does hangs on three places: `tools`, where each tool gets its policy;
//! `server`, where every call passes through the `ToolCaller`; and `github`, where an HTTP failure
//! becomes `FailureSignals`. `queue` makes the writes that waited.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use rmcp::ServiceExt;
use rmcp::transport::stdio;
use seawall::{DurableQueue, Env, Event, Metrics};
use seawall_gateway::queue::QueueStore;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use counts::AgentCounts;
use github::GitHub;
use log::Log;
use server::{Manager, Session};
use settings::{Api, Cli, HttpSetup, Setup};

mod arguments;
mod counts;
mod github;
mod http;
mod imitation;
mod keys;
mod log;
mod queue;
mod server;
mod settings;
mod tools;
mod work;

#[tokio::main]
async fn main() -> ExitCode {
    let log = match Log::start() {
        Ok(log) => log,
        Err(_) => return ExitCode::FAILURE,
    };
    let setup = match Setup::read(Cli::parse(), |name| std::env::var(name).ok()) {
        Ok(setup) => setup,
        Err(error) => {
            // A person reads this, no collector of logs.
            let _closed = writeln!(std::io::stderr(), "issue-manager: {error}");
            return ExitCode::from(2);
        }
    };
    let end = serve(setup, &log).await;
    if let Err(error) = &end {
        log.session().error("session_failed", json!({}), error);
    }
    log.finish();
    if end.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Serves until stdin ends or a signal comes; then the write that is being made is waited for.
async fn serve(setup: Setup, log: &Log) -> Result<(), String> {
    let own = log.session();
    let base = match &setup.api {
        Api::At(url) => url.clone(),
        Api::Imitation => {
            let address = imitation::start().await.map_err(|error| error.to_string())?;
            own.info("imitation", json!({"api": format!("http://{address}")}));
            format!("http://{address}").parse().map_err(|error| format!("{error}"))?
        }
    };
    if setup.token.is_none() && setup.api != Api::Imitation {
        own.warn(
            "no_token",
            json!({"next": "set GITHUB_TOKEN: without it GitHub lets nobody write"}),
        );
    }
    let store = setup.store.as_deref().map(queue::open).transpose()?;
    let manager = manager(&setup, GitHub::new(base, setup.token.clone())?, store.clone(), log)?;
    let stop = CancellationToken::new();
    stop_on_signals(&stop)?;
    let deliveries = store
        .clone()
        .map(|store| tokio::spawn(queue::run(Arc::clone(&manager), store, stop.clone())));
    let end = tokio::try_join!(
        speak_stdio(setup.stdio, &manager, &stop, setup.http.is_some()),
        speak_http(setup.http, &manager, store, &stop),
    );
    stop.cancel();
    if let Some(deliveries) = deliveries {
        let _ended = deliveries.await;
    }
    end.map(drop)
}

fn manager(
    setup: &Setup,
    github: GitHub,
    store: Option<QueueStore>,
    log: &Log,
) -> Result<Arc<Manager>, String> {
    let env = Env::new();
    let metrics = Metrics::listen(&env.events).map_err(|error| error.to_string())?;
    let heard = log.session();
    env.events
        .for_each_rare(move |event| match event {
            Event::RetryScheduled { tool, attempt, .. } => {
                let data = json!({"tool": tool, "attempt": attempt, "note": event.to_string()});
                heard.warn("tool_call_retry", data);
            }
            other => heard.warn("breaker_changed", json!({"note": other.to_string()})),
        })
        .map_err(|error| error.to_string())?;
    let tools = tools::tools();
    let durable = store.map(|store| Arc::new(store) as Arc<dyn DurableQueue>);
    let caller = tools::resilient(&tools, env.clone(), durable, setup.pause)
        .map_err(|error| format!("--pause: {error}"))?;
    let (counts, usd_per_token) = (AgentCounts::default(), setup.usd_per_token);
    let log = log.clone();
    Ok(Arc::new(Manager { tools, caller, github, env, metrics, counts, usd_per_token, log }))
}

/// Serves one client on stdin and stdout. Its end is the program's, unless HTTP is served too.
async fn speak_stdio(
    is_wanted: bool,
    manager: &Arc<Manager>,
    stop: &CancellationToken,
    is_one_of_two: bool,
) -> Result<(), String> {
    if !is_wanted {
        return Ok(());
    }
    let ended = async {
        let running = Session::new(manager).serve_with_ct(stdio(), stop.clone()).await;
        let ended = running.map_err(|error| error.to_string())?.waiting().await;
        ended.map(drop).map_err(|error| error.to_string())
    };
    // A client that leaves before it has said hello is no failure while others are served.
    let end = stop.run_until_cancelled(ended).await.unwrap_or(Ok(()));
    if is_one_of_two {
        return Ok(());
    }
    stop.cancel();
    end
}

async fn speak_http(
    setup: Option<HttpSetup>,
    manager: &Arc<Manager>,
    store: Option<QueueStore>,
    stop: &CancellationToken,
) -> Result<(), String> {
    let Some(setup) = setup else { return Ok(()) };
    let keys = keys::Keys::new(&setup.keys, setup.rate, &manager.env.clock);
    let keys = keys.map_err(|error| format!("--rate: {error}"))?;
    let routes = http::routes(manager, store, keys, &setup.hosts, stop);
    let taken = |error| format!("--listen: {}: {error}; choose another port", setup.listen);
    let listener = TcpListener::bind(setup.listen).await.map_err(taken)?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    manager.log.session().info("listening", json!({"url": format!("http://{address}/mcp")}));
    let served =
        axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned());
    served.await.map_err(|error| error.to_string())
}

fn stop_on_signals(stop: &CancellationToken) -> Result<(), String> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind).map_err(|error| error.to_string())?;
        let stop = stop.clone();
        tokio::spawn(async move {
            signals.recv().await;
            stop.cancel();
        });
    }
    Ok(())
}
