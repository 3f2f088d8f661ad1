//! Keys made in the test, and tokens signed with them: good ones, and those that nobody may take.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey};
use rsa::pkcs1::{EncodeRsaPrivateKey, EncodeRsaPublicKey};
use rsa::pkcs8::{EncodePublicKey, LineEnding};
use rsa::{RsaPrivateKey, RsaPublicKey};
use serde_json::{Value, json};

/// What stands before the 32 secret bytes of a P-256 key in PKCS #8.
const P256_HEAD: &[u8] =
    b"\x30\x41\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\
\x2a\x86\x48\xce\x3d\x03\x01\x07\x04\x27\x30\x25\x02\x01\x01\x04\x20";

/// What stands before the 32 secret bytes of an Ed25519 key in PKCS #8.
const ED25519_HEAD: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// How a key signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA with 2048 bits, PKCS #1 v1.5, SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl KeyKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rs256, Self::Es256, Self::EdDsa];

    /// The name in a token's header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    fn algorithm(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

/// A key with its id.
#[derive(Clone)]
pub struct Key {
    kind: KeyKind,
    id: String,
    secret: EncodingKey,
    public: Value,
    /// The public half in the forms in which careless verifiers keep it.
    forms: Vec<(&'static str, Vec<u8>)>,
}

/// A token that nobody may take, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Wicked {
    /// What is wrong.
    pub what: String,
    /// The token.
    pub token: String,
}

impl Key {
    /// A new key.
    pub fn new(kind: KeyKind, id: &str) -> io::Result<Self> {
        let mut forms = Vec::new();
        let secret = match kind {
            KeyKind::Rs256 => {
                let key = RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 2048);
                let key = key.map_err(io::Error::other)?;
                forms = public_forms(&key.to_public_key())?;
                let der = key.to_pkcs1_der().map_err(io::Error::other)?;
                EncodingKey::from_rsa_der(der.as_bytes())
            }
            KeyKind::Es256 => EncodingKey::from_ec_der(&[P256_HEAD, &secret()?].concat()),
            KeyKind::EdDsa => EncodingKey::from_ed_der(&[ED25519_HEAD, &secret()?].concat()),
        };
        let public = Jwk::from_encoding_key(&secret, kind.algorithm()).map_err(io::Error::other)?;
        let mut public = serde_json::to_value(public)?;
        for part in ["n", "x", "y"] {
            if let Some(text) = public[part].as_str() {
                forms.push(("one number of the key", bytes(text)));
                forms.push(("one number of the key as text", text.as_bytes().to_vec()));
            }
        }
        public["kid"] = json!(id);
        public["use"] = json!("sig");
        forms.push(("the key as JSON", public.to_string().into_bytes()));
        Ok(Self { kind, id: id.to_owned(), secret, public, forms })
    }

    /// How it signs.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public half as a JWK.
    pub fn jwk(&self) -> &Value {
        &self.public
    }

    /// A token as it should be.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_as(&self.header(), claims)
    }

    /// A token that does not say which key signed it.
    pub fn sign_without_id(&self, claims: &Value) -> String {
        self.sign_as(&json!({"alg": self.kind.name(), "typ": "JWT"}), claims)
    }

    /// A token that names another key.
    pub fn sign_with_id(&self, id: &str, claims: &Value) -> String {
        self.sign_as(&json!({"alg": self.kind.name(), "typ": "JWT", "kid": id}), claims)
    }

    /// A token with any header, signed as this key signs, whatever the header says.
    pub fn sign_as(&self, header: &Value, claims: &Value) -> String {
        signed(header, claims, &self.secret, self.kind.algorithm())
    }

    /// Tokens that nobody may take who trusts this key, and only it.
    pub fn wicked(&self, claims: &Value) -> io::Result<Vec<Wicked>> {
        let good = self.sign(claims);
        let (message, signature) = good.rsplit_once('.').unwrap_or_default();
        let payload = message.split('.').nth(1).unwrap_or_default();
        let mut all = Vec::new();
        let mut add = |what: String, token: String| all.push(Wicked { what, token });
        for none in ["none", "None", "NONE", "nOnE"] {
            let header = encoded(&json!({"alg": none, "typ": "JWT", "kid": self.id}));
            add(format!("alg {none}, not signed"), format!("{header}.{payload}."));
            add(format!("alg {none}, signed"), format!("{header}.{payload}.{signature}"));
        }
        for (form, key) in &self.forms {
            let header = json!({"alg": "HS256", "typ": "JWT", "kid": self.id});
            let key = EncodingKey::from_secret(key);
            let token = signed(&header, claims, &key, Algorithm::HS256);
            add(format!("HS256 with {form} as the secret"), token);
        }
        let stranger = Self::new(self.kind, &self.id)?;
        add("signed by a stranger with our id".to_owned(), stranger.sign(claims));
        let mut header = self.header();
        header["jwk"] = stranger.public.clone();
        add("brings its own key".to_owned(), stranger.sign_as(&header, claims));
        add("no signature".to_owned(), format!("{message}."));
        add("no third part".to_owned(), message.to_owned());
        add("half a signature".to_owned(), good[..good.len() - signature.len() / 2].to_owned());
        let mut other = claims.clone();
        other["sub"] = json!("somebody else");
        let header = message.split('.').next().unwrap_or_default();
        add("other claims".to_owned(), format!("{header}.{}.{signature}", encoded(&other)));
        let mut header = self.header();
        header["crit"] = json!(["b64"]);
        header["b64"] = json!(false);
        add("a critical extension".to_owned(), self.sign_as(&header, claims));
        Ok(all)
    }

    fn header(&self) -> Value {
        json!({"alg": self.kind.name(), "typ": "JWT", "kid": self.id})
    }
}

/// Claims that hold for so many seconds; negative: they are over.
pub fn claims(subject: &str, issuer: &str, audience: &str, seconds: i64) -> Value {
    let now = wall_time();
    json!({"sub": subject, "iss": issuer, "aud": audience, "iat": now, "exp": now + seconds})
}

/// Seconds since 1970.
#[allow(clippy::disallowed_methods, reason = "the claims of tokens are about wall time")]
pub(super) fn wall_time() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0))
}

fn signed(header: &Value, claims: &Value, key: &EncodingKey, algorithm: Algorithm) -> String {
    let message = format!("{}.{}", encoded(header), encoded(claims));
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), key, algorithm);
    format!("{message}.{}", signature.unwrap_or_default())
}

fn encoded(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

fn bytes(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap_or_default()
}

/// 32 bytes that nobody knows.
fn secret() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

fn public_forms(key: &RsaPublicKey) -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let pem = key.to_public_key_pem(LineEnding::LF).map_err(io::Error::other)?;
    let der = key.to_pkcs1_der().map_err(io::Error::other)?;
    Ok(vec![
        ("the key as PEM", pem.trim_end().as_bytes().to_vec()),
        ("the key as PEM with its last line end", pem.into_bytes()),
        ("the key as DER", der.as_bytes().to_vec()),
    ])
}
