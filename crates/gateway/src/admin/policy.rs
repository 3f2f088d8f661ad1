//! Explains the policy of a tool, as the running gateway applies it.

use http::StatusCode;

use super::respond::{self, AdminResponse};
use crate::gateway::Gateway;
use crate::policy::explain::find::{ServerTools, find, not_listed};

/// The policy of one tool that a server has listed.
pub(super) fn explained(gateway: &Gateway, tool: &str) -> AdminResponse {
    let all = gateway.all();
    let has = |server: &std::sync::Arc<crate::upstream::Server>| ServerTools {
        server: server.name.clone(),
        tools: Some(all.policies.listed(&server.name)),
    };
    let known: Vec<ServerTools> = all.set.servers.iter().map(has).collect();
    let found = find(tool, &known).map(|(at, tool)| {
        let server = &all.set.servers[at];
        let told = all.policies.explain(
            &server.name,
            &tool,
            server.life.reconnect.wait,
            all.store.is_some(),
        );
        told.ok_or_else(|| not_listed(&tool, &known[at]).unwrap_or_default())
    });
    match found {
        Ok(Ok(told)) => respond::json(StatusCode::OK, &told.json()),
        Ok(Err(why)) | Err(why) => respond::error(StatusCode::NOT_FOUND, &why),
    }
}
