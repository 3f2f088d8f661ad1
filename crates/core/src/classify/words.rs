//! Decides, in order, what the words of an error mean where nothing better is known. Rules are data: the first that fits wins.
//!
//! A text that speaks of a timeout has not always met one: arguments, settings and code are called that too. Rules that say
//! whose fault it is stand before those that a single word is enough for.

use std::borrow::Cow;

use super::rules::{Phrases, Rule, Test, Verdict, denied, permanent, phrases, rule, says, transient};
use crate::model::failure::{Cause, Disposition};

/// What arguments and settings are called, and failures too.
const LIMITS: Phrases =
    phrases!("timeout", "timeouts", "rate limit", "rate limits", "rate_limit", "ratelimit", "rate-limit");

/// What is said of an argument that is wrong, never of a limit that was met.
const IS_WRONG: Phrases = phrases!(
    "must",
    "should",
    "cannot be",
    "can't be",
    "can not be",
    "may not be",
    "has to be",
    "needs to be",
    "expects",
    "expected number",
    "expected string",
    "expected int",
    "expected integer",
    "expected boolean",
    "input should",
    "is required",
    "is missing",
    "is invalid",
    "is not a",
    "is not an",
    "is not valid",
    "is not allowed",
    "is not supported",
    "is out of",
    "out of range",
    "is too",
    "too large",
    "too long",
    "too high",
    "too small",
    "too short",
    "too low",
    "exceeds",
    "value",
    "parameter",
    "param",
    "argument",
    "option",
    "field",
    "setting",
    "settings",
    "property",
    "invalid value",
    "invalid type",
    "invalid number",
);

/// What stands before the name of an argument.
const NAMES_ONE: Phrases = phrases!(
    "invalid",
    "bad",
    "illegal",
    "negative",
    "parameter",
    "param",
    "argument",
    "option",
    "field",
    "setting",
    "property",
    "keyword",
    "value for",
    "value of",
    "duplicate",
);

