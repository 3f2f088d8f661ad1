//! The commands' view of a running gateway: where it is (`address`), the requests to it (`client`),
//! and how its answers are shown to people (`show`, `table`).

pub(crate) mod address;
pub(crate) mod client;
pub(crate) mod show;
mod table;
