//! What the ground costs that every library stands on.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use seawall::Clock;
use seawall_bench::{Ends, Group, Role, Subject, now};

use super::deadlines::within_tokio;
use super::inner::{answer, answer_later};

pub(crate) const GROUP: &str = "floors";
pub(crate) const TIMEOUT: &str = "tokio::time::timeout of a ready future";

pub(crate) fn floors() -> Group {
    let (word, clock) = (AtomicU64::new(0), Clock::default());
    let subjects = vec![
        Subject::blocking(Role::Floor, "plain call", Ends::Well, answer),
        Subject::waiting(Role::Floor, "await of a ready future", Ends::Well, answer_later),
        Subject::blocking(Role::Floor, "one CAS", Ends::Well, move || {
            let seen = word.load(Ordering::Relaxed);
            // On two threads one of them may lose; both have paid.
            let _ = word.compare_exchange(
                seen,
                seen.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            answer()
        }),
        Subject::blocking(Role::Floor, "one allocation", Ends::Well, || {
            Ok::<_, ()>(Box::new(black_box(7_u64)))
        }),
        Subject::blocking(Role::Floor, "Instant::now", Ends::Well, || Ok::<_, ()>(now())),
        Subject::blocking(Role::Floor, "seawall Clock::now", Ends::Well, move || {
            Ok::<_, ()>(clock.now())
        }),
        Subject::waiting(Role::Floor, TIMEOUT, Ends::Well, within_tokio),
    ];
    Group { name: GROUP, subjects }
}
