//! What a time limit costs, alone and under a retry and a breaker.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use seawall::{Breaker, BreakerPolicy, Effect, Env, Retry, within};
use seawall_bench::{Ends, Group, Role, Setup, Subject};
use tower::timeout::Timeout;
use tower::{Layer, ServiceBuilder};
use tower_resilience_circuitbreaker::{CircuitBreakerError, CircuitBreakerLayer};
use tower_resilience_retry::RetryLayer;
use tower_resilience_timelimiter::{TimeLimiterError, TimeLimiterLayer};

use super::inner::{Answered, LIMIT, WELL, answer, answer_later, service, shared};
use super::retries::in_hand;

pub(crate) fn ready() -> Group {
    let trs = TimeLimiterLayer::builder().timeout_duration(LIMIT).build();
    let subjects = vec![
        Subject::waiting(Role::Ours, "seawall within", Ends::Well, async || {
            flat(within(LIMIT, answer_later()).await)
        }),
        Subject::waiting(Role::Floor, "tokio timeout", Ends::Well, within_tokio),
        Subject::service(
            Role::Peer,
            "tower 0.5 timeout",
            Ends::Well,
            &shared(Timeout::new(service(), LIMIT)),
            WELL,
        ),
        Subject::service(
            Role::Peer,
            "tower-resilience 0.14 timelimiter",
            Ends::Well,
            &shared(trs.layer(service())),
            WELL,
        ),
    ];
    Group { name: "deadline, the work is ready at once", subjects }
}

pub(crate) async fn within_tokio() -> Answered {
    flat(tokio::time::timeout(LIMIT, answer_later()).await)
}

/// What a real call does: it waits for the runtime's next turn, so a timer has to be set and
/// removed. That timer is tokio's, so tokio's own timeout is the floor here.
pub(crate) fn waits_once() -> Group {
    let subjects = vec![
        Subject::waiting(Role::Floor, "no limit", Ends::Well, async || {
            in_turns(answer_next_turn()).await
        }),
        Subject::waiting(Role::Ours, "seawall within", Ends::Well, async || {
            flat(in_turns(within(LIMIT, answer_next_turn())).await)
        }),
        Subject::waiting(Role::Floor, "tokio timeout", Ends::Well, async || {
            flat(in_turns(tokio::time::timeout(LIMIT, answer_next_turn())).await)
        }),
    ];
    Group { name: "deadline, the work waits once", subjects }
}

thread_local! {
    static TURN: Cell<u64> = const { Cell::new(0) };
}

/// Counts the turns that the runtime gives to `work`.
async fn in_turns<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        TURN.set(TURN.get().wrapping_add(1));
        work.as_mut().poll(context)
    })
    .await
}

/// The inner call, but it is ready only at the runtime's next turn, however often it is asked in
/// this one.
async fn answer_next_turn() -> Answered {
    let first = TURN.get();
    poll_fn(|context| {
        if TURN.get() != first {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    answer()
}

fn flat<E>(timed: Result<Answered, E>) -> Answered {
    timed.unwrap_or(Err("elapsed"))
}

pub(crate) const STACK: &str = "stack of retry, breaker and deadline";
pub(crate) const OUR_STACK: &str = "seawall Retry with a breaker and limits";

pub(crate) fn stack() -> Setup<Group> {
    type Error = CircuitBreakerError<TimeLimiterError<&'static str>>;
    let env = Env::new();
    let breaker = || Breaker::new("get_issue", BreakerPolicy::new(5, LIMIT), &env).map(Arc::new);
    let retry = || Retry::new(Effect::ReadOnly).env(env.clone());
    let whole = retry().breaker(breaker()?).timeout(2 * LIMIT)?.attempt_timeout(LIMIT)?;
    let (retry, breaker) = (retry(), breaker()?);
    let trs = ServiceBuilder::new()
        .layer(RetryLayer::<u64, u64, Error>::builder().max_attempts(3).build())
        .layer(CircuitBreakerLayer::builder().consecutive_failures(5).build()?)
        .layer(TimeLimiterLayer::builder().timeout_duration(LIMIT).build())
        .service(service());
    let subjects = vec![
        Subject::waiting(Role::Ours, OUR_STACK, Ends::Well, async move || {
            in_hand(whole.call(|_| answer_later()).await)
        }),
        Subject::waiting(
            Role::OursToo,
            "seawall Retry, Breaker, within: put together",
            Ends::Well,
            async move || {
                let limited = async || flat(within(LIMIT, answer_later()).await);
                in_hand(retry.call(|_| breaker.call(limited)).await)
            },
        ),
        Subject::service(
            Role::Peer,
            "tower-resilience 0.14 retry, breaker, timelimiter",
            Ends::Well,
            &shared(trs),
            WELL,
        ),
    ];
    Ok(Group { name: STACK, subjects })
}
