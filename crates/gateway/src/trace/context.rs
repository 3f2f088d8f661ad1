//! Decides what a trace context is: W3C's `traceparent` and `tracestate`, and who decides whether a
//! trace is exported.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

/// The name of the context's place in a trace, in `_meta` and in HTTP.
pub(crate) const PARENT: &str = "traceparent";
/// The name of what tracing systems add to it.
pub(crate) const STATE: &str = "tracestate";

/// A longer `tracestate` is not carried on.
const LONGEST_STATE: usize = 512;

/// One span's place in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    /// The trace.
    pub trace: [u8; 16],
    /// The span.
    pub span: [u8; 8],
    /// Whether the trace is exported.
    pub is_sampled: bool,
    /// What tracing systems add.
    pub state: Option<Arc<str>>,
}

impl TraceContext {
    /// Reads a `traceparent` with its `tracestate`. What is malformed counts as absent.
    pub(crate) fn parse(parent: &[u8], state: Option<&str>) -> Option<Self> {
        let (known, rest) = parent.split_at_checked(55)?;
        let [version @ .., b'-'] = known.get(..3)? else { return None };
        let version = bytes::<1>(version)?[0];
        // Later versions may append fields.
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|first| *first == b'-'),
        };
        if !is_whole || known[35] != b'-' || known[52] != b'-' {
            return None;
        }
        let (trace, span) = (bytes::<16>(&known[3..35])?, bytes::<8>(&known[36..52])?);
        let [flags] = bytes::<1>(&known[53..55])?;
        if trace == [0; 16] || span == [0; 8] {
            return None;
        }
        let state = state.filter(|state| {
            let is_plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
            !state.is_empty() && state.len() <= LONGEST_STATE && state.bytes().all(is_plain)
        });
        Some(Self { trace, span, is_sampled: flags & 1 == 1, state: state.map(Into::into) })
    }

    /// A new span in the trace of `parent`, which decides whether it is exported; without one, the
    /// first of a trace, and `share` of those are.
    pub(crate) fn child_of(parent: Option<&Self>, share: f64) -> Self {
        let span = id();
        if let Some(parent) = parent {
            return Self { span, ..parent.clone() };
        }
        let mut trace = [0; 16];
        trace[..8].copy_from_slice(&id());
        trace[8..].copy_from_slice(&id());
        Self { is_sampled: is_within(&trace, share), trace, span, state: None }
    }

    /// Sets the headers of an HTTP request; those of another context are replaced.
    pub(crate) fn put(&self, headers: &mut HeaderMap) {
        headers.remove(STATE);
        let text = [
            (PARENT, self.written()),
            (STATE, self.state.as_deref().unwrap_or_default().to_owned()),
        ];
        for (name, value) in text.into_iter().filter(|(_, value)| !value.is_empty()) {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }

    /// The id of the trace.
    pub(crate) fn trace_id(&self) -> String {
        let mut text = [0; 32];
        put(&mut text, &self.trace);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The `traceparent`.
    pub(crate) fn written(&self) -> String {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        put(&mut text[3..35], &self.trace);
        put(&mut text[36..52], &self.span);
        text[54] = if self.is_sampled { b'1' } else { b'0' };
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Writes lower-case hexadecimal digits, two for a byte.
fn put(text: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// A random id that is not zero.
fn id() -> [u8; 8] {
    fastrand::u64(1..).to_be_bytes()
}

/// Whether a trace is among the exported share: other systems that sample by the trace's id choose
/// the same ones.
fn is_within(trace: &[u8; 16], share: f64) -> bool {
    let mut low = [0; 8];
    low.copy_from_slice(&trace[8..]);
    let place = (u64::from_be_bytes(low) >> 1) as f64;
    share >= 1.0 || place < share * (1_u64 << 63) as f64
}

/// Lower-case hexadecimal digits as bytes.
fn bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut found = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in found.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_written_as_it_was_read() {
        let context = TraceContext::parse(WELL.as_bytes(), Some("a=1")).unwrap();
        assert_eq!(context.written(), WELL);
        assert_eq!((context.is_sampled, context.state.as_deref()), (true, Some("a=1")));
        // A later version may say more.
        let later = WELL.replacen("00", "01", 1);
        for text in [later.clone(), format!("{later}-more")] {
            assert_eq!(TraceContext::parse(text.as_bytes(), None).unwrap().written(), WELL);
        }
    }

    #[test]
    fn a_malformed_traceparent_counts_as_absent() {
        for wrong in [
            String::new(),
            WELL[..54].to_owned(),
            format!("{WELL}-00"),
            WELL.to_uppercase(),
            WELL.replacen("00", "ff", 1),
            WELL.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            WELL.replace("b7ad6b7169203331", &"0".repeat(16)),
            WELL.replace('-', "_"),
            format!("{}é", &WELL[..54]),
        ] {
            assert_eq!(TraceContext::parse(wrong.as_bytes(), None), None, "{wrong}");
        }
        for state in ["", "a=\u{1}", "a=é", &"a".repeat(513)] {
            let context = TraceContext::parse(WELL.as_bytes(), Some(state)).unwrap();
            assert_eq!(context.state, None, "{state}");
        }
    }

    #[test]
    fn the_parent_decides_what_is_exported_and_without_one_the_share_does() {
        fastrand::seed(1);
        let parent = TraceContext::parse(WELL.as_bytes(), None).unwrap();
        let child = TraceContext::child_of(Some(&parent), 0.0);
        assert!(child.is_sampled && child.trace == parent.trace && child.span != parent.span);
        let sampled =
            |share| (0..1_000).filter(|_| TraceContext::child_of(None, share).is_sampled).count();
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 1_000));
        let half = sampled(0.5);
        assert!((400..600).contains(&half), "{half}");
    }
}
