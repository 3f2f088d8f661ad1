//! Decides in which stripe of a striped counter a thread counts.
//!
//! The first threads own a stripe each for as long as they live, and write it without a locked
//! instruction; those beyond them share the others.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lease::Leases;

/// Stripes below this number have one writer at a time.
pub(super) const OWNED: usize = 8;
pub(super) const SHARED: usize = 8;

/// Not chosen yet.
const NONE: usize = usize::MAX;
/// Those of the whole process.
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
    // Without a lease, at the very end of a thread, nothing would give an owned stripe back.
    let has_lease = LEASE.try_with(|_| ()).is_ok();
    let own = has_lease.then(|| LEASES.take()).flatten().unwrap_or_else(next_shared);
    OWN.set(own);
    own
}

/// In turn, so that they are spread; any would do, for these may be written by several at once.
fn next_shared() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    OWNED + NEXT.fetch_add(1, Ordering::Relaxed) % SHARED
}

/// Gives the thread's stripe back when it ends.
struct StripeLease;

impl Drop for StripeLease {
    fn drop(&mut self) {
        let own = OWN.replace(next_shared());
        if own < OWNED {
            LEASES.give_back(own);
        }
    }
}
