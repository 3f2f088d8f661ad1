//! Decides how a call of an MCP client is made: it passes through the library's [`ToolCaller`], and is
//! logged and counted. Nothing here retries, counts failures or invents excuses.

use std::sync::{Arc, OnceLock};

use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ResultType, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use seawall::{Answer, Call, Env, Metrics, MetricsText, Rendering, ToolCaller, sanitize};
use serde_json::{Value, json};

use crate::counts::{AgentCounts, tokens};
use crate::github::GitHub;
use crate::keys::Client;
use crate::log::{Log, SessionLog};
use crate::work;

/// How much of a call's arguments a log line shows.
const SHOWN: usize = 1000;

/// What all sessions share.
pub(crate) struct Manager {
    pub(crate) tools: Vec<Tool>,
    pub(crate) caller: ToolCaller<Value>,
    pub(crate) github: GitHub,
    pub(crate) env: Env,
    pub(crate) metrics: Metrics,
    pub(crate) counts: AgentCounts,
    pub(crate) usd_per_token: f64,
    pub(crate) log: Log,
}

impl Manager {
    /// What `/metrics` answers.
    pub(crate) fn metrics_text(&self) -> String {
        let mut text = MetricsText::default();
        self.metrics.write(&mut text, self.caller.all_breaker_status());
        self.counts.write(&mut text);
        text.finish()
    }
}

/// One session of an MCP client.
pub(crate) struct Session {
    manager: Arc<Manager>,
    log: SessionLog,
    /// Set by the first call: a client that only looks leaves no lines.
    started: OnceLock<()>,
}

impl Session {
    pub(crate) fn new(manager: &Arc<Manager>) -> Self {
        let (manager, log) = (Arc::clone(manager), manager.log.session());
        Self { manager, log, started: OnceLock::new() }
    }

    /// The call as the library is told it: who makes it, and in which session.
    fn call(&self, arguments: Value, context: &RequestContext<RoleServer>) -> Call {
        let parts = context.extensions.get::<Parts>();
        let client = parts.and_then(|parts| parts.extensions.get::<Client>());
        // Without a session every request of a client comes with an id of its own here; then the
        // client is the session.
        let has_session = parts.is_none_or(|parts| parts.headers.contains_key("mcp-session-id"));
        let client = client.map_or("stdio", |client| &client.0);
        Call::new(arguments).by(client).in_session(if has_session { &self.log.id } else { client })
    }

    fn started(&self, tool: &str, arguments: &Value) -> String {
        self.started.get_or_init(|| self.log.info("session_start", json!({})));
        let trace = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
        let input = sanitize(arguments).to_string();
        let shown: String = input.chars().take(SHOWN).collect();
        let size = input.len();
        self.log.info(
            "tool_call_start",
            json!({"tool": tool, "traceId": trace, "input": shown, "inputSize": size}),
        );
        trace
    }

    fn ended(&self, trace: &str, asked: u32, answer: &Answer<Value>, result: &str) {
        let (manager, tool) = (&self.manager, &*answer.tool);
        let out = tokens(result);
        let usd = f64::from(asked.saturating_add(out)) * manager.usd_per_token;
        manager.counts.count(tool, answer.elapsed, answer.value().is_none(), usd);
        let millis = u64::try_from(answer.elapsed.as_millis()).unwrap_or(u64::MAX);
        let Some(report) = answer.report() else {
            self.log.info(
                "tool_call_complete",
                json!({
                    "tool": tool, "traceId": trace, "attempt": answer.attempts,
                    "duration_ms": millis, "inputTokens": asked, "outputTokens": out,
                    "costUsd": usd, "resultSize": result.len(),
                }),
            );
            self.log.info("tool_success", json!({"tool": tool, "attempts": answer.attempts}));
            return;
        };
        let data = json!({
            "tool": tool, "traceId": trace, "attempt": answer.attempts, "duration_ms": millis,
            "code": report.code.as_str(),
        });
        if report.code == seawall::ErrorCode::LoopDetected {
            self.log.warn("loop_detected", data);
        } else {
            self.log.error("tool_call_failed", data, &report.message);
            self.log.error("tool_failure", json!({"tool": tool}), &report.message);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.started.get().is_some() {
            self.log.info("session_end", json!({}));
        }
    }
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(
            Implementation::new("github-issue-manager", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.manager.tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let manager = &self.manager;
        if !manager.tools.iter().any(|tool| tool.name == request.name) {
            let error = format!("unknown tool \"{}\"", request.name);
            return Err(ErrorData::invalid_params(error, None));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let trace = self.started(&request.name, &arguments);
        let asked = tokens(&arguments.to_string());
        let call = self.call(arguments, &context);
        let call = manager
            .caller
            .call(&request.name, call, |attempt| work::attempt(&manager.github, attempt));
        // Dropping the call is all it takes to cancel it.
        let Some(answer) = context.ct.run_until_cancelled(call).await else {
            self.log.warn("tool_call_cancelled", json!({"tool": request.name, "traceId": trace}));
            return Err(ErrorData::internal_error("cancelled by the client", None));
        };
        let result = answer.to_tool_result(Rendering::default());
        self.ended(&trace, asked, &answer, &result.to_string());
        let mut result: CallToolResult = serde_json::from_value(result)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result.into())
    }
}
