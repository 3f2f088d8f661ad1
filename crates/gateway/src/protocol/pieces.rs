//! Decides how a text for a client is held: in two pieces, so that a large answer is not copied
//! just to change its id.

use bytes::buf::Chain;
use bytes::{Buf as _, Bytes};

use super::budget::BudgetShare;
use super::edit::{one_line, splice};
use super::limits;
use super::scan::Span;

/// One text in two pieces; the second piece is usually empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TwoPieces {
    head: Bytes,
    tail: Bytes,
}

impl TwoPieces {
    /// The bytes with one span replaced. A large text is shared and not copied, unless the span
    /// lies in the middle of it.
    pub(crate) fn replaced(raw: &Bytes, span: Span, with: &[u8]) -> Self {
        let (before, after) = (raw.slice(..span.start), raw.slice(span.end..));
        if raw.len() > limits::COPIED && before.len() <= limits::COPIED {
            Self { head: [&before, with].concat().into(), tail: after }
        } else if raw.len() > limits::COPIED && after.len() <= limits::COPIED {
            Self { head: before, tail: [with, &after].concat().into() }
        } else {
            splice(raw, &mut [(span, with)]).into()
        }
    }

    /// The same text with `before` in front. A large piece is not copied, unless a large first
    /// piece is followed by a second.
    #[must_use]
    pub(crate) fn after(self, before: &str) -> Self {
        let before = before.as_bytes();
        match (self.head.len() <= limits::COPIED, self.tail.is_empty()) {
            (false, true) => Self { head: Bytes::copy_from_slice(before), tail: self.head },
            (true, _) => Self { head: [before, &self.head].concat().into(), tail: self.tail },
            (false, false) => {
                Self { head: [before, &self.head, &self.tail].concat().into(), tail: Bytes::new() }
            }
        }
    }

    /// The same text; the larger piece holds a budget share for as long as any clone of it lives.
    #[must_use]
    pub(crate) fn held(self, share: BudgetShare) -> Self {
        let Self { head, tail } = self;
        if head.len() > tail.len() {
            Self { head: share.hold(head), tail }
        } else {
            Self { head, tail: share.hold(tail) }
        }
    }

    /// The number of bytes in both pieces.
    pub(crate) fn size(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// The two pieces, in order.
    pub(crate) fn parts(&self) -> [&Bytes; 2] {
        [&self.head, &self.tail]
    }

    /// The text in one piece; copies it if it has two.
    pub(crate) fn whole(&self) -> Bytes {
        if self.tail.is_empty() {
            self.head.clone()
        } else {
            [&*self.head, &self.tail].concat().into()
        }
    }

    /// The same text on one line.
    pub(crate) fn one_line(&self) -> Self {
        Self { head: one_line(&self.head), tail: one_line(&self.tail) }
    }

    /// The text as a buffer for an HTTP body.
    pub(crate) fn into_buf(self) -> Chain<Bytes, Bytes> {
        self.head.chain(self.tail)
    }
}

impl<T: Into<Bytes>> From<T> for TwoPieces {
    fn from(text: T) -> Self {
        Self { head: text.into(), tail: Bytes::new() }
    }
}
