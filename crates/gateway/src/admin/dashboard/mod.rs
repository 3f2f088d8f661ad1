//! The dashboard: one page for operators, embedded in the program.
//!
//! The page loads nothing from elsewhere and nothing more from here than the admin API's answers.
//! Its policy names the hashes of its only style and script, so that nothing injected runs.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_SECURITY_POLICY;
use http::{HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use super::respond::{self, AdminResponse};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// Browsers hash what stands between the tags, byte for byte.
const PAGE: &str = concat!(
    include_str!("head.html"),
    "<style>",
    include_str!("style.css"),
    "</style>\n",
    include_str!("body.html"),
    "<script type=\"module\">",
    include_str!("script.js"),
    "</script>\n</body>\n</html>\n",
);

static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
});

/// The page.
pub(super) fn page() -> AdminResponse {
    let page = Bytes::from_static(PAGE.as_bytes());
    let mut answer = respond::text(StatusCode::OK, "text/html; charset=utf-8", page);
    let headers = answer.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&POLICY) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}
