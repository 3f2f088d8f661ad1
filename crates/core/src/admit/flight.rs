//! Decides who asks the server when several callers want the same answer at the same moment: the first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::key::{AsItIs, CallKey};
use crate::attempt::deadline::within;
use crate::model::failure::Failure;

type Landing<T> = Option<Result<T, Failure>>;

/// What is asked, and how many writes the server had seen: who reads after a write does not join one who
/// asked before it.
type FlightKey = (CallKey, u64);

/// A channel for each call in flight that somebody joined; none for those that fly alone.
type Channels<T> = HashMap<FlightKey, Option<watch::Sender<Landing<T>>>, AsItIs>;

/// The calls in flight that others may join. Holds no more entries than there are calls.
#[derive(Debug)]
pub(crate) struct Flights<T>(Mutex<Channels<T>>);

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// What joining a flight gives.
pub(crate) enum Joined<'a, T> {
    /// Nobody asks yet: this call does, for all.
    Lead(Lead<'a, T>),
    /// Somebody asked, and this is what came.
    Landed(Result<T, Failure>),
    /// Somebody asks, and nothing came in time.
    TimedOut,
}

impl<T: Clone> Flights<T> {
    /// Becomes the one that others wait for, or finds an identical call in flight.
    pub(crate) fn join(&self, key: FlightKey) -> Result<Lead<'_, T>, Flight<'_, T>> {
        match self.lock().entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(None);
                Ok(Lead { flights: self, key })
            }
            Entry::Occupied(mut entry) => {
                let landing = entry.get_mut().get_or_insert_with(|| watch::channel(None).0).subscribe();
                Err(Flight { flights: self, key, landing })
            }
        }
    }
}

/// An identical call in flight.
pub(crate) struct Flight<'a, T> {
    flights: &'a Flights<T>,
    key: FlightKey,
    landing: watch::Receiver<Landing<T>>,
}

impl<'a, T: Clone> Flight<'a, T> {
    /// Waits for what it brings. When the first is cancelled, one of those who waited takes its place.
    pub(crate) async fn landing(self, patience: Duration) -> Joined<'a, T> {
        within(patience, self.landed()).await.unwrap_or(Joined::TimedOut)
    }

    async fn landed(mut self) -> Joined<'a, T> {
        loop {
            let landed = self.landing.wait_for(Option::is_some).await.ok().and_then(|landing| landing.clone());
            if let Some(landed) = landed {
                return Joined::Landed(landed);
            }
            match self.flights.join(self.key) {
                Ok(lead) => return Joined::Lead(lead),
                Err(next) => self = next,
            }
        }
    }
}

impl<T> Flights<T> {
    fn lock(&self) -> MutexGuard<'_, Channels<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The duty to ask for all. Dropped without landing, it passes to one of those who wait.
pub(crate) struct Lead<'a, T> {
    flights: &'a Flights<T>,
    key: FlightKey,
}

impl<T> Lead<'_, T> {
    /// Tells those who wait, if anybody does.
    pub(crate) fn land(self, landed: impl FnOnce() -> Result<T, Failure>) {
        let joined = self.flights.lock().remove(&self.key).flatten();
        std::mem::forget(self);
        if let Some(channel) = joined {
            channel.send_replace(Some(landed()));
        }
    }
}

impl<T> Drop for Lead<'_, T> {
    fn drop(&mut self) {
        // Without a landing the channel closes, and those who wait look for a new leader.
        self.flights.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::Keys;
    use super::*;
    use serde_json::json;

    fn key() -> FlightKey {
        (Keys::default().key(&[], &json!({})), 0)
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_get_what_the_first_got() {
        let (flights, key) = (Flights::default(), key());
        let Ok(lead) = flights.join(key) else { panic!("not the first") };
        let Err(flight) = flights.join(key) else { panic!("the first again") };

        let (second, ()) = tokio::join!(flight.landing(Duration::MAX), async { lead.land(|| Ok(7)) });

        assert!(matches!(second, Joined::Landed(Ok(7))));
        assert!(flights.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_first_leaves_another_takes_over() {
        let (flights, key) = (Flights::<u32>::default(), key());
        let Ok(lead) = flights.join(key) else { panic!("not the first") };
        let Err(flight) = flights.join(key) else { panic!("the first again") };

        let (second, ()) = tokio::join!(flight.landing(Duration::MAX), async { drop(lead) });

        assert!(matches!(second, Joined::Lead(_)));
        drop(second);
        assert!(flights.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_their_own_deadline() {
        let (flights, key) = (Flights::<u32>::default(), key());
        let _lead = flights.join(key);
        let Err(flight) = flights.join(key) else { panic!("the first again") };

        assert!(matches!(flight.landing(Duration::from_secs(2)).await, Joined::TimedOut));
    }
}
