//! Decides in which stripe of a striped counter a thread counts.
//!
//! The first threads own a stripe each for as long as they live and write it without a locked
//! instruction; the threads beyond them share the other stripes.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lease::Leases;

/// Stripes below this number have one writer at a time.
pub(super) const OWNED: usize = 8;
pub(super) const SHARED: usize = 8;

/// The thread has not chosen a stripe yet.
const NONE: usize = usize::MAX;
/// The free stripes of the whole process.
static LEASES: LazyLock<Leases> = LazyLock::new(Leases::new);

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(NONE) };
    static LEASE: StripeLease = const { StripeLease };
}

/// The calling thread's stripe.
#[inline]
pub(super) fn own() -> usize {
    match OWN.get() {
        NONE => choose(),
        own => own,
    }
}

#[cold]
fn choose() -> usize {
    // At the very end of a thread its lease is gone, and nothing would free an owned stripe.
    let has_lease = LEASE.try_with(|_| ()).is_ok();
    let own = has_lease.then(|| LEASES.take()).flatten().unwrap_or_else(next_shared);
    OWN.set(own);
    own
}

/// In turn, so that threads are spread; any stripe would do, since shared ones may have several
/// writers.
fn next_shared() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    OWNED + NEXT.fetch_add(1, Ordering::Relaxed) % SHARED
}

/// Frees the thread's stripe when the thread ends.
struct StripeLease;

impl Drop for StripeLease {
    fn drop(&mut self) {
        // `OWN` moves to a shared stripe first: a destructor that runs later may still count, and
        // must not write a stripe that another thread owns by then.
        let own = OWN.replace(next_shared());
        if own < OWNED {
            LEASES.give_back(own);
        }
    }
}
