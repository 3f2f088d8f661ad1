//! Decides the meaning of an error that a server answered with: its signals, and when to retry.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use seawall::{Disposition, FailureSignals};

use crate::protocol::edit::JsonObject;
use crate::protocol::{Message, MessageKind, scan};

/// Whether an answer is a transient error.
pub(crate) fn is_passing(answer: &Message) -> bool {
    answer.kind() == MessageKind::Error
        && seawall::classify(&error_signals(answer)).disposition == Disposition::Transient
}

/// The failure signals of a server's error, with its retry-after time.
#[expect(
    clippy::disallowed_methods,
    reason = "a server may name the date when it wants to be asked again"
)]
pub(crate) fn error_signals(answer: &Message) -> FailureSignals {
    let code = answer
        .field_json("code")
        .and_then(|code| std::str::from_utf8(code).ok()?.parse().ok())
        .unwrap_or(0);
    let text = answer.field_text("message").unwrap_or_default();
    let data = JsonObject::of(answer.field_json("data").unwrap_or_default());
    // A JSON number, or a string as in the `Retry-After` header: digits, or a date.
    let said = |name: &str| {
        let json = data.get(name)?;
        scan::text(json).or_else(|| std::str::from_utf8(json).ok().map(Cow::Borrowed))
    };
    let seconds = |name: &str| seawall::parse_retry_after(&said(name)?, SystemTime::now());
    let millis = || {
        seawall::parse_retry_after(
            &(said("retryAfterMs")?.parse::<f64>().ok()? / 1000.0).to_string(),
            UNIX_EPOCH,
        )
    };
    let retry_after = seconds("retryAfter").or_else(|| seconds("retry_after")).or_else(millis);
    FailureSignals { retry_after, ..FailureSignals::rpc(code, text) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_servers_error_says_when_to_come_back() {
        let error = |data: &str| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32000,"message":"429 slow down","data":{data}}}}}"#
            );
            error_signals(&Message::parse(text.into()).unwrap())
        };
        assert_eq!(error(r#"{"retryAfter":7}"#).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(
            error(r#"{"retryAfterMs":1500}"#).retry_after,
            Some(Duration::from_millis(1500))
        );
        assert_eq!(error(r#"{"retryAfter":"7"}"#).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(
            error(r#"{"retry_after":"Fri, 31 Dec 1999 23:59:59 GMT"}"#).retry_after,
            Some(Duration::ZERO)
        );
        for endless in
            [r#"{"retryAfter":1e18}"#, r#"{"retryAfter":1e300}"#, r#"{"retryAfterMs":1e300}"#]
        {
            assert_eq!(
                error(endless).retry_after,
                Some(Duration::from_secs(24 * 3600)),
                "nobody is believed for longer"
            );
        }
        assert_eq!(error(r#"{"retryAfter":-1}"#).retry_after, None);
        assert_eq!(
            (error("null").code, error("null").message.as_str()),
            (Some(-32000), "429 slow down")
        );
    }
}
