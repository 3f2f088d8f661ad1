//! A breaker, and a model of it that is slow and obvious.

use proptest::prelude::*;
use seawall::Rng;
use seawall::*;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Op {
    Admit,
    End(usize, End),
    Advance(u64),
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Well,
    Badly,
    Dropped,
}

fn op() -> impl Strategy<Value = Op> {
    let end = prop_oneof![Just(End::Well), Just(End::Badly), Just(End::Dropped)];
    prop_oneof![
        4 => Just(Op::Admit),
        6 => (0..8usize, end).prop_map(|(index, end)| Op::End(index, end)),
        2 => prop_oneof![Just(1), Just(50), Just(99), Just(100), Just(101), 0..400u64].prop_map(Op::Advance),
        1 => Just(Op::Reset),
    ]
}

/// In milliseconds: what the policy says, and everything that ever happened in the current state.
struct Model {
    failures: u32,
    successes: u32,
    probes: usize,
    cooldown: u64,
    slow_start: usize,
    lease: u64,
    now: u64,
    era: u64,
    /// Who began after this one began after the row's first failure.
    row_began: u64,
    state: State,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Closed { in_row: u32, slow_start: Option<SlowStart> },
    Open { until: u64 },
    HalfOpen { good: u32, out: Vec<(u64, u64)> },
}

/// After closing: until when, how many may be under way, and who is.
#[derive(Clone, Debug, PartialEq)]
struct SlowStart {
    until: u64,
    room: usize,
    out: Vec<u64>,
}

/// What the model remembers of an admitted call.
#[derive(Clone, Debug)]
struct Admitted {
    era: u64,
    id: u64,
}

impl Model {
    fn go(&mut self, state: State) {
        self.state = state;
        self.era += 1;
    }

    fn open(&mut self, at: u64) {
        self.go(State::Open { until: at + self.cooldown });
    }

    fn admit(&mut self, id: u64) -> Option<Admitted> {
        if let State::HalfOpen { out, .. } = &self.state
            && let Some(overdue) =
                out.iter().map(|(_, until)| *until).filter(|until| *until <= self.now).min()
        {
            self.open(overdue);
        }
        if matches!(self.state, State::Open { until } if until <= self.now) {
            self.go(State::HalfOpen { good: 0, out: vec![] });
        }
        let (lease, probes, now) = (self.lease, self.probes, self.now);
        match &mut self.state {
            State::Closed { slow_start: Some(slow_start), .. } if now < slow_start.until => {
                if slow_start.out.len() >= slow_start.room {
                    return None;
                }
                slow_start.out.push(id);
            }
            State::Closed { .. } => {}
            State::Open { .. } => return None,
            State::HalfOpen { out, .. } if out.len() >= probes => return None,
            State::HalfOpen { out, .. } => out.push((id, now + lease)),
        }
        Some(Admitted { era: self.era, id })
    }

    fn end(&mut self, call: &Admitted, end: End, id: u64) {
        if call.era != self.era {
            return;
        }
        let (limit, enough, now) = (self.failures, self.successes, self.now);
        if let State::Closed { slow_start: Some(slow_start), .. } = &mut self.state {
            slow_start.out.retain(|id| *id != call.id);
            slow_start.room += usize::from(end == End::Well);
        }
        match (&mut self.state, end) {
            (State::Closed { in_row, .. }, End::Well) if call.id < self.row_began => {
                *in_row = in_row.saturating_sub(1)
            }
            (State::Closed { in_row, .. }, End::Well) => *in_row = 0,
            (State::Closed { in_row, .. }, End::Badly) => {
                *in_row += 1;
                if *in_row == 1 {
                    self.row_began = id;
                }
                if *in_row >= limit {
                    self.open(now);
                }
            }
            (State::HalfOpen { good, out }, end) => {
                out.retain(|(id, _)| *id != call.id);
                match end {
                    End::Dropped => {}
                    End::Badly => self.open(now),
                    End::Well => {
                        *good += 1;
                        if *good >= enough {
                            let slow_start = SlowStart {
                                until: now + self.cooldown,
                                room: self.slow_start,
                                out: vec![],
                            };
                            self.go(State::Closed {
                                in_row: 0,
                                slow_start: (self.slow_start > 0).then_some(slow_start),
                            });
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn status(&self) -> BreakerStatus {
        match self.state {
            State::Closed { .. } => BreakerStatus::Closed,
            State::Open { .. } => BreakerStatus::Open,
            State::HalfOpen { .. } => BreakerStatus::HalfOpen,
        }
    }
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn a_breaker_does_what_its_model_does(
        ops in prop::collection::vec(op(), 1..200), failures in 1..6u32, successes in 1..4u32, probes in 1..4u32,
        slow_start in 0..4u32,
    ) {
        let clock = Clock::manual();
        let env = Env::new().with_clock(clock.clone()).with_rng(Rng::fixed(0.0));
        let ms = Duration::from_millis;
        let policy = BreakerPolicy { successes, probes, slow_start, lease: ms(250), ..BreakerPolicy::new(failures, ms(100)) };
        let breaker = Breaker::new("b", policy, &env).unwrap();
        let mut model = Model {
            failures, successes, probes: probes as usize, cooldown: 100, slow_start: slow_start as usize, lease: 250, now: 0, era: 0, row_began: 0,
            state: State::Closed { in_row: 0, slow_start: None },
        };
        let mut running: Vec<(Permit<'_>, Admitted)> = Vec::new();

        for (id, op) in ops.into_iter().enumerate() {
            match op {
                Op::Admit => {
                    let would_pass = breaker.peek().is_ok();
                    let (real, expected) = (breaker.admit(), model.admit(id as u64));
                    prop_assert_eq!(real.is_ok(), expected.is_some());
                    prop_assert!(would_pass || real.is_err(), "what a peek refuses is not admitted");
                    match (&real, &model.state) {
                        (Err(open), State::Open { until } | State::Closed { slow_start: Some(SlowStart { until, .. }), .. }) => {
                            prop_assert_eq!(open.retry_after, ms(until - model.now));
                        }
                        (Ok(_), State::Closed { .. }) => prop_assert!(would_pass, "nor refuses what is"),
                        _ => {}
                    }
                    running.extend(real.ok().zip(expected));
                }
                Op::End(index, end) if !running.is_empty() => {
                    let (permit, call) = running.swap_remove(index % running.len());
                    match end {
                        End::Well => permit.well(),
                        End::Badly => permit.badly(),
                        End::Dropped => drop(permit),
                    }
                    model.end(&call, end, id as u64);
                }
                Op::End(..) => {}
                Op::Advance(by) => {
                    clock.advance(ms(by));
                    model.now += by;
                }
                Op::Reset => {
                    breaker.reset();
                    model.go(State::Closed { in_row: 0, slow_start: None });
                }
            }
            prop_assert_eq!(breaker.status(), model.status());
            if let State::Closed { in_row, .. } = model.state {
                prop_assert_eq!(breaker.snapshot().failures, in_row);
            }
        }
    }
}
