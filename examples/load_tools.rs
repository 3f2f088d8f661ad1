//! An agent's start: a server that is still booting is asked again, one that denies access is
//! named, and neither keeps the tools of the others away.
//!
//! `cargo run -p seawall --example load_tools`. Time is paused, so that the pauses take none.

#![allow(clippy::print_stdout, reason = "an example prints what happens")]

use std::cell::Cell;

use seawall::{Invalid, LoadOptions, load_tools};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Invalid> {
    let boots = Cell::new(0);
    let connect = |server: String| {
        let boot = boots.get() + u32::from(server == "gitnexus");
        boots.set(boot);
        async move {
            match server.as_str() {
                "github" => Ok(vec!["get_issue", "create_issue"]),
                "gitnexus" if boot < 2 => Err("connection timed out".into()),
                "gitnexus" => Ok(vec!["query"]),
                _ => Err("HTTP 403 Forbidden from http://gw/mcp".into()),
            }
        }
    };

    let servers = ["github", "gitnexus", "jira"];
    let report = load_tools(servers, &connect, &LoadOptions::default()).await?;
    println!("tools: {:?}", report.all_tools());
    println!("attempts at gitnexus: {}", boots.get());
    for warning in report.warnings().streamed {
        println!("warning: {warning}");
    }
    Ok(())
}
