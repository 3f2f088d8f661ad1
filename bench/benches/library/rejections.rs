//! What an open breaker costs: a refusal. Seawall's says when to try again; the peers' do not.

use std::time::Duration;

use failsafe::CircuitBreaker as _;
use failsafe::{Config, backoff, failure_policy};
use recloser::Recloser;
use seawall::{Breaker, BreakerPolicy, Env};
use seawall_bench::{Ends, Group, Role, Setup, Subject};
use tokio::runtime::Builder;
use tower::{Layer, Service, ServiceExt};
use tower_resilience_circuitbreaker::CircuitBreakerLayer;

use super::breakers::{OURS, PAUSABLE};
use super::inner::{BADLY, LONG, WELL, answer, pausable, service, shared};

pub(crate) const GROUP: &str = "breaker, open: a refusal";

pub(crate) fn rejections() -> Setup<Group> {
    let recloser = Recloser::custom().error_rate(0.5).closed_len(1).open_wait(LONG).build();
    while !matches!(recloser.call(|| Err::<u64, _>("down")), Err(recloser::Error::Rejected)) {}
    let rules = failure_policy::consecutive_failures(1, backoff::constant(LONG));
    let failsafe = Config::new().failure_policy(rules).build();
    while !matches!(failsafe.call(|| Err::<u64, _>("down")), Err(failsafe::Error::Rejected)) {}
    let trs = CircuitBreakerLayer::builder()
        .consecutive_failures(1)
        .wait_duration_in_open(LONG)
        .build()?;
    let mut trs = trs.layer(service());
    let opened = async {
        Ok::<_, String>(trs.ready().await.map_err(|error| error.to_string())?.call(BADLY).await)
    };
    let _ = Builder::new_current_thread().build()?.block_on(opened)?;
    let subjects = vec![
        ours(Role::Ours, OURS, open(&Env::new())?),
        ours(Role::OursToo, PAUSABLE, open(&pausable())?),
        Subject::blocking(Role::Peer, "recloser 1.4", Ends::Refused, move || recloser.call(answer)),
        Subject::blocking(Role::Peer, "failsafe 1.3", Ends::Refused, move || failsafe.call(answer)),
        Subject::service(Role::Peer, "tower-resilience 0.14", Ends::Refused, &shared(trs), WELL),
    ];
    Ok(Group { name: GROUP, subjects })
}

fn open(env: &Env) -> Setup<Breaker> {
    let breaker = Breaker::new("get_issue", BreakerPolicy::new(1, LONG), env)?;
    breaker.admit().map_err(|refused| refused.to_string())?.badly();
    Ok(breaker)
}

fn ours(role: Role, name: &'static str, breaker: Breaker) -> Subject {
    Subject::blocking(role, name, Ends::Refused, move || {
        let permit = breaker.admit().map_err(|refused| refused.retry_after)?;
        let answer = answer();
        permit.well();
        answer.map_err(|_| Duration::ZERO)
    })
}
