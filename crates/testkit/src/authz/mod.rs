//! What decides who may call, for tests: authorizers that misbehave on demand, real ones, and the
//! keys that callers show.
//!
//! `authorizer` (gRPC) and `http` play an authorizer by a `script`; `check` is what the gRPC one
//! was asked, `reply` what it says. `bridge` stands before OpenFGA as CAIPE's does. `real` starts
//! programs that we did not write. `keys` signs tokens, `jwks` serves the keys. All of them listen
//! on a `port` that can be shut and opened again.

mod authorizer;
mod bridge;
mod check;
mod http;
mod jwks;
mod keys;
mod port;
mod real;
mod reply;
mod script;

pub use self::authorizer::Authorizer;
pub use self::bridge::{Bridge, BridgeSettings, agent_context};
pub use self::check::{Check, check_request, json_of_struct, struct_of_json};
pub use self::http::{HttpAuthorizer, HttpCheck, HttpReply};
pub use self::jwks::Jwks;
pub use self::keys::{Key, KeyKind, Wicked, claims};
pub use self::real::{Istio, Opa, OpenFga, Tuple, program};
pub use self::reply::Reply;
pub use self::script::Act;

/// The most that is remembered of what one authorizer was asked; no test comes near it.
const MOST: usize = 100_000;

type Pending<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;
