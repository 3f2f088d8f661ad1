//! What a closed breaker costs: admit, call, record a success.

use std::sync::PoisonError;
use std::time::Duration;

use failsafe::CircuitBreaker as _;
use failsafe::{Config, backoff, failure_policy};
use recloser::Recloser;
use seawall::{Breaker, BreakerPolicy, CircuitBreaker, Env, WindowRule};
use seawall_bench::{Ends, Group, Role, Setup, Subject};
use tower::{Layer, Service, ServiceExt};
use tower_resilience_circuitbreaker::{CircuitBreakerLayer, SlidingWindowType};

use super::inner::{LIMIT, LONG, WELL, answer, answer_later, pausable, service, shared};

pub(crate) const IN_A_ROW: &str = "breaker, failures in a row";
pub(crate) const OURS: &str = "seawall Breaker";
pub(crate) const PAUSABLE: &str = "seawall Breaker, tokio's clock";

pub(crate) fn in_a_row() -> Setup<Group> {
    let rules = || BreakerPolicy::new(5, LIMIT);
    let by_name = CircuitBreaker::new(rules(), &Env::new())?;
    let trs = CircuitBreakerLayer::builder().consecutive_failures(5).build()?;
    let failsafe = Config::new()
        .failure_policy(failure_policy::consecutive_failures(5, backoff::constant(LIMIT)));
    let failsafe = failsafe.build();
    let subjects = vec![
        ours(Role::Ours, OURS, Breaker::new("get_issue", rules(), &Env::new())?),
        Subject::waiting(
            Role::OursToo,
            "seawall CircuitBreaker::call, found by name",
            Ends::Well,
            async move || by_name.call("get_issue", answer_later).await,
        ),
        Subject::blocking(Role::Peer, "failsafe 1.3 consecutive", Ends::Well, move || {
            failsafe.call(answer)
        }),
        Subject::service(
            Role::Peer,
            "tower-resilience 0.14 consecutive",
            Ends::Well,
            &shared(trs.layer(service())),
            WELL,
        ),
    ];
    Ok(Group { name: IN_A_ROW, subjects })
}

pub(crate) const IN_A_WINDOW: &str = "breaker, failure rate in a window";

pub(crate) fn in_a_window() -> Setup<Group> {
    let window = WindowRule {
        length: Duration::from_secs(60),
        min_calls: 100,
        failure_rate: 0.5,
        slow: None,
    };
    let rules = BreakerPolicy { failures: 0, window: Some(window), ..BreakerPolicy::new(5, LIMIT) };
    let recloser = Recloser::custom().error_rate(0.5).closed_len(100).open_wait(LIMIT).build();
    let rate = failure_policy::success_rate_over_time_window(
        0.5,
        100,
        Duration::from_secs(60),
        backoff::constant(LIMIT),
    );
    let failsafe = Config::new().failure_policy(rate).build();
    let trs = CircuitBreakerLayer::builder()
        .failure_rate_threshold(0.5)
        .sliding_window_size(100)
        .build()?;
    let subjects = vec![
        ours(Role::Ours, OURS, Breaker::new("get_issue", rules.clone(), &Env::new())?),
        ours(Role::OursToo, PAUSABLE, Breaker::new("get_issue", rules, &pausable())?),
        Subject::blocking(Role::Peer, "recloser 1.4, last 100 calls", Ends::Well, move || {
            recloser.call(answer)
        }),
        Subject::blocking(Role::Peer, "failsafe 1.3 success-rate EMA", Ends::Well, move || {
            failsafe.call(answer)
        }),
        Subject::service(
            Role::Peer,
            "tower-resilience 0.14, last 100 calls",
            Ends::Well,
            &shared(trs.layer(service())),
            WELL,
        ),
        time_window()?,
    ];
    Ok(Group { name: IN_A_WINDOW, subjects })
}

fn ours(role: Role, name: &'static str, breaker: Breaker) -> Subject {
    Subject::blocking(role, name, Ends::Well, move || {
        let permit = breaker.admit().map_err(|refused| refused.retry_after)?;
        let answer = answer();
        permit.well();
        answer.map_err(|_| Duration::ZERO)
    })
}

/// This one remembers every call of its window and looks at each of them again for every call, so
/// its price is that of the calls it remembers: it is made anew before these grow by more than a
/// tenth.
fn time_window() -> Setup<Subject> {
    const REMEMBERED: usize = 10_000;
    let make = || -> Setup<_> {
        let rules =
            CircuitBreakerLayer::builder().failure_rate_threshold(0.5).minimum_number_of_calls(100);
        let window =
            rules.sliding_window_type(SlidingWindowType::TimeBased).sliding_window_duration(LONG);
        Ok(window.build()?.layer(service()))
    };
    let current = shared(make()?);
    let name = "tower-resilience 0.14, last hour with 10,000 calls";
    let subject = Subject::service(Role::Peer, name, Ends::Well, &current, WELL);
    Ok(subject.renewed(move |runtime| {
        let service = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let remembered = runtime.block_on(service.metrics()).total_calls;
        if (REMEMBERED..REMEMBERED + REMEMBERED / 10).contains(&remembered) {
            return;
        }
        // It could be built before, so it can be again.
        let Ok(mut anew) = make() else { return };
        runtime.block_on(async {
            for _ in 0..REMEMBERED {
                if let Ok(ready) = anew.ready().await {
                    let _ = ready.call(WELL).await;
                }
            }
        });
        *current.lock().unwrap_or_else(PoisonError::into_inner) = anew;
    }))
}
