//! A running gateway, as seen by the commands that talk to it: where it is (`place`), what is asked
//! of it (`client`), and how its answers are shown to people (`show`, `table`).

pub mod address;
pub mod client;
pub mod show;
mod table;
