//! Decides how a fallback's answer reads to the client: its own content, after a first line that
//! names its origin.

use std::time::Duration;

use seawall::{BatchItem, Effect, FallbackAnswer, FallbackBody, ToolError};
use serde_json::{Map, Value, json};

use crate::client::results::{QUEUE, address};
use crate::policy::registry::is_complete;
use crate::protocol::content::{self, text_block};
use crate::protocol::edit::{self, JsonObject};
use crate::protocol::names::Era;
use crate::protocol::{Message, MessageKind};
use crate::upstream::reply::{Reply, answered};

/// The result of a fallback. Clients discard a result that is no error and lacks the structured
/// content that its tool's `schema` promises. Where the fallback cannot keep to the schema, the
/// result is marked as an error, so that the client reads it.
pub(crate) fn result(
    era: Era,
    served: &FallbackAnswer<Message>,
    warnings: &[String],
    has_schema: bool,
) -> Reply {
    let mut meta = Map::from_iter([
        ("by".to_owned(), json!(served.by)),
        ("warnings".to_owned(), json!(warnings)),
    ]);
    if let Some(age) = served.age {
        meta.insert("age".to_owned(), age.as_secs().into());
    }
    if let Some(id) = &served.id {
        meta.insert("code".to_owned(), "QUEUED".into());
        meta.insert("id".to_owned(), json!(id));
        meta.insert("resource".to_owned(), json!(address(QUEUE, id)));
    }
    let mut result = match &served.body {
        FallbackBody::Value(answer) => JsonObject::of(answer.body_json()),
        FallbackBody::Items(_) | FallbackBody::Nothing => JsonObject::default(),
    };
    let mut blocks = vec![text_block(&served.note)];
    match &served.body {
        FallbackBody::Value(answer) => blocks.extend(content::blocks(answer).map(<[u8]>::to_vec)),
        FallbackBody::Items(items) => blocks.extend(items.iter().flat_map(item)),
        FallbackBody::Nothing => {}
    }
    result.set("content", edit::array(blocks.iter().map(Vec::as_slice)));
    if has_schema && served.by == "alternate" {
        result.remove("structuredContent");
    }
    if let (true, FallbackBody::Items(items)) = (has_schema, &served.body) {
        together(items)
            .into_iter()
            .for_each(|all| _ = result.set("structuredContent", all.to_string()));
    }
    let is_unkept = has_schema && result.get("structuredContent").is_none();
    result.set("isError", is_unkept.to_string());
    mark(&mut result, era, Value::Object(meta));
    answered(&result.json())
}

/// The structured results of all batch items joined, if every item has one in the form `{"result":
/// …}` in which frameworks wrap values that are no objects: texts line by line, lists in one list.
fn together(items: &[BatchItem<Message>]) -> Option<Value> {
    let one = |item: &BatchItem<Message>| {
        let answer = item.result.as_ref().ok()?;
        let structured: Map<String, Value> =
            serde_json::from_slice(answer.field_json("structuredContent")?).ok()?;
        structured.get("result").filter(|_| structured.len() == 1).cloned()
    };
    let all: Vec<Value> = items.iter().map(one).collect::<Option<_>>()?;
    let texts: Option<Vec<&str>> = all.iter().map(Value::as_str).collect();
    let lists: Option<Vec<&Vec<Value>>> = all.iter().map(Value::as_array).collect();
    let whole = match (texts, lists) {
        (Some(texts), _) => json!(texts.join("\n")),
        (None, Some(lists)) => lists.into_iter().flatten().cloned().collect(),
        (None, None) => return None,
    };
    Some(json!({"result": whole}))
}

/// Marks the answer of an identical earlier call whose client had left, so that the model can tell
/// a repeat from a second intent. A protocol error stays unmarked. A fallback's mark stays too:
/// "cached" or "queued" says more.
pub(crate) fn rejoined(era: Era, answer: Message, age: Duration, effect: Effect) -> Reply {
    let is_marked = answer.meta("seawall/served").is_some();
    // A server's question in a running call is not its answer yet.
    if answer.kind() != MessageKind::Result || is_marked || !is_complete(&answer) {
        return Ok(answer);
    }
    let mut result = JsonObject::of(answer.body_json());
    if effect != Effect::ReadOnly {
        let mut blocks = vec![text_block(REJOINED)];
        blocks.extend(content::blocks(&answer).map(<[u8]>::to_vec));
        result.set("content", edit::array(blocks.iter().map(Vec::as_slice)));
    }
    mark(&mut result, era, json!({"by": "rejoined", "age": age.as_secs()}));
    answered(&result.json())
}

