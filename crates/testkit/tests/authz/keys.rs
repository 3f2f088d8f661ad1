//! Keys sign tokens that an honest verifier takes, and wicked ones that it does not.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use seawall_testkit::authz::{Key, KeyKind, claims};
use serde_json::Value;

/// As an honest verifier does it: one key, its own algorithm, no extension that it does not know.
/// The library lets such extensions pass, so that a gateway has to look itself.
fn verify(key: &Key, token: &str) -> Result<Value, jsonwebtoken::errors::Error> {
    let jwk: Jwk = serde_json::from_value(key.jwk().clone()).unwrap();
    let algorithm: Algorithm = key.kind().name().parse().unwrap();
    let mut validation = Validation::new(algorithm);
    validation.set_issuer(&["https://id.example"]);
    validation.set_audience(&["seawall"]);
    let token = decode::<Value>(token, &DecodingKey::from_jwk(&jwk)?, &validation)?;
    match token.header.crit {
        None => Ok(token.claims),
        Some(_) => Err(ErrorKind::InvalidToken.into()),
    }
}

#[test]
fn every_kind_of_key_signs_what_its_public_half_verifies_and_nothing_wicked() {
    for kind in KeyKind::ALL {
        let key = Key::new(kind, "k1").unwrap();
        let mut good = claims("ann", "https://id.example", "seawall", 60);
        good["scope"] = "tools:read".into();
        let token = key.sign(&good);
        assert_eq!(verify(&key, &token).unwrap(), good, "{kind:?}");
        assert_eq!(decode_header(&token).unwrap().kid.as_deref(), Some("k1"));
        assert_eq!((&key.jwk()["kid"], &key.jwk()["alg"]), (&"k1".into(), &kind.name().into()));
        assert!(key.jwk().get("d").is_none(), "the secret is not told");
        assert_eq!(decode_header(key.sign_without_id(&good)).unwrap().kid, None);
        let named = decode_header(key.sign_with_id("k2", &good)).unwrap();
        assert_eq!(named.kid.as_deref(), Some("k2"));
        for (issuer, audience, seconds) in [
            ("https://id.example", "seawall", -3600),
            ("https://evil.example", "seawall", 60),
            ("https://id.example", "other", 60),
        ] {
            let token = key.sign(&claims("ann", issuer, audience, seconds));
            assert!(verify(&key, &token).is_err(), "{kind:?} {issuer} {audience} {seconds}");
        }
        let wicked = key.wicked(&good).unwrap();
        assert!(wicked.len() > 15, "{}", wicked.len());
        // What is said to be signed with the public key is: a careless verifier would take it.
        let confused = wicked.iter().find(|wicked| wicked.what.contains("as JSON")).unwrap();
        let secret = DecodingKey::from_secret(key.jwk().to_string().as_bytes());
        let mut careless = Validation::new(Algorithm::HS256);
        careless.validate_aud = false;
        assert!(decode::<Value>(&confused.token, &secret, &careless).is_ok());
        for wicked in wicked {
            assert!(verify(&key, &wicked.token).is_err(), "{kind:?} {}", wicked.what);
        }
    }
}
