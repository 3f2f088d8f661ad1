//! The queued writes as an operator sees them; an operator can send one at once or drop it.
//!
//! The arguments of a call and its client are never shown. Every change is on disk before it is
//! answered.

use http::{StatusCode, Uri};
use hyper::body::Incoming;
use seawall::quote;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body;
use super::path::QueryString;
use super::respond::{self, AdminResponse};
use crate::gateway::Gateway;
use crate::protocol::limits;
use crate::queue::{ItemChange, ItemState, ItemSummary, NotDurable, QueueStore, number};
use crate::runtime::log;

const STATES: [(&str, ItemState); 4] = [
    ("waiting", ItemState::Waiting),
    ("delivering", ItemState::Delivering),
    ("delivered", ItemState::Delivered),
    ("dead", ItemState::Dead),
];

/// The queue, or the answer of a gateway without one.
fn store(gateway: &Gateway) -> Result<&QueueStore, Box<AdminResponse>> {
    let none = || {
        Box::new(respond::error(
            StatusCode::NOT_FOUND,
            "this gateway keeps no queue; [store] gives it one",
        ))
    };
    gateway.store().ok_or_else(none)
}

/// The oldest items, a page at a time.
pub(super) async fn list(gateway: &Gateway, uri: &Uri) -> AdminResponse {
    listed(gateway, uri).await.unwrap_or_else(|wrong| *wrong)
}

async fn listed(gateway: &Gateway, uri: &Uri) -> Result<AdminResponse, Box<AdminResponse>> {
    let store = store(gateway)?;
    let query = QueryString::read(uri, &["after", "limit", "state"])?;
    let after = query
        .get("after")
        .map(|id| number(id).ok_or_else(|| wrong("after must be the id of an item")))
        .transpose()?;
    let most = query.number("limit", limits::QUEUE_PAGE)?.clamp(1, limits::QUEUE_PAGE);
    let states = states(query.get("state"))?;
    let (items, has_more) = store
        .page(after.unwrap_or(0), states, most)
        .await
        .map_err(|unkept| Box::new(failed(&unkept)))?;
    let tally = *store.changes().borrow();
    let next = items.last().filter(|_| has_more).map(|last| last.id.clone());
    let items: Vec<Value> = items.into_iter().map(|item| shown(gateway, item)).collect();
    Ok(respond::json(
        StatusCode::OK,
        &json!({
            "items": items, "next": next, "waiting": tally.waiting, "delivering": tally.delivering,
            "delivered": tally.delivered, "deliveredWithError": tally.with_error, "dead": tally.dead,
        }),
    ))
}

/// The states named in the query; all of them if none is named.
fn states(asked: Option<&str>) -> Result<Vec<ItemState>, Box<AdminResponse>> {
    let Some(asked) = asked else { return Ok(STATES.map(|(_, state)| state).to_vec()) };
    let state = |word: &str| STATES.iter().find(|(name, _)| *name == word).map(|(_, state)| *state);
    let unknown = || {
        wrong(
            "state must be waiting, delivering, delivered or dead, or several of them with commas",
        )
    };
    asked.split(',').map(|word| state(word).ok_or_else(unknown)).collect()
}

fn shown(gateway: &Gateway, mut item: ItemSummary) -> Value {
    let server = gateway.server(&item.server);
    let clean = |text: String| {
        server.as_ref().map_or_else(|| quote(&text), |server| server.without_secrets(&text))
    };
    item.last_error = item.last_error.take().map(clean);
    json!(item)
}

/// The body of a retry.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RetryRequest {
    even_if_executed: bool,
}

/// Makes an item due now; a dead item is queued again.
pub(super) async fn retry(gateway: &Gateway, id: &str, body: Incoming) -> AdminResponse {
    let asked = async {
        let store = store(gateway)?;
        let RetryRequest { even_if_executed } =
            body::read(body, r#"empty, or {"even_if_executed": true}"#).await?;
        Ok::<_, Box<AdminResponse>>((store, even_if_executed))
    };
    let (store, even_if_executed) = match asked.await {
        Ok(asked) => asked,
        Err(wrong) => return *wrong,
    };
    let meant = if even_if_executed { ", even if it was executed" } else { "" };
    match store.retry(id, even_if_executed).await {
        Ok(ItemChange::Done) => {
            log::line(&format!("an operator lets {id} be sent again{meant}"));
            respond::json(StatusCode::OK, &json!({"status": ItemState::Waiting, "id": id}))
        }
        other => refused(&other),
    }
}

/// The body of a drop.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DropRequest {
    even_if_delivered: bool,
}

/// Drops an item.
pub(super) async fn forget(gateway: &Gateway, id: &str, body: Incoming) -> AdminResponse {
    let asked = async {
        let store = store(gateway)?;
        let DropRequest { even_if_delivered } =
            body::read(body, r#"empty, or {"even_if_delivered": true}"#).await?;
        Ok::<_, Box<AdminResponse>>((store, even_if_delivered))
    };
    let (store, even_if_delivered) = match asked.await {
        Ok(asked) => asked,
        Err(wrong) => return *wrong,
    };
    let meant = if even_if_delivered { ", and its result if there is one" } else { "" };
    match store.forget(id, even_if_delivered).await {
        Ok(ItemChange::Done) => {
            log::line(&format!("an operator drops {id}{meant}"));
            respond::json(StatusCode::OK, &json!({"status": "dropped", "id": id}))
        }
        Ok(made @ (ItemChange::NotNow(ItemState::Delivered) | ItemChange::WentWrong)) => {
            let why = format!(
                "{} until it is forgotten after a day; send {{\"even_if_delivered\": true}} if the result is meant to go",
                is_made(made)
            );
            respond::error(StatusCode::CONFLICT, &why)
        }
        other => refused(&other),
    }
}

fn refused(end: &Result<ItemChange, NotDurable>) -> AdminResponse {
    let not_now = |why| respond::error(StatusCode::CONFLICT, why);
    match end {
        Ok(ItemChange::Unknown | ItemChange::Done) => respond::error(
            StatusCode::NOT_FOUND,
            "there is no such item; GET /resilience/queue lists them",
        ),
        Ok(ItemChange::NotNow(ItemState::Delivering)) => {
            not_now("it is being sent right now; what comes of it is known soon")
        }
        Ok(made @ (ItemChange::NotNow(_) | ItemChange::WentWrong)) => not_now(is_made(*made)),
        Ok(ItemChange::InDoubt) => not_now(
            "it may have been executed, and sending it again may do it twice; look first, then send {\"even_if_executed\": true} if it is meant",
        ),
        Err(unkept) => failed(unkept),
    }
}

/// The text for a write that was delivered.
fn is_made(how: ItemChange) -> &'static str {
    match how {
        ItemChange::WentWrong => {
            "it was delivered and answered with an error, so it is not sent again, and its client can read the answer"
        }
        _ => "it was made already, and its client can read the result",
    }
}

/// The store failed; the text says whether the change was certainly not made.
fn failed(unkept: &NotDurable) -> AdminResponse {
    let doubt = if unkept.is_certain {
        "nothing was changed"
    } else {
        "nobody knows yet whether it was done"
    };
    respond::error(
        StatusCode::SERVICE_UNAVAILABLE,
        &format!("the queue cannot be used ({}); {doubt}", quote(&unkept.why)),
    )
}

fn wrong(why: &str) -> Box<AdminResponse> {
    Box::new(respond::error(StatusCode::BAD_REQUEST, why))
}
