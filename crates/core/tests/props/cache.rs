//! The kept answers, and a map that remembers everything.

use proptest::prelude::*;
use seawall::*;
use serde_json::json;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Op {
    Keep(u8),
    Write,
    Advance(u64),
    Look(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0..4u8).prop_map(Op::Keep),
        Just(Op::Write),
        (0..40u64).prop_map(Op::Advance),
        (0..4u8).prop_map(Op::Look)
    ]
}

struct Kept {
    value: usize,
    at: u64,
    writes: u64,
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn copies_are_fresh_and_stale_when_the_model_says_so(ops in prop::collection::vec(op(), 1..200), fresh in 1..50u64, stale in 1..100u64) {
        let clock = Clock::manual();
        let copies = ResponseCache::new(1 << 20, |_: &usize| 8, clock.clone()).unwrap();
        let keys = Keys::default();
        let key = |n: u8| keys.key(&["server", "tool", "caller"], &json!({ "n": n }));
        let secs = Duration::from_secs;
        let (mut now, mut writes, mut model) = (0, 0, HashMap::<u8, Kept>::new());

        for (value, op) in ops.into_iter().enumerate() {
            match op {
                Op::Keep(n) => {
                    copies.keep(key(n), value, writes);
                    model.insert(n, Kept { value, at: now, writes });
                }
                Op::Write => writes += 1,
                Op::Advance(by) => {
                    clock.advance(secs(by));
                    now += by;
                }
                Op::Look(n) => {
                    let kept = model.get(&n);
                    let is_fresh = kept.filter(|kept| now - kept.at < fresh && kept.writes == writes);
                    prop_assert_eq!(copies.fresh(key(n), secs(fresh), writes), is_fresh.map(|kept| kept.value));
                    let is_stale = kept.filter(|kept| now - kept.at <= stale);
                    let expected = is_stale.map(|kept| StaleResponse { value: kept.value, age: secs(now - kept.at), before_a_write: kept.writes != writes });
                    prop_assert_eq!(copies.stale(key(n), secs(stale), writes), expected);
                }
            }
        }
    }

    #[test]
    fn a_full_cache_forgets_but_never_lies(ops in prop::collection::vec((0..60u16, 1..5_000usize), 1..60)) {
        let copies = ResponseCache::new(20_000, |value: &(u16, usize)| value.1, Clock::manual()).unwrap();
        let keys = Keys::default();
        let key = |n: u16| keys.key(&[], &json!(n));
        let mut last = HashMap::new();

        for (n, size) in ops {
            copies.keep(key(n), (n, size), 0);
            last.insert(n, (n, size));
            for (n, value) in &last {
                let found = copies.fresh(key(*n), Duration::from_secs(1), 0);
                prop_assert!(found.is_none() || found == Some(*value));
            }
        }
    }
}
