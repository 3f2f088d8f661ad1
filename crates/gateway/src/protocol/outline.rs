//! Decides which request a message belongs to that is too large to be kept or is broken: finds its
//! id, its method and its tool.
//!
//! A message that is too large must still be refused under its own id: a client that gets an answer
//! without an id waits for ever. Clients write the id last, so the whole message is read here,
//! piece by piece, in bounded memory. The outline validates nothing; only `scan` decides whether a
//! message is valid.

use bytes::Bytes;

use super::names::{MODERN, PROTOCOL_VERSION};
use super::{Id, limits, scan};

/// The longest key or value that is kept while scanning, with its quotes. The outline needs no
/// longer one: neither a tool's name nor an id.
const TOKEN: usize = 4 * limits::LABEL + 2;
const _: () = assert!(TOKEN >= limits::ID_BYTES + 2);

/// The parts that were found of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outline {
    /// The id, if the message has exactly one and it is valid.
    pub id: Option<Id>,
    /// The method, if the message has exactly one.
    pub method: Option<String>,
    /// `params.name`: the tool of a call.
    pub name: Option<String>,
    /// Whether the message is the answer to a server's question, and not a request.
    pub is_answer: bool,
    /// Whether the request names the modern revision.
    pub is_modern: bool,
    /// The size of the message in bytes.
    pub bytes: usize,
    /// Whether the message is exactly one JSON object, from its beginning to its end.
    pub is_whole: bool,
}

impl Outline {
    /// The outline of a message that is in memory as a whole.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut outliner = Outliner::default();
        outliner.feed(bytes);
        outliner.finish()
    }
}

/// An object of which the outline reads members. Each object stands directly in the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutlinePlace {
    Envelope,
    Params,
    Meta,
}

/// The meaning of the key that was read last, and so of the next value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OutlineKey {
    #[default]
    Other,
    Id,
    Method,
    Params,
    Name,
    Meta,
    Version,
    Answer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OutlineState {
    #[default]
    Between,
    Text {
        is_escaped: bool,
    },
    Word,
}

/// Finds the outline of a message that is fed piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Outliner {
    at: OutlineState,
    depth: usize,
    /// The open objects of which members are read, outermost first. Deeper values are skipped.
    open: Vec<OutlinePlace>,
    awaits_key: bool,
    key: OutlineKey,
    /// The key or value that is being read, if the outline needs it.
    token: Option<Vec<u8>>,
    has_begun: bool,
    is_closed: bool,
    is_broken: bool,
    id: OutlinedValue,
    method: OutlinedValue,
    name: OutlinedValue,
    version: OutlinedValue,
    has_answer: bool,
    bytes: usize,
}

/// A value of the outline.
#[derive(Debug, Default)]
enum OutlinedValue {
    #[default]
    Not,
    Once(Vec<u8>),
    /// Found several times, or once and unreadable.
    Unclear,
}

impl OutlinedValue {
    fn note(&mut self, token: Option<Vec<u8>>) {
        *self = match (&self, token) {
            (Self::Not, Some(token)) => Self::Once(token),
            _ => Self::Unclear,
        };
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Once(token) => scan::text(token).map(|text| text.into_owned()),
            Self::Not | Self::Unclear => None,
        }
    }

    fn id(self) -> Option<Id> {
        let Self::Once(token) = self else { return None };
        Id::unscanned(Bytes::from(token))
    }
}

impl Outliner {
    /// Takes the next piece of the message.
    pub(crate) fn feed(&mut self, mut piece: &[u8]) {
        self.bytes += piece.len();
        while let Some((byte, rest)) = piece.split_first() {
            piece = match self.at {
                OutlineState::Text { is_escaped: false } if self.token.is_none() => {
                    // Most of a large message is text that the outline does not need, so `memchr`
                    // skips it.
                    let end = memchr::memchr2(b'"', b'\\', piece).unwrap_or(piece.len());
                    let (_, end) = piece.split_at(end);
                    let Some((byte, rest)) = end.split_first() else { return };
                    self.text(*byte);
                    rest
                }
                OutlineState::Text { .. } => {
                    self.text(*byte);
                    rest
                }
                OutlineState::Between | OutlineState::Word => {
                    self.between(*byte);
                    rest
                }
            };
        }
    }

