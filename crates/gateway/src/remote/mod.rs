//! A running gateway, as seen by the commands that talk to it: where it is (`place`), what is asked
//! of it (`client`), and how its answers are shown to people (`show`, `table`).

pub(crate) mod address;
pub(crate) mod client;
pub(crate) mod show;
mod table;
