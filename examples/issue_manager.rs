//! Decides how seven GitHub tools are offered over MCP so that an agent keeps working when GitHub does not.
//!
//! ```text
//! agent ── stdio (MCP, rmcp) ── IssueManager ── seawall::ToolCaller ── HTTP (reqwest) ── GitHub's stand-in
//! ```
//!
//! Everything seawall does hangs on two places: [`IssueManager::call_tool`], where every call passes through
//! the [`ToolCaller`], and [`IssueManager::github`], where an HTTP failure becomes [`Signals`]. Nothing in
//! between retries, counts failures or invents excuses.
//!
//! Try it with any MCP client: `cargo run -p seawall --example issue_manager`. It prints `api http://127.0.0.1:PORT`
//! on stderr, because stdout belongs to MCP; `issue_manager/api.rs` tells how to make that API fail. The variable
//! `ISSUE_MANAGER_PAUSE` (`20ms`) shortens the pauses between attempts.

use std::env;
use std::error::Error;
use std::io::Write;
use std::time::{Duration, SystemTime};

use reqwest::{Method, RequestBuilder, Url, header::RETRY_AFTER};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ResultType, ServerCapabilities,
    ServerConfig, Tool, ToolAnnotations,
};
use rmcp::schemars::JsonSchema;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt, transport::stdio};
use seawall::{
    Annotations, Attempt, CallerOptions, Disposition, FailureSignals, Invalid, Rendering, Sent,
    Settings, ToolCaller, ToolFacts, TransportFailure, classify, parse_duration,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use arguments::{
    CreateIssue, GetIssue, LabelIssues, ListIssues, ListPage, Repository, SearchIssues,
    UpdateIssue, read,
};

#[path = "issue_manager/api.rs"]
mod api;
#[path = "issue_manager/arguments.rs"]
mod arguments;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let api = format!("http://{}", api::start().await?);
    writeln!(std::io::stderr(), "api {api}")?;
    let pause = match env::var("ISSUE_MANAGER_PAUSE") {
        Ok(text) => Some(parse_duration("ISSUE_MANAGER_PAUSE", &text)?),
        Err(_) => None,
    };
    IssueManager::new(&api, pause)?.serve(stdio()).await?.waiting().await?;
    Ok(())
}

struct IssueManager {
    tools: Vec<Tool>,
    caller: ToolCaller<Value>,
    http: reqwest::Client,
    api: Url,
}

impl IssueManager {
    fn new(api: &str, pause: Option<Duration>) -> Result<Self, Box<dyn Error>> {
        let tools = tools();
        let caller = resilient(&tools, pause)?;
        // The API is on this machine, where no proxy leads.
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { tools, caller, http, api: api.parse()? })
    }
}

/// What the agent is offered. The hints are not decoration: they decide what may be repeated.
fn tools() -> Vec<Tool> {
    let hints = |read_only| ToolAnnotations::new().read_only(read_only).open_world(true);
    let reads = hints(true);
    let creates = hints(false).destructive(false).idempotent(false);
    let overwrites = hints(false).destructive(true).idempotent(true);
    let adds_once = hints(false).destructive(false).idempotent(true);
    vec![
        tool::<ListIssues>("list_issues", "Lists the newest issues of a repository.", &reads),
        tool::<GetIssue>("get_issue", "Shows one issue with its text.", &reads),
        tool::<CreateIssue>("create_issue", "Opens a new issue.", &creates),
        tool::<UpdateIssue>("update_issue", "Changes the given fields of an issue.", &overwrites),
        tool::<SearchIssues>("search_issues", "Finds issues by words and filters.", &reads),
        tool::<ListPage>("list_issues_paginated", "Lists issues page by page, sorted.", &reads),
        tool::<LabelIssues>(
            "batch_label_issues",
            "Adds the same labels to several issues.",
            &adds_once,
        ),
    ]
}

fn tool<A: JsonSchema + 'static>(
    name: &'static str,
    description: &'static str,
    hints: &ToolAnnotations,
) -> Tool {
    Tool::new(name, description, JsonObject::new())
        .with_input_schema::<A>()
        .with_annotations(hints.clone())
}

