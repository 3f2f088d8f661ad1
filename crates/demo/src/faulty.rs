//! Decides how a server with eight tools answers, by its fault plan; the transport turns each
//! ending into bytes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::{Fault, FaultPlan, ListFault};
use crate::world::{LedgerEntry, World};

/// How late a slow answer comes.
pub const SLOW: Duration = Duration::from_millis(400);
/// How long the tool `slow_report` always takes.
const LONG: Duration = Duration::from_millis(60);
/// The bytes of the large answer.
const LARGE: usize = 256 << 10;

/// The tools: name, hint about the effect, and the argument that identifies the call.
pub const TOOLS: [(&str, &str, &str); 8] = [
    ("read_note", "readOnlyHint", "id"),
    ("search_notes", "readOnlyHint", "query"),
    ("list_notes", "readOnlyHint", "page"),
    ("batch_tag_notes", "idempotentHint", "ids"),
    ("set_note", "idempotentHint", "id"),
    ("add_note", "", "id"),
    ("slow_report", "readOnlyHint", "id"),
    ("export_notes", "readOnlyHint", "id"),
];

/// The tool that must not be executed twice.
pub const APPEND: &str = "add_note";

/// The end of a note's text if the note was added before.
pub const WRITTEN: &str = "It is there.";

/// How a request ends.
#[derive(Debug)]
pub enum Ending {
    /// With this message.
    Answer(Value),
    /// With this message, after a delay.
    Later(Duration, Value),
    /// With this message, after a line that is no message.
    Noisy(Value),
    /// In the middle of this message; then the server dies.
    Half(Value),
    /// The server dies without an answer.
    Death,
    /// The request is never answered.
    Never,
    /// With an HTTP status, and the seconds of a `Retry-After`.
    Status(u16, Option<u64>),
    /// The session is unknown: the server has forgotten all sessions.
    Forgotten,
}

/// A server with faults.
#[derive(Clone, Debug)]
pub struct Faulty {
    /// The server's fault plan and ledger.
    pub world: Arc<World>,
}

impl Faulty {
    /// How a message ends; `None` for a notification, which gets no answer.
    pub fn hear(&self, asked: &Value) -> Option<Ending> {
        asked.get("id")?;
        let params = &asked["params"];
        let result = match asked["method"].as_str().unwrap_or_default() {
            "initialize" => {
                json!({"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                                   "serverInfo": {"name": "faulty", "version": "1"}})
            }
            "ping" => json!({}),
            "tools/list" => match self.world.plan().list {
                Some(ListFault::Hang) => return Some(Ending::Never),
                fault => tools(fault),
            },
            "tools/call" => return Some(self.call(asked)),
            _ => {
                let error = json!({"code": -32601, "message": "Method not found"});
                return Some(Ending::Answer(
                    json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}),
                ));
            }
        };
        Some(Ending::Answer(answer(asked, result)))
    }

    fn call(&self, asked: &Value) -> Ending {
        let tool = asked["params"]["name"].as_str().unwrap_or_default();
        let arguments = &asked["params"]["arguments"];
        let number = number(tool, arguments);
        let attempt = self.world.note(LedgerEntry::Seen, tool, number);
        let plan: FaultPlan = self.world.plan();
        let failed = |text: &str| {
            Ending::Answer(answer(
                asked,
                json!({"content": [{"type": "text", "text": text}], "isError": true}),
            ))
        };
        let fault = plan.fault(tool, number, attempt);
        match fault {
            Some(Fault::Hang) => return Ending::Never,
            Some(Fault::DieBefore) => return Ending::Death,
            Some(Fault::Throttled) => return Ending::Status(429, None),
            Some(Fault::ThrottledFor) => return Ending::Status(429, Some(1)),
            Some(Fault::Unavailable) => return Ending::Status(503, None),
            Some(Fault::Expired) => return Ending::Status(401, None),
            Some(Fault::Forgotten) => return Ending::Forgotten,
            Some(Fault::Soft) => return failed("The service answered 503 Service Unavailable."),
            Some(Fault::Refused) => return failed(&format!("There is no note {number}.")),
            Some(Fault::Slow | Fault::DieAfter | Fault::Reset | Fault::Noise) | None => {}
        }
        self.world.note(LedgerEntry::Done, tool, number);
        let text = match tool {
            "export_notes" => format!("{} {}", truth(tool, number), "x".repeat(LARGE)),
            "read_note" if self.world.count(LedgerEntry::Done, APPEND, number) > 0 => {
                format!("{} {WRITTEN}", truth(tool, number))
            }
            _ => truth(tool, number),
        };
        let result = answer(asked, json!({"content": [{"type": "text", "text": text}]}));
        match fault {
            Some(Fault::DieAfter) => Ending::Death,
            Some(Fault::Reset) => Ending::Half(result),
            Some(Fault::Slow) => Ending::Later(SLOW, result),
            Some(Fault::Noise) => Ending::Noisy(result),
            _ if tool == "slow_report" => Ending::Later(LONG, result),
            _ => Ending::Answer(result),
        }
    }
}

fn answer(asked: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})
}

fn tools(fault: Option<ListFault>) -> Value {
    let tool = |(name, hint, argument): (&str, &str, &str)| {
        let of = match argument {
            "query" => json!({"type": "string"}),
            "ids" => json!({"type": "array", "items": {"type": "integer"}}),
            _ => json!({"type": "integer"}),
        };
        let annotations =
            if hint.is_empty() { json!({"readOnlyHint": false}) } else { json!({hint: true}) };
        let schema =
            json!({"type": "object", "properties": {argument: of}, "required": [argument]});
        json!({"name": name, "description": format!("{name} of the demo"), "inputSchema": schema,
               "annotations": annotations})
    };
    let mut tools: Vec<Value> = TOOLS.into_iter().map(tool).collect();
    match fault {
        Some(ListFault::Empty) => tools.clear(),
        Some(ListFault::BadSchema) => tools.push(json!({"name": "broken", "inputSchema": "none"})),
        Some(ListFault::Hang) | None => {}
    }
    json!({"tools": tools})
}

/// The arguments of a call with this number.
pub fn arguments(tool: &str, number: u64) -> Value {
    match TOOLS.iter().find(|(name, ..)| *name == tool).map(|(.., argument)| *argument) {
        Some("query") => json!({"query": format!("\"note {number}\" kind:memo")}),
        Some("ids") => json!({"ids": [number, number + 1, number + 2]}),
        Some(argument) => json!({argument: number}),
        None => json!({}),
    }
}

/// The number in the arguments of a call, even if a fallback has changed them.
pub fn number(tool: &str, arguments: &Value) -> u64 {
    let argument =
        TOOLS.iter().find(|(name, ..)| *name == tool).map_or("id", |(.., argument)| *argument);
    match &arguments[argument] {
        Value::String(query) => {
            let digits: String = query.chars().filter(char::is_ascii_digit).collect();
            digits.parse().unwrap_or(0)
        }
        Value::Array(ids) => ids.first().and_then(Value::as_u64).unwrap_or(0),
        other => other.as_u64().unwrap_or(0),
    }
}

/// The text of the true answer to a call.
pub fn truth(tool: &str, number: u64) -> String {
    format!("{tool} {number}: done.")
}
