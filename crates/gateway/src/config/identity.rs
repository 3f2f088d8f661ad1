//! Decides who may call: the section `[identity]`, with JSON Web Tokens and API keys.

use std::path::PathBuf;

use http::Uri;
use jsonwebtoken::Algorithm;

use super::expand::Variables;
use super::problem::{ConfigPlace, Problem, Problems};
use super::tree::{ConfigField, ConfigString};
use super::{address, suggest};

const KEYS: [&str; 4] = ["jwt", "api_keys", "resource", "scopes"];
const JWT_KEYS: [&str; 6] = ["name", "issuer", "audiences", "jwks", "algorithms", "servers"];
const API_KEY_KEYS: [&str; 3] = ["name", "sha256", "servers"];

/// Signatures that only the holder of a private key can make. HMAC is not among them: whoever can
/// check such a token can also write one.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];
const DEFAULT_ALGORITHMS: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];

/// The identities that the gateway accepts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdentityConfig {
    /// The issuers of tokens.
    pub jwt: Vec<JwtConfig>,
    /// The API keys.
    pub api_keys: Vec<ApiKeyConfig>,
    /// The public URL of the gateway, without a path: the start of every endpoint's resource URI.
    pub resource: Option<String>,
    /// The scopes that every token must have.
    pub scopes: Vec<String>,
}

/// One issuer of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtConfig {
    /// Its name in logs and keys; its issuer unless given.
    pub name: String,
    /// The issuer: the claim `iss`.
    pub issuer: String,
    /// Accepted audiences; empty: the resource URI of the endpoint.
    pub audiences: Vec<String>,
    /// Where its public keys are.
    pub jwks: JwksSource,
    /// The accepted signatures.
    pub algorithms: Vec<Algorithm>,
    /// The servers that its tokens may use; `None`: all.
    pub servers: Option<Vec<String>>,
}

/// Where a set of public keys is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwksSource {
    /// At a URL.
    Url(Uri),
    /// In a file.
    File(PathBuf),
}

/// One API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeyConfig {
    /// The name of whoever holds it.
    pub name: String,
    /// The SHA-256 digest of the key; the key itself is nowhere in the configuration.
    pub sha256: [u8; 32],
    /// The servers that it may use; `None`: all.
    pub servers: Option<Vec<String>>,
}

/// The section as it stands in the file.
#[derive(Default)]
pub(super) struct RawIdentity {
    place: ConfigPlace,
    jwt: Vec<RawJwt>,
    api_keys: Vec<RawApiKey>,
    resource: Option<ConfigString>,
    scopes: Vec<ConfigString>,
}

/// One issuer as it stands in the file.
#[derive(Default)]
pub(super) struct RawJwt {
    pub(super) place: ConfigPlace,
    name: Option<ConfigString>,
    pub(super) issuer: Option<ConfigString>,
    pub(super) audiences: Vec<ConfigString>,
    pub(super) jwks: Option<ConfigString>,
    algorithms: Option<Vec<Algorithm>>,
    servers: Option<Vec<ConfigString>>,
}

#[derive(Default)]
struct RawApiKey {
    place: ConfigPlace,
    name: Option<ConfigString>,
    sha256: Option<ConfigString>,
    servers: Option<Vec<ConfigString>>,
}

impl RawJwt {
    /// An issuer of which nothing is known yet.
    pub(super) fn at(place: &ConfigPlace) -> Self {
        Self { place: place.clone(), ..Self::default() }
    }
}

