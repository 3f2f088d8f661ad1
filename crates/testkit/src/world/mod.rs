//! A misbehaving world: clients that lose patience, drop connections and ask again; servers that
//! answer late, twice, wrongly or not at all, die and forget; a gateway that is killed. Histories
//! are drawn from a seed and played against the real program; afterwards the servers' ledger and
//! the clients' notes are compared with what must always hold.
//!
//! Read `plan` (what a history is), `generate` (seed → history), `play` (history → record), `check`
//! (record → violations), `shrink` and `campaign` (many at once). The same seed gives the same
//! history; real time makes no two plays of it alike, so a violation that needs a race may take
//! several plays to come again.

pub mod campaign;
pub mod check;
mod client;
pub mod config;
mod gateway;
pub mod generate;
mod http;
mod lag;
pub mod ledger;
pub mod notes;
pub mod plan;
pub mod play;
mod process;
pub mod server;
pub mod shrink;
mod tell;
