//! A point in time as people and programs read it: `2026-07-28T09:05:03.120Z`.

use std::time::{Duration, SystemTime};

/// Milliseconds since 1970 as a date.
pub(crate) fn iso(at: u64) -> String {
    seawall::iso(SystemTime::UNIX_EPOCH + Duration::from_millis(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days_and_ends_of_years() {
        for (at, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_000, "2024-02-29T23:59:59.000Z"),
            (1_735_689_599_120, "2024-12-31T23:59:59.120Z"),
            (1_735_689_600_000, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso(at), date);
        }
    }
}
