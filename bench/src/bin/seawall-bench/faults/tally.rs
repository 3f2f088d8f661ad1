//! What is counted, and what it comes to.

use std::time::Duration;

/// What was seen in one or many cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Things that agents wanted done.
    pub(crate) wanted: u64,
    pub(crate) useful: u64,
    /// They wait in a queue, which was told.
    pub(crate) queued: u64,
    /// They ended with a failure that was told.
    pub(crate) failed: u64,
    /// They ended without an answer.
    pub(crate) dark: u64,
    /// They ended with a false answer.
    pub(crate) wrong: u64,
    /// Those that read something that was read before, so that a copy can exist.
    pub(crate) reads: u64,
    pub(crate) useful_reads: u64,
    /// Those of the reads that a copy, a retry or a second attempt can answer: the server does not
    /// say no.
    pub(crate) answerable: u64,
    pub(crate) useful_answerable: u64,
    /// Calls that agents made for all this.
    pub(crate) calls: u64,
    /// Writes that were executed again though their agent called once.
    pub(crate) own_duplicates: u64,
    /// Writes that were executed more often than agents wanted.
    pub(crate) duplicates: u64,
    /// How each write went, by its number: told if it was executed again, which may be seen later.
    pub(crate) histories: Vec<(u64, String)>,
    /// What was said to wait in a queue, and that was never executed.
    pub(crate) never_made: u64,
    /// What waits: tools and numbers.
    pub(crate) waits: Vec<(&'static str, u64)>,
    /// Failures that said "not executed" of a write that was.
    pub(crate) false_claims: u64,
    /// Failures that said "may have been executed" of a write that never arrived.
    pub(crate) needless_doubts: u64,
    /// Attempts that arrived while nothing worked, and answers of use then.
    pub(crate) wasted: u64,
    pub(crate) useful_in_outage: u64,
    pub(crate) false_opens: u64,
    pub(crate) list_changes: u64,
    /// Until a live answer came after the trouble.
    pub(crate) recovery: Vec<Duration>,
    /// Clients that had no live answer long after the trouble.
    pub(crate) lost_for_ever: u64,
    pub(crate) took: Vec<Duration>,
    /// What was seen of false answers and claims.
    pub(crate) oddities: Vec<String>,
}

/// How many oddities are kept.
const ODD: usize = 1000;
/// How a write is told that was executed more than once.
pub(crate) const AGAIN: &str = "had it executed";

impl Tally {
    /// Adds another.
    pub(crate) fn add(&mut self, other: &Tally) {
        for (sum, more) in [
            (&mut self.wanted, other.wanted),
            (&mut self.useful, other.useful),
            (&mut self.queued, other.queued),
            (&mut self.failed, other.failed),
            (&mut self.dark, other.dark),
            (&mut self.wrong, other.wrong),
            (&mut self.reads, other.reads),
            (&mut self.useful_reads, other.useful_reads),
            (&mut self.answerable, other.answerable),
            (&mut self.useful_answerable, other.useful_answerable),
            (&mut self.calls, other.calls),
            (&mut self.own_duplicates, other.own_duplicates),
            (&mut self.duplicates, other.duplicates),
            (&mut self.never_made, other.never_made),
            (&mut self.false_claims, other.false_claims),
            (&mut self.needless_doubts, other.needless_doubts),
            (&mut self.wasted, other.wasted),
            (&mut self.useful_in_outage, other.useful_in_outage),
            (&mut self.false_opens, other.false_opens),
            (&mut self.list_changes, other.list_changes),
            (&mut self.lost_for_ever, other.lost_for_ever),
        ] {
            *sum += more;
        }
        self.waits.extend(&other.waits);
        self.histories.extend(other.histories.iter().cloned());
        self.recovery.extend(&other.recovery);
        self.took.extend(&other.took);
        for odd in &other.oddities {
            self.note(odd.clone());
        }
    }

    /// Keeps something odd.
    pub(crate) fn note(&mut self, odd: String) {
        // What must not happen comes first: there is always room for it.
        if odd.contains(AGAIN) {
            self.oddities.insert(0, odd);
            self.oddities.truncate(ODD);
        } else if self.oddities.len() < ODD {
            self.oddities.push(odd);
        }
    }

    /// So many of a hundred.
    pub(crate) fn percent(part: u64, of: u64) -> f64 {
        if of == 0 { f64::NAN } else { part as f64 * 100.0 / of as f64 }
    }

    /// Attempts for each answer of use, while nothing worked.
    pub(crate) fn attempts_in_outage(&self) -> f64 {
        self.wasted as f64 / self.useful_in_outage.max(1) as f64
    }

    /// Of a hundred things, so many with an answer of use.
    pub(crate) fn useful_percent(&self) -> f64 {
        Self::percent(self.useful, self.wanted)
    }

    /// Of a hundred reads.
    pub(crate) fn reads_percent(&self) -> f64 {
        Self::percent(self.useful_reads, self.reads)
    }

    /// Of a hundred reads that can be answered.
    pub(crate) fn answerable_percent(&self) -> f64 {
        Self::percent(self.useful_answerable, self.answerable)
    }
}

/// Of a hundred, so many took at most this long; in milliseconds.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).map_or(f64::NAN, |took| took.as_secs_f64() * 1000.0)
}
