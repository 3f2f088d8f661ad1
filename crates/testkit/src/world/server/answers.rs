//! What befalls a call at its server.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{Out, Server, error, pause, say, send};
use crate::world::plan::{Era, Face, Fate};

/// What of a call its server looks at.
struct Call<'a> {
    id: &'a Value,
    intent: &'a str,
    request: &'a str,
    nonce: &'a Value,
}

impl Server {
    pub(super) async fn call(self: &Arc<Self>, message: &Value, out: &mpsc::Sender<Out>) {
        let (id, params) = (&message["id"], &message["params"]);
        let call = Call {
            id,
            intent: params["arguments"]["intent"].as_str().unwrap_or_default(),
            request: params["_meta"]["world/request"].as_str().unwrap_or_default(),
            nonce: &params["arguments"]["nonce"],
        };
        if params.get("inputResponses").is_some() {
            return self.answer(&call, out).await;
        }
        let count = self.ledger.attempt(call.intent);
        let fates = self.fates.get(call.intent).map(Vec::as_slice).unwrap_or_default();
        let fate = fates.get(count).or(fates.last()).cloned().unwrap_or(Fate::Answer);
        let asks = matches!(fate, Fate::Ask(_) | Fate::AskAndHang(_));
        match fate {
            Fate::Forget if self.plan.face == Face::Http && self.plan.era == Era::Legacy => {
                self.state().sessions.clear();
                self.unknown_session(id, "tools/call", out).await;
            }
            Fate::Refuse if self.plan.face == Face::Http => {
                send(out, Out::Status(429, "slow down".to_owned())).await;
            }
            Fate::Ask(method) | Fate::AskAndHang(method)
                if asks && self.plan.era == Era::Modern =>
            {
                let params = question(method);
                let requests = json!({"q": {"method": method, "params": params}});
                let result = json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"});
                say(out, self.result(id, result)).await;
            }
            fate => self.executed(&call, fate, out).await,
        }
    }

    /// Executes it, and answers.
    async fn answer(&self, call: &Call<'_>, out: &mpsc::Sender<Out>) {
        let number = self.ledger.execute(self.place, call.intent, call.request);
        self.reply(call, number, out).await;
    }

    async fn reply(&self, call: &Call<'_>, number: usize, out: &mpsc::Sender<Out>) {
        self.ledger.answered(number);
        say(out, self.done(call, call.id, number)).await;
    }

    /// The answer to an execution: its number, and what only its caller can know.
    fn done(&self, call: &Call<'_>, id: &Value, number: usize) -> Value {
        let text =
            json!({"execution": number, "intent": call.intent, "nonce": call.nonce}).to_string();
        self.result(id, json!({"content": [{"type": "text", "text": text}]}))
    }

    async fn executed(self: &Arc<Self>, call: &Call<'_>, fate: Fate, out: &mpsc::Sender<Out>) {
        let number = self.ledger.execute(self.place, call.intent, call.request);
        match fate {
            Fate::Answer | Fate::Forget | Fate::Refuse => self.reply(call, number, out).await,
            Fate::Late(time) => {
                pause(time).await;
                self.reply(call, number, out).await;
            }
            Fate::Large(bytes) => {
                self.ledger.answered(number);
                let mut answer = self.done(call, call.id, number);
                let text = json!({"type": "text", "text": "x".repeat(bytes)});
                if let Some(blocks) = answer["result"]["content"].as_array_mut() {
                    blocks.push(text);
                }
                say(out, answer).await;
            }
            Fate::Twice => {
                send(out, Out::Stream).await;
                self.reply(call, number, out).await;
                self.reply(call, number, out).await;
            }
            Fate::WrongId => {
                send(out, Out::Stream).await;
                for wrong in [json!(987_654), json!("987654")] {
                    say(out, self.done(call, &wrong, number)).await;
                }
                self.reply(call, number, out).await;
            }
            Fate::Status(status, body) => {
                self.ledger.answered(number);
                match self.plan.face {
                    Face::Http => send(out, Out::Status(status, body.to_owned())).await,
                    Face::Stdio => say(out, error(call.id, -32603, body)).await,
                }
            }
            Fate::Error(code, text) => {
                self.ledger.answered(number);
                say(out, error(call.id, code, text)).await;
            }
            Fate::ToolError(text) => {
                self.ledger.answered(number);
                let result = json!({"content": [{"type": "text", "text": text}], "isError": true});
                say(out, self.result(call.id, result)).await;
            }
            Fate::Garbage => send(out, Out::Raw("{\"jsonrpc\":\"2.0\",\"id\"".to_owned())).await,
            Fate::Cut => send(out, Out::Cut).await,
            Fate::Hang => self.connection().cancelled().await,
            Fate::Ask(method) => {
                if self.ask(method, out).await.is_some() {
                    self.reply(call, number, out).await;
                }
            }
            Fate::AskAndHang(method) => {
                _ = self.ask(method, out).await;
                self.connection().cancelled().await;
            }
        }
    }

    /// Asks the client, and waits for what it says.
    async fn ask(&self, method: &str, out: &mpsc::Sender<Out>) -> Option<Value> {
        send(out, Out::Stream).await;
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut state = self.state();
            state.asked += 1;
            let id = format!("q{}", state.asked);
            state.questions.insert(id.clone(), answer);
            id
        };
        say(out, json!({"jsonrpc": "2.0", "id": id, "method": method, "params": question(method)}))
            .await;
        answered.await.ok()
    }
}

fn question(method: &str) -> Value {
    match method {
        "elicitation/create" => {
            json!({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}})
        }
        "sampling/createMessage" => {
            let message = json!({"role": "user", "content": {"type": "text", "text": "Sure?"}});
            json!({"messages": [message], "maxTokens": 10})
        }
        _ => json!({}),
    }
}
