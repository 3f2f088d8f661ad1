//! Decides whether bytes are one valid JSON value, and finds its parts: a single pass that checks
//! syntax, depth and repeated keys.
//!
//! The gateway passes messages on as they came, so it must read them exactly as the server or
//! client will read them. That is why keys may not repeat where decisions are made, and why there
//! is one scanner for all messages.

use std::borrow::Cow;
use std::collections::HashSet;

use super::limits;

/// A range of bytes within the text it was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// The bytes of the span.
    pub fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.start..self.end).unwrap_or_default()
    }

    fn moved(self, by: usize) -> Self {
        Self { start: self.start + by, end: self.end + by }
    }
}

/// One member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScannedMember {
    /// The key, with its quotes.
    pub key: Span,
    /// The value.
    pub value: Span,
}

impl ScannedMember {
    /// Whether the key is `name`, however it is escaped.
    pub(crate) fn is(&self, bytes: &[u8], name: &str) -> bool {
        let key = self.key.of(bytes);
        let inner = key.get(1..key.len().saturating_sub(1)).unwrap_or_default();
        // An escaped text is longer than the text it stands for.
        let may_be_escaped = inner.len() > name.len() && inner.contains(&b'\\');
        inner == name.as_bytes() || (may_be_escaped && text(key).is_some_and(|key| key == name))
    }
}

/// Why bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reject {
    /// Not JSON.
    #[error("not valid JSON at byte {0}")]
    Syntax(usize),
    /// Not UTF-8.
    #[error("not valid UTF-8 at byte {0}")]
    Utf8(usize),
    /// Nested too deeply.
    #[error("nested deeper than {} levels", limits::DEPTH)]
    Depth,
    /// An object with more members than allowed.
    #[error("more than {} members in one object", limits::MEMBERS)]
    Members,
    /// A key that stands twice in an object whose keys must be unique.
    #[error("the key {0:?} stands twice in one object")]
    Repeated(String),
    /// An array of messages.
    #[error(
        "batches of messages are not part of this protocol revision; send the messages one by one"
    )]
    Batch,
    /// JSON, but not a JSON-RPC message.
    #[error("not a JSON-RPC 2.0 message: {0}")]
    Shape(&'static str),
    /// An id that is neither a string nor an integer, or too long.
    #[error(
        "an id must be a string of at most {0} bytes or an integer of at most {0} digits",
        limits::ID_BYTES
    )]
    Id,
    /// Larger than the limit.
    #[error("larger than {0} bytes")]
    Size(usize),
}

/// The string value of a JSON text; `None` if the text is not a string.
pub(crate) fn text(json: &[u8]) -> Option<Cow<'_, str>> {
    match json {
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => {
            std::str::from_utf8(inner).ok().map(Cow::Borrowed)
        }
        [b'"', ..] => serde_json::from_slice(json).ok().map(Cow::Owned),
        _ => None,
    }
}

/// The members of a whole text that must be an object, and the members of its members, unless those
/// are too many.
pub(crate) fn object(
    json: &[u8],
) -> Result<(Vec<ScannedMember>, Option<Vec<ScannedMember>>), Reject> {
    let mut fields = Vec::with_capacity(6);
    let mut scanner = Scanner { inner: Some(Vec::with_capacity(8)), ..Scanner::new(json) };
    let scanned = scanner.whole(&mut fields);
    // Input that is not JSON may not even be UTF-8, which is the better error. Valid JSON has only
    // ASCII outside of strings, so if its strings are ASCII too it is UTF-8 and needs no second
    // pass.
    if scanner.is_wide || scanned.is_err() {
        std::str::from_utf8(json).map_err(|error| Reject::Utf8(error.valid_up_to()))?;
    }
    scanned.map(|()| (fields, scanner.inner))
}

/// The members of an object inside bytes that were scanned before; empty if the value is not an
/// object or has too many members.
pub(crate) fn members(bytes: &[u8], span: Span) -> Vec<ScannedMember> {
    try_members(bytes, span).unwrap_or_default()
}

