//! The faces: where clients come in, over stdio or HTTP, in either era.
//!
//! `http` takes requests past the `guard` to `legacy` (with `sessions`, their `records` and
//! `stream`s) or `modern`, as long as their `body` keeps within limits and their `connection` is
//! not `idle`; `stdio` is one client on a pipe. What is not taken is `refused` under its own id.

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
