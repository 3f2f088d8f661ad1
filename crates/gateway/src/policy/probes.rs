//! Decides which call of this replica may probe a breaker that the fleet shares: one that brought a
//! lease.
//!
//! The call gets its lease before it enters the library, for that may take a question to Redis; the
//! library then takes it from here, and gives it back, at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use seawall::ProbeLeases;
use tokio::sync::mpsc;

/// Leases whose end waits to be told; further ones end by their time.
const ENDED: usize = 256;

/// A lease of the fleet; `None`: this replica's own, because nobody else could be asked.
pub(crate) type LeaseNumber = Option<u64>;

/// A probe that is over, or was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndedLease {
    /// The breaker's name.
    pub breaker: String,
    /// The number of the lease.
    pub number: u64,
}

/// The leases of one breaker.
#[derive(Debug, Default)]
struct BreakerLeases {
    /// Brought by calls that have not taken them yet.
    offered: Vec<LeaseNumber>,
    /// Of probes in flight.
    taken: Vec<LeaseNumber>,
}

/// The leases of this replica.
#[derive(Debug)]
pub(crate) struct ProbePurse {
    breakers: Mutex<HashMap<String, BreakerLeases>>,
    ended: mpsc::Sender<EndedLease>,
}

impl ProbePurse {
    /// An empty one, and where the ends of leases are told.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<EndedLease>) {
        let (ended, told) = mpsc::channel(ENDED);
        (Arc::new(Self { breakers: Mutex::default(), ended }), told)
    }

    /// Lets the next call probe.
    pub(crate) fn offer(self: &Arc<Self>, breaker: &str, lease: LeaseNumber) -> ProbeOffer {
        self.lock().entry(breaker.to_owned()).or_default().offered.push(lease);
        ProbeOffer { purse: Arc::clone(self), breaker: breaker.to_owned(), lease }
    }

    fn withdraw(&self, breaker: &str, lease: LeaseNumber) {
        let mut breakers = self.lock();
        let Some(leases) = breakers.get_mut(breaker) else { return };
        let Some(place) = leases.offered.iter().position(|offered| *offered == lease) else {
            return;
        };
        leases.offered.swap_remove(place);
        self.tell(breaker, lease);
        forget_empty(&mut breakers, breaker);
    }

    fn tell(&self, breaker: &str, lease: LeaseNumber) {
        if let Some(number) = lease {
            // One that finds no room ends by its time.
            let _told = self.ended.try_send(EndedLease { breaker: breaker.to_owned(), number });
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, BreakerLeases>> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget_empty(breakers: &mut HashMap<String, BreakerLeases>, breaker: &str) {
    let is_empty = |leases: &BreakerLeases| leases.offered.is_empty() && leases.taken.is_empty();
    if breakers.get(breaker).is_some_and(is_empty) {
        breakers.remove(breaker);
    }
}

impl ProbeLeases for ProbePurse {
    fn take(&self, breaker: &str) -> bool {
        let mut breakers = self.lock();
        let Some(leases) = breakers.get_mut(breaker) else { return false };
        let Some(lease) = leases.offered.pop() else { return false };
        leases.taken.push(lease);
        true
    }

    fn give_back(&self, breaker: &str) {
        let mut breakers = self.lock();
        if let Some(lease) = breakers.get_mut(breaker).and_then(|leases| leases.taken.pop()) {
            self.tell(breaker, lease);
        }
        forget_empty(&mut breakers, breaker);
    }
}

/// A lease that a call brings; what it did not take is given back when it is dropped.
#[must_use = "a lease that is dropped is given back"]
pub(crate) struct ProbeOffer {
    purse: Arc<ProbePurse>,
    breaker: String,
    lease: LeaseNumber,
}

impl Drop for ProbeOffer {
    fn drop(&mut self) {
        self.purse.withdraw(&self.breaker, self.lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_once_and_its_end_is_told_once() {
        let (purse, mut told) = ProbePurse::new();
        let mut ends = move || told.try_recv().ok().map(|ended| ended.number);
        assert!(!purse.take("b"));
        let offer = purse.offer("b", Some(7));
        assert!(!purse.take("other") && purse.take("b") && !purse.take("b"));
        drop(offer);
        assert_eq!(ends(), None, "the probe is in flight");
        purse.give_back("b");
        assert_eq!((ends(), ends()), (Some(7), None));

        drop(purse.offer("b", Some(8)));
        assert_eq!(ends(), Some(8), "nobody took it");
        let own = purse.offer("b", None);
        assert!(purse.take("b"));
        purse.give_back("b");
        drop(own);
        assert_eq!(ends(), None, "nobody else knows of it");
        assert!(purse.lock().is_empty());
    }
}
