//! Decides whether a token is one of an issuer: signed with one of its keys, for this gateway, and
//! of this time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{DecodingKey, Validation, dangerous, decode, decode_header};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::IdentityRefusal;
use super::keys::IssuerKeys;
use crate::authz::origin::{LEEWAY, Principal};
use crate::config::JwtConfig;
use crate::runtime::http_client::SharedHttpClient;

/// The longest token that is looked at.
const LONGEST: usize = 16 * 1024;

/// One issuer of tokens.
pub(super) struct Issuer {
    /// Its settings.
    pub settings: JwtConfig,
    /// Its public keys.
    pub keys: IssuerKeys,
    /// The configuration has the issuer no longer.
    pub dropped: CancellationToken,
    is_started: AtomicBool,
}

impl Issuer {
    /// An issuer as it is configured.
    pub(super) fn new(settings: &JwtConfig, http: &SharedHttpClient) -> Self {
        let keys = IssuerKeys::new(&settings.name, settings.jwks.clone(), http.clone());
        let (dropped, is_started) = (CancellationToken::new(), AtomicBool::new(false));
        Self { settings: settings.clone(), keys, dropped, is_started }
    }

    /// Whether this is the first time that its keys are to be fetched.
    pub(super) fn starts(&self) -> bool {
        !self.is_started.swap(true, Ordering::AcqRel)
    }

    /// Its URL, which is its name in tokens.
    pub(super) fn url(&self) -> &str {
        &self.settings.issuer
    }

    /// The servers that its tokens may use; `None`: all.
    pub(super) fn servers(&self) -> &Option<Vec<String>> {
        &self.settings.servers
    }

    /// The issuer that a token names, which is not believed yet.
    pub(super) fn of<'a>(
        issuers: &'a [Arc<Issuer>],
        token: &str,
    ) -> Result<&'a Issuer, IdentityRefusal> {
        let wrong = |text: &str| IdentityRefusal::Wrong(text.to_owned());
        if issuers.is_empty() {
            return Err(wrong("unknown API key"));
        }
        if token.len() > LONGEST {
            return Err(wrong("it is too long"));
        }
        let claims: Map<String, Value> = dangerous::insecure_decode_claims(token)
            .map_err(|_| wrong("it is not a JSON Web Token"))?;
        let named = claims.get("iss").and_then(Value::as_str).unwrap_or_default();
        let found = issuers.iter().find(|issuer| issuer.settings.issuer == named);
        found.map(Arc::as_ref).ok_or_else(|| wrong("its issuer is not known here"))
    }

    /// Verifies a token for the endpoint with this resource URI. Returns who it names, when it
    /// expires, and the generation of the keys.
    pub(super) async fn verify(
        &self,
        token: &str,
        resource: &str,
    ) -> Result<(Principal, u64, u64), IdentityRefusal> {
        let wrong = |text: &str| IdentityRefusal::Wrong(text.to_owned());
        let header = decode_header(token).map_err(|_| wrong("its header cannot be read"))?;
        // A header that the token calls critical must be understood, and none is.
        if header.crit.is_some() {
            return Err(wrong("its header has critical extensions"));
        }
        if !self.settings.algorithms.contains(&header.alg) {
            return Err(wrong("its signature algorithm is not accepted"));
        }
        let (mut keys, mut generation) = self.keys.find(header.kid.as_deref(), header.alg).await?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&self.settings.issuer]);
        match self.settings.audiences.is_empty() {
            true => validation.set_audience(&[resource]),
            false => validation.set_audience(&self.settings.audiences),
        }
        let mut verified = verified(token, &keys, &validation);
        // The issuer may have another key under the same name by now.
        if matches!(verified, Err(SIGNATURE)) && self.keys.refresh_soon().await.is_ok() {
            (keys, generation) = self.keys.find(header.kid.as_deref(), header.alg).await?;
            verified = self::verified(token, &keys, &validation);
        }
        let claims = verified.map_err(wrong)?;
        if claims.get("sub").and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(wrong("it names nobody (sub)"));
        }
        let expires = claims.get("exp").and_then(Value::as_f64);
        let expires = expires.unwrap_or_default() as u64 + LEEWAY;
        Ok((self.principal(claims), expires, generation))
    }

    fn principal(&self, claims: Map<String, Value>) -> Principal {
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default().to_owned();
        let scopes = match (claims.get("scope"), claims.get("scp")) {
            (Some(Value::String(text)), _) | (None, Some(Value::String(text))) => {
                text.split_whitespace().map(str::to_owned).collect()
            }
            (Some(Value::Array(list)), _) | (None, Some(Value::Array(list))) => {
                list.iter().filter_map(|scope| scope.as_str().map(str::to_owned)).collect()
            }
            _ => Vec::new(),
        };
        Principal {
            provider: self.settings.issuer.clone(),
            subject,
            claims,
            scopes: Some(scopes),
            servers: self.settings.servers.clone(),
        }
    }
}

const SIGNATURE: &str = "its signature is wrong";

/// The claims of a token that one of `keys` signed, or what is wrong with it.
fn verified(
    token: &str,
    keys: &[DecodingKey],
    validation: &Validation,
) -> Result<Map<String, Value>, &'static str> {
    let mut reason = "no key of its issuer fits";
    for key in keys {
        match decode::<Map<String, Value>>(token, key, validation) {
            Ok(verified) => return Ok(verified.claims),
            Err(error) => reason = told(error.kind()),
        }
    }
    Err(reason)
}

/// What is wrong with a token, in words that give nothing of it away.
fn told(error: &ErrorKind) -> &'static str {
    match error {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidAudience => "it is meant for somebody else (audience)",
        ErrorKind::InvalidIssuer => "its issuer is not known here",
        ErrorKind::MissingRequiredClaim(_) => "it lacks one of exp, iss, aud, sub",
        ErrorKind::InvalidSignature => SIGNATURE,
        _ => "it cannot be verified",
    }
}
