//! What an agent can do with what it was told: use it, act on an honest failure, or be left in the
//! dark.

use serde_json::Value;

use crate::client::ClientAnswer;
use crate::faulty::truth;

/// What an answer is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It says what it should; or it is a stand-in that says so.
    Useful {
        /// What stood in, if the answer is not the server's own.
        by: Option<String>,
    },
    /// The call is kept and will be made later.
    Queued,
    /// It failed, and the answer says so.
    Failed(FailureText),
    /// There was no answer: the agent cannot know what happened.
    Dark,
    /// It seems to be a success and is none.
    Wrong(String),
}

/// What a failure tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureText {
    /// Its code, if it has one of Seawall's.
    pub code: Option<String>,
    /// Whether the call may have been executed, if that is said.
    pub may_have_executed: Option<bool>,
    /// Whether making the call again can help, if that is said.
    pub is_retryable: Option<bool>,
    /// How many seconds to wait, if that is said.
    pub retry_after: Option<u64>,
}

/// Judges what came of a call.
pub fn judge(told: &ClientAnswer, tool: &str, number: u64) -> Verdict {
    let message = match told {
        ClientAnswer::Message(message) => message,
        ClientAnswer::Status(_) => return Verdict::Failed(FailureText::default()),
        ClientAnswer::Lost(_) | ClientAnswer::Silence => return Verdict::Dark,
    };
    let result = &message["result"];
    if message.get("error").is_some() || result["isError"] == true {
        return Verdict::Failed(failed(result));
    }
    let served = &result["_meta"]["seawall/served"];
    let by = served["by"].as_str().map(str::to_owned);
    if by.as_deref() == Some("queue") {
        return Verdict::Queued;
    }
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_true = |block: &Value| {
        block["text"].as_str().is_some_and(|text| text.starts_with(&truth(tool, number)))
    };
    let is_item = |block: &Value| block["text"].as_str().is_some_and(|text| text.ends_with(": ok"));
    // A stand-in may be another page or a part of a batch, but not nothing.
    let stands_in = match by.as_deref() {
        Some("simplify" | "previous_page" | "alternate") => blocks.len() > 1,
        Some("split_batch") => blocks.iter().any(is_item),
        _ => false,
    };
    if blocks.iter().any(is_true) || stands_in {
        return Verdict::Useful { by };
    }
    Verdict::Wrong(message.to_string().chars().take(300).collect())
}

fn failed(result: &Value) -> FailureText {
    let said = &result["_meta"]["seawall/failure"];
    FailureText {
        code: said["code"].as_str().map(str::to_owned),
        may_have_executed: said["mayHaveExecuted"].as_bool(),
        is_retryable: said["retryable"].as_bool(),
        retry_after: said["retryAfter"].as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_true_answer_and_a_labelled_stand_in_are_useful() {
        let verdict = |result: Value| {
            judge(&ClientAnswer::Message(json!({"result": result})), "read_note", 7)
        };
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        assert_eq!(
            verdict(json!({"content": text("read_note 7: done.")})),
            Verdict::Useful { by: None }
        );
        assert!(matches!(
            verdict(json!({"content": text("read_note 8: done.")})),
            Verdict::Wrong(_)
        ));
        assert!(matches!(verdict(json!({"content": []})), Verdict::Wrong(_)));
        let failure = json!({"code": "TIMEOUT", "mayHaveExecuted": true, "retryable": true});
        let failed = verdict(
            json!({"isError": true, "content": text("no"), "_meta": {"seawall/failure": failure}}),
        );
        let Verdict::Failed(failed) = failed else { panic!("{failed:?}") };
        assert_eq!(
            (failed.code.as_deref(), failed.may_have_executed),
            (Some("TIMEOUT"), Some(true))
        );
        assert_eq!(judge(&ClientAnswer::Silence, "read_note", 7), Verdict::Dark);
    }
}
