//! The policies against small models of themselves, on random histories.
//!
//! `PROPTEST_CASES=100000 cargo test --release -p seawall --test props` runs as many as a release
//! asks for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod breaker;
mod cache;
mod calls;
mod rate;
mod slots;
mod texts;
mod window;

use proptest::test_runner::{Config, RngSeed};

/// As many cases as `PROPTEST_CASES` asks for, always the same ones.
fn config() -> Config {
    let cases =
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(500);
    Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x5ea_3a11),
        max_shrink_iters: 10_000,
        ..Config::default()
    }
}