/// Reads the section.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> RawIdentity {
    let mut read = RawIdentity { place: section.place.clone(), ..RawIdentity::default() };
    for (key, value) in section.entries(problems) {
        match key {
            "jwt" => {
                read.jwt = value.items(problems).iter().map(|item| jwt(item, problems)).collect()
            }
            "api_keys" => {
                let items = value.items(problems);
                read.api_keys = items.iter().map(|item| api_key(item, problems)).collect();
            }
            "resource" => read.resource = problems.keep(value.text()),
            "scopes" => read.scopes = value.texts(problems),
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    read
}

fn jwt(item: &ConfigField<'_>, problems: &mut Problems) -> RawJwt {
    let mut read = RawJwt::at(&item.place);
    for (key, value) in item.entries(problems) {
        match key {
            "name" => read.name = problems.keep(value.text()),
            "issuer" => read.issuer = problems.keep(value.text()),
            "audiences" => read.audiences = value.texts(problems),
            "jwks" => read.jwks = problems.keep(value.text()),
            "algorithms" => read.algorithms = Some(algorithms(&value, problems)),
            "servers" => read.servers = Some(value.texts(problems)),
            _ => problems.push(value.place.problem(suggest::unknown(key, &JWT_KEYS))),
        }
    }
    read
}

fn api_key(item: &ConfigField<'_>, problems: &mut Problems) -> RawApiKey {
    let mut read = RawApiKey { place: item.place.clone(), ..RawApiKey::default() };
    for (key, value) in item.entries(problems) {
        match key {
            "name" => read.name = problems.keep(value.text()),
            "sha256" => read.sha256 = problems.keep(value.text()),
            "servers" => read.servers = Some(value.texts(problems)),
            _ => problems.push(value.place.problem(suggest::unknown(key, &API_KEY_KEYS))),
        }
    }
    read
}

fn algorithms(value: &ConfigField<'_>, problems: &mut Problems) -> Vec<Algorithm> {
    let one = |ConfigString { place, text }: ConfigString| {
        let known = ALGORITHMS.iter().find(|(name, _)| *name == text);
        known.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
            let names = ALGORITHMS.map(|(name, _)| name).join(", ");
            place.problem(format!("{text:?} is none of {names}"))
        })
    };
    let texts = value.texts(problems);
    if texts.is_empty() {
        problems.push(value.place.problem("is empty: no token could be accepted"));
    }
    texts.into_iter().filter_map(|text| problems.keep(one(text))).collect()
}

impl RawIdentity {
    /// These issuers, and no API keys.
    pub(super) fn of(place: ConfigPlace, jwt: Vec<RawJwt>) -> Self {
        Self { place, jwt, ..Self::default() }
    }

    /// Fills in variables and checks the whole section; `servers` are the names of all servers.
    pub(super) fn resolve(
        self,
        scope: &Variables<'_>,
        servers: &[&str],
        problems: &mut Problems,
    ) -> IdentityConfig {
        if self.jwt.is_empty() && self.api_keys.is_empty() {
            problems.push(self.place.problem(
                "names nobody; add [[identity.jwt]] with issuer and jwks, or [[identity.api_keys]] with name and sha256",
            ));
        }
        let resource = self.resource.and_then(|text| {
            let url = scope.expand(&text, problems)?;
            problems.keep(resource(&text.place, &url))
        });
        let texts = |list: Vec<ConfigString>, problems: &mut Problems| -> Vec<String> {
            list.iter().filter_map(|text| scope.expand(text, problems)).collect()
        };
        let has_resource = resource.is_some();
        let jwt = self.jwt.into_iter().filter_map(|raw| {
            let issuer = needed(raw.issuer, &raw.place, "issuer", scope, problems);
            let jwks = needed(raw.jwks, &raw.place, "jwks", scope, problems)
                .and_then(|(place, text)| problems.keep(source(&place, &text, scope)));
            if raw.audiences.is_empty() && !has_resource {
                problems.push(raw.place.problem(
                    "needs audiences, or identity.resource: a token for somebody else must not be accepted",
                ));
            }
            let (_, issuer) = issuer?;
            let name = raw.name.and_then(|name| scope.expand(&name, problems));
            Some(JwtConfig {
                name: name.unwrap_or_else(|| issuer.clone()),
                issuer,
                audiences: texts(raw.audiences, problems),
                jwks: jwks?,
                algorithms: raw.algorithms.unwrap_or_else(|| DEFAULT_ALGORITHMS.to_vec()),
                servers: known(raw.servers, servers, problems),
            })
        });
        let jwt: Vec<_> = jwt.collect();
        let api_keys = self.api_keys.into_iter().filter_map(|raw| {
            let name = needed(raw.name, &raw.place, "name", scope, problems);
            let digest = needed(raw.sha256, &raw.place, "sha256", scope, problems)
                .and_then(|(place, text)| problems.keep(digest(&place, &text)));
            let servers = known(raw.servers, servers, problems);
            Some(ApiKeyConfig { name: name?.1, sha256: digest?, servers })
        });
        let api_keys: Vec<ApiKeyConfig> = api_keys.collect();
        let is_twice = |place: usize, key: &ApiKeyConfig| {
            let before = api_keys.iter().take(place);
            before.into_iter().any(|one| one.name == key.name || one.sha256 == key.sha256)
        };
        for (_, key) in api_keys.iter().enumerate().filter(|(place, key)| is_twice(*place, key)) {
            let text = format!("the API key {:?}, or its name, stands twice; keep one", key.name);
            problems.push(self.place.problem(text));
        }
        let scopes = texts(self.scopes, problems);
        IdentityConfig { jwt, api_keys, resource, scopes }
    }
}

