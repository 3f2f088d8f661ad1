//! Decides when a server has forgotten the session of a connection, and how often one call is
//! resent for that reason.
//!
//! Only a status of the protocol or the exact text of an SDK shows that a server refused a request
//! because of its session, and so has not executed it. Any other text that mentions a session can
//! come from a tool that has done its work.

use std::sync::atomic::{AtomicBool, Ordering};

use super::UpstreamFailure;
use crate::protocol::{Message, MessageKind, build};

/// Refusals of an unknown session that differ from the protocol's (404): the status, the JSON-RPC
/// code (`None`: the body is that text and no message), the whole text.
const REFUSALS: [(u16, Option<i64>, &str); 7] = [
    // The official TypeScript SDK's examples, which most servers built on it copy.
    (400, Some(-32000), "Bad Request: No valid session ID provided"),
    // The same SDK's transport (`validateSession`) after its process was restarted.
    (400, Some(-32000), "Bad Request: Server not initialized"),
    // The same SDK's code for an unknown session, behind gateways that turn every 4xx into 400.
    (400, Some(-32001), "Session not found"),
    // The official Python SDK before 1.25 (`StreamableHTTPSessionManager`), and the Kotlin SDK.
    (400, None, "Bad Request: No valid session ID provided"),
    // The same SDK's code for an unknown session since then.
    (400, Some(-32600), "Session not found"),
    // mcp-go (`StreamableHTTPServer.handlePost`).
    (400, None, "Invalid session ID"),
    // rmcp, the official Rust SDK, before it answered 404 (its issue 689).
    (401, None, "Unauthorized: Session not found"),
];

/// Whether the refusal of a request in a session says that the session is unknown. `answer` is the
/// body, if it is a message; `answers_it`: the message carries the request's id.
pub(super) fn is_lost(
    failure: &UpstreamFailure,
    answer: Option<&Message>,
    answers_it: bool,
) -> bool {
    let UpstreamFailure::Status { status, text, .. } = failure else { return false };
    let code = answer.and_then(code);
    match *status {
        // Some servers also answer an unknown method or tool with 404: they do know the session.
        404 => !(answers_it && answer.is_some_and(is_about_request)),
        status => REFUSALS.contains(&(status, code, text.trim())),
    }
}

fn is_about_request(answer: &Message) -> bool {
    let is_blamed = matches!(code(answer), Some(build::METHOD_NOT_FOUND | build::INVALID_PARAMS));
    answer.kind() == MessageKind::Result
        || (is_blamed && answer.field_text("message").as_deref() != Some("Session not found"))
}

fn code(answer: &Message) -> Option<i64> {
    std::str::from_utf8(answer.field_json("code")?).ok()?.parse().ok()
}

/// The resends that one call may still use at once because the server has certainly not seen it:
/// one for a lost session, and one for a connection that ended before the call was written.
#[derive(Debug, Default)]
pub(crate) struct SendAgain {
    has_greeted: AtomicBool,
    has_rewritten: AtomicBool,
}

impl SendAgain {
    /// Whether to resend the call after this failure; if not, the failure to report.
    pub(crate) fn after(&self, failure: UpstreamFailure) -> Result<(), UpstreamFailure> {
        match failure {
            UpstreamFailure::SessionLost if self.has_greeted.swap(true, Ordering::Relaxed) => {
                Err(UpstreamFailure::Forgetful)
            }
            UpstreamFailure::NotTaken if self.has_rewritten.swap(true, Ordering::Relaxed) => {
                Err(UpstreamFailure::NotTaken)
            }
            UpstreamFailure::SessionLost | UpstreamFailure::NotTaken => Ok(()),
            failure => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str) -> bool {
        let message = Message::parse(body.to_owned().into()).ok();
        let text = message
            .as_ref()
            .and_then(|message| message.field_text("message"))
            .unwrap_or(body.into());
        let failure =
            UpstreamFailure::Status { status, text: text.into_owned(), retry_after: None };
        let answers_it = body.contains("\"id\":7");
        is_lost(&failure, message.as_ref(), answers_it)
    }

    fn error(id: &str, code: i64, message: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
    }

    #[test]
    fn a_session_is_lost_by_404_or_by_an_sdks_exact_words() {
        for (status, code, text) in REFUSALS {
            let body = code.map_or_else(|| format!("{text}\n"), |code| error("null", code, text));
            assert!(refused(status, &body), "{body}");
            assert!(refused(status, &body.replace("null", "7")), "{body}, whatever its id is");
            assert!(
                !refused(status, &body.replace(text, &format!("{text} after the row was written"))),
                "{text}"
            );
            assert!(!refused(403, &body) && !refused(500, &body), "{text}, with another status");
        }
        for body in [
            "",
            "session not found",
            "Session terminated",
            &error("null", -32001, "Session not found"),
        ] {
            assert!(refused(404, body), "{body}");
        }
        for (code, text) in
            [(-32001, "Session not found. Re-initialize."), (-32600, "Session not found")]
        {
            assert!(refused(404, &error("7", code, text)), "{text}, under the id of the request");
        }
        assert!(refused(404, &error("7", -32602, "Session not found")));
    }

    #[test]
    fn words_about_sessions_are_no_lost_session() {
        for body in [
            "the possession record was written, but the audit log is full",
            "session",
            "your session has expired",
            r#"{"error":"no valid session"}"#,
            &error("7", -32000, "session limit of the account reached"),
        ] {
            assert!(!refused(400, body) && !refused(401, body), "{body}");
        }
        assert!(
            !refused(404, &error("7", -32601, "Method not found")),
            "it knows the session that it answers in"
        );
        assert!(!refused(404, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#));
    }

    #[test]
    fn one_call_is_sent_again_once_for_each_reason() {
        let again = SendAgain::default();
        assert_eq!(again.after(UpstreamFailure::SessionLost), Ok(()));
        assert_eq!(again.after(UpstreamFailure::SessionLost), Err(UpstreamFailure::Forgetful));
        assert_eq!(again.after(UpstreamFailure::NotTaken), Ok(()));
        assert_eq!(again.after(UpstreamFailure::NotTaken), Err(UpstreamFailure::NotTaken));
        assert_eq!(again.after(UpstreamFailure::Full), Err(UpstreamFailure::Full));
    }
}
