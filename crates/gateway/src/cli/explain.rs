//! `seawall explain`: the policy of a tool and where each value comes from, by the configuration
//! and the server's last tool list.

use std::path::{Path, PathBuf};

use clap::Args;

use super::config_args::{configured, variable, warn};
use super::serve::catalog_folder;
use super::{CommandEnd, USAGE};
use crate::catalog::listed::ListedTool;
use crate::config::{Config, ServerConfig};
use crate::policy::explain::find::{ServerTools, find, not_listed};
use crate::policy::explain::{ExplainQuery, explain};
use crate::protocol::{Message, limits, scan};
use crate::store::catalog_cache;

/// What `explain` can be told.
#[derive(Args, Debug)]
pub(super) struct ExplainArgs {
    /// The tool: server/tool, server__tool, or its own name where only one server has it
    #[arg(value_name = "TOOL")]
    tool: String,
    /// Seawall's own configuration, or a client's MCP file as it is
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// Explains the policy of a tool. Starts nothing and connects to nothing.
pub(super) fn run(explain: &ExplainArgs) -> CommandEnd {
    let config = configured(explain.config.as_deref()).map_err(|problems| (USAGE, problems))?;
    warn(&config);
    let folder = catalog_folder(&config);
    let lists: Vec<_> =
        config.servers.iter().map(|server| listed(folder.as_deref(), server)).collect();
    let has = |(server, list): (&ServerConfig, &KnownTools)| ServerTools {
        server: server.name.clone(),
        tools: list.as_ref().map(|tools| tools.iter().map(|(name, _)| name.clone()).collect()),
    };
    let known: Vec<ServerTools> = config.servers.iter().zip(&lists).map(has).collect();
    let (at, tool) = find(&explain.tool, &known).map_err(|why| (USAGE, why))?;
    let mut told = self::explain(&asked(&config, at, &tool, lists[at].as_ref()));
    told.notes.extend(match lists[at] {
        Some(_) => not_listed(&tool, &known[at]),
        None => Some(
            "what its server says of it is not known yet: \"seawall check\" asks it, and so does the first client"
                .to_owned(),
        ),
    });
    super::out(&if explain.json { told.json().to_string() } else { told.text() });
    Ok(())
}

/// The tools that a server listed, with its description of each.
type KnownTools = Option<Vec<(String, ListedTool)>>;

fn asked<'a>(
    config: &'a Config,
    at: usize,
    tool: &'a str,
    list: Option<&'a Vec<(String, ListedTool)>>,
) -> ExplainQuery<'a> {
    let server = &config.servers[at];
    ExplainQuery {
        file: config.source.as_deref(),
        rules: &config.rules,
        server: &server.name,
        of_server: &server.rules,
        // The explanation shows the policy that holds once the server has listed the tool.
        is_heard: true,
        wait: server.life.reconnect.wait,
        has_store: config.has_queue(),
        tool,
        listed: list
            .and_then(|tools| tools.iter().find(|(name, _)| name == tool))
            .map(|(_, listed)| listed),
        env: &variable,
    }
}

/// The tools in the last list of a server, for any client.
fn listed(folder: Option<&Path>, server: &ServerConfig) -> KnownTools {
    let pages = catalog_cache::last_list(
        folder?,
        &server.transport.remembered_as(&server.name),
        "tools/list",
    )?;
    let tools = |page: &bytes::Bytes| {
        let raw = [br#"{"jsonrpc":"2.0","id":0,"result":"#.as_slice(), page, b"}"].concat();
        let page = Message::parse(raw.into()).ok()?;
        let entries = scan::elements(page.raw(), page.field("tools")?);
        Some(ListedTool::read_all(page.raw(), entries))
    };
    Some(pages.iter().filter_map(tools).flatten().take(limits::LISTED).collect())
}
