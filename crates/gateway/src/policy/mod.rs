//! The policy of each tool, its explanation, and the startup of servers, which brings the tools.

pub(crate) mod explain;
pub(crate) mod probes;
pub(crate) mod registry;
pub(crate) mod startup;
