//! Which call fails, and how: drawn from a seed, so that the same calls meet the same faults
//! whoever carries them.

use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// How a call ends badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// It is never answered and not executed.
    Hang,
    /// It is executed at once and answered late.
    Slow,
    /// The server dies before it executes the call.
    DieBefore,
    /// The server executes the call and dies before it answers.
    DieAfter,
    /// The server executes the call and is cut off in the middle of its answer.
    Reset,
    /// 429, without a word about when to come back.
    Throttled,
    /// 429, and when to come back.
    ThrottledFor,
    /// 503.
    Unavailable,
    /// 401: the credentials have expired.
    Expired,
    /// The server has forgotten all sessions.
    Forgotten,
    /// Something else is printed before the answer.
    Noise,
    /// A result that is marked as an error: the service behind the tool is down.
    Soft,
    /// A result that is marked as an error: the call makes no sense. Nothing is wrong with the
    /// server.
    Refused,
}

/// How a list ends badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListFault {
    /// It is empty.
    Empty,
    /// One tool has a schema that is none.
    BadSchema,
    /// It never comes.
    Hang,
}

/// One fault, and whom it strikes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Strike {
    /// The fault.
    pub fault: Fault,
    /// So many of a hundred calls are struck.
    pub percent: u64,
    /// So many attempts of each such call; `None`: every attempt takes its own chance.
    pub attempts: Option<u32>,
}

impl Strike {
    /// Strikes the first attempt of some calls.
    pub fn once(fault: Fault, percent: u64) -> Self {
        Self { fault, percent, attempts: Some(1) }
    }

    /// Strikes every attempt of all calls.
    pub fn always(fault: Fault) -> Self {
        Self { fault, percent: 100, attempts: Some(u32::MAX) }
    }

    /// Strikes some attempts, whatever came before.
    pub fn any(fault: Fault, percent: u64) -> Self {
        Self { fault, percent, attempts: None }
    }
}

/// Everything that goes wrong with a server at the moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FaultPlan {
    /// Where chance begins.
    pub seed: u64,
    /// What strikes calls; a call is struck by one at most.
    pub strikes: Vec<Strike>,
    /// What strikes lists.
    pub list: Option<ListFault>,
    /// Nobody is there: no connection, no process that stays.
    pub is_away: bool,
}

impl FaultPlan {
    /// Nothing but these strikes.
    pub fn of(seed: u64, strikes: impl Into<Vec<Strike>>) -> Self {
        Self { seed, strikes: strikes.into(), ..Self::default() }
    }

    /// What strikes this attempt (the first is 1) of this call.
    pub fn fault(&self, tool: &str, number: u64, attempt: u32) -> Option<Fault> {
        let mut begin = 0;
        self.strikes.iter().find_map(|strike| {
            let place = match strike.attempts {
                Some(_) => drawn(self.seed, tool, number, 0),
                None => drawn(self.seed, tool, number, u64::from(attempt)),
            } % 100;
            let is_struck = (begin..begin + strike.percent).contains(&place);
            begin += strike.percent;
            (is_struck && strike.attempts.is_none_or(|attempts| attempt <= attempts))
                .then_some(strike.fault)
        })
    }
}

/// A number that is the same whenever it is drawn for the same.
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
