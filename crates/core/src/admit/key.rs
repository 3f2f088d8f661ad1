//! Decides when two calls are the same: equal server, tool, caller and arguments, in any order of
//! object keys.
//!
//! A key is 128 bits of SipHash under random keys, so that no client can craft two calls that
//! collide.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use serde_json::{Map, Number, Value};
use siphasher::sip128::{Hash128, Hasher128, SipHasher13};

use super::halves::Halves;

/// The identity of a call: two calls with equal keys are the same call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey(u64, u64);

impl CallKey {
    /// The key as a number, to be stored for another process; only keys of [`Keys::fixed`] mean the
    /// same there.
    pub fn number(self) -> u128 {
        u128::from(self.0) << 64 | u128::from(self.1)
    }
}

/// A hasher that passes a key through: both halves of a [`CallKey`] are SipHash output already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AsItIs(u64);

impl BuildHasher for AsItIs {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, half: u64) {
        self.0 ^= half;
    }
}

/// Caches the key of a call. Cheaper than a lock: threads that race for the first use each compute
/// the same key.
#[derive(Debug, Default)]
pub(crate) struct KeyCell(Halves);

impl KeyCell {
    pub(crate) fn get_or_init(&self, compute: impl FnOnce() -> CallKey) -> CallKey {
        if let Some((first, second)) = self.0.get() {
            return CallKey(first, second);
        }
        let key = compute();
        self.0.set(key.0, key.1);
        key
    }
}

/// Makes call keys. Keys of two different makers never compare equal by design.
#[derive(Clone, Debug)]
pub struct Keys(SipHasher13);

impl Default for Keys {
    fn default() -> Self {
        let drawn = || RandomState::new().hash_one(0);
        Self(SipHasher13::new_with_keys(drawn(), drawn()))
    }
}

impl Keys {
    /// A maker whose keys are the same in every process. A caller that knows the hash keys can
    /// craft calls that collide: use it only where a collision harms nobody but that caller.
    pub fn fixed() -> Self {
        Self(SipHasher13::new_with_keys(0x05ea_3a11, 0x05ea_3a11))
    }

    /// The key of the same call within a `scope`.
    pub(crate) fn scoped(&self, key: CallKey, scope: &str) -> CallKey {
        let mut hasher = self.0;
        hasher.write_u64(key.0);
        hasher.write_u64(key.1);
        hasher.write(scope.as_bytes());
        let Hash128 { h1, h2 } = hasher.finish128();
        CallKey(h1, h2)
    }

    /// The key of a call of `parts` (server, tool, caller …) with `arguments`.
    pub fn key(&self, parts: &[&str], arguments: &Value) -> CallKey {
        let mut writer =
            CanonicalWriter { hasher: self.0, gathered: [0; GATHER], length: 0, depth: 0 };
        parts.iter().for_each(|part| writer.text(part));
        writer.value(arguments);
        writer.pass_on();
        let Hash128 { h1, h2 } = writer.hasher.finish128();
        CallKey(h1, h2)
    }
}

/// A JSON value is many small pieces; hashing them in chunks of this many bytes takes half the
/// time.
const GATHER: usize = 256;
/// Values nested deeper than this are walked with a list instead of recursion: a caller's arguments
/// must not overflow the stack.
const DEEPEST: usize = 128;
/// Up to this size every whole number is a float of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// UTF-8 never contains this byte, so two adjacent texts cannot run into each other.
const END_OF_TEXT: u8 = 0xFF;

/// Whether JSON objects keep their members sorted in this build (serde_json without
/// `preserve_order`); then the writer need not sort them.
static OBJECTS_ARE_SORTED: LazyLock<bool> = LazyLock::new(|| {
    let members = Map::from_iter([("b".to_owned(), Value::Null), ("a".to_owned(), Value::Null)]);
    members.keys().is_sorted()
});

/// Writes equal JSON values as equal bytes: objects by sorted names, every value with its kind.
struct CanonicalWriter {
    hasher: SipHasher13,
    gathered: [u8; GATHER],
    length: usize,
    depth: usize,
}

