//! Decides how values in Redis are signed, so that a stranger with write access cannot make a
//! gateway act.
//!
//! A signature covers the key that the value stands under: a value that is moved to another key
//! counts for nothing. A stranger can still delete values and bring back older ones.

use hmac::digest::{Key, KeyInit};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// The bytes of a signature.
const BYTES: usize = 32;

/// Signs and checks values.
pub(super) struct Seal(Hmac<Sha256>);

impl Seal {
    /// Signs with a key derived from `secret`.
    pub(super) fn new(secret: &str) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"seawall store v1\0");
        digest.update(secret.as_bytes());
        let mut key = Key::<Hmac<Sha256>>::default();
        key.iter_mut().zip(digest.finalize()).for_each(|(to, from)| *to = from);
        Self(KeyInit::new(&key))
    }

    /// The signature, followed by the value.
    pub(super) fn close(&self, key: &str, value: &[u8]) -> Vec<u8> {
        let mut sealed = self.signature(key, value).finalize().into_bytes().to_vec();
        sealed.extend_from_slice(value);
        sealed
    }

    /// The value, if the signature is right.
    pub(super) fn open<'a>(&self, key: &str, sealed: &'a [u8]) -> Option<&'a [u8]> {
        let (signature, value) = sealed.split_at_checked(BYTES)?;
        self.signature(key, value).verify_slice(signature).ok()?;
        Some(value)
    }

    fn signature(&self, key: &str, value: &[u8]) -> Hmac<Sha256> {
        let mut signature = self.0.clone();
        // The length first, so that no end of a key can pass for the start of a value.
        signature.update(&(key.len() as u64).to_be_bytes());
        signature.update(key.as_bytes());
        signature.update(value);
        signature
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_only_unchanged_under_its_key_and_from_its_fleet() {
        let seal = Seal::new("0123456789abcdef");
        let sealed = seal.close("fleet:a", b"open");
        assert_eq!(seal.open("fleet:a", &sealed), Some(&b"open"[..]));
        assert_eq!(seal.open("fleet:b", &sealed), None, "it was moved");
        assert_eq!(seal.open("fleet:", &seal.close("fleet:a", b"")), None);
        assert_eq!(Seal::new("0123456789abcdeF").open("fleet:a", &sealed), None);
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(seal.open("fleet:a", &changed), None, "byte {place}");
        }
        assert_eq!(seal.open("fleet:a", &sealed[..BYTES - 1]), None);
    }
}
