//! The faces: where clients come in, over stdio or HTTP, in either era.
//!
//! `http` takes requests past the `guard` to `legacy` (with `sessions` and their `stream`s) or `modern`; `stdio` is one
//! client on a pipe.

pub mod guard;
pub mod http;
mod legacy;
mod modern;
mod respond;
pub mod sessions;
pub mod stdio;
pub mod stream;
mod versions;