    /// Whether the message is not an object, so that the rest of it cannot hold an id.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.is_broken
    }

    /// The outline of everything that was fed.
    pub(crate) fn finish(self) -> Outline {
        let is_modern = self.version.text().as_deref() == Some(MODERN);
        Outline {
            is_whole: self.is_closed && !self.is_broken,
            method: self.method.text(),
            name: self.name.text(),
            is_answer: self.has_answer && matches!(self.method, OutlinedValue::Not),
            is_modern,
            bytes: self.bytes,
            id: self.id.id(),
        }
    }

    /// The innermost open object, if the outline reads its members.
    fn here(&self) -> Option<OutlinePlace> {
        // `open` holds a prefix of the open objects. If it is shorter than `depth`, the innermost
        // one is not in it.
        self.open.last().copied().filter(|_| self.open.len() == self.depth)
    }

    fn text(&mut self, byte: u8) {
        self.take(byte);
        self.at = match (self.at, byte) {
            (OutlineState::Text { is_escaped: false }, b'\\') => {
                OutlineState::Text { is_escaped: true }
            }
            (OutlineState::Text { is_escaped: false }, b'"') => {
                self.ended();
                OutlineState::Between
            }
            _ => OutlineState::Text { is_escaped: false },
        };
    }

    fn between(&mut self, byte: u8) {
        let is_space = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        if self.at == OutlineState::Word
            && (is_space || matches!(byte, b',' | b':' | b'{' | b'}' | b'[' | b']' | b'"'))
        {
            self.at = OutlineState::Between;
            self.ended();
        }
        self.is_broken |= !is_space && (self.is_closed || (!self.has_begun && byte != b'{'));
        self.has_begun |= !is_space;
        match byte {
            b'{' | b'[' => self.opened(byte == b'{'),
            b'}' | b']' => self.closed(),
            b',' => self.awaits_key |= self.here().is_some(),
            b':' => self.awaits_key &= self.here().is_none(),
            b'"' => self.begin(byte, OutlineState::Text { is_escaped: false }),
            _ if is_space => {}
            _ if self.at == OutlineState::Word => self.take(byte),
            _ => self.begin(byte, OutlineState::Word),
        }
    }

    fn begin(&mut self, byte: u8, at: OutlineState) {
        let matters = self.awaits_key
            || !matches!(
                self.key,
                OutlineKey::Other | OutlineKey::Params | OutlineKey::Meta | OutlineKey::Answer
            );
        self.token = (self.here().is_some() && matters).then(|| vec![byte]);
        self.at = at;
    }

    fn take(&mut self, byte: u8) {
        if let Some(token) = self.token.as_mut() {
            if token.len() < TOKEN {
                token.push(byte);
            } else {
                self.token = None;
            }
        }
    }

    /// A string or a word has ended: notes it as a key or as a value.
    fn ended(&mut self) {
        let Some(place) = self.here() else { return };
        let token = self.token.take();
        if self.awaits_key {
            self.key = token
                .as_deref()
                .and_then(scan::text)
                .map_or(OutlineKey::Other, |key| meaning(place, &key));
            self.has_answer |= self.key == OutlineKey::Answer;
        } else {
            self.value(token);
        }
    }

    fn value(&mut self, token: Option<Vec<u8>>) {
        match self.key {
            OutlineKey::Id => self.id.note(token),
            OutlineKey::Method => self.method.note(token),
            OutlineKey::Name => self.name.note(token),
            OutlineKey::Version => self.version.note(token),
            OutlineKey::Params | OutlineKey::Meta | OutlineKey::Answer | OutlineKey::Other => {}
        }
        self.key = OutlineKey::Other;
    }

    fn opened(&mut self, is_object: bool) {
        let inner = match (self.here(), self.key) {
            (None, _) if self.depth == 0 && !self.is_broken => Some(OutlinePlace::Envelope),
            (Some(OutlinePlace::Envelope), OutlineKey::Params) if !self.awaits_key => {
                Some(OutlinePlace::Params)
            }
            (Some(OutlinePlace::Params), OutlineKey::Meta) if !self.awaits_key => {
                Some(OutlinePlace::Meta)
            }
            // An object or array where a plain value is expected makes that value unclear.
            (Some(_), _) => {
                self.value(None);
                None
            }
            (None, _) => None,
        };
        if let Some(inner) = inner.filter(|_| is_object) {
            self.open.push(inner);
            self.awaits_key = true;
        }
        self.key = OutlineKey::Other;
        self.depth += 1;
    }

    fn closed(&mut self) {
        self.is_broken |= self.depth == 0;
        self.depth = self.depth.saturating_sub(1);
        if self.open.len() > self.depth {
            self.open.truncate(self.depth);
            self.awaits_key = false;
            self.key = OutlineKey::Other;
        }
        self.is_closed = self.depth == 0;
    }
}

