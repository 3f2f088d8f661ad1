//! Decides how a server with eight tools answers, by its fault plan; the transport turns each
//! ending into bytes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::{Fault, FaultPlan, ListFault, SLOW, Strike};
use crate::world::{LedgerEntry, World};

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
            _ => return Some(Ending::Answer(rpc_error(asked, -32601, "Method not found"))),
        };
        Some(Ending::Answer(answer(asked, result)))
    }

    fn call(&self, asked: &Value) -> Ending {
        let tool = asked["params"]["name"].as_str().unwrap_or_default();
        let arguments = &asked["params"]["arguments"];
        let number = number(tool, arguments);
        let attempt = self.world.note(LedgerEntry::Seen, tool, number);
        let plan: FaultPlan = self.world.plan();
        let strike = plan.strike(tool, number, attempt);
        if let Some(ending) = strike.and_then(|strike| unexecuted(strike, asked, number)) {
            return ending;
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
        match strike.map(|strike| strike.fault) {
            Some(Fault::DieAfter) => Ending::Death,
            Some(Fault::Reset) => Ending::Half(result),
            Some(Fault::Slow) => {
                Ending::Later(strike.and_then(|strike| strike.delay).unwrap_or(SLOW), result)
            }
            Some(Fault::Noise) => Ending::Noisy(result),
            _ if tool == "slow_report" => Ending::Later(LONG, result),
            _ => Ending::Answer(result),
        }
    }
}

/// The ending of a call that a fault strikes before it is executed.
fn unexecuted(strike: &Strike, asked: &Value, number: u64) -> Option<Ending> {
    let said = |text: &str, is_error: bool| {
        let content = json!([{"type": "text", "text": text}]);
        Ending::Answer(answer(asked, json!({"content": content, "isError": is_error})))
    };
    let status = |usual: u16| strike.status.unwrap_or(usual);
    Some(match strike.fault {
        Fault::Hang => Ending::Never,
        Fault::DieBefore => Ending::Death,
        Fault::Throttled => Ending::Status(429, None),
        Fault::ThrottledFor => Ending::Status(429, Some(strike.retry_after.unwrap_or(1))),
        Fault::Unavailable => Ending::Status(status(503), strike.retry_after),
        Fault::Expired => Ending::Status(401, None),
        Fault::Forgotten => Ending::Forgotten,
        Fault::Soft => said("The service answered 503 Service Unavailable.", true),
        Fault::Refused => said(&format!("There is no note {number}."), true),
        Fault::Broken => Ending::Answer(rpc_error(asked, -32603, "Internal error")),
        Fault::Disguised => said("Error: the service answered 503 Service Unavailable.", false),
        Fault::Slow | Fault::DieAfter | Fault::Reset | Fault::Noise => return None,
    })
}

fn rpc_error(asked: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": code, "message": message}})
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