/// The text of a key that must be there.
fn needed(
    text: Option<ConfigString>,
    place: &ConfigPlace,
    key: &str,
    scope: &Variables<'_>,
    problems: &mut Problems,
) -> Option<(ConfigPlace, String)> {
    let Some(text) = text else {
        problems.push(place.problem(format!("needs {key}")));
        return None;
    };
    let filled = scope.expand(&text, problems)?;
    if filled.trim().is_empty() {
        problems.push(text.place.problem("must not be empty"));
        return None;
    }
    Some((text.place, filled))
}

/// Names of servers, each of which must exist: a typing error would lock a client out silently.
fn known(
    names: Option<Vec<ConfigString>>,
    servers: &[&str],
    problems: &mut Problems,
) -> Option<Vec<String>> {
    let names = names?;
    for name in names.iter().filter(|name| !servers.contains(&name.text.as_str())) {
        problems.push(name.place.problem(format!("{:?} is not a server of this file", name.text)));
    }
    Some(names.into_iter().map(|name| name.text).collect())
}

fn source(place: &ConfigPlace, text: &str, scope: &Variables<'_>) -> Result<JwksSource, Problem> {
    if !text.contains("://") {
        return Ok(JwksSource::File(scope.path(text)));
    }
    let url = address::parse(place, text)?;
    match url.scheme_str() {
        Some("http" | "https") => Ok(JwksSource::Url(url)),
        _ => Err(place.problem("must be an http(s):// URL or a file")),
    }
}

fn resource(place: &ConfigPlace, text: &str) -> Result<String, Problem> {
    let url = address::parse(place, text)?;
    match (url.scheme_str(), url.path_and_query().map_or("/", |path| path.as_str())) {
        (Some("http" | "https"), "/") => Ok(text.trim().trim_end_matches('/').to_owned()),
        _ => Err(place.problem(
            "must be the public address of this gateway without a path, like \"https://mcp.example\"",
        )),
    }
}

/// The SHA-256 digest of nothing.
const EMPTY: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

fn digest(place: &ConfigPlace, text: &str) -> Result<[u8; 32], Problem> {
    let nibble =
        |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut digest = [0; 32];
    let is_hex = text.len() == 64
        && digest.iter_mut().zip(text.as_bytes().chunks_exact(2)).all(|(byte, pair)| {
            match (nibble(pair[0]), nibble(pair[1])) {
                (Some(high), Some(low)) => {
                    *byte = high << 4 | low;
                    true
                }
                _ => false,
            }
        });
    // The value is not quoted: somebody may have put the key itself here.
    let wrong = || {
        place.problem(
            "must be the SHA-256 digest of the key, 64 hexadecimal digits: printf %s \"$KEY\" | sha256sum",
        )
    };
    if is_hex && digest == EMPTY {
        return Err(place.problem("is the digest of an empty key; was the variable set?"));
    }
    is_hex.then_some(digest).ok_or_else(wrong)
}