/// The same, for callers that must not take an object with too many members for an empty one.
pub(crate) fn try_members(bytes: &[u8], span: Span) -> Result<Vec<ScannedMember>, Reject> {
    let inner = span.of(bytes);
    let mut fields = Vec::with_capacity(6);
    if inner.first() == Some(&b'{') {
        Scanner::new(inner).object(1, Some(&mut fields))?;
    }
    for field in &mut fields {
        *field = ScannedMember {
            key: field.key.moved(span.start),
            value: field.value.moved(span.start),
        };
    }
    Ok(fields)
}

/// The first elements of an array inside bytes that were scanned before; none if the value is not
/// an array.
pub(crate) fn elements(bytes: &[u8], span: Span) -> Vec<Span> {
    let inner = span.of(bytes);
    let mut found = Vec::new();
    if inner.first() == Some(&b'[') {
        let mut scanner = Scanner::new(inner);
        if scanner.array(1, Some(&mut found)).is_err() {
            return Vec::new();
        }
    }
    found.into_iter().map(|element| element.moved(span.start)).collect()
}

/// Refuses an object in which a key stands twice, however it is escaped.
pub(crate) fn unique(bytes: &[u8], fields: &[ScannedMember]) -> Result<(), Reject> {
    let key = |field: &ScannedMember| field.key.of(bytes);
    let repeated = |key: Cow<'_, str>| Err(Reject::Repeated(key.chars().take(64).collect()));
    if fields.len() <= FEW && !fields.iter().any(|field| key(field).contains(&b'\\')) {
        let before = |place: usize| fields[..place].iter().map(key);
        let second = fields
            .iter()
            .enumerate()
            .find(|(place, field)| before(*place).any(|known| known == key(field)));
        return second.map_or(Ok(()), |(_, field)| repeated(text(key(field)).unwrap_or_default()));
    }
    let mut seen = HashSet::with_capacity(fields.len());
    for field in fields {
        let key = text(key(field)).ok_or(Reject::Syntax(field.key.start))?;
        if let Some(key) = seen.replace(key) {
            return repeated(key);
        }
    }
    Ok(())
}

/// Up to this many keys without escapes are compared faster with each other than by their hashes.
const FEW: usize = 16;

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The members of the members of the outermost object; `None` if they are not wanted or too
    /// many.
    inner: Option<Vec<ScannedMember>>,
    /// Whether a string may contain more than ASCII.
    is_wide: bool,
}

