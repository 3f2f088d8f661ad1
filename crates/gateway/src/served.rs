//! What a client reads when a fallback answered: the fallback's own answer, with a first line that says what it is.

use std::time::Duration;

use seawall::{Body, Cause, Code, Failure, Item, Report, Sent, Served};
use serde_json::{Map, Value, json};

use crate::bridge::to_modern::answered;
use crate::dispatch::Reply;
use crate::resources::{QUEUE, address};
use crate::wire::content::{self, text_block};
use crate::wire::edit::{self, Object};
use crate::wire::names::Era;
use crate::wire::{Kind, Message};

/// The result of a fallback. Clients throw away a result that is no error and lacks what its tool's `schema` promises: where
/// the tool has one and the fallback cannot keep to it, the result says that it is an error, so that it is read.
pub fn result(era: Era, served: &Served<Message>, warnings: &[String], has_schema: bool) -> Reply {
    let mut meta = Map::from_iter([("by".to_owned(), json!(served.by)), ("warnings".to_owned(), json!(warnings))]);
    if let Some(age) = served.age {
        meta.insert("age".to_owned(), age.as_secs().into());
    }
    if let Some(id) = &served.id {
        meta.insert("code".to_owned(), "QUEUED".into());
        meta.insert("id".to_owned(), json!(id));
        meta.insert("resource".to_owned(), json!(address(QUEUE, id)));
    }
    let mut result = match &served.body {
        Body::Value(answer) => Object::of(answer.body_json()),
        Body::Items(_) | Body::Nothing => Object::default(),
    };
    let mut blocks = vec![text_block(&served.note)];
    match &served.body {
        Body::Value(answer) => blocks.extend(content::blocks(answer).map(<[u8]>::to_vec)),
        Body::Items(items) => blocks.extend(items.iter().flat_map(item)),
        Body::Nothing => {}
    }
    result.set("content", edit::array(blocks.iter().map(Vec::as_slice)));
    if has_schema && served.by == "alternate" {
        result.remove("structuredContent");
    }
    let is_unkept = has_schema && result.get("structuredContent").is_none();
    result.set("isError", is_unkept.to_string());
    mark(&mut result, era, Value::Object(meta));
    answered(&result.json())
}

/// A late answer, marked as one; an error of the protocol stays as it is, and so does the mark of a fallback: that it is a
/// copy, or waits in a queue, says more.
pub fn late(era: Era, answer: Message, age: Duration) -> Reply {
    let is_marked = answer.meta("seawall/served").is_some();
    if answer.kind() != Kind::Result || is_marked {
        return Ok(answer);
    }
    let mut result = Object::of(answer.body_json());
    mark(&mut result, era, json!({"by": "late", "age": age.as_secs()}));
    answered(&result.json())
}

/// The failure that a call is which takes longer than its client waits.
pub fn still_running(tool: String, server: &str) -> Report {
    let note = format!(
        "{tool} is still running on {server}. Its result is kept: the identical call, made again, waits for it and does not execute it a second time."
    );
    let soon = Some(Duration::from_secs(1));
    Report {
        code: Code::Timeout,
        message: note.clone(),
        classic: note.clone(),
        retry_after: soon,
        tool,
        server: server.to_owned(),
        attempts: 1,
        may_have_executed: true,
        debug: None,
        is_error: true,
        failure: Failure { sent: Sent::Maybe, ..Failure::local(Cause::Timeout, soon, note) },
    }
}

fn mark(result: &mut Object<'_>, era: Era, meta: Value) {
    result.change("_meta", |own| {
        own.set("seawall/served", meta.to_string());
    });
    if era == Era::Modern {
        result.set_default("resultType", r#""complete""#);
    }
}

/// One line for an item of a batch, then its own blocks.
fn item(item: &Item<Message>) -> Vec<Vec<u8>> {
    let input = &item.input;
    match &item.result {
        Ok(answer) => std::iter::once(text_block(&format!("{input}: ok")))
            .chain(content::blocks(answer).map(<[u8]>::to_vec))
            .collect(),
        Err(failure) => {
            let fate = if item.may_have_executed { "; it may have been executed" } else { "" };
            vec![text_block(&format!("{input}: failed ({}{fate})", seawall::quote(&failure.message)))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_answer_is_marked_as_one_unless_it_is_marked_as_something_that_says_more() {
        let told = |result: &str| {
            let message = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            let reply = late(Era::Legacy, Message::parse(message.into()).unwrap(), Duration::from_secs(2));
            serde_json::from_slice::<Value>(reply.unwrap().body_json()).unwrap()["_meta"]["seawall/served"].clone()
        };
        assert_eq!(told(r#"{"content":[]}"#), json!({"by": "late", "age": 2}));
        let queued = r#"{"content":[],"_meta":{"seawall/served":{"by":"queue","id":"q1"}}}"#;
        assert_eq!(told(queued), json!({"by": "queue", "id": "q1"}));
    }
}
