//! Decides how a message is changed: spans of its bytes are replaced, and all other bytes stay as
//! they were.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};

use super::scan::{self, Span};

/// The bytes with some spans replaced. Spans must not overlap; their order does not matter.
pub(crate) fn splice(raw: &[u8], cuts: &mut [(Span, &[u8])]) -> Bytes {
    cuts.sort_by_key(|(span, _)| span.start);
    let added: usize = cuts.iter().map(|(_, with)| with.len()).sum();
    let mut out = BytesMut::with_capacity(raw.len() + added);
    let mut at = 0;
    for (span, with) in cuts.iter() {
        out.extend_from_slice(Span { start: at, end: span.start }.of(raw));
        out.extend_from_slice(with);
        at = span.end;
    }
    out.extend_from_slice(Span { start: at, end: raw.len() }.of(raw));
    out.freeze()
}

/// A message on one line. A line break in valid JSON can only be white space between tokens, so a
/// space can take its place.
pub(crate) fn one_line(raw: &Bytes) -> Bytes {
    if !raw.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return raw.clone();
    }
    raw.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

/// A key with its quotes, and a value.
type EditedMember<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// A JSON object whose members can be set and removed. Other members keep their text and their
/// position.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonObject<'a> {
    members: Vec<EditedMember<'a>>,
}

impl<'a> JsonObject<'a> {
    /// The members of an object's text; none if the text is not an object.
    pub(crate) fn of(json: &'a [u8]) -> Self {
        let fields = scan::members(json, Span { start: 0, end: json.len() });
        let member = |field: &scan::ScannedMember| {
            (Cow::from(field.key.of(json)), Cow::from(field.value.of(json)))
        };
        Self { members: fields.iter().map(member).collect() }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|(key, _)| scan::text(key).is_some_and(|key| key == name))
    }

    /// The JSON text of a member.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.place(name).map(|place| self.members[place].1.as_ref())
    }

    /// Sets a member at its position, or adds it at the end.
    pub(crate) fn set(&mut self, name: &str, json: impl Into<Vec<u8>>) -> &mut Self {
        let json = Cow::Owned(json.into());
        match self.place(name) {
            Some(place) => self.members[place].1 = json,
            None => self.members.push((Cow::Owned(quoted(name).into_bytes()), json)),
        }
        self
    }

    /// Sets a member only if the object does not have it.
    pub(crate) fn set_default(&mut self, name: &str, json: impl Into<Vec<u8>>) -> &mut Self {
        if self.place(name).is_none() {
            self.set(name, json);
        }
        self
    }

    /// Removes a member.
    pub(crate) fn remove(&mut self, name: &str) -> &mut Self {
        self.members.retain(|(key, _)| scan::text(key).is_none_or(|key| key != name));
        self
    }

    /// Changes a member that is itself an object; creates the member if it is missing.
    pub(crate) fn change(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut JsonObject<'_>),
    ) -> &mut Self {
        let before = self.get(name).unwrap_or_default().to_vec();
        let mut inner = JsonObject::of(&before);
        change(&mut inner);
        let after = inner.json();
        self.set(name, after)
    }

    /// Whether the object has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The names of the members, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.members.iter().filter_map(|(key, _)| scan::text(key))
    }

    /// The JSON text of the object.
    pub(crate) fn json(&self) -> Vec<u8> {
        let size: usize = self.members.iter().map(|(key, value)| key.len() + value.len() + 2).sum();
        let mut out = Vec::with_capacity(size + 2);
        out.push(b'{');
        for (place, (key, value)) in self.members.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            out.extend_from_slice(key);
            out.push(b':');
            out.extend_from_slice(value);
        }
        out.push(b'}');
        out
    }
}

/// A string as JSON text.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A JSON array of items that are JSON texts already.
pub(crate) fn array<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = vec![b'['];
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(item);
    }
    out.push(b']');
    out
}