impl CanonicalWriter {
    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.byte(0),
            Value::Bool(truth) => self.byte(1 + u8::from(*truth)),
            Value::Number(number) => self.number(number),
            Value::String(text) => {
                self.byte(4);
                self.text(text);
            }
            Value::Array(_) | Value::Object(_) if self.depth == DEEPEST => self.deep(value),
            Value::Array(items) => {
                self.byte(5);
                self.word(items.len() as u64);
                self.depth += 1;
                items.iter().for_each(|item| self.value(item));
                self.depth -= 1;
            }
            Value::Object(members) => {
                self.depth += 1;
                self.object(members);
                self.depth -= 1;
            }
        }
    }

    /// As [`Self::value`], without recursion; it writes the same bytes.
    fn deep(&mut self, value: &Value) {
        // The list is a stack: children are pushed in reverse, so that they are popped in order.
        let mut left: Vec<(Option<&String>, &Value)> = vec![(None, value)];
        while let Some((name, value)) = left.pop() {
            if let Some(name) = name {
                self.text(name);
            }
            match value {
                Value::Array(items) => {
                    self.byte(5);
                    self.word(items.len() as u64);
                    left.extend(items.iter().rev().map(|item| (None, item)));
                }
                Value::Object(members) => {
                    self.byte(6);
                    self.word(members.len() as u64);
                    let mut sorted: Vec<_> =
                        members.iter().map(|(name, value)| (Some(name), value)).collect();
                    sorted.sort_by_key(|(name, _)| *name);
                    left.extend(sorted.into_iter().rev());
                }
                plain => self.value(plain),
            }
        }
    }

    /// Writes an object by sorted names, at every depth.
    fn object(&mut self, members: &Map<String, Value>) {
        self.members(members.iter(), *OBJECTS_ARE_SORTED);
    }

    fn members<'a>(
        &mut self,
        members: impl ExactSizeIterator<Item = (&'a String, &'a Value)>,
        are_sorted: bool,
    ) {
        self.byte(6);
        self.word(members.len() as u64);
        let mut write = |(name, value): (&String, &Value)| {
            self.text(name);
            self.value(value);
        };
        if are_sorted {
            members.for_each(write);
        } else {
            let mut sorted: Vec<_> = members.collect();
            sorted.sort_by_key(|(name, _)| *name);
            sorted.into_iter().for_each(&mut write);
        }
    }

    fn number(&mut self, number: &Number) {
        // The kind separates an i64 from a u64 with the same bits. 1.0 is written as 1: JSON has
        // one kind of number, and clients that repeat a call may write it either way.
        let (kind, bits) = match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => (7, number.cast_unsigned()),
            (None, Some(number), _) => (8, number),
            (None, None, number) => match number.unwrap_or_default() {
                number if number.fract() == 0.0 && number.abs() <= EXACT => {
                    let whole = number as i64;
                    (7, whole.cast_unsigned())
                }
                number => (9, number.to_bits()),
            },
        };
        self.byte(kind);
        self.word(bits);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.byte(END_OF_TEXT);
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.bytes(&[byte]);
    }

    #[inline]
    fn word(&mut self, word: u64) {
        self.bytes(&word.to_le_bytes());
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        if self.length + bytes.len() > GATHER {
            self.pass_on();
        }
        match self.gathered.get_mut(self.length..self.length + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            // The piece is larger than the whole buffer, which was flushed just above: the order
            // holds.
            None => {
                self.hasher.write(bytes);
            }
        }
    }

    fn pass_on(&mut self) {
        self.hasher.write(&self.gathered[..self.length]);
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_order_of_keys_does_not_matter_at_any_depth() {
        let keys = Keys::default();
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();

        let a = keys.key(&["s", "t"], &parse(r#"{"a": 1, "b": {"x": [1, 2], "y": null}}"#));
        let b = keys.key(&["s", "t"], &parse(r#"{"b": {"y": null, "x": [1, 2]}, "a": 1}"#));

        assert_eq!(a, b);
    }

    #[test]
    fn members_that_come_unsorted_are_sorted_whatever_this_builds_objects_do() {
        let hash = |names: [&str; 3], are_sorted| {
            let mut writer = CanonicalWriter {
                hasher: SipHasher13::new(),
                gathered: [0; GATHER],
                length: 0,
                depth: 0,
            };
            let members = names.map(|name| (name.to_owned(), Value::from(name)));
            writer.members(members.iter().map(|(name, value)| (name, value)), are_sorted);
            writer.pass_on();
            writer.hasher.finish128().as_u128()
        };

        assert_eq!(hash(["b", "c", "a"], false), hash(["a", "b", "c"], true));
        let parsed: Map<String, Value> =
            serde_json::from_str(r#"{"b": 1, "c": 2, "a": 3}"#).unwrap();
        assert_eq!(parsed.keys().is_sorted(), *OBJECTS_ARE_SORTED);
    }

    #[test]
    fn deep_values_are_hashed_whole_and_use_no_stack() {
        let keys = Keys::default();
        let nest = |inner: Value, depth: usize| {
            (0..depth).fold(inner, |inner, at| match at % 2 {
                1 if at < 200 => {
                    Map::from_iter([("b".to_owned(), inner), ("a".to_owned(), at.into())]).into()
                }
                _ => vec![inner, at.into()].into(),
            })
        };
        let key = |inner: &Value, depth| keys.key(&["s"], &nest(inner.clone(), depth));
        for depth in [1, 127, 128, 129, 200, 3000] {
            assert_eq!(
                key(&json!({"x": 1, "y": 2}), depth),
                key(&json!({"y": 2, "x": 1}), depth),
                "{depth}"
            );
            assert_ne!(key(&json!({"x": 1}), depth), key(&json!({"x": 2}), depth), "{depth}");
        }
        let value = nest(json!({"x": [1, {"y": null}], "a": "b"}), 50);
        let mut by_stack =
            CanonicalWriter { hasher: keys.0, gathered: [0; GATHER], length: 0, depth: 0 };
        let mut by_list =
            CanonicalWriter { hasher: keys.0, gathered: [0; GATHER], length: 0, depth: 0 };
        by_stack.value(&value);
        by_list.deep(&value);
        by_stack.pass_on();
        by_list.pass_on();
        assert_eq!(
            by_stack.hasher.finish128().as_u128(),
            by_list.hasher.finish128().as_u128(),
            "the same way"
        );
    }

    #[test]
    fn long_texts_are_hashed_whole() {
        let keys = Keys::default();
        let long = "x".repeat(1000);
        let key = |text: &str| keys.key(&["s"], &json!({"a": "short", "b": text, "c": 1}));

        assert_eq!(key(&long), key(&long));
        assert_ne!(key(&long), key(&format!("{}y", &long[1..])));
    }

    #[test]
    fn a_whole_number_is_the_same_however_it_is_written() {
        let keys = Keys::default();
        let key = |text: &str| keys.key(&["s"], &serde_json::from_str::<Value>(text).unwrap());
        for same in [["3", "3.0"], ["-2", "-2e0"], ["0", "-0.0"], ["100", "1e2"]] {
            assert_eq!(key(same[0]), key(same[1]), "{same:?}");
        }
        for other in
            [["3", "3.5"], ["3", "-3"], ["0.1", "0.2"], ["9007199254740993", "9007199254740992.0"]]
        {
            assert_ne!(key(other[0]), key(other[1]), "{other:?}");
        }
    }

    #[test]
    fn everything_else_does_matter() {
        let keys = Keys::default();
        let calls = [
            keys.key(&["s", "t", ""], &json!({})),
            keys.key(&["s", "t", "alice"], &json!({})),
            keys.key(&["st", "", ""], &json!({})),
            keys.key(&["s", "t", ""], &json!({"a": [1, 2]})),
            keys.key(&["s", "t", ""], &json!({"a": [2, 1]})),
            keys.key(&["s", "t", ""], &json!({"a": "1"})),
            keys.key(&["s", "t", ""], &json!({"a": 1})),
            keys.key(&["s", "t", ""], &json!({"a": true})),
            keys.key(&["s", "t", ""], &json!({"a": null})),
            keys.key(&["s", "t", ""], &json!([["a"]])),
            keys.key(&["s", "t", ""], &json!(["a", []])),
        ];

        let distinct: std::collections::HashSet<_> = calls.iter().collect();

        assert_eq!(distinct.len(), calls.len());
    }
}
