//! Decides how the imitation of GitHub behaves: one repository in memory, and failures on request.
//!
//! `PUT /_faults` says what fails from now on, for example `{"outage": true}` or
//! `{"faults": [{"status": 429, "retry_after": 1, "times": 2}]}`. `GET /_stats` counts, for each route, the
//! requests that came and the ones that were executed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{MatchedPath, Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Serves the API on a free port of this machine until the program ends.
pub(crate) async fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let api = Api::seeded();
    let routes = Router::new()
        .route("/repos/acme/harbour/issues", get(list).post(create))
        .route("/repos/acme/harbour/issues/{number}", get(read).patch(update))
        .route("/repos/acme/harbour/issues/{number}/labels", post(label))
        .route("/search/issues", get(search))
        .route_layer(from_fn_with_state(api.clone(), fail_or_execute))
        // Added after the layer: these two neither fail nor count.
        .route("/_faults", put(set_faults))
        .route("/_stats", get(stats))
        .with_state(api);
    tokio::spawn(axum::serve(listener, routes).into_future());
    Ok(address)
}

#[derive(Clone, Default)]
struct Api(Arc<Mutex<World>>);

#[derive(Default)]
struct World {
    /// Issue `n` stands at `n - 1`.
    issues: Vec<Value>,
    /// Changes made so far; takes the place of the time.
    changes: u64,
    faults: Faults,
    stats: Stats,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Faults {
    /// Every request is answered with 503.
    outage: bool,
    /// Otherwise these are used up in order.
    faults: VecDeque<Fault>,
}

/// What some requests are answered with.
#[derive(Clone, Deserialize)]
struct Fault {
    status: u16,
    /// Seconds.
    retry_after: Option<u32>,
    #[serde(default = "once")]
    times: u32,
    /// The request is executed all the same; only its answer is lost.
    #[serde(default)]
    executes: bool,
}

#[derive(Clone, Default, Serialize)]
struct Stats {
    requests: BTreeMap<String, u32>,
    executed: BTreeMap<String, u32>,
}

fn once() -> u32 {
    1
}

impl Api {
    fn seeded() -> Self {
        let api = Self::default();
        for (title, body, label) in [
            ("Crane stops at noon", "It rests for an hour although nobody asked it to.", "bug"),
            ("Lighthouse blinks twice", "Once would do.", "bug"),
            ("Paint the north pier", "Grey, as before.", "chore"),
        ] {
            api.lock().add(&json!({"title": title, "body": body, "labels": [label]}));
        }
        api
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The layer before every route: counts, and fails what is to fail.
async fn fail_or_execute(
    State(api): State<Api>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let route = format!("{} {}", request.method(), path.as_str());
    *api.lock().stats.requests.entry(route.clone()).or_default() += 1;
    let fault = api.lock().faults.next();
    if let Some(fault) = fault.as_ref().filter(|fault| !fault.executes) {
        return fault.clone().into_response();
    }
    let response = next.run(request).await;
    if response.status().is_success() {
        *api.lock().stats.executed.entry(route).or_default() += 1;
    }
    fault.map_or(response, Fault::into_response)
}

impl Faults {
    fn next(&mut self) -> Option<Fault> {
        if self.outage {
            return Some(Fault { status: 503, retry_after: None, times: 1, executes: false });
        }
        let first = self.faults.front_mut()?;
        first.times = first.times.saturating_sub(1);
        if first.times == 0 { self.faults.pop_front() } else { Some(first.clone()) }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response =
            (status, Json(json!({"message": status.canonical_reason()}))).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

async fn set_faults(State(api): State<Api>, Json(faults): Json<Faults>) {
    api.lock().faults = faults;
}

async fn stats(State(api): State<Api>) -> Json<Stats> {
    Json(api.lock().stats.clone())
}

type Parameters = Query<HashMap<String, String>>;

async fn list(State(api): State<Api>, Query(parameters): Parameters) -> Json<Vec<Value>> {
    let text = |name: &str| parameters.get(name).map(String::as_str);
    let number = |name: &str| {
        text(name).and_then(|text| text.parse::<usize>().ok()).filter(|number| *number > 0)
    };
    let (page, size) = (number("page").unwrap_or(1), number("per_page").unwrap_or(30));
    let state = text("state").unwrap_or("open");
    let sort = match text("sort") {
        Some("updated") => "updated_at",
        Some("comments") => "comments",
        _ => "created_at",
    };
    let mut issues = api.lock().issues.clone();
    issues.retain(|issue| state == "all" || issue["state"] == state);
    issues.sort_by_key(|issue| issue[sort].as_u64());
    if text("direction") != Some("asc") {
        issues.reverse();
    }
    Json(issues.into_iter().skip((page - 1).saturating_mul(size)).take(size).collect())
}

async fn search(State(api): State<Api>, Query(parameters): Parameters) -> Json<Value> {
    let query = parameters.get("q").map(|query| query.to_lowercase()).unwrap_or_default();
    let size = parameters.get("per_page").and_then(|size| size.parse().ok()).unwrap_or(30);
    let mut issues = api.lock().issues.clone();
    issues.retain(|issue| {
        let text = format!("{} {}", issue["title"], issue["body"]).to_lowercase();
        // Qualifiers such as `is:issue` choose among what is not here.
        query.split_whitespace().all(|word| word.contains(':') || text.contains(word))
    });
    issues.truncate(size);
    Json(json!({"items": issues}))
}

async fn read(
    State(api): State<Api>,
    Path(number): Path<usize>,
) -> Result<Json<Value>, StatusCode> {
    api.lock().find(number).map(|issue| Json(issue.clone()))
}

async fn create(State(api): State<Api>, Json(fields): Json<Value>) -> (StatusCode, Json<Value>) {
    (StatusCode::CREATED, Json(api.lock().add(&fields)))
}

async fn update(
    State(api): State<Api>,
    Path(number): Path<usize>,
    Json(fields): Json<Value>,
) -> Result<Json<Value>, StatusCode> {
    api.lock().change(number, &fields).map(Json)
}

async fn label(
    State(api): State<Api>,
    Path(number): Path<usize>,
    Json(added): Json<Value>,
) -> Result<Json<Value>, StatusCode> {
    let mut world = api.lock();
    let mut labels = world.find(number)?["labels"].as_array().cloned().unwrap_or_default();
    for label in named(&added["labels"]) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let names: Vec<Value> = labels.iter().map(|label| label["name"].clone()).collect();
    world.change(number, &json!({"labels": names})).map(|issue| Json(issue["labels"].clone()))
}

impl World {
    fn add(&mut self, fields: &Value) -> Value {
        let number = self.issues.len() + 1;
        let at = self.changes + 1;
        self.issues.push(json!({
            "number": number, "title": "", "body": null, "state": "open",
            "labels": [], "assignees": [], "comments": 0, "created_at": at, "updated_at": at,
        }));
        self.change(number, fields).unwrap_or_default()
    }

    fn change(&mut self, number: usize, fields: &Value) -> Result<Value, StatusCode> {
        self.changes += 1;
        let now = self.changes;
        let issue = self.find(number)?;
        for name in ["title", "body", "state", "assignees"] {
            if let Some(value) = fields.get(name) {
                issue[name] = value.clone();
            }
        }
        if let Some(labels) = fields.get("labels") {
            issue["labels"] = named(labels).into();
        }
        issue["updated_at"] = now.into();
        Ok(issue.clone())
    }

    fn find(&mut self, number: usize) -> Result<&mut Value, StatusCode> {
        number.checked_sub(1).and_then(|at| self.issues.get_mut(at)).ok_or(StatusCode::NOT_FOUND)
    }
}

/// Labels as GitHub shows them: objects with a name.
fn named(labels: &Value) -> Vec<Value> {
    labels.as_array().into_iter().flatten().map(|name| json!({"name": name})).collect()
}
