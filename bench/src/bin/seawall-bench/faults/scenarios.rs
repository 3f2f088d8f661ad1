//! What goes wrong: one kind of fault at a time, on a server that was well before and is well again
//! after.

use seawall_demo::faults::{Fault, FaultPlan, ListFault, Strike};

/// One kind of trouble.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Nothing is wrong with the server: no breaker may open.
    pub(crate) is_healthy: bool,
    /// Nothing works while it lasts: what is sent is wasted.
    pub(crate) is_outage: bool,
    /// The server says no, so that nothing may stand in for it.
    pub(crate) says_no: bool,
    /// Whether a pipe can have it, and HTTP.
    pub(crate) on: [bool; 2],
    plan: fn() -> FaultPlan,
}

impl Scenario {
    /// The plan of the server.
    pub(crate) fn plan(&self, seed: u64) -> FaultPlan {
        FaultPlan { seed, ..(self.plan)() }
    }
}

fn calls(strike: Strike) -> FaultPlan {
    FaultPlan::of(0, [strike])
}

const fn some(name: &'static str, plan: fn() -> FaultPlan) -> Scenario {
    Scenario { name, is_healthy: false, is_outage: false, says_no: false, on: [true, true], plan }
}

const fn healthy(name: &'static str, plan: fn() -> FaultPlan) -> Scenario {
    Scenario { is_healthy: true, ..some(name, plan) }
}

/// All of them.
pub(crate) const ALL: [Scenario; 19] = [
    healthy("nothing", FaultPlan::default),
    Scenario {
        is_outage: true,
        ..some("refused (F2, F6)", || FaultPlan { is_away: true, ..FaultPlan::default() })
    },
    some("hangs, 30 %", || calls(Strike::once(Fault::Hang, 30))),
    healthy("slow", || calls(Strike::always(Fault::Slow))),
    some("dies before executing, 20 % (F7)", || calls(Strike::once(Fault::DieBefore, 20))),
    some("dies after executing, 20 % (F7)", || calls(Strike::once(Fault::DieAfter, 20))),
    some("cut off in its answer, 30 %", || calls(Strike::once(Fault::Reset, 30))),
    some("429, 30 %", || calls(Strike::once(Fault::Throttled, 30))),
    some("429 with Retry-After, 30 %", || calls(Strike::once(Fault::ThrottledFor, 30))),
    some("503 once, 30 %", || calls(Strike::once(Fault::Unavailable, 30))),
    some("503 at any time, 20 % (F1)", || calls(Strike::any(Fault::Unavailable, 20))),
    Scenario {
        is_outage: true,
        ..some("503 for long", || calls(Strike::always(Fault::Unavailable)))
    },
    Scenario {
        is_outage: true,
        says_no: true,
        ..some("401 for long", || calls(Strike::always(Fault::Expired)))
    },
    Scenario {
        on: [false, true],
        ..some("session forgotten, 5 %", || calls(Strike::once(Fault::Forgotten, 5)))
    },
    Scenario {
        on: [true, false],
        ..healthy("noise on stdout", || calls(Strike::always(Fault::Noise)))
    },
    healthy("list empty", || FaultPlan { list: Some(ListFault::Empty), ..FaultPlan::default() }),
    healthy("list with a bad schema", || FaultPlan {
        list: Some(ListFault::BadSchema),
        ..FaultPlan::default()
    }),
    some("soft errors, 30 %", || calls(Strike::once(Fault::Soft, 30))),
    healthy("calls that make no sense, 30 %", || calls(Strike::once(Fault::Refused, 30))),
];

/// Those of a quick run.
pub(crate) const QUICK: [&str; 6] = [
    "nothing",
    "dies after executing, 20 % (F7)",
    "503 at any time, 20 % (F1)",
    "503 for long",
    "slow",
    "list empty",
];