/// The line before the answer of a write that the model may have meant to execute twice.
const REJOINED: &str = "This is the answer of the identical call made before. It was executed once; this call did not execute it again.";

/// A tool's own error, in its own words. The failure report is added if the tool did not flag the
/// error itself, or if retries were spent on it.
pub(crate) fn tool_error(era: Era, error: ToolError<Message>) -> Reply {
    if !error.is_told() || error.value.kind() != MessageKind::Result {
        return Ok(error.value);
    }
    let mut result = JsonObject::of(error.value.body_json());
    result.set("isError", "true");
    result.change("_meta", |own| {
        own.set("seawall/failure", error.report.object().to_string());
    });
    if era == Era::Modern {
        result.set_default("resultType", r#""complete""#);
    }
    answered(&result.json())
}

fn mark(result: &mut JsonObject<'_>, era: Era, meta: Value) {
    result.change("_meta", |own| {
        own.set("seawall/served", meta.to_string());
    });
    if era == Era::Modern {
        result.set_default("resultType", r#""complete""#);
    }
}

/// A batch item: one line with its status, then its own content blocks.
fn item(item: &BatchItem<Message>) -> Vec<Vec<u8>> {
    let input = &item.input;
    match &item.result {
        Ok(answer) => std::iter::once(text_block(&format!("{input}: ok")))
            .chain(content::blocks(answer).map(<[u8]>::to_vec))
            .collect(),
        Err(failure) => {
            let fate = if item.may_have_executed { "; it may have been executed" } else { "" };
            vec![text_block(&format!(
                "{input}: failed ({}{fate})",
                seawall::quote(&failure.message)
            ))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejoined_answer_is_marked_as_one_unless_it_is_marked_as_something_that_says_more() {
        let told = |result: &str, effect| {
            let message = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            let message = Message::parse(message.into()).unwrap();
            let reply = rejoined(Era::Legacy, message, Duration::from_secs(2), effect);
            serde_json::from_slice::<Value>(reply.unwrap().body_json()).unwrap()
        };
        let plain = r#"{"content":[{"type":"text","text":"made"}]}"#;
        let read = told(plain, Effect::ReadOnly);
        assert_eq!(read["_meta"]["seawall/served"], json!({"by": "rejoined", "age": 2}));
        assert_eq!(
            read["content"].as_array().unwrap().len(),
            1,
            "of a read it makes no difference"
        );
        let write = told(plain, Effect::Write);
        assert_eq!(
            (&write["content"][0]["text"], &write["content"][1]["text"]),
            (&json!(REJOINED), &json!("made"))
        );
        let queued = r#"{"content":[],"_meta":{"seawall/served":{"by":"queue","id":"q1"}}}"#;
        assert_eq!(
            told(queued, Effect::Write)["_meta"]["seawall/served"],
            json!({"by": "queue", "id": "q1"})
        );
    }

    #[test]
    fn items_that_all_succeeded_keep_to_the_schema_that_wraps_what_is_no_object() {
        let item = |structured: &str| {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[]{structured}}}}}"#);
            BatchItem {
                input: json!(1),
                result: Ok(Message::parse(text.into()).unwrap()),
                may_have_executed: false,
            }
        };
        let told = |items: Vec<BatchItem<Message>>| {
            let (by, note) = ("split_batch".to_owned(), "2 of 2".to_owned());
            let served =
                FallbackAnswer { by, note, age: None, id: None, body: FallbackBody::Items(items) };
            let reply = result(Era::Legacy, &served, &[], true).unwrap();
            let result: Value = serde_json::from_slice(reply.body_json()).unwrap();
            (result["isError"].clone(), result["structuredContent"].clone())
        };
        let (one, two) =
            (r#","structuredContent":{"result":"a"}"#, r#","structuredContent":{"result":"b"}"#);
        assert_eq!(told(vec![item(one), item(two)]), (json!(false), json!({"result": "a\nb"})));
        let list = r#","structuredContent":{"result":[1]}"#;
        assert_eq!(told(vec![item(list), item(list)]), (json!(false), json!({"result": [1, 1]})));
        for other in ["", r#","structuredContent":{"n":1}"#, r#","structuredContent":{"result":1}"#]
        {
            assert_eq!(told(vec![item(one), item(other)]), (json!(true), Value::Null), "{other}");
        }
    }
}
