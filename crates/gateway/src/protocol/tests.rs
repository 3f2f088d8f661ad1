//! Tests the wire format with serde_json as the oracle, and its own stricter rules one by one.

use bytes::{Buf as _, Bytes};
use proptest::prelude::*;
use tokio::io::AsyncWriteExt as _;

use super::edit::{JsonObject, one_line, splice};
use super::lines::{LineReader, PipeLine};
use super::message::{Message, MessageKind};
use super::outline::Outline;
use super::pieces::TwoPieces;
use super::scan::{self, Reject};
use super::{header, limits, sse};

fn parse(text: &str) -> Result<Message, Reject> {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()))
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn the_four_kinds_are_told_apart() {
    let kind = |text| parse(text).map(|message| message.kind());
    assert_eq!(kind(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), Ok(MessageKind::Request));
    assert_eq!(
        kind(r#"{"jsonrpc":"2.0","method":"a","params":{}}"#),
        Ok(MessageKind::Notification)
    );
    assert_eq!(kind(r#"{"result":{},"jsonrpc":"2.0","id":"x"}"#), Ok(MessageKind::Result));
    assert_eq!(
        kind(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#),
        Ok(MessageKind::Error)
    );
}

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    for (text, why) in [
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, Reject::Repeated("id".into())),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"name":"x","name":"y"}}"#,
            Reject::Repeated("name".into()),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"name":"x","na\u006de":"y"}}"#,
            Reject::Repeated("name".into()),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"a":1,"a":2}}}"#,
            Reject::Repeated("a".into()),
        ),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Reject::Id),
        (r#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#, Reject::Id),
        (r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#, Reject::Id),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, Reject::Id),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Reject::Id),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Reject::Batch),
        ("\u{feff}{}", Reject::Syntax(0)),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\0\"}", Reject::Syntax(35)),
        ("{}x", Reject::Syntax(2)),
        ("[]x", Reject::Syntax(2)),
        ("0x", Reject::Syntax(1)),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, Reject::Shape("\"method\" is not a string")),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":3}"#,
            Reject::Shape("\"params\" is not an object"),
        ),
        (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, Reject::Shape("\"jsonrpc\" is not \"2.0\"")),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","result":1}"#,
            Reject::Shape("it is a request and an answer at once"),
        ),
    ] {
        assert_eq!(parse(text).err(), Some(why), "{text}");
    }
    let long =
        format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"a"}}"#, "x".repeat(limits::ID_BYTES + 1));
    assert_eq!(parse(&long).err(), Some(Reject::Id));
    let bad = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}");
    assert_eq!(Message::parse(bad).err(), Some(Reject::Utf8(27)));
}

#[test]
fn depth_is_128_and_not_129() {
    let message = |depth| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}}}"#, nested(depth));
    assert!(parse(&message(128 - 1)).is_ok());
    assert_eq!(parse(&message(128)).err(), Some(Reject::Depth));
    assert_eq!(parse(&message(1_000_000)).err(), Some(Reject::Depth));
}

#[test]
fn what_is_looked_into_has_ten_thousand_members() {
    let members =
        |count: usize| (0..count).map(|key| format!("\"{key}\":0")).collect::<Vec<_>>().join(",");
    let message = |count| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{{}}}}}"#, members(count))
    };
    assert!(parse(&message(limits::MEMBERS)).is_ok());
    assert_eq!(parse(&message(limits::MEMBERS + 1)).err(), Some(Reject::Members));
    let meta = format!(
        r#"{{"jsonrpc":"2.0","method":"a","params":{{"_meta":{{{}}}}}}}"#,
        members(limits::MEMBERS + 1)
    );
    assert_eq!(parse(&meta).err(), Some(Reject::Members));
    let array = format!("[{}0]", "0,".repeat(1_000_000));
    assert_eq!(
        scan::elements(array.as_bytes(), scan::Span { start: 0, end: array.len() }).len(),
        limits::MEMBERS
    );
}

#[test]
fn a_result_may_say_a_thing_twice_because_we_only_carry_it() {
    assert!(parse(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2,"b":"\ud800"}}"#).is_ok());
}

