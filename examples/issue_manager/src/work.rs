//! Decides what each tool asks of GitHub, and how it tells the answer. Failures are returned as they
//! are; what they mean is decided elsewhere.

use axum::http::Method;
use rmcp::model::{CallToolResult, ContentBlock};
use seawall::{Attempt, Disposition, FailureSignals, Sent, classify};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::{
    CreateIssue, GetIssue, LabelIssues, ListIssues, ListPage, Repository, SearchIssues,
    UpdateIssue, read,
};
use crate::github::{Asked, GitHub};

/// One try. A fallback may have changed the arguments, so only the attempt's own count.
pub(crate) async fn attempt(github: &GitHub, attempt: Attempt) -> Result<Value, FailureSignals> {
    let arguments = &attempt.arguments;
    let text = match attempt.tool() {
        "list_issues" => github.list_issues(read(arguments)?).await,
        "get_issue" => github.get_issue(read(arguments)?).await,
        "create_issue" => github.create_issue(read(arguments)?).await,
        "update_issue" => github.update_issue(read(arguments)?).await,
        "search_issues" => github.search_issues(read(arguments)?).await,
        "list_issues_paginated" => github.list_page(read(arguments)?).await,
        "batch_label_issues" => github.label_issues(read(arguments)?).await,
        other => Err(format!("unknown tool \"{other}\"").into()),
    }?;
    Ok(json!(CallToolResult::success(vec![ContentBlock::text(text)])))
}

impl GitHub {
    async fn list_issues(&self, asked: ListIssues) -> Result<String, FailureSignals> {
        let query = json!({"state": asked.state, "per_page": asked.limit});
        let issues: Vec<Issue> = self.ask(get(&asked.repository.issues(), query)).await?;
        Ok(lines(&issues))
    }

    async fn get_issue(&self, asked: GetIssue) -> Result<String, FailureSignals> {
        let number = asked.issue_number.to_string();
        let issue: Issue = self.ask(get(&asked.repository.issue(&number), Value::Null)).await?;
        Ok(format!("{}\n\n{}", issue.line(), issue.body.as_deref().unwrap_or("No text.")))
    }

    async fn create_issue(&self, asked: CreateIssue) -> Result<String, FailureSignals> {
        let fields = json!({
            "title": asked.title, "body": asked.body, "labels": asked.labels,
            "assignees": asked.assignees,
        });
        let path = asked.repository.issues();
        let issue: Issue = self.ask(change(Method::POST, &path, given(fields))).await?;
        Ok(format!("Created {}", issue.line()))
    }

    async fn update_issue(&self, asked: UpdateIssue) -> Result<String, FailureSignals> {
        let number = asked.issue_number.to_string();
        let fields = json!({
            "title": asked.title, "body": asked.body, "state": asked.state,
            "labels": asked.labels, "assignees": asked.assignees,
        });
        let path = asked.repository.issue(&number);
        let issue: Issue = self.ask(change(Method::PATCH, &path, given(fields))).await?;
        Ok(format!("Updated {}", issue.line()))
    }

    async fn search_issues(&self, asked: SearchIssues) -> Result<String, FailureSignals> {
        let query = json!({"q": issues_only(&asked.query.0), "per_page": asked.limit});
        let found: Found = self.ask(get(&["search", "issues"], query)).await?;
        Ok(lines(&found.items))
    }

    async fn list_page(&self, asked: ListPage) -> Result<String, FailureSignals> {
        let query = json!({
            "state": asked.state, "page": asked.page, "per_page": asked.per_page,
            "sort": asked.sort, "direction": asked.direction,
        });
        let issues: Vec<Issue> = self.ask(get(&asked.repository.issues(), query)).await?;
        Ok(format!("Page {}\n{}", asked.page, lines(&issues)))
    }

    /// Labels one issue after another. What GitHub refuses for good is reported and the rest goes
    /// on; anything else ends the batch, and the library does its items again one by one: adding a
    /// label twice adds it once. What ended it speaks of one request only; what was done before is
    /// said here, because nobody else knows.
    async fn label_issues(&self, asked: LabelIssues) -> Result<String, FailureSignals> {
        let numbers = &asked.issue_numbers.0;
        let (mut done, mut refused) = (0, Vec::new());
        for number in numbers {
            let issue = number.to_string();
            let path = [&asked.repository.issue(&issue)[..], &["labels"]].concat();
            let request = change(Method::POST, &path, json!({"labels": asked.labels}));
            let Err(signals) = self.ask::<Value>(request).await else {
                done += 1;
                continue;
            };
            let failure = classify(&signals);
            if failure.disposition == Disposition::Transient {
                let sent = if done > 0 { Sent::Yes } else { failure.sent };
                return Err(signals.with_sent(sent));
            }
            refused.push((number, signals));
        }
        match refused.pop() {
            Some((_, signals)) if done == 0 => return Err(signals),
            last => refused.extend(last),
        }
        let reasons =
            refused.iter().map(|(number, signals)| format!("\n#{number}: {}", signals.message));
        Ok(format!("✅ Succeeded: {done}/{}{}", numbers.len(), reasons.collect::<String>()))
    }
}

fn get<'a>(path: &'a [&'a str], query: Value) -> Asked<'a> {
    Asked { method: Method::GET, path, query, body: None }
}

fn change<'a>(method: Method, path: &'a [&'a str], body: Value) -> Asked<'a> {
    Asked { method, path, query: Value::Null, body: Some(body) }
}

impl Repository {
    fn issues(&self) -> [&str; 4] {
        ["repos", &self.owner, &self.repo, "issues"]
    }

    fn issue<'a>(&'a self, number: &'a str) -> [&'a str; 5] {
        ["repos", &self.owner, &self.repo, "issues", number]
    }
}

/// GitHub's search knows pull requests too, and refuses some callers that do not say which they
/// want.
fn issues_only(query: &str) -> String {
    let says_which = |word: &str| word.starts_with("is:") || word.starts_with("type:");
    match query.split_whitespace().any(says_which) {
        true => query.to_owned(),
        false => format!("{query} is:issue"),
    }
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