/// The one place where resilience is set up: a policy for each tool, by its name and its hints.
fn resilient(tools: &[Tool], pause: Option<Duration>) -> Result<ToolCaller<Value>, Invalid> {
    let options = CallerOptions { server: "github".into(), ..CallerOptions::default() };
    let caller = ToolCaller::with_options(Settings::default(), options)?;
    for tool in tools {
        let hints = tool.annotations.clone().unwrap_or_default();
        let annotations = Annotations {
            read_only_hint: hints.read_only_hint,
            destructive_hint: hints.destructive_hint,
            idempotent_hint: hints.idempotent_hint,
        };
        caller.tool(ToolFacts { annotations, ..ToolFacts::named(&tool.name) }, |policy| {
            policy.retry.backoff.base = pause.unwrap_or(policy.retry.backoff.base);
        })?;
    }
    Ok(caller)
}

impl ServerHandler for IssueManager {
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
        Ok(ListToolsResult::with_all_items(self.tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.tools.iter().any(|tool| tool.name == request.name) {
            return Err(ErrorData::invalid_params(
                format!("unknown tool \"{}\"", request.name),
                None,
            ));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let call = self.caller.call(&request.name, arguments, |attempt| self.attempt(attempt));
        // Dropping the call is all it takes to cancel it.
        let Some(answer) = context.ct.run_until_cancelled(call).await else {
            return Err(ErrorData::internal_error("cancelled by the client", None));
        };
        let mut result: CallToolResult =
            serde_json::from_value(answer.to_tool_result(Rendering::default()))
                .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result.into())
    }
}

/// What the tools do. Failures are returned as they are; what they mean is decided elsewhere.
impl IssueManager {
    /// One try. A fallback may have changed the arguments, so only the attempt's own count.
    async fn attempt(&self, attempt: Attempt) -> Result<Value, FailureSignals> {
        let arguments = &attempt.arguments;
        let text = match attempt.tool() {
            "list_issues" => self.list_issues(read(arguments)?).await,
            "get_issue" => self.get_issue(read(arguments)?).await,
            "create_issue" => self.create_issue(read(arguments)?).await,
            "update_issue" => self.update_issue(read(arguments)?).await,
            "search_issues" => self.search_issues(read(arguments)?).await,
            "list_issues_paginated" => self.list_page(read(arguments)?).await,
            "batch_label_issues" => self.label_issues(read(arguments)?).await,
            other => Err(format!("unknown tool \"{other}\"").into()),
        }?;
        Ok(json!(CallToolResult::success(vec![ContentBlock::text(text)])))
    }

    async fn list_issues(&self, asked: ListIssues) -> Result<String, FailureSignals> {
        let query = json!({"state": asked.state, "per_page": asked.limit});
        let issues: Vec<Issue> =
            self.github(self.request(Method::GET, &asked.repository, &[]).query(&query)).await?;
        Ok(lines(&issues))
    }

    async fn get_issue(&self, asked: GetIssue) -> Result<String, FailureSignals> {
        let number = asked.issue_number.to_string();
        let issue: Issue =
            self.github(self.request(Method::GET, &asked.repository, &[&number])).await?;
        Ok(format!("{}\n\n{}", issue.line(), issue.body.as_deref().unwrap_or("No text.")))
    }

    async fn create_issue(&self, asked: CreateIssue) -> Result<String, FailureSignals> {
        let fields = json!({
            "title": asked.title, "body": asked.body, "labels": asked.labels, "assignees": asked.assignees,
        });
        let request = self.request(Method::POST, &asked.repository, &[]);
        let issue: Issue = self.github(request.json(&given(fields))).await?;
        Ok(format!("Created {}", issue.line()))
    }

    async fn update_issue(&self, asked: UpdateIssue) -> Result<String, FailureSignals> {
        let number = asked.issue_number.to_string();
        let fields = json!({
            "title": asked.title, "body": asked.body, "state": asked.state,
            "labels": asked.labels, "assignees": asked.assignees,
        });
        let request = self.request(Method::PATCH, &asked.repository, &[&number]);
        let issue: Issue = self.github(request.json(&given(fields))).await?;
        Ok(format!("Updated {}", issue.line()))
    }

    async fn search_issues(&self, asked: SearchIssues) -> Result<String, FailureSignals> {
        let query = json!({"q": asked.query, "per_page": asked.limit});
        let found: Found =
            self.github(self.http.get(self.url(&["search", "issues"])).query(&query)).await?;
        Ok(lines(&found.items))
    }

