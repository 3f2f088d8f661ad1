//! How tools are treated: the policy of each, and how it came about.

pub mod explain;
pub mod registry;
pub mod startup;
