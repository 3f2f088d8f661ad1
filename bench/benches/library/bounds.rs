//! What bounding costs: how many at a time, and how many in a time.

use std::num::NonZeroU32;

use governor::Quota;
use seawall::{Bulkhead, BulkheadPolicy, Clock, Rate, RateLimiter};
use seawall_bench::{Ends, Group, Role, Setup, Subject};
use tokio::sync::Semaphore;
use tower::Layer;
use tower_resilience_bulkhead::BulkheadLayer;

use super::inner::{LIMIT, LONG, WELL, answer, service, shared};

const AT_A_TIME: u32 = 64;
/// One per nanosecond: nobody ever waits.
const PLENTY: u32 = 1_000_000_000;

pub(crate) fn slots() -> Setup<Group> {
    let slots = Bulkhead::new(BulkheadPolicy::new(AT_A_TIME))?;
    let semaphore = Semaphore::new(usize::try_from(AT_A_TIME)?);
    let trs = BulkheadLayer::builder().max_concurrent_calls(usize::try_from(AT_A_TIME)?).build()?;
    let subjects = vec![
        Subject::blocking(Role::Floor, "tokio Semaphore::try_acquire", Ends::Well, move || {
            let _slot = semaphore.try_acquire().map_err(|_| "full")?;
            answer()
        }),
        Subject::waiting(Role::Ours, "seawall Slots::take", Ends::Well, async move || {
            let _slot = slots.take(LIMIT).await.map_err(|_| "full")?;
            answer()
        }),
        Subject::service(
            Role::Peer,
            "tower-resilience 0.14 bulkhead",
            Ends::Well,
            &shared(trs.layer(service())),
            WELL,
        ),
    ];
    Ok(Group { name: "bulkhead, a slot is free", subjects })
}

pub(crate) fn rate_admitted() -> Setup<Group> {
    let ours = RateLimiter::new(Rate::per_second(PLENTY), &Clock::default())?;
    let governor = governor::RateLimiter::direct(Quota::per_second(NonZeroU32::try_from(PLENTY)?));
    let subjects = vec![
        Subject::blocking(Role::Ours, "seawall RateLimit", Ends::Well, move || ours.check()),
        Subject::blocking(Role::Peer, "governor 0.10", Ends::Well, move || governor.check()),
    ];
    Ok(Group { name: "rate limit, within the rate", subjects })
}

pub(crate) fn rate_rejected() -> Setup<Group> {
    let rate = Rate { count: 1, per: LONG, burst: 1 };
    let ours = RateLimiter::new(rate, &Clock::default())?;
    let governor = governor::RateLimiter::direct(Quota::per_hour(NonZeroU32::MIN));
    let _ = (ours.check(), governor.check());
    let subjects = vec![
        Subject::blocking(Role::Ours, "seawall RateLimit", Ends::Refused, move || ours.check()),
        Subject::blocking(Role::Peer, "governor 0.10", Ends::Refused, move || governor.check()),
    ];
    Ok(Group { name: "rate limit, over the rate: a refusal", subjects })
}
