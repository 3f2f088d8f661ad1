//! Writes a message of protobuf straight into bytes. As values of their own, the attributes of a
//! span would cost more than the rest of it.

use prost::encoding::{WireType, encode_key, encode_varint};

/// A message that is being written. What is empty or zero is left out, as protobuf has it.
pub(super) struct WireWriter(Vec<u8>);

impl WireWriter {
    /// A message of about so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn text(&mut self, tag: u32, text: &str) {
        self.bytes(tag, text.as_bytes());
    }

    pub(super) fn bytes(&mut self, tag: u32, bytes: &[u8]) {
        self.pieces(tag, &[bytes]);
    }

    /// One field of several pieces, one after the other.
    pub(super) fn pieces(&mut self, tag: u32, pieces: &[&[u8]]) {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if length == 0 {
            return;
        }
        encode_key(tag, WireType::LengthDelimited, &mut self.0);
        encode_varint(length as u64, &mut self.0);
        for piece in pieces {
            self.0.extend_from_slice(piece);
        }
    }

    pub(super) fn number(&mut self, tag: u32, number: u64) {
        if number > 0 {
            encode_key(tag, WireType::Varint, &mut self.0);
            encode_varint(number, &mut self.0);
        }
    }

    pub(super) fn fixed32(&mut self, tag: u32, number: u32) {
        encode_key(tag, WireType::ThirtyTwoBit, &mut self.0);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn fixed64(&mut self, tag: u32, number: u64) {
        encode_key(tag, WireType::SixtyFourBit, &mut self.0);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// A message within this one. Its length stands before it and is mostly one byte.
    pub(super) fn message(&mut self, tag: u32, write: impl FnOnce(&mut Self)) {
        encode_key(tag, WireType::LengthDelimited, &mut self.0);
        let start = self.0.len();
        self.0.push(0);
        write(self);
        match u8::try_from(self.0.len() - start - 1) {
            Ok(length @ ..0x80) => self.0[start] = length,
            _ => {
                let mut length = Vec::with_capacity(10);
                encode_varint((self.0.len() - start - 1) as u64, &mut length);
                drop(self.0.splice(start..=start, length));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::trace::wire::{AnyValue, KeyValue, OneValue};

    #[test]
    fn what_is_written_is_what_prost_writes() {
        for length in [0, 1, 100, 121, 122, 123, 127, 128, 300, 20_000] {
            let value = "v".repeat(length);
            let mut written = WireWriter::new(0);
            written.text(1, "key");
            written.message(2, |to| to.text(1, &value));
            let text = (length > 0).then_some(OneValue::Text(value));
            let told = KeyValue { key: "key".to_owned(), value: Some(AnyValue { value: text }) };
            assert_eq!(written.into_bytes(), told.encode_to_vec(), "{length}");
        }
    }
}
