//! Counts wrong tokens per address: after a few, the answers to further ones are delayed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::runtime::log;

/// Wrong tokens of one address within [`REMEMBERED`] that are answered at once.
const FREE: u32 = 5;
/// How long wrong tokens are remembered after the last one.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The delay of the answer to a further wrong token.
pub(super) const GUESS_WAIT: Duration = Duration::from_secs(2);
/// Delayed answers at a time.
const WAITING: usize = 8;
/// Addresses that are counted separately.
const ADDRESSES: usize = 1024;

/// The cost of a wrong token.
#[derive(Debug)]
pub(super) enum TokenGuess {
    /// None: an operator may mistype.
    Few,
    /// A delay, with a permit for it.
    Many(OwnedSemaphorePermit),
    /// A refusal: too many answers are delayed already.
    TooMany,
}

/// The recent wrong tokens.
#[derive(Debug)]
pub(super) struct TokenGuesses {
    wrong: Mutex<HashMap<IpAddr, (u32, Instant)>>,
    waiting: Arc<Semaphore>,
}

impl Default for TokenGuesses {
    fn default() -> Self {
        Self { wrong: Mutex::default(), waiting: Arc::new(Semaphore::new(WAITING)) }
    }
}

impl TokenGuesses {
    /// Counts a wrong token of `peer`.
    pub(super) fn wrong(&self, peer: IpAddr) -> TokenGuess {
        let count = self.count(peer);
        if count <= FREE {
            return TokenGuess::Few;
        }
        if count == FREE + 1 {
            log::warn(&format!(
                "admin: {count} wrong tokens from {peer}; further ones are answered slowly"
            ));
        }
        Arc::clone(&self.waiting).try_acquire_owned().map_or(TokenGuess::TooMany, TokenGuess::Many)
    }

    fn count(&self, peer: IpAddr) -> u32 {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |last: &Instant| last.elapsed() < REMEMBERED;
        if wrong.len() >= ADDRESSES && !wrong.contains_key(&peer) {
            wrong.retain(|_, (_, last)| is_recent(last));
            // So many addresses count as one guesser: every further address is delayed from its
            // first wrong token on. `FREE + 2` skips the warning at `FREE + 1`.
            if wrong.len() >= ADDRESSES {
                return FREE + 2;
            }
        }
        let (count, last) = wrong.entry(peer).or_insert((0, Instant::now()));
        *count = if is_recent(last) { count.saturating_add(1) } else { 1 };
        *last = Instant::now();
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_are_free_then_each_waits_and_time_forgives() {
        let guesses = TokenGuesses::default();
        let peer = IpAddr::from([10, 0, 0, 7]);
        for _ in 0..FREE {
            assert!(matches!(guesses.wrong(peer), TokenGuess::Few));
        }
        let waiting: Vec<TokenGuess> = (0..WAITING).map(|_| guesses.wrong(peer)).collect();
        assert!(waiting.iter().all(|guess| matches!(guess, TokenGuess::Many(_))));
        assert!(matches!(guesses.wrong(peer), TokenGuess::TooMany));
        assert!(
            matches!(guesses.wrong(IpAddr::from([10, 0, 0, 8])), TokenGuess::Few),
            "another address is another"
        );
        drop(waiting);
        assert!(matches!(guesses.wrong(peer), TokenGuess::Many(_)));
        tokio::time::advance(REMEMBERED).await;
        assert!(matches!(guesses.wrong(peer), TokenGuess::Few));
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_without_number_are_one() {
        let guesses = TokenGuesses::default();
        for number in 0..2 * ADDRESSES as u32 {
            guesses.wrong(IpAddr::from(number.to_be_bytes()));
        }
        assert!(guesses.wrong.lock().unwrap().len() <= ADDRESSES);
        assert!(matches!(guesses.wrong(IpAddr::from([255; 4])), TokenGuess::Many(_)));
    }
}
