//! The clock: what several threads read while one of them asks the system.

use loom::sync::Arc;
use loom::thread;

use super::counter;

#[test]
fn a_new_reading_of_the_clock_is_never_taken_with_the_time_of_the_old() {
    const NANOSECOND: u64 = 1 << 32;
    loom::model(|| {
        let anchor = Arc::new(counter::Anchor::new(NANOSECOND));
        anchor.set(1_000, 1_000, 1_000);
        // The system slept for an hour, and the counter with it.
        let other = thread::spawn({
            let anchor = anchor.clone();
            move || anchor.set(2_000_000, 3_600_000_000_000, 2_000_000)
        });
        let told = anchor.nanos(2_000_500);
        other.join().unwrap();

        assert!(told.is_none_or(|nanos| nanos >= 3_600_000_000_000), "{told:?}");
        assert!(anchor.nanos(2_000_500).is_some());
    });
}
