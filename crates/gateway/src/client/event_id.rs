//! Decides the ids of events on resumable streams: stream, place in it, and the request whose
//! answer it carries.
//!
//! An event id outlives the gateway process that wrote it, for a client presents it to the next
//! one. So the id names the life of the session it was written in and the request that its stream
//! answers: even a stream that is lost ends with an answer.

use std::fmt;

use crate::protocol::Id;

/// A stream, as event ids name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamName {
    /// The life of the session: empty at first, another word after each restart.
    pub life: String,
    /// The number of the stream; 0 is the stream that belongs to no request.
    pub number: u64,
    /// The request that the stream answers.
    pub request: Option<StreamRequest>,
}

/// A request that is answered on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRequest {
    pub id: Id,
    pub is_call: bool,
}

impl StreamName {
    /// The id of the event at a place.
    pub(crate) fn at(&self, place: u64) -> String {
        format!("{self}{place}{}", EventSuffix(self.request.as_ref()))
    }

    /// The stream and the place in an event id.
    pub(crate) fn read(event: &str) -> Option<(Self, u64)> {
        let (life, rest) = event.split_once(':').unwrap_or(("", event));
        let (number, rest) = rest.split_once('-')?;
        let (place, request) = match rest.split_once('.') {
            Some((place, request)) => (place, Some(asked(request)?)),
            None => (rest, None),
        };
        Some((
            Self { life: life.to_owned(), number: number.parse().ok()?, request },
            place.parse().ok()?,
        ))
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.life.is_empty() {
            write!(f, "{}:", self.life)?;
        }
        write!(f, "{}-", self.number)
    }
}

struct EventSuffix<'a>(Option<&'a StreamRequest>);

impl fmt::Display for EventSuffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(StreamRequest { id, is_call }) = self.0 else { return Ok(()) };
        f.write_str(if *is_call { ".t" } else { ".r" })?;
        id.json().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn asked(text: &str) -> Option<StreamRequest> {
    let is_call = text.starts_with('t');
    let digits = text.strip_prefix(['t', 'r'])?.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let json: Vec<u8> = digits
        .chunks(2)
        .map(|pair| byte(pair).filter(|_| pair.len() == 2))
        .collect::<Option<_>>()?;
    // The id comes from a client, so it is checked: only an integer or a string goes back as a
    // JSON-RPC id.
    Some(StreamRequest { id: Id::unscanned(json.into())?, is_call })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        let request = |id: &'static str, is_call| {
            Some(StreamRequest { id: Id::new(id.into()).unwrap(), is_call })
        };
        for (name, written) in [
            (StreamName { life: String::new(), number: 0, request: None }, "0-7"),
            (
                StreamName { life: String::new(), number: 3, request: request("12", true) },
                "3-7.t3132",
            ),
            (
                StreamName { life: "a1".to_owned(), number: 3, request: request("\"x\"", false) },
                "a1:3-7.r227822",
            ),
        ] {
            assert_eq!(name.at(7), written);
            assert_eq!(StreamName::read(written), Some((name, 7)));
        }
        for foreign in [
            "",
            "x",
            "-",
            "1-",
            "1-99999999999999999999",
            "1-0.",
            "1-0.x31",
            "1-0.t3",
            "1-0.t7b7d",
            "1-0.tzz",
        ] {
            assert_eq!(StreamName::read(foreign), None, "{foreign}");
        }
    }
}
