//! Decides how the cost of a call is measured, judged and shown; `benches/library.rs` decides of what.

mod goals;
mod measure;
mod subject;
mod table;

pub use goals::{Column, Goal, judge};
pub use measure::{Measured, Plan, Rounds, measure, now};
pub use subject::{Ends, Group, Role, Setup, Subject};
pub use table::{Row, machine, table};