#[test]
fn a_method_is_the_same_however_it_is_escaped() {
    let message =
        parse(r#"{"jsonrpc":"2.0","id":1,"method":"tools\/call","params":{"n\u0061me":"x"}}"#)
            .unwrap();
    assert_eq!(
        (message.method(), message.field_text("name").as_deref()),
        ("tools/call", Some("x"))
    );
}

#[test]
fn splicing_leaves_the_rest_as_it_was() {
    let raw = r#"{ "id" : 1 ,"jsonrpc":"2.0","method":"tools/call","params":{"z":1e400,"name":"a","_meta":{"progressToken":7}}}"#;
    let message = parse(raw).unwrap();
    let mut cuts = [
        (message.meta("progressToken").unwrap(), b"99".as_slice()),
        (message.id_span().unwrap(), b"42"),
        (message.field("name").unwrap(), b"\"b\""),
    ];
    let out = splice(message.raw(), &mut cuts);
    assert_eq!(
        out,
        r#"{ "id" : 42 ,"jsonrpc":"2.0","method":"tools/call","params":{"z":1e400,"name":"b","_meta":{"progressToken":99}}}"#
    );
}

#[test]
fn an_object_keeps_what_is_not_touched() {
    let mut object = JsonObject::of(br#"{"b" : 1.50, "a":{"x":[1 , 2]}, "c":null}"#);
    object.set("c", "3").remove("b").set("d", "true").change("a", |inner| {
        inner.set("y", "0");
    });
    assert_eq!(object.json(), br#"{"a":{"x":[1 , 2],"y":0},"c":3,"d":true}"#);
}

#[tokio::test]
async fn a_line_too_long_costs_itself_only() {
    let input = format!("one\n{}\ntwo\r\nthree", "x".repeat(100));
    let mut lines = LineReader::new(input.as_bytes(), 10);
    let mut seen = Vec::new();
    while let Some(line) = lines.next().await.unwrap() {
        seen.push(line);
    }
    let whole = |text: &'static str| PipeLine::Whole(Bytes::from_static(text.as_bytes()));
    assert_eq!(
        seen,
        [whole("one"), PipeLine::TooLong(Outline::default()), whole("two\r"), whole("three")]
    );
}

#[tokio::test]
async fn a_line_too_long_is_read_to_its_end_for_the_sake_of_its_id() {
    let call = |id: u64| {
        format!(
            r#"{{"method":"tools/call","params":{{"name":"x","a":"{}"}},"id":{id}}}"#,
            "y".repeat(99)
        )
    };
    let input = format!("{}\none\n{}\nxxxxxxxxxxxx\ntwo\n{}", call(1), call(2), call(3));
    // The input is read in pieces of different sizes.
    for size in [1, 7, 4096] {
        let (mut near, pieces) = tokio::io::duplex(size);
        let input = input.clone();
        tokio::spawn(async move { near.write_all(input.as_bytes()).await });
        let mut lines = LineReader::outlined(pieces, 10);
        let mut seen = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            seen.push(match line {
                PipeLine::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
                PipeLine::TooLong(outline) => {
                    format!("{:?} {:?}", outline.id.map(|id| id.json().clone()), outline.name)
                }
            });
        }
        let too_long = |id: u64| format!("Some(b\"{id}\") Some(\"x\")");
        assert_eq!(
            seen,
            [too_long(1), "one".into(), too_long(2), "None None".into(), "two".into(), too_long(3)],
            "{size}"
        );
    }
}

#[tokio::test]
async fn what_is_large_has_a_buffer_of_its_own_size() {
    let large = "x".repeat(limits::COPIED * 5 / 2);
    let input = format!("{large}\nsmall\n{large}\n{large}\n");
    let mut lines = LineReader::new(input.as_bytes(), 1 << 20);
    let mut sizes = Vec::new();
    while let Some(PipeLine::Whole(line)) = lines.next().await.unwrap() {
        sizes.push((line.len(), line.try_into_mut().map_or(0, |line| line.capacity())));
    }
    let (size, small) = ((large.len(), large.len()), sizes.remove(1));
    assert_eq!((small.0, sizes.as_slice()), (5, [size; 3].as_slice()));

    let mut decoder = sse::SseDecoder::new(1 << 20);
    large.as_bytes().chunks(1000).for_each(|piece| {
        decoder.push(b"data: ");
        decoder.push(piece);
        decoder.push(b"\n");
    });
    decoder.push(b"\n");
    let data = decoder.event().unwrap().unwrap().data;
    let length = data.len();
    assert_eq!(data.try_into_mut().unwrap().capacity(), length);
}

fn events(pieces: &[&[u8]]) -> Vec<(String, Option<String>)> {
    let mut decoder = sse::SseDecoder::new(1 << 20);
    let mut seen = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        while let Some(event) = decoder.event().unwrap() {
            seen.push((String::from_utf8(event.data.to_vec()).unwrap(), event.id));
        }
    }
    seen
}

#[test]
fn events_are_read_however_they_are_cut_and_ended() {
    let stream = b"\xef\xbb\xbf: hello\r\nid: 7\r\ndata: a\r\ndata:b\r\n\r\nevent: x\rdata: c\r\rdata: d\n\nretry: 5\n\ndata: lost";
    let whole = events(&[stream]);
    let expected = [("a\nb", Some("7")), ("c", None), ("d", None), ("", None)]
        .map(|(data, id)| (data.to_owned(), id.map(str::to_owned)));
    assert_eq!(whole, expected);
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(events(&bytes), whole);
}

#[test]
fn an_endless_event_is_refused() {
    let mut decoder = sse::SseDecoder::new(1000);
    decoder.push(&[b'x'; 2000]);
    assert_eq!(decoder.event(), Err(Reject::Size(1000)));
    let mut decoder = sse::SseDecoder::new(1000);
    for _ in 0..30 {
        decoder.push(b"data: 0123456789012345678901234567890123456789\n");
    }
    assert_eq!(decoder.event(), Err(Reject::Size(1000)));
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?",
        any::<String>().prop_map(|text| serde_json::Value::from(text).to_string()),
        Just(r#""\u00e9\ud83d\ude00\/\ud800""#.to_owned()),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5)
                .prop_map(|items| format!("[{}]", items.join(" ,\n"))),
            prop::collection::vec((any::<String>(), inner), 0..5).prop_map(|members| {
                let members: Vec<String> = members
                    .iter()
                    .map(|(key, value)| {
                        format!("{} : {value}", serde_json::Value::from(key.as_str()))
                    })
                    .collect();
                format!("{{{}}}", members.join(", "))
            }),
        ]
    })
}

