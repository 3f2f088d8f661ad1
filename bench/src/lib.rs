//! Decides how the cost of a call is measured, judged and shown; the benches decide of what.

mod goals;
mod measure;
mod subject;
mod table;

pub use goals::{Column, Goal, judge, verdict};
pub use measure::{Measured, Plan, Rounds, measure, median, now};
pub use subject::{Ends, Group, Role, Setup, Subject};
pub use table::{Row, grid, machine, table};