    async fn list_page(&self, asked: ListPage) -> Result<String, FailureSignals> {
        let query = json!({
            "state": asked.state, "page": asked.page, "per_page": asked.per_page,
            "sort": asked.sort, "direction": asked.direction,
        });
        let issues: Vec<Issue> =
            self.github(self.request(Method::GET, &asked.repository, &[]).query(&query)).await?;
        Ok(format!("Page {}\n{}", asked.page, lines(&issues)))
    }

    /// Labels one issue after another. What GitHub refuses for good is reported and the rest goes on; anything
    /// else ends the batch, and seawall does its items again one by one: adding a label twice adds it once. What ended it speaks
    /// of one request only; what was done before is said here, because nobody else knows.
    async fn label_issues(&self, asked: LabelIssues) -> Result<String, FailureSignals> {
        let numbers = &asked.issue_numbers.0;
        let (mut done, mut refused) = (0, Vec::new());
        for number in numbers {
            let request =
                self.request(Method::POST, &asked.repository, &[&number.to_string(), "labels"]);
            match self.github::<Value>(request.json(&json!({"labels": asked.labels}))).await {
                Ok(_) => done += 1,
                Err(signals) => match classify(&signals) {
                    failure if failure.disposition != Disposition::Transient => {
                        refused.push((number, signals))
                    }
                    failure => {
                        return Err(signals.with_sent(if done > 0 {
                            Sent::Yes
                        } else {
                            failure.sent
                        }));
                    }
                },
            }
        }
        match refused.pop() {
            Some((_, signals)) if done == 0 => return Err(signals),
            last => refused.extend(last),
        }
        let reasons =
            refused.iter().map(|(number, signals)| format!("\n#{number}: {}", signals.message));
        Ok(format!("✅ Succeeded: {done}/{}{}", numbers.len(), reasons.collect::<String>()))
    }

    /// Sends a request. Everything seawall needs to know about a failure is gathered here.
    async fn github<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<T, FailureSignals> {
        let response = request.send().await.map_err(|error| unanswered(&error))?;
        let status = response.status();
        if status.is_success() {
            return response.json().await.map_err(|error| unanswered(&error));
        }
        let pause = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let signals = FailureSignals::http(status.as_u16(), format!("GitHub API: {status}"))
            .with_body(response.text().await.unwrap_or_default());
        Err(signals.with_retry_after(pause.as_deref(), wall_clock()))
    }

    fn request(&self, method: Method, at: &Repository, rest: &[&str]) -> RequestBuilder {
        self.http
            .request(method, self.url(&[&["repos", &at.owner, &at.repo, "issues"], rest].concat()))
    }

    /// Segment by segment, so that no argument can lead to another path.
    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.api.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend(segments);
        }
        url
    }
}

/// No usable answer came. Whether GitHub acted is unknown unless the connection was never made.
fn unanswered(error: &reqwest::Error) -> FailureSignals {
    let mut signals = FailureSignals::from_error(error);
    if error.is_connect() {
        signals.sent = Sent::Never;
    }
    if error.is_decode() {
        signals.transport = signals.transport.or(Some(TransportFailure::Garbage));
    }
    signals
}

#[expect(clippy::disallowed_methods, reason = "a Retry-After header may hold a date")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Leaves out what the caller left out: to GitHub, null means "clear it".
fn given(mut fields: Value) -> Value {
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}

fn lines(issues: &[Issue]) -> String {
    if issues.is_empty() {
        return "No issues.".to_owned();
    }
    issues.iter().map(Issue::line).collect::<Vec<_>>().join("\n")
}

/// What is read of GitHub's answers.
#[derive(Deserialize)]
struct Issue {
    number: u32,
    title: String,
    state: String,
    labels: Vec<Label>,
    body: Option<String>,
}

#[derive(Deserialize)]
struct Label {
    name: String,
}

#[derive(Deserialize)]
struct Found {
    items: Vec<Issue>,
}

impl Issue {
    fn line(&self) -> String {
        let labels: String = self.labels.iter().map(|label| format!(", {}", label.name)).collect();
        format!("#{} {} ({}{labels})", self.number, self.title, self.state)
    }
}
