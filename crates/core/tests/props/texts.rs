//! Any text may come from a server: nothing panics, and no secret gets through.

use proptest::prelude::*;
use seawall::*;
use serde_json::json;

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn any_text_is_classified(text in any::<String>(), status in proptest::option::of(any::<u16>()), body in any::<String>()) {
        let signals = FailureSignals { status, ..FailureSignals::text(text.clone()) }.with_body(body);
        let failure = classify(&signals);
        prop_assert_eq!(failure.sent == Sent::Yes, false, "a text proves no execution");
        Classifier::new().classify_soft(&text);
        classify_load_error(&text, status);
        parse_retry_after(&text, std::time::UNIX_EPOCH);
        let _ = parse_duration("field", &text);
        ToolFacts::named(&text).kind();
    }

    #[test]
    fn a_tool_name_or_an_id_is_never_taken_for_a_status(word in "[a-z]{1,8}", number in prop_oneof![Just(429), Just(502), Just(503), Just(504)]) {
        for text in [format!("{word}_{number}"), format!("{number}_{word}"), format!("{number}{number}"), format!("#{number} of {word}x"), format!("{word}-{number}x")] {
            prop_assert_eq!(Prepared::new([text.as_str()]).status(), None, "{}", text);
        }
    }

    #[test]
    fn secrets_do_not_survive(key in "(X-)?(Api|API|api)[-_]?(Key|KEY|key)|[a-z]{0,3}(token|Secret|PASSWORD|cookie)[a-z]{0,3}", depth in 0..5usize, other in any::<String>()) {
        let secret = (0..depth).fold(json!({ key: "CANARY", "other": other }), |inner, _| json!([{ "deeper": inner }]));
        prop_assert!(!sanitize(&secret).to_string().contains("CANARY"));
    }

    #[test]
    fn fallback_arguments_never_panic_and_never_grow(query in any::<String>(), page in any::<u64>(), items in prop::collection::vec(any::<u8>(), 0..120)) {
        let arguments = json!({"query": query, "page": page, "ids": items});
        for (simpler, _) in simplified(&arguments, None) {
            prop_assert!(simpler.len() <= query.len() && !simpler.is_empty());
        }
        prop_assert_eq!(previous_page(&arguments, None).is_some(), page > 1);
        prop_assert_eq!(one_by_one(&arguments, None).map_or(0, |split| split.len()), if (2..=100).contains(&items.len()) { items.len() } else { 0 });
    }
}