/// What is left is text.
pub(super) const WORDS: &[Rule] = &[
    rule("unknown tool in words", &[says!("unknown tool*", "no such tool*")], permanent(Cause::UnknownTool)),
    rule(
        "tool not found in words",
        &[Test::SaysOf(phrases!("tool"), phrases!("not found", "does not exist", "is not known"))],
        permanent(Cause::UnknownTool),
    ),
    // Early: what the arguments are about, such as a timeout, is no failure.
    rule(
        "wrong arguments in words",
        &[says!(
            "invalid param*",
            "invalid argument*",
            "invalid input*",
            "malformed request*",
            "malformed input*",
            "malformed argument*",
            "validation error*",
            "validation failed",
            "missing required*",
            "extra inputs are not permitted",
            "additional properties are not allowed",
            "syntax error*",
            "forbidden character*",
            "invalid character*",
        )],
        permanent(Cause::InvalidInput),
    ),
    rule(
        "unknown arguments in words",
        &[Test::SaysOf(
            phrases!("unknown", "unexpected", "unrecognized", "unrecognised", "unexpected keyword", "no such"),
            phrases!(
                "parameter",
                "parameters",
                "argument",
                "arguments",
                "option",
                "options",
                "field",
                "fields",
                "flag",
                "key",
                "keys",
                "setting",
                "property",
            ),
        )],
        permanent(Cause::InvalidInput),
    ),
    // A slip in the tool's own code, whatever its names are.
    rule(
        "bug in words",
        &[says!(
            "keyerror",
            "attributeerror",
            "nameerror",
            "indexerror",
            "unboundlocalerror",
            "importerror",
            "modulenotfounderror",
            "referenceerror",
            "is not a function",
        )],
        permanent(Cause::Misbehaved),
    ),
    rule(
        "lookup failed in words",
        &[says!("temporary failure in name resolution", "eai_again")],
        transient(Cause::Network).not_executed(),
    ),
    rule(
        "unknown host in words",
        &[says!(
            "name or service not known",
            "nodename nor servname*",
            "getaddrinfo*",
            "no address associated*",
            "failed to resolve",
            "name resolution",
            "enotfound",
            "unknown host",
            "no such host",
        )],
        Verdict::nobody_there(),
    ),
    rule(
        "refused in words",
        &[says!(
            "connection refused",
            "econnrefused",
            "connect call failed",
            "all connection attempts failed",
            "no route to host",
            "ehostunreach",
            "enetunreach",
            "network is unreachable"
        )],
        Verdict::nobody_there(),
    ),
    rule(
        "tls in words",
        &[says!(
            "certificate verify failed",
            "certificate_verify_failed",
            "certificate has expired",
            "certificate expired",
            "certificate is not trusted",
            "certificate unknown",
            "invalid certificate",
            "invalid peer certificate",
            "self-signed certificate*",
            "self signed certificate*",
            "issuer certificate",
            "the first certificate",
            "certificate signed by unknown authority",
            "failed to verify certificate",
            "ssl",
            "sslerror",
            "tls handshake*",
        )],
        permanent(Cause::Network).not_executed(),
    ),
    rule("not configured", &[says!("not configured", "malformed")], permanent(Cause::Misbehaved)),
    rule("unsupported", &[says!("unsupported")], permanent(Cause::InvalidInput)),
    rule(
        "at the limit in plain words",
        &[says!(
            "too many requests",
            "toomanyrequests*",
            "rate limit exceeded",
            "rate limit reached",
            "rate_limit_exceeded",
            "rate_limit_error",
            "ratelimitexceeded",
            "userratelimitexceeded",
            "rate exceeded",
            "throttlingexception",
            "resource_exhausted",
            "resourceexhausted",
        )],
        transient(Cause::RateLimited),
    ),
    rule(
        "timed out in plain words",
        &[says!(
            "timed out",
            "timeout exceeded",
            "etimedout",
            "esockettimedout",
            "deadline exceeded",
            "deadline_exceeded",
            "deadlineexceeded",
        )],
        transient(Cause::Timeout),
    ),
    rule("limit as an argument", &[Test::SaysOf(LIMITS, IS_WRONG)], permanent(Cause::InvalidInput)),
    rule("argument for a limit", &[Test::SaysOf(NAMES_ONE, LIMITS)], permanent(Cause::InvalidInput)),
    rule(
        "rate limit in words",
        &[says!("rate limit*", "rate_limit*", "ratelimit*", "rate-limit*")],
        transient(Cause::RateLimited),
    ),
    rule(
        "timeout in words",
        &[says!(
            "timeout*",
            "readtimeout*",
            "connecttimeout*",
            "requesttimeout*",
            "sockettimeout*",
            "apitimeout*",
            "headerstimeout*",
            "und_err_connect_timeout",
            "und_err_headers_timeout",
            "und_err_body_timeout",
        )],
        transient(Cause::Timeout),
    ),
    rule("stream ended", OPAQUE, transient(Cause::Network)),
    rule(
        "connection lost in words",
        &[says!(
            "econnreset",
            "connection reset*",
            "connection aborted",
            "connection closed",
            "connection lost",
            "broken pipe",
            "epipe",
            "server disconnected",
            "remotedisconnected",
            "incomplete read",
            "incompleteread",
            "peer closed connection",
            "socket hang up",
            "socket disconnected",
            "network error",
            "network failure",
            "connection error*",
            "fetch failed",
            "unexpected eof",
        )],
        transient(Cause::Network),
    ),
    rule(
        "server error in words",
        &[says!(
            "internal server error",
            "service unavailable",
            "bad gateway",
            "server error",
            "temporarily unavailable",
            "is overloaded",
            "server overloaded",
            "currently overloaded",
            "overloaded_error"
        )],
        transient(Cause::Misbehaved),
    ),
    rule(
        "refusal in words",
        &[says!(
            "content policy",
            "content_policy*",
            "content_policy_violation",
            "content filter*",
            "content_filter*",
            "policy violation"
        )],
        permanent(Cause::Refusal),
    ),
    rule(
        "credentials in words",
        &[says!(
            "unauthorized",
            "unauthenticated",
            "bad credentials",
            "token expired",
            "token_expired",
            "token has expired",
            "token is expired",
            "jwt expired",
            "expired token",
            "expiredtoken*",
            "token revoked",
            "token has been expired or revoked",
            "invalid_grant",
            "invalid_auth",
            "not_authed",
            "invalid token",
            "invalid api key"
        )],
        denied(Cause::AuthExpired),
    ),
    rule(
        "denied in plain words",
        &[says!("forbidden", "access denied", "accessdenied*", "not accessible by integration")],
        denied(Cause::Denied),
    ),
    rule(
        "not permitted in words",
        &[says!("permission denied", "permission_denied", "permissiondenied", "not authorized", "not permitted")],
        // What keeps a server from starting is no denial by it.
        Verdict { when_loading: Disposition::Permanent, ..denied(Cause::Denied) },
    ),
    rule(
        "invalid in words",
        &[says!("invalid request*", "bad request", "unprocessable*", "not found")],
        permanent(Cause::InvalidInput),
    ),
];

/// Texts that hide what happened; a load probes once more before it believes them.
pub(super) const OPAQUE: &[Test] = &[says!("session terminated", "session closed", "stream ended")];

/// Phrases by which a tool's own error result plainly carries an upstream failure.
pub(super) const SOFT: &[Rule] = &[
    rule(
        "soft rate limit",
        &[says!("too many requests", "rate limit exceeded", "rate_limit_exceeded")],
        transient(Cause::RateLimited),
    ),
    rule("soft timeout", &[says!("gateway timeout", "request timed out", "etimedout")], transient(Cause::Timeout)),
    rule("soft reset", &[says!("econnreset")], transient(Cause::Network)),
    rule(
        "soft server error",
        &[says!("service unavailable", "internal server error", "bad gateway")],
        transient(Cause::Misbehaved),
    ),
];
