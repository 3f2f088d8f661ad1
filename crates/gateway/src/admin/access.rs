//! Decides who may read and who may change: requests with the token may do both, and on loopback
//! every request may read.
//!
//! The tokens themselves are never compared, but their hashes under a random key: the time of a
//! comparison tells nothing about the token.

use std::hash::Hasher;
use std::io;
use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};

use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use siphasher::sip128::{Hasher128, SipHasher13};

use super::respond::{self, AdminResponse};
use super::token_guesses::{GUESS_WAIT, TokenGuess, TokenGuesses};
use crate::admin::errors::{AdminRefusal, WRONG_TOKEN};
use crate::config::AdminConfig;

/// Whether a request may proceed.
pub(super) type AccessDecision = Result<(), AccessDenied>;

/// Why a request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessDenied {
    /// The request carries no token.
    NoKey,
    /// The request carries a wrong token.
    WrongKey,
    /// The gateway has no token, so no request may change anything.
    NoToken,
}

impl AccessDenied {
    pub(super) fn answer(self) -> AdminResponse {
        match self {
            Self::NoKey => {
                let mut answer =
                    respond::error(StatusCode::UNAUTHORIZED, "Missing X-API-Key header");
                answer.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer"));
                answer
            }
            Self::WrongKey => {
                let mut answer = respond::error(StatusCode::FORBIDDEN, WRONG_TOKEN);
                answer.extensions_mut().insert(self);
                answer
            }
            Self::NoToken => respond::barred(
                AdminRefusal::NoToken,
                "this gateway has no admin token, so nothing can be changed here; set token under [admin]",
            ),
        }
    }
}

/// Decides by the token and the listener's address.
#[derive(Debug)]
pub(super) struct AdminAccess {
    key: [u8; 16],
    token: RwLock<Option<u128>>,
    is_local: bool,
    guesses: TokenGuesses,
}

impl AdminAccess {
    pub(super) fn new(admin: &AdminConfig) -> io::Result<Self> {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        let access = Self {
            key,
            token: RwLock::default(),
            is_local: admin.listen.ip().is_loopback(),
            guesses: TokenGuesses::default(),
        };
        access.renew(Some(admin));
        Ok(access)
    }

    /// Takes the token of the configuration in force.
    pub(super) fn renew(&self, admin: Option<&AdminConfig>) {
        let token = admin.and_then(|admin| admin.token.as_ref());
        let token = token.map(|token| self.hash(token.expose().as_bytes()));
        if self.token() != token {
            *self.token.write().unwrap_or_else(PoisonError::into_inner) = token;
        }
    }

    fn token(&self) -> Option<u128> {
        *self.token.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request with these headers may read.
    pub(super) fn read(&self, headers: &HeaderMap) -> AccessDecision {
        if self.is_local { Ok(()) } else { self.change(headers) }
    }

    /// Whether a request with these headers may change something.
    pub(super) fn change(&self, headers: &HeaderMap) -> AccessDecision {
        let Some(token) = self.token() else { return Err(AccessDenied::NoToken) };
        let mut shown = keys(headers).peekable();
        if shown.peek().is_none() {
            return Err(AccessDenied::NoKey);
        }
        if shown.any(|key| self.hash(key) == token) { Ok(()) } else { Err(AccessDenied::WrongKey) }
    }

    /// Delays the answer to a peer that keeps sending wrong tokens. A request with the right token
    /// never waits.
    pub(super) async fn slowed(&self, peer: IpAddr, answer: AdminResponse) -> AdminResponse {
        if answer.extensions().get() != Some(&AccessDenied::WrongKey) {
            return answer;
        }
        match self.guesses.wrong(peer) {
            TokenGuess::Few => answer,
            TokenGuess::Many(place) => {
                tokio::time::sleep(GUESS_WAIT).await;
                drop(place);
                answer
            }
            TokenGuess::TooMany => {
                let mut answer = respond::error(
                    StatusCode::TOO_MANY_REQUESTS,
                    "too many wrong tokens; wait a while",
                );
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("60"));
                answer
            }
        }
    }

    fn hash(&self, text: &[u8]) -> u128 {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(text);
        hasher.finish128().as_u128()
    }
}

/// The tokens in the headers `Authorization: Bearer` and `X-API-Key`.
fn keys(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let bearer = |value: &'_ HeaderValue| -> Option<usize> {
        let (scheme, _) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(scheme.len())
    };
    let bearers = headers
        .get_all(AUTHORIZATION)
        .iter()
        .filter_map(move |value| Some(value.as_bytes().get(bearer(value)?..)?.trim_ascii()));
    bearers.chain(headers.get_all("x-api-key").iter().map(|value| value.as_bytes().trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn access(listen: &str, token: Option<&str>) -> AdminAccess {
        AdminAccess::new(&AdminConfig {
            listen: listen.parse().unwrap(),
            token: token.map(Secret::new),
            lacking: Vec::new(),
        })
        .unwrap()
    }

    fn shown(headers: &[(&'static str, &str)]) -> HeaderMap {
        headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn the_token_opens_in_either_header_and_nothing_else_does() {
        let access = access("127.0.0.1:1", Some("s3cret"));
        for headers in [
            [("authorization", "Bearer s3cret")].as_slice(),
            &[("authorization", "bearer  s3cret")],
            &[("x-api-key", "s3cret")],
            &[("authorization", "Basic eA=="), ("x-api-key", "s3cret")],
        ] {
            assert_eq!(access.change(&shown(headers)), Ok(()), "{headers:?}");
        }
        for (headers, why) in [
            ([].as_slice(), AccessDenied::NoKey),
            (&[("authorization", "s3cret")], AccessDenied::NoKey),
            (&[("authorization", "Basic s3cret")], AccessDenied::NoKey),
            (&[("cookie", "s3cret")], AccessDenied::NoKey),
            (&[("authorization", "Bearer ")], AccessDenied::WrongKey),
            (&[("x-api-key", "")], AccessDenied::WrongKey),
            (&[("x-api-key", "s3cre")], AccessDenied::WrongKey),
            (&[("x-api-key", "s3crett")], AccessDenied::WrongKey),
            (&[("authorization", "Bearer S3CRET")], AccessDenied::WrongKey),
        ] {
            assert_eq!(access.change(&shown(headers)), Err(why), "{headers:?}");
        }
    }

    #[test]
    fn everybody_reads_on_loopback_and_nobody_else_without_the_token() {
        assert_eq!(access("[::1]:1", Some("s3cret")).read(&shown(&[])), Ok(()));
        let open = access("0.0.0.0:1", Some("s3cret"));
        assert_eq!(open.read(&shown(&[])), Err(AccessDenied::NoKey));
        assert_eq!(open.read(&shown(&[("x-api-key", "x")])), Err(AccessDenied::WrongKey));
        assert_eq!(open.read(&shown(&[("x-api-key", "s3cret")])), Ok(()));
    }

    #[test]
    fn without_a_token_nothing_is_changed() {
        let access = access("127.0.0.1:1", None);
        assert_eq!(access.change(&shown(&[("x-api-key", "")])), Err(AccessDenied::NoToken));
        assert_eq!(access.read(&shown(&[])), Ok(()));
    }
}
