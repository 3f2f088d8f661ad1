//! The native half of the npm package `@seawall/core`: binds the library's front doors and decides
//! nothing itself.
//!
//! The library's futures are polled on node's own thread (`run`). JavaScript makes the attempts and
//! keeps every value and error; Rust sees numbers and facts, and decides whether, when and how
//! often.

mod breaker;
mod caller;
mod chain;
mod facts;
mod retry;
mod run;
mod settings;
mod timers;
