//! Decides which attempt fails, and how: drawn from a seed, so that the same calls meet the same
//! faults, direct or through a gateway.

use std::hash::Hasher;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// How late a slow answer comes, if the plan does not say it.
pub const SLOW: Duration = Duration::from_millis(400);

/// The fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The server neither executes nor answers the call.
    Hang,
    /// The server executes the call at once and answers late.
    Slow,
    /// The server dies before it executes the call.
    DieBefore,
    /// The server executes the call and dies before it answers.
    DieAfter,
    /// The server executes the call and is cut off in the middle of its answer.
    Reset,
    /// 429, without a `Retry-After`.
    Throttled,
    /// 429, with a `Retry-After`.
    ThrottledFor,
    /// 503, or another HTTP status that the strike names.
    Unavailable,
    /// 401: the credentials have expired.
    Expired,
    /// The server has forgotten all sessions.
    Forgotten,
    /// The server prints something else before the answer.
    Noise,
    /// A result that is marked as an error: the service behind the tool is down.
    Soft,
    /// A result that is marked as an error: the call makes no sense. The server is healthy.
    Refused,
    /// A JSON-RPC error, before the call is executed.
    Broken,
    /// A result that looks like a success, and whose text tells of a failure.
    Disguised,
}

/// The fault of a tool list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListFault {
    /// The list is empty.
    Empty,
    /// One tool has an invalid schema.
    BadSchema,
    /// The list never comes.
    Hang,
}

/// One fault, and the share of calls that it strikes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Strike {
    /// The fault.
    pub fault: Fault,
    /// How many of a hundred calls are struck.
    pub percent: u64,
    /// How many attempts of each struck call fail; `None`: each attempt is drawn on its own.
    pub attempts: Option<u32>,
    /// The only tool that is struck.
    pub tool: Option<String>,
    /// How late a slow answer comes; [`SLOW`] if nothing is said.
    pub delay: Option<Duration>,
    /// The seconds of a `Retry-After`; one if a fault has it and nothing is said.
    pub retry_after: Option<u64>,
    /// The HTTP status of a fault that has one.
    pub status: Option<u16>,
}

impl Strike {
    /// Strikes the first attempt of some calls.
    pub fn once(fault: Fault, percent: u64) -> Self {
        Self { attempts: Some(1), ..Self::any(fault, percent) }
    }

    /// Strikes every attempt of all calls.
    pub fn always(fault: Fault) -> Self {
        Self { attempts: Some(u32::MAX), ..Self::any(fault, 100) }
    }

    /// Strikes some attempts, each drawn on its own.
    pub fn any(fault: Fault, percent: u64) -> Self {
        Self {
            fault,
            percent,
            attempts: None,
            tool: None,
            delay: None,
            retry_after: None,
            status: None,
        }
    }
}

/// All current faults of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultPlan {
    /// The seed of every draw.
    pub seed: u64,
    /// The faults of calls; at most one strikes a call.
    pub strikes: Vec<Strike>,
    /// The fault of tool lists.
    pub list: Option<ListFault>,
    /// The server is away: no connection is accepted, and no process stays alive.
    pub is_away: bool,
}

impl FaultPlan {
    /// A plan of these strikes only.
    pub fn of(seed: u64, strikes: impl Into<Vec<Strike>>) -> Self {
        Self { seed, strikes: strikes.into(), ..Self::default() }
    }

    /// The fault of this attempt (the first is 1) of this call.
    pub fn fault(&self, tool: &str, number: u64, attempt: u32) -> Option<Fault> {
        self.strike(tool, number, attempt).map(|strike| strike.fault)
    }

    /// The strike that this attempt (the first is 1) of this call meets.
    pub fn strike(&self, tool: &str, number: u64, attempt: u32) -> Option<&Strike> {
        // The strikes take consecutive ranges of 0..100, so that one draw hits at most one of them.
        let mut begin = 0;
        let concerned = |strike: &&Strike| strike.tool.as_deref().is_none_or(|only| only == tool);
        self.strikes.iter().filter(concerned).find(|strike| {
            let place = match strike.attempts {
                // All attempts of a call share one draw; `attempts` then limits how many of them
                // fail.
                Some(_) => drawn(self.seed, tool, number, 0),
                None => drawn(self.seed, tool, number, u64::from(attempt)),
            } % 100;
            let is_struck = (begin..begin + strike.percent).contains(&place);
            begin += strike.percent;
            is_struck && strike.attempts.is_none_or(|attempts| attempt <= attempts)
        })
    }
}

/// A pseudo-random number that depends on these arguments alone.
pub fn drawn(seed: u64, what: &str, number: u64, turn: u64) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed, turn);
    hasher.write(what.as_bytes());
    hasher.write_u64(number);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_calls_meet_the_same_faults_and_about_as_many_as_were_asked_for() {
        let plan =
            FaultPlan::of(7, [Strike::once(Fault::Hang, 10), Strike::once(Fault::Unavailable, 20)]);
        let hit = |seed, fault| {
            let plan = FaultPlan { seed, ..plan.clone() };
            (0..1000)
                .filter(|number| plan.fault("read_note", *number, 1) == Some(fault))
                .collect::<Vec<u64>>()
        };
        assert_eq!(hit(7, Fault::Hang), hit(7, Fault::Hang));
        assert_ne!(hit(7, Fault::Hang), hit(8, Fault::Hang));
        assert!((70..130).contains(&hit(7, Fault::Hang).len()), "{}", hit(7, Fault::Hang).len());
        assert!((160..240).contains(&hit(7, Fault::Unavailable).len()));
        let struck = hit(7, Fault::Hang)[0];
        assert_eq!(plan.fault("read_note", struck, 2), None, "only the first attempt is struck");
        assert_eq!(
            FaultPlan::of(7, [Strike::always(Fault::Hang)]).fault("read_note", struck, 99),
            Some(Fault::Hang)
        );
    }

    #[test]
    fn a_strike_that_takes_chances_lets_no_call_fail_for_ever() {
        let plan = FaultPlan::of(7, [Strike::any(Fault::Unavailable, 20)]);
        for number in 0..100 {
            assert!(
                (1..20).any(|attempt| plan.fault("read_note", number, attempt).is_none()),
                "{number}"
            );
        }
    }
}
