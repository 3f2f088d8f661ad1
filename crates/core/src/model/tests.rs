//! Tests which names are remembered. In a file of their own, because loom compiles the source too.

use std::cell::Cell;
use std::sync::Arc;

use super::names::{LOOKS, NameRegistry};

fn learn(names: &NameRegistry<u32>, number: u32, lets_go: impl Fn(&Arc<u32>) -> bool) -> bool {
    names.learn(&number.to_string(), lets_go, || Some(Arc::new(number))).is_some()
}

#[test]
fn a_new_name_costs_a_few_looks_and_all_are_looked_at_in_turn() {
    let (names, looks) = (NameRegistry::new(1000), Cell::new(0));
    (0..1000).for_each(|number| assert!(learn(&names, number, |_| true)));
    let only_500 = |value: &Arc<u32>| {
        looks.set(looks.get() + 1);
        **value == 500
    };

    let needed = (1000..).take_while(|number| !learn(&names, *number, only_500)).count();

    assert_eq!((needed, looks.get()), (500 / LOOKS, 500 + 1));
    assert_eq!((names.get("500"), names.all().len()), (None, 1000));
}

#[test]
fn what_is_used_again_and_again_outlives_any_number_of_strangers() {
    let names = NameRegistry::new(1000);
    (0..1000).for_each(|number| assert!(learn(&names, number, |_| true)));

    for number in 1000..5000 {
        assert!(names.used("7").is_some(), "forgotten before {number}");
        assert!(learn(&names, number, |_| true));
    }

    assert_eq!((names.get("8"), names.all().len()), (None, 1000));
}

#[test]
fn what_is_kept_for_good_takes_no_strangers_place() {
    let names = NameRegistry::new(2);
    (0..2).for_each(|number| assert!(learn(&names, number, |_| true)));
    names.keep("0", || Ok::<_, ()>(Arc::new(100))).unwrap();

    (1..50).for_each(|number| assert!(learn(&names, number, |_| true)));

    assert_eq!((names.get("0").as_deref(), names.all().len()), (Some(&100), 3));
    assert_eq!(names.keep("9", || Err("bad")), Err("bad"));
}