impl<'a> Scanner<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, inner: None, is_wide: false }
    }

    /// Scans a whole text that must be an object.
    fn whole(&mut self, fields: &mut Vec<ScannedMember>) -> Result<(), Reject> {
        self.space();
        let other = match self.peek() {
            Some(b'{') => {
                self.object(1, Some(fields))?;
                return self.end();
            }
            Some(b'[') => Reject::Batch,
            _ => Reject::Shape("it is not an object"),
        };
        // The value is scanned all the same: a syntax error is reported before the wrong shape.
        self.value(0)?;
        self.end()?;
        Err(other)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn wrong<T>(&self) -> Result<T, Reject> {
        Err(Reject::Syntax(self.at))
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Reject> {
        if self.peek() != Some(byte) {
            return self.wrong();
        }
        self.at += 1;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Reject> {
        self.space();
        if self.at == self.bytes.len() { Ok(()) } else { self.wrong() }
    }

    fn value(&mut self, depth: usize) -> Result<(), Reject> {
        match self.peek() {
            Some(b'{') => self.object(depth + 1, None),
            Some(b'[') => self.array(depth + 1, None),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => self.wrong(),
        }
    }

    fn object(
        &mut self,
        depth: usize,
        mut fields: Option<&mut Vec<ScannedMember>>,
    ) -> Result<(), Reject> {
        if depth > limits::DEPTH {
            return Err(Reject::Depth);
        }
        self.expect(b'{')?;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let start = self.at;
            self.string()?;
            let key = Span { start, end: self.at };
            self.space();
            self.expect(b':')?;
            self.space();
            let start = self.at;
            self.value(depth)?;
            let field = ScannedMember { key, value: Span { start, end: self.at } };
            match (&mut fields, &mut self.inner) {
                (Some(fields), _) if fields.len() == limits::MEMBERS => {
                    return Err(Reject::Members);
                }
                (Some(fields), _) => fields.push(field),
                // Too many inner members are no error: the caller scans the one object that it
                // needs.
                (None, Some(inner)) if depth == 2 && inner.len() == limits::MEMBERS => {
                    self.inner = None
                }
                (None, Some(inner)) if depth == 2 => inner.push(field),
                _ => {}
            }
            if self.last(b'}')? {
                return Ok(());
            }
        }
    }

    fn array(&mut self, depth: usize, mut found: Option<&mut Vec<Span>>) -> Result<(), Reject> {
        if depth > limits::DEPTH {
            return Err(Reject::Depth);
        }
        self.expect(b'[')?;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let start = self.at;
            self.value(depth)?;
            if let Some(found) = found.as_mut().filter(|found| found.len() < limits::MEMBERS) {
                found.push(Span { start, end: self.at });
            }
            if self.last(b']')? {
                return Ok(());
            }
        }
    }

    /// After a member: whether the object or array ends here.
    fn last(&mut self, close: u8) -> Result<bool, Reject> {
        self.space();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.space();
                Ok(false)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(true)
            }
            _ => self.wrong(),
        }
    }

    fn string(&mut self) -> Result<(), Reject> {
        self.expect(b'"')?;
        loop {
            self.plain();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                _ => return self.wrong(),
            }
        }
    }

    /// Skips the bytes of a string that have no special meaning: a few words first, because most
    /// strings are short, then whole blocks.
    fn plain(&mut self) {
        const WORDS: usize = 4;
        loop {
            for _ in 0..WORDS {
                let Some(word) = self.next() else { return self.last_plain() };
                let word = u64::from_le_bytes(word);
                let found = specials(word);
                self.is_wide |= word & HIGH != 0;
                // Without a special byte `found` is 0 and has 64 trailing zeros, so all 8 bytes are
                // skipped.
                self.at += found.trailing_zeros() as usize / 8;
                if found != 0 {
                    return;
                }
            }
            while let Some(block) = self.next().filter(|block| self.is_plain(block)) {
                self.at += block.len();
            }
        }
    }

    fn next<const N: usize>(&self) -> Option<[u8; N]> {
        self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()).copied()
    }

    /// Whether a block has no byte with a special meaning. Until the first one is found, a byte
    /// outside of ASCII counts as special, to set `is_wide`; as a signed number it is below the
    /// control characters, so one comparison finds both.
    fn is_plain(&self, block: &[u8; 64]) -> bool {
        let ends = |byte: u8| (byte == b'"') | (byte == b'\\');
        let found = match self.is_wide {
            true => block.iter().fold(false, |found, byte| found | ends(*byte) | (*byte < 0x20)),
            false => block
                .iter()
                .fold(false, |found, byte| found | ends(*byte) | (byte.cast_signed() < 0x20)),
        };
        !found
    }

    /// The same for the last bytes, fewer than a word.
    fn last_plain(&mut self) {
        while let Some(byte) = self.peek().filter(|byte| !matches!(byte, 0..0x20 | b'"' | b'\\')) {
            self.is_wide |= !byte.is_ascii();
            self.at += 1;
        }
    }

    fn escape(&mut self) -> Result<(), Reject> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                let digits = self.bytes.get(self.at + 1..self.at + 5).unwrap_or_default();
                if digits.len() != 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return self.wrong();
                }
                self.at += 5;
            }
            _ => return self.wrong(),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Reject> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Reject> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { self.wrong() } else { Ok(()) }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Reject> {
        if !self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return self.wrong();
        }
        self.at += word.len();
        Ok(())
    }
}

/// The top bit of the first byte that ends the plain part of a string, and perhaps of some bytes
/// after it.
fn specials(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    // A byte below `limit` borrows and gets its top bit; `& !word` drops bytes that had it before.
    // The borrow can also mark the byte above, so only the lowest mark is exact, and only that is
    // used.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let control = below(word, 0x20);
    let quote = below(word ^ (ONES * u64::from(b'"')), 1);
    let escape = below(word ^ (ONES * u64::from(b'\\')), 1);
    (control | quote | escape) & HIGH
}

/// The top bit of every byte of a word.
const HIGH: u64 = (u64::MAX / 255) << 7;
