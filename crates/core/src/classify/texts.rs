//! Tests the words of well-known servers and clients, and innocent words that look like them:
//! twenty and more of each.

use super::*;

fn read(text: &str) -> (Cause, Disposition) {
    let failure = classify(&text.into());
    (failure.cause, failure.disposition)
}

#[test]
fn timeouts_of_well_known_servers_are_read() {
    for text in [
        "timeout of 5000ms exceeded",
        "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='api.github.com', port=443): Read timed out. (read timeout=10)",
        "asyncio.exceptions.TimeoutError",
        "MCP error -32001: Request timed out",
        "canceling statement due to statement timeout",
        "Lock wait timeout exceeded; try restarting transaction",
        "TimeoutError: page.goto: Timeout 30000ms exceeded.",
        "Navigation timeout of 30000 ms exceeded",
        "ConnectTimeoutError: Connect Timeout Error (attempted address: api.x.com:443, timeout: 10000ms)",
        "UND_ERR_HEADERS_TIMEOUT",
        "Error: ESOCKETTIMEDOUT",
        "upstream request timeout",
        "The operation was aborted due to timeout",
        "rpc error: code = DeadlineExceeded desc = slow",
        "DEADLINE_EXCEEDED: took too long",
        "Operation timed out (os error 110)",
        "2026-11-16T20:00:00Z Task timed out after 3.00 seconds",
        "Connection Timeout Expired. The timeout period elapsed prior to completion of the operation.",
        "Tool 'search' exceeded timeout of 60s",
        r#"{"error":"timeout"}"#,
        "{'error': 'timeout'}",
        "Timeout: no response in 30s",
        "unexpected timeout while reading the response",
        "Request timed out.please retry",
        "socket.timeout: the read operation",
        "DEADLINE_EXCEEDED",
    ] {
        assert_eq!(read(text), (Cause::Timeout, Disposition::Transient), "{text}");
    }
}

#[test]
fn rate_limits_of_well_known_servers_are_read() {
    for text in [
        "API rate limit exceeded for 1.2.3.4.",
        "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
        "Rate limit reached for gpt-4 in organization org-x on tokens per min (TPM): Limit 10000, Used 9999",
        "rate_limit_error: This request would exceed your organization's rate limit",
        "RateLimitError: slow down",
        "openai.RateLimitError",
        "slack: ratelimited",
        "rate_limited: This request exceeds the number of requests allowed",
        "userRateLimitExceeded",
        "RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Read requests'",
        "rpc error: code = ResourceExhausted desc = grpc: quota",
        "ThrottlingException: Rate exceeded",
        "TooManyRequestsException: back off",
        "You are being rate limited.",
        "Rate limit exceeded. Requests must be at least 1 second apart.",
        "Too Many Requests",
        "hit the rate limit, retry in 30s",
    ] {
        assert_eq!(read(text), (Cause::RateLimited, Disposition::Transient), "{text}");
    }
}

#[test]
fn lost_and_refused_connections_of_well_known_clients_are_read() {
    for text in [
        "connect ECONNREFUSED 127.0.0.1:5432",
        "getaddrinfo ENOTFOUND api.github.com",
        "socket hang up",
        "read ECONNRESET",
        "curl: (7) Failed to connect to x port 443: Connection refused",
        "dial tcp 10.0.0.1:443: connect: connection refused",
        "dial tcp: lookup api.x.com on 10.0.0.2:53: no such host",
        "Client network socket disconnected before secure TLS connection was established",
        "httpx.RemoteProtocolError: Server disconnected without sending a response.",
        "('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))",
        "Broken pipe (os error 32)",
        "error sending request for url (https://x/): connection closed before message completed",
        "failed to lookup address information: Temporary failure in name resolution",
    ] {
        assert_eq!(read(text), (Cause::Network, Disposition::Transient), "{text}");
    }
    for text in [
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate",
        "x509: certificate signed by unknown authority",
        "unable to verify the first certificate",
        "invalid peer certificate: UnknownIssuer",
    ] {
        assert_eq!(read(text), (Cause::Network, Disposition::Permanent), "{text}");
    }
}

#[test]
fn grpc_says_unavailable_in_capitals() {
    for text in [
        "UNAVAILABLE: connection closing",
        "14 UNAVAILABLE: no healthy upstream",
        "<StatusCode.UNAVAILABLE>",
        "rpc error: code = Unavailable desc = x",
    ] {
        assert_eq!(read(text).1, Disposition::Transient, "{text}");
    }
    for text in ["room 5 unavailable: booked", "Unavailable: table 7", "X_UNAVAILABLE_Y"] {
        assert_eq!(read(text), (Cause::Misbehaved, Disposition::Permanent), "{text}");
    }
}