fn meaning(place: OutlinePlace, key: &str) -> OutlineKey {
    match (place, key) {
        (OutlinePlace::Envelope, "id") => OutlineKey::Id,
        (OutlinePlace::Envelope, "method") => OutlineKey::Method,
        (OutlinePlace::Envelope, "params") => OutlineKey::Params,
        (OutlinePlace::Envelope, "result" | "error") => OutlineKey::Answer,
        (OutlinePlace::Params, "name") => OutlineKey::Name,
        (OutlinePlace::Params, "_meta") => OutlineKey::Meta,
        (OutlinePlace::Meta, PROTOCOL_VERSION) => OutlineKey::Version,
        _ => OutlineKey::Other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn shown(outline: &Outline) -> (Option<&[u8]>, Option<&str>, Option<&str>) {
        let id = outline.id.as_ref().map(|id| id.json().as_ref());
        (id, outline.method.as_deref(), outline.name.as_deref())
    }

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        let call = Outline::of(
            br#"{"method":"tools\/call","params":{"arguments":{"id":1,"x":[{"id":2}]},"name":"a\"b"},"jsonrpc":"2.0","id":"\u0031"}"#,
        );
        assert_eq!(
            shown(&call),
            (Some(br#""\u0031""#.as_slice()), Some("tools/call"), Some("a\"b"))
        );
        assert!(call.is_whole && !call.is_modern);
        let ping = Outline::of(br#" { "id" : -7 , "method":"ping"} "#);
        assert_eq!(
            (shown(&ping), ping.is_whole),
            ((Some(b"-7".as_slice()), Some("ping"), None), true)
        );
        let modern = json!({"id": 1, "params": {"_meta": {PROTOCOL_VERSION: MODERN, "id": 3}}, "method": "m"});
        assert!(Outline::of(modern.to_string().as_bytes()).is_modern);
    }

    #[test]
    fn an_id_that_is_unclear_is_none() {
        for text in [
            r#"{"id":1,"id":2,"method":"m"}"#,
            r#"{"id":1,"i\u0064":2,"method":"m"}"#,
            r#"{"id":{"id":1},"method":"m"}"#,
            r#"{"id":[1],"method":"m"}"#,
            r#"{"id":01,"method":"m"}"#,
            r#"{"id":+1,"method":"m"}"#,
            r#"{"id":null,"method":"m"}"#,
            r#"{"id":1.5,"method":"m"}"#,
            r#"{"params":{"id":1},"method":"m"}"#,
            r#"[{"id":1,"method":"m"}]"#,
            r#""{\"id\":1}""#,
        ] {
            assert_eq!(Outline::of(text.as_bytes()).id, None, "{text}");
        }
        assert_eq!(Outline::of(format!(r#"{{"id":"{}"}}"#, "i".repeat(1025)).as_bytes()).id, None);
    }

    #[test]
    fn an_answer_is_told_from_a_request() {
        let is_answer = |text: &str| Outline::of(text.as_bytes()).is_answer;
        assert!(
            is_answer(r#"{"id":1,"result":{"method":"m"}}"#) && is_answer(r#"{"id":1,"error":{}}"#)
        );
        for text in [
            r#"{"id":1,"result":1,"method":"m"}"#,
            r#"{"id":1,"method":"m","method":"n","result":1}"#,
            r#"{"id":1}"#,
        ] {
            assert!(!is_answer(text), "{text}");
        }
    }

    #[test]
    fn what_is_not_one_object_is_not_whole() {
        for text in
            ["", "7", "[]", r#"{"id":1"#, r#"{"id":1}{}"#, r#"{"id":1}}"#, "{\"id\":1}\0", "x{}"]
        {
            assert!(!Outline::of(text.as_bytes()).is_whole, "{text}");
        }
        let mut endless = Outliner::default();
        endless.feed(b"  xxxx");
        assert!(endless.is_hopeless());
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        let key = prop_oneof![
            Just("id".to_owned()),
            Just("method".to_owned()),
            Just("name".to_owned()),
            ".{0,4}"
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.clone(), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Feeding a message in pieces, cut anywhere, finds the same as reading it whole.
        #[test]
        fn pieces_give_what_the_whole_gives(id in any::<i64>(), arguments in value(), extra in value(), cut in 1usize..40) {
            let message = json!({"a": extra, "method": "tools/call",
                "params": {"arguments": arguments, "name": "x"}, "zz": {"id": 5}, "id": id});
            let text = message.to_string();
            let mut outliner = Outliner::default();
            text.as_bytes().chunks(cut).for_each(|piece| outliner.feed(piece));
            let outline = outliner.finish();
            let id = id.to_string();
            prop_assert_eq!(shown(&outline), (Some(id.as_bytes()), Some("tools/call"), Some("x")));
            prop_assert!(outline.is_whole);
            prop_assert_eq!(outline.bytes, text.len());
        }

        /// Any input is read to its end, in bounded memory.
        #[test]
        fn nothing_breaks_it(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            Outline::of(&bytes);
        }
    }
}
