//! Decides the worth of an answer to the agent: usable, an honest failure to act on, or no answer
//! at all.

use serde_json::Value;

use crate::client::ClientAnswer;
use crate::faulty::truth;

/// The worth of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer is true, or it is a fallback's and says so.
    Useful {
        /// The fallback, if the answer is not the server's own.
        by: Option<String>,
    },
    /// The call is queued and will be sent later.
    Queued,
    /// The call failed, and the answer says so.
    Failed(FailureText),
    /// There was no answer: the agent cannot know whether the call was executed.
    Dark,
    /// The answer claims success and is false.
    Wrong(String),
}

/// The facts that a failure states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureText {
    /// The error code, if it is one of Seawall's.
    pub code: Option<String>,
    /// Whether the call may have been executed, if stated.
    pub may_have_executed: Option<bool>,
    /// Whether repeating the call can help, if stated.
    pub is_retryable: Option<bool>,
    /// How many seconds to wait, if stated.
    pub retry_after: Option<u64>,
}

/// Judges the answer to a call.
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
    // A fallback may answer with another page or a part of a batch, but not with nothing.
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
