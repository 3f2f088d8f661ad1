//! The caller's token, if the gateway passed it on: its claims count only where its signature
//! holds.

use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};
use serde_json::Value;

use super::BridgeSettings;
use crate::authz::check::Check;
use crate::authz::real::get;

/// The claims; null: there is no token, no key for it, or its signature or time does not hold.
pub(super) async fn claims_of(check: &Check, settings: &BridgeSettings) -> Value {
    let token = check.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let (Some(token), Some(jwks)) = (token, &settings.jwks) else { return Value::Null };
    let Ok(keys) = get(jwks).await else { return Value::Null };
    verified(token.trim(), keys).unwrap_or_default()
}

fn verified(token: &str, keys: Value) -> Option<Value> {
    let keys: JwkSet = serde_json::from_value(keys).ok()?;
    let header = decode_header(token).ok()?;
    // The library reads critical extensions and does not mind that nobody knows them.
    if header.crit.is_some() {
        return None;
    }
    let key = keys.find(header.kid.as_deref()?)?;
    let mut validation = Validation::new(key.common.key_algorithm?.to_string().parse().ok()?);
    validation.validate_aud = false;
    let token = decode::<Value>(token, &DecodingKey::from_jwk(key).ok()?, &validation);
    token.ok().map(|token| token.claims)
}
