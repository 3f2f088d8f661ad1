//! `seawall check`: reads the configuration, probes every server, and reports problems and
//! remedies. Changes nothing but the catalog cache, so that `explain` knows the tools and the next
//! start is quick.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::config_args::{located, variable};
use super::serve::{StopSignals, catalog_cache, end};
use super::{AUTH, CommandEnd, UNREACHABLE, USAGE};
use crate::check;
use crate::config;
use crate::config::{Config, Problem};
use crate::gateway::Gateway;
use crate::runtime::log;

/// What `check` can be told.
#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// Seawall's own configuration, or a client's MCP file as it is
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How long to wait for each server
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    timeout: Duration,
    /// Do not keep what the servers list
    #[arg(long)]
    no_catalog_cache: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = seawall::parse_duration("--timeout", text).map_err(|invalid| invalid.problem)?;
    if time.is_zero() { Err("must not be zero".to_owned()) } else { Ok(time) }
}

/// Checks the whole configuration. The report is its output; the exit code tells how bad it is.
pub(super) async fn run(asked: &CheckArgs) -> CommandEnd {
    let path = located(asked.config.as_deref()).map_err(|why| (USAGE, why))?;
    let config = config::load(&path, &variable).map_err(|problems| {
        if asked.json {
            let problems: Vec<_> = problems.iter().map(told).collect();
            let file = path.display().to_string();
            super::out(
                &json!({"ok": false, "file": file, "servers": {}, "gateway": {}, "warnings": [], "notes": [], "problems": problems})
                    .to_string(),
            );
        }
        (USAGE, problems.to_string())
    })?;
    let report = report(&config, asked).await?;
    super::out(&if asked.json { report.json().to_string() } else { report.text() });
    match (report.is_well(), report.is_only_closed()) {
        (true, _) => Ok(()),
        (false, true) => Err((AUTH, String::new())),
        (false, false) => Err((UNREACHABLE, String::new())),
    }
}

fn told(problem: &Problem) -> serde_json::Value {
    let file = problem.file.as_ref().map(|file| file.display().to_string());
    json!({"file": file, "line": problem.line, "field": problem.field, "text": problem.text})
}

async fn report(config: &Config, asked: &CheckArgs) -> Result<check::CheckReport, (u8, String)> {
    let timeout = asked.timeout;
    let mut stop = StopSignals::new(None)?;
    // The report quotes servers' stderr where it matters, so it is kept out of the log.
    log::hush(true);
    // A check creates no store: a catalog cache in a store that does not exist yet is left to the
    // first gateway.
    let has_place = config.store.as_ref().is_none_or(|store| store.exists());
    let catalog_cache = catalog_cache(config, asked.no_catalog_cache || !has_place);
    let gateway =
        Gateway::new(config, catalog_cache, None).map_err(|error| (USAGE, error.to_string()))?;
    let needs = check::needs::look(config).await;
    let looked = tokio::select! {
        looked = check::look(&gateway, timeout, progress) => Some(looked),
        () = stop.asked() => None,
    };
    if let Some(looked) = &looked {
        check::keep(&gateway, looked).await;
    }
    // Before the report: only now every process has ended and its exit is known.
    end(&gateway).await;
    progress(&[]);
    let report = looked.map(|looked| check::report(config, &gateway, needs, looked));
    log::hush(false);
    report.ok_or((UNREACHABLE, "stopped before all servers had answered".to_owned()))
}

/// Shows on a terminal which servers have not answered yet; an empty list clears the line.
fn progress(waiting: &[&str]) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let text = if waiting.is_empty() {
            String::new()
        } else {
            format!("waiting for {}", waiting.join(", "))
        };
        let shown: String = text.chars().take(78).collect();
        let _shown = write!(stderr, "\r\x1b[K{shown}").and_then(|()| stderr.flush());
    }
}
