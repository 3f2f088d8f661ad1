//! The pages of `docs/reference` that are made from what the command can be seen to have: its
//! configuration keys, error codes, commands, `_meta` keys and variables.
//!
//! `SEAWALL_REFERENCE=write cargo test -p seawall-gateway reference` writes them anew.

mod codes;
mod commands;
mod keys;
mod named;
