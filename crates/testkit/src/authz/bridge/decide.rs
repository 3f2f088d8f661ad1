//! Which grants a call needs, asked one after the other, and the words of each denial.

use std::io;

use serde_json::Value;
use tonic::Code;

use super::BridgeSettings;
use super::agent::agent_of;
use super::ask::Ask;
use super::bearer::claims_of;
use crate::authz::check::Check;
use crate::authz::reply::Reply;

/// Who may be the caller: the names under which a gateway tells the claims of the token.
const CLAIMS: [&str; 2] = ["caipe.auth", "dev.agentgateway.jwt"];

/// Answers a check.
pub(super) async fn decide(check: &Check, ask: &Ask, settings: &BridgeSettings) -> Reply {
    let bearer = claims_of(check, settings).await;
    let Some(subject) = text(&bearer["sub"]).or_else(|| claim(check, "sub")) else {
        return Reply::unauthenticated("missing authenticated subject");
    };
    let name = claim(check, "preferred_username").or_else(|| text(&bearer["preferred_username"]));
    let is_service = name.is_some_and(|name| name.starts_with("service-account-"));
    let kind = if is_service { "service_account" } else { "user" };
    match denial(check, &format!("{kind}:{subject}"), ask, settings).await {
        Ok(None) => Reply::allow(),
        Ok(Some(why)) => Reply::deny(why),
        Err(_) => Reply::code(Code::Unavailable, "OpenFGA check error"),
    }
}

/// Why the caller may not; an error: OpenFGA did not say.
async fn denial(
    check: &Check,
    user: &str,
    ask: &Ask,
    settings: &BridgeSettings,
) -> io::Result<Option<&'static str>> {
    if !ask.allows(user, "can_call", "mcp_gateway:list").await? {
        return Ok(Some("denied by OpenFGA"));
    }
    let server = check.server().filter(|server| settings.restricted.iter().any(|r| r == server));
    if let Some(server) = server
        && !ask.allows(user, "can_invoke", &format!("mcp_server:{server}")).await?
    {
        return Ok(Some("caller lacks MCP server invoke grant"));
    }
    let (Some((server, tool)), Some(secret)) = (check.call(), &settings.agent_secret) else {
        return Ok(None);
    };
    let Some(agent) = agent_of(check, secret) else {
        return Ok(Some("missing or invalid signed agent context"));
    };
    let agent = format!("agent:{agent}");
    let may_use = ask.allows(user, "can_use", &agent).await?;
    let may_call = may_call(ask, &agent, &server, &tool).await?;
    if !may_use {
        return Ok(Some("user lacks dynamic agent grant"));
    }
    if !may_call {
        return Ok(Some("dynamic agent lacks agent tool grant"));
    }
    if settings.check_caller && !self::may_call(ask, user, &server, &tool).await? {
        return Ok(Some("caller lacks tool grant"));
    }
    Ok(None)
}

/// A grant for the tool, or for all tools of its server.
async fn may_call(ask: &Ask, user: &str, server: &str, tool: &str) -> io::Result<bool> {
    Ok(ask.allows(user, "can_call", &format!("tool:{server}/{tool}")).await?
        || ask.allows(user, "can_call", &format!("tool:{server}/*")).await?)
}

/// A claim that the gateway tells of, itself or below `claims`.
fn claim<'a>(check: &'a Check, name: &str) -> Option<&'a str> {
    let given = CLAIMS.iter().filter_map(|key| check.filter_metadata.get(key));
    given.flat_map(|claims| [&claims[name], &claims["claims"][name]]).find_map(text)
}

/// A text that says something.
fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}
