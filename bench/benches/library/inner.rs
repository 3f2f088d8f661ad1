//! Decides what every policy is wrapped around: a call that is ready at once and succeeds.

use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seawall::{Clock, Env};
use tower::{Service, service_fn};

/// What the inner call gives.
pub(crate) type Answered = Result<u64, &'static str>;

/// Long enough that nothing ever expires.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
/// A usual limit of a call.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// What the inner call is asked for: a good answer.
pub(crate) const WELL: u64 = 7;
/// What it is asked for: a failure.
pub(crate) const BADLY: u64 = 0;

/// The inner call, blocking. Nobody can tell beforehand how it ends, and its result stays in
/// registers: going through memory in pieces would cost more than most policies.
#[inline]
pub(crate) fn answer() -> Answered {
    answer_to(WELL)
}

#[inline]
fn answer_to(wish: u64) -> Answered {
    match black_box(wish) {
        BADLY => Err("down"),
        value => Ok(value),
    }
}

/// The inner call, async.
#[inline]
pub(crate) async fn answer_later() -> Answered {
    answer()
}

/// The inner call as a tower service. It does as it is asked, so that a breaker can be opened with
/// it.
pub(crate) fn service() -> impl Service<
    u64,
    Response = u64,
    Error = &'static str,
    Future = impl Future<Output = Answered> + Send + 'static,
> + Clone
+ Send
+ 'static {
    service_fn(async |wish| answer_to(wish))
}

/// Something that the threads of a round share, or clone.
pub(crate) fn shared<S>(service: S) -> Arc<Mutex<S>> {
    Arc::new(Mutex::new(service))
}

/// Surroundings whose clock is tokio's, which can be paused.
pub(crate) fn pausable() -> Env {
    Env::new().with_clock(Clock::tokio())
}
