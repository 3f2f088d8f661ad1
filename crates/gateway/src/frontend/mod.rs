//! Client frontends: clients connect over stdio or HTTP, in either era.
//!
//! `http` passes requests through the `guard` to `legacy` (with `sessions` and their `records`, and
//! calls that are `attended`) or `modern`, as long as their `body` keeps within limits and their
//! `connection` is not `idle`; `respond` writes the responses. `stdio` serves one client on a pipe.
//! A message that is not taken is `refused` under its own id.

mod admission;
mod attended;
pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod guard;
pub(crate) mod http;
mod idle;
mod legacy;
mod modern;
mod records;
mod refused;
mod respond;
pub(crate) mod sessions;
pub(crate) mod stdio;
mod versions;