#[test]
fn credentials_and_denials_of_well_known_servers_are_read() {
    for (cause, texts) in [
        (
            Cause::AuthExpired,
            [
                "Bad credentials",
                "invalid_auth",
                "invalid_grant: Token has been expired or revoked.",
                "jwt expired",
                "ExpiredTokenException: The security token included in the request is expired",
                "Unauthorized: invalid API key",
            ],
        ),
        (
            Cause::Denied,
            [
                "Resource not accessible by integration",
                "AccessDeniedException: User is not authorized to perform: s3:GetObject",
                "Access denied for user 'root'@'localhost'",
                "rpc error: code = PermissionDenied desc = nope",
                "PERMISSION_DENIED: Missing or insufficient permissions.",
                "Forbidden",
            ],
        ),
    ] {
        for text in texts {
            assert_eq!(read(text), (cause, Disposition::Denied), "{text}");
        }
    }
}

#[test]
fn arguments_and_settings_that_are_called_like_failures_are_the_callers() {
    for text in [
        "timeout must be a positive integer",
        "Timeout should be greater than 0",
        "timeout: must be ≤ 600",
        "timeout: Expected number, received string",
        "timeout: Input should be a valid integer",
        "timeout is required",
        "timeout too large",
        "timeout exceeds the maximum of 600 s",
        "invalid timeout: -5",
        "negative timeout",
        "unknown parameter: timeout",
        "Unknown option timeout",
        "run() got an unexpected keyword argument 'timeout'",
        "unrecognized arguments: timeout",
        "parameter timeout out of range",
        "value for timeout is wrong",
        "syntax error near timeout",
        "rate limit must be below 100",
        "rate limit cannot be negative",
        "rate_limit is not a number",
        "invalid rate limit '5 per fortnight'",
        "Extra inputs are not permitted",
        "Forbidden character '/' in name",
    ] {
        assert_eq!(read(text), (Cause::InvalidInput, Disposition::Permanent), "{text}");
    }
}

#[test]
fn what_is_said_of_wrong_values_is_the_callers() {
    for text in [
        "title must not be empty",
        "body is too long (maximum is 65536 characters)",
        "'owner' is required",
        "Repository acme/x does not exist",
        "A label named bug already exists",
        "expected number, received string",
        "ZodError: [ { code: 'invalid_type', path: ['limit'] } ]",
        "per_page must be at most 100",
        "state must be one of: open, closed",
        "name can't be blank",
        "'x@' is not a valid email address",
    ] {
        assert_eq!(read(text), (Cause::InvalidInput, Disposition::Permanent), "{text}");
    }
    for text in ["fail", "the server must be restarted", "Response is not valid JSON", "it broke"] {
        assert_eq!(read(text), (Cause::Misbehaved, Disposition::Permanent), "{text}");
    }
}

#[test]
fn cancellations_of_well_known_clients_are_read() {
    for text in [
        "context canceled",
        "AbortError: This operation was aborted",
        "Request was cancelled by the user",
        "asyncio.exceptions.CancelledError",
        "CanceledError: canceled",
        "rpc error: code = Canceled desc = context canceled",
        "1 CANCELLED: Call cancelled",
        "Task was cancelled",
    ] {
        let failure = classify(&text.into());
        assert_eq!((failure.cause, failure.sent), (Cause::Cancelled, Sent::Maybe), "{text}");
    }
    for text in [
        "The operation was aborted due to timeout",
        "request cancelled: connection reset by peer",
        "HTTP 503: request cancelled",
    ] {
        assert_ne!(read(text).0, Cause::Cancelled, "{text}");
    }
}

#[test]
fn what_only_mentions_a_failure_says_nothing() {
    for text in [
        "KeyError: 'timeout'",
        "KeyError: 'rate limit'",
        "AttributeError: 'Client' object has no attribute 'timeout'",
        "NameError: name 'timeout' is not defined",
        "ReferenceError: timeout is not defined",
        "TypeError: timeout is not a function",
        "Cannot read properties of undefined (reading 'timeout')",
        "timeout_seconds is 7",
        "call of overloaded 'max(int, long)' is ambiguous",
        "the certificate was revoked by its owner",
        "file timeout.txt is empty",
        "job set-timeout has no runs",
        "cannot find upstream at timeout.technology",
        "no such upstream: timeout.xn--p1ai",
        "nothing at timeout.LOCAL here",
    ] {
        assert_eq!(read(text), (Cause::Misbehaved, Disposition::Permanent), "{text}");
    }
}

#[test]
fn a_pair_of_phrases_stands_together_or_is_not_said() {
    let says = |text: &str| Prepared::new([text]).says_of("timeout", &["must", "is too"]);
    for text in ["timeout must be", "Timeout: MUST be", "the timeout is too long", "timeout=must"] {
        assert!(says(text), "{text}");
    }
    for text in [
        "timeout, it must be",
        "timeouts must",
        "timeoutmust",
        "timeout mustang",
        "must timeout",
        "set-timeout must",
    ] {
        assert!(!says(text), "{text}");
    }
    assert!(!Prepared::new(["timeout"]).says_of("", &["must"]));
}
