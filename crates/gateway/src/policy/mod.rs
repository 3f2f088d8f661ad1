//! How tools are treated: the policy of each, and how it came about.

pub(crate) mod explain;
pub(crate) mod registry;
pub(crate) mod startup;
