//! Decides the hashed names of servers, clients and their files: the same parts give the same name
//! in every process.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

/// A name for a server and a kind of client: the same parts give the same name.
pub(crate) fn key(parts: &[&[u8]]) -> String {
    // The keys are fixed, because the next process must find the files of this one.
    let mut hasher = SipHasher13::new_with_keys(0x05ea_3a11, 0x05ea_3a11);
    for part in parts {
        // The length separates the parts: ("ab", "c") and ("a", "bc") get different names.
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    let hash = hasher.finish128();
    format!("{:016x}{:016x}", hash.h1, hash.h2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
    }
}
