//! The agent context of CAIPE: two headers that say, signed, on behalf of which agent a call is
//! made.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::sign;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use crate::authz::check::Check;
use crate::authz::keys::wall_time;

const CONTEXT: &str = "x-caipe-agent-context";
const SIGNATURE: &str = "x-caipe-agent-context-signature";

/// The two headers, good for so many seconds; negative: they are stale.
pub fn agent_context(agent: &str, secret: &str, seconds: i64) -> [(String, String); 2] {
    let now = wall_time();
    let payload = json!({"agent_id": agent, "exp": now + seconds, "iat": now});
    let encoded = URL_SAFE_NO_PAD.encode(payload.to_string());
    let signature = signature(&encoded, secret);
    [(CONTEXT.to_owned(), encoded), (SIGNATURE.to_owned(), signature)]
}

/// The agent, if the headers are there, signed and not stale.
pub(super) fn agent_of(check: &Check, secret: &str) -> Option<String> {
    let encoded = check.header(CONTEXT)?;
    if check.header(SIGNATURE)? != signature(encoded, secret) {
        return None;
    }
    let payload = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    let payload: Value = serde_json::from_slice(&payload).ok()?;
    let is_fresh = payload["exp"].as_i64()? >= wall_time();
    let agent = payload["agent_id"].as_str().filter(|agent| !agent.is_empty())?;
    is_fresh.then(|| agent.to_owned())
}

/// HMAC-SHA256 in hexadecimal digits.
fn signature(encoded: &str, secret: &str) -> String {
    let key = EncodingKey::from_secret(secret.as_bytes());
    let signed = sign(encoded.as_bytes(), &key, Algorithm::HS256).unwrap_or_default();
    let bytes = URL_SAFE_NO_PAD.decode(signed).unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