#[test]
fn what_is_not_utf8_or_no_character_is_refused_wherever_it_stands() {
    // Longer than the blocks in which strings are scanned, so that the bad byte stands at every
    // position of each.
    for length in [1, 7, 8, 31, 32, 33, 95, 96, 97, 200] {
        for place in 0..length {
            let mut text = vec![b'a'; length];
            text[place] = 0xff;
            let bytes = [b"{\"k\":\"", &text[..], b"\"}"].concat();
            assert_eq!(
                scan::object(&bytes).err(),
                Some(Reject::Utf8(6 + place)),
                "{place} of {length}"
            );
            let wide = format!(
                "{{\"{0}é{1}\":\"{0}é{1}\"}}",
                "a".repeat(place),
                "a".repeat(length - place)
            );
            assert!(scan::object(wide.as_bytes()).is_ok(), "{wide}");
            // A control character is found both before and after bytes outside of ASCII.
            let broken = format!("{{\"é\":\"{}\n{}\"}}", "a".repeat(place), "é".repeat(length));
            assert_eq!(
                scan::object(broken.as_bytes()).err(),
                Some(Reject::Syntax(7 + place)),
                "{broken}"
            );
        }
    }
    // Bytes that are not UTF-8 are reported as such, other bytes that are not JSON as a syntax
    // error.
    assert_eq!(scan::object(b"{\"k\":\xff}").err(), Some(Reject::Utf8(5)));
    assert_eq!(scan::object(b"{\"k\":x}").err(), Some(Reject::Syntax(5)));
}

/// Small sizes, sizes around the copy limit, and a larger size.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..40, limits::COPIED - 2..limits::COPIED + 2, Just(3 * limits::COPIED)]
}

proptest! {
    /// The scanner accepts and refuses the same texts as serde_json, for JSON with a byte changed
    /// at random.
    #[test]
    fn the_scanner_agrees_with_serde_json(text in json(), place in any::<prop::sample::Index>(), byte in any::<Option<u8>>()) {
        let mut bytes = format!("{{\"a\":{text}}}").into_bytes();
        if let Some(byte) = byte {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let oracle = serde_json::from_slice::<&serde_json::value::RawValue>(&bytes);
        let ours = scan::object(&bytes);
        let shape = matches!(ours, Err(Reject::Shape(_) | Reject::Batch));
        prop_assert_eq!(ours.is_ok() || shape, oracle.is_ok(), "{:?}", String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn header_values_come_back_as_they_were(text in any::<String>()) {
        let value = header::encode(&text);
        prop_assert_eq!(header::decode(value.as_bytes()), Some(text));
    }

    #[test]
    fn rebuilding_an_object_changes_nothing_but_space(text in json()) {
        let object = format!("{{\"a\":{text},\"b\":1}}");
        let again = JsonObject::of(object.as_bytes()).json();
        prop_assert_eq!(String::from_utf8(again).unwrap(), object);
    }

    /// A text in two pieces equals the text that splicing gives, whichever of its parts are large.
    #[test]
    fn replacing_one_span_is_splicing_it(before in sizes(), len in 0usize..30, after in sizes(), with in "[0-9]{0,12}") {
        let text = ["a".repeat(before), "b".repeat(len), "c\n".repeat(after / 2)].concat();
        let (raw, span) = (Bytes::from(text), scan::Span { start: before, end: before + len });
        let expected = splice(&raw, &mut [(span, with.as_bytes())]);
        let replaced = TwoPieces::replaced(&raw, span, with.as_bytes());
        prop_assert_eq!(replaced.size(), expected.len());
        prop_assert_eq!(replaced.one_line().whole(), one_line(&expected));
        prop_assert_eq!(replaced.clone().into_buf().copy_to_bytes(expected.len()), replaced.whole());
        prop_assert_eq!(replaced.whole(), expected);
    }
}
