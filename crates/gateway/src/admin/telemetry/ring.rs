//! The last events for all readers: numbered, dated, and at most a thousand.
//!
//! All readers share one ring, and a reader is only a position in it. So a slow reader costs
//! nothing, and the events it missed are the distance from its position to the oldest event in the
//! ring. Events are written as text only when a reader takes them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use seawall::Event;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::protocol::limits;

/// One event with its number and time.
#[derive(Clone, Debug)]
pub(crate) struct RecordedEvent {
    /// The event's number: one more than that of the event before.
    pub number: u64,
    /// Milliseconds since 1970.
    pub at: u64,
    /// The event.
    pub what: EventKind,
}

/// An event as the ring keeps it.
#[derive(Clone, Debug)]
pub(crate) enum EventKind {
    /// The event itself.
    Event(Arc<Event>),
    /// The event's fields, written early: the event was too large to be kept, or it is a gap of
    /// missed events.
    Shown(Map<String, Value>),
}

/// The last events.
#[derive(Debug)]
pub(crate) struct EventRing {
    kept: Mutex<VecDeque<RecordedEvent>>,
    /// The number of the last event.
    last: watch::Sender<u64>,
}

impl Default for EventRing {
    fn default() -> Self {
        Self { kept: Mutex::default(), last: watch::Sender::new(0) }
    }
}

impl EventRing {
    fn kept(&self) -> MutexGuard<'_, VecDeque<RecordedEvent>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records events that happened `at` a time, after `missed` events that the listener lost.
    pub(crate) fn push(&self, at: u64, missed: u64, events: impl IntoIterator<Item = EventKind>) {
        let missed = (missed > 0).then(|| EventKind::Shown(told_missed(missed)));
        let mut kept = self.kept();
        let mut number = *self.last.borrow();
        for what in missed.into_iter().chain(events) {
            number += 1;
            if kept.len() >= limits::EVENTS {
                kept.pop_front();
            }
            kept.push_back(RecordedEvent { number, at, what });
        }
        // Under the lock, so that readers see the numbers in order.
        self.last.send_replace(number);
    }

    /// A reader from after `place` on; without a place, from the oldest event in the ring.
    pub(crate) fn reader(&self, place: Option<u64>) -> RingReader {
        let kept = self.kept();
        let (oldest, last) = (kept.front().map_or(1, |told| told.number), *self.last.borrow());
        // A position beyond the last event would hide the next ones.
        let place = place.map_or(oldest - 1, |place| place.min(last));
        RingReader { place, news: self.last.subscribe() }
    }
}

/// One reader of the ring.
#[derive(Debug)]
pub(crate) struct RingReader {
    place: u64,
    news: watch::Receiver<u64>,
}

impl RingReader {
    /// The next event, if it is there; a gap is reported as one event.
    pub(crate) fn take(&mut self, ring: &EventRing) -> Option<RecordedEvent> {
        let kept = ring.kept();
        let oldest = kept.front()?;
        let missed = oldest.number - 1 - self.place.min(oldest.number - 1);
        if missed > 0 {
            self.place = oldest.number - 1;
            return Some(RecordedEvent {
                number: self.place,
                at: oldest.at,
                what: EventKind::Shown(told_missed(missed)),
            });
        }
        let next = usize::try_from(self.place + 1 - oldest.number).ok()?;
        let told = kept.get(next).cloned()?;
        self.place = told.number;
        Some(told)
    }

    /// Waits for the next event; `None` once no more can come. Cancel-safe: the position moves only
    /// when an event is returned.
    pub(crate) async fn next(&mut self, ring: &EventRing) -> Option<RecordedEvent> {
        loop {
            // Marked as seen before the ring is read: an event that comes in between ends the wait
            // below.
            self.news.borrow_and_update();
            if let Some(told) = self.take(ring) {
                return Some(told);
            }
            self.news.changed().await.ok()?;
        }
    }
}

fn told_missed(count: u64) -> Map<String, Value> {
    let mut told = Map::new();
    told.insert("event".to_owned(), json!("missed"));
    told.insert("count".to_owned(), json!(count));
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(count: usize) -> impl Iterator<Item = EventKind> {
        (0..count).map(|number| {
            EventKind::Event(Arc::new(Event::Degraded {
                server: "s".to_owned(),
                tool: number.to_string(),
            }))
        })
    }

    fn all(reader: &mut RingReader, ring: &EventRing) -> (Vec<u64>, Vec<u64>) {
        let told: Vec<RecordedEvent> = std::iter::from_fn(|| reader.take(ring)).collect();
        let missed = |told: &RecordedEvent| match &told.what {
            EventKind::Shown(shown) => shown["count"].as_u64(),
            EventKind::Event(_) => None,
        };
        (told.iter().map(|told| told.number).collect(), told.iter().filter_map(missed).collect())
    }

    #[test]
    fn a_reader_that_is_too_slow_is_told_how_many_it_missed_and_goes_on() {
        let ring = EventRing::default();
        let mut reader = ring.reader(None);
        ring.push(0, 0, events(3));
        assert_eq!(all(&mut reader, &ring), (vec![1, 2, 3], vec![]));
        ring.push(0, 0, events(limits::EVENTS + 7));
        let (numbers, missed) = all(&mut reader, &ring);
        assert_eq!((numbers.len(), missed), (limits::EVENTS + 1, vec![7]));
        assert_eq!(
            (numbers[0], numbers[1]),
            (10, 11),
            "a reader that comes back after it misses nothing more"
        );
        assert_eq!(ring.kept().len(), limits::EVENTS);
    }

    #[test]
    fn who_comes_back_goes_on_where_it_was_and_who_is_new_gets_what_is_left() {
        let ring = EventRing::default();
        ring.push(0, 0, events(limits::EVENTS + 10));
        let last = limits::EVENTS as u64 + 10;
        assert_eq!(all(&mut ring.reader(None), &ring).0.first(), Some(&11));
        assert_eq!(all(&mut ring.reader(Some(last - 2)), &ring), (vec![last - 1, last], vec![]));
        assert_eq!(all(&mut ring.reader(Some(4)), &ring).1, [6]);
        assert_eq!(
            all(&mut ring.reader(Some(u64::MAX)), &ring),
            (vec![], vec![]),
            "it cannot have read that"
        );
    }

    #[test]
    fn what_nobody_heard_is_told_in_its_place() {
        let ring = EventRing::default();
        ring.push(0, 0, events(1));
        ring.push(0, 5, events(1));
        assert_eq!(all(&mut ring.reader(None), &ring), (vec![1, 2, 3], vec![5]));
    }
}
