//! Decides which messages a client's stream holds: in order, bounded, and readable again from the
//! place where a client lost it.
//!
//! A slow client costs only itself: when too much waits, notifications are dropped, the oldest
//! first, and no more questions are taken. Questions once taken, and every answer, stay.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use seawall::CallControl;
use tokio::sync::Notify;

use crate::protocol::limits;
use crate::protocol::pieces::TwoPieces;
use crate::upstream::call::{DeliveryReceipt, GatewayCall};

/// One message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamEvent {
    /// Its place in the stream, from 1.
    pub place: u64,
    /// The message.
    pub message: TwoPieces,
    /// Whether it is the answer that ends the stream.
    pub last: bool,
    droppable: bool,
}

#[derive(Debug, Default)]
struct StreamState {
    kept: VecDeque<StreamEvent>,
    /// Bytes in `kept`, and the limit (`keep`) for those that stay only for a client that comes
    /// back.
    bytes: usize,
    keep: usize,
    /// Bytes that no reader has taken yet.
    unread: usize,
    places: u64,
    /// Readers have taken every event up to this place.
    read: u64,
    ended: bool,
    /// The number of the current reader: a newer reader replaces an older one.
    reader: u64,
    reading: bool,
    /// Whether the client knows how to come back after the gateway ends its read.
    pausable: bool,
    /// Whether unread events were dropped to free memory.
    forgotten: bool,
}

/// A stream of messages to one client.
#[derive(Debug, Default)]
pub(crate) struct ClientStream {
    state: Mutex<StreamState>,
    news: Notify,
    taken: Notify,
    /// The call whose answer ends the stream, if it belongs to one call.
    call: OnceLock<(Arc<CallControl>, Arc<DeliveryReceipt>)>,
}

/// The next thing a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextEvent {
    /// A message.
    Said(StreamEvent),
    /// No message follows.
    Ended,
}

impl ClientStream {
    /// A stream that a client can come back to; `pausable` if the gateway may end a read early.
    pub(crate) fn resumable(pausable: bool) -> Arc<Self> {
        let state = StreamState { keep: limits::KEPT_BYTES, pausable, ..StreamState::default() };
        Arc::new(Self { state: Mutex::new(state), ..Self::default() })
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the stream to a call: the call's answer ends the stream, and its reader is the call's
    /// client.
    pub(crate) fn belongs_to(&self, call: &GatewayCall) {
        let _once = self.call.set((Arc::clone(&call.control), Arc::clone(&call.receipt)));
    }

    /// Adds a notification: dropped when the client does not keep up.
    pub(crate) fn notify(&self, message: impl Into<TwoPieces>) {
        self.push(message.into(), false, true);
    }

    /// Adds a question: refused while too much waits, never dropped once taken.
    pub(crate) fn ask(&self, message: impl Into<TwoPieces>) -> bool {
        let has_room = self.state().has_room();
        if has_room {
            self.push(message.into(), false, false);
        }
        has_room
    }

    /// Adds one answer on a stream that carries many: never dropped. Returns its place; 0 if the
    /// stream has ended.
    pub(crate) fn say(&self, message: impl Into<TwoPieces>) -> u64 {
        self.push(message.into(), false, false)
    }

    /// Adds the answer, which ends the stream.
    pub(crate) fn answer(&self, message: impl Into<TwoPieces>) {
        self.push(message.into(), true, false);
    }

    /// Ends the stream, with the answer if there is one.
    pub(crate) fn finish(&self, answer: Option<TwoPieces>) {
        match answer {
            Some(answer) => self.answer(answer),
            None => self.end(),
        }
    }

    /// Ends the current read, if the client can come back for the rest.
    pub(crate) fn pause(&self) {
        let mut state = self.state();
        if state.pausable && !state.ended {
            // A new reader number without a reader: the current reader sees that it is no longer
            // current.
            state.reader += 1;
            state.reading = false;
            drop(state);
            self.news.notify_waiters();
        }
    }

    /// Whether the stream has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.state().ended
    }

    /// Ends the stream without an answer.
    pub(crate) fn end(&self) {
        self.state().ended = true;
        self.news.notify_waiters();
    }

    fn push(&self, message: TwoPieces, last: bool, droppable: bool) -> u64 {
        let mut state = self.state();
        if state.ended {
            return 0;
        }
        state.places += 1;
        let place = state.places;
        state.bytes += message.size();
        state.unread += message.size();
        state.kept.push_back(StreamEvent { place, message, last, droppable });
        state.ended = last;
        state.make_room();
        drop(state);
        self.news.notify_waiters();
        place
    }

    /// A reader of the events after `place`; it replaces the current reader.
    pub(crate) fn reader(self: &Arc<Self>, place: u64) -> StreamReader {
        let number = self.state().begin();
        if let Some((control, _)) = self.call.get() {
            control.come_back();
        }
        self.news.notify_waiters();
        StreamReader { stream: Arc::clone(self), number, place }
    }

    /// A reader of the events after `place`, or from where the last reader stopped; `None` if there
    /// is a reader already.
    pub(crate) fn only_reader(self: &Arc<Self>, place: Option<u64>) -> Option<StreamReader> {
        let mut state = self.state();
        if state.reading {
            return None;
        }
        let (number, place) = (state.begin(), place.unwrap_or(state.read));
        Some(StreamReader { stream: Arc::clone(self), number, place })
    }

    /// Waits until the stream has room for more, or has no reader.
    pub(crate) async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            // Registered before the state is checked: a reader that takes an event in between still
            // wakes this task.
            taken.as_mut().enable();
            {
                let state = self.state();
                if state.has_room() || !state.reading {
                    return;
                }
            }
            taken.await;
        }
    }

    /// How many bytes the stream holds.
    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Drops all events if there is no reader; returns whether there were any.
    pub(crate) fn forget(&self) -> bool {
        let mut state = self.state();
        if state.reading || state.kept.is_empty() {
            return false;
        }
        state.kept = VecDeque::new();
        (state.bytes, state.unread, state.read) = (0, 0, state.places);
        state.forgotten = true;
        true
    }

    /// Whether unread events were dropped.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.state().forgotten
    }

    /// Whether the stream has a reader.
    pub(crate) fn is_read(&self) -> bool {
        self.state().reading
    }

    /// Whether the stream has ended and every event was read.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.state();
        state.ended && state.read == state.places
    }

    /// Whether the stream has ended and has no reader.
    pub(crate) fn is_left(&self) -> bool {
        let state = self.state();
        state.ended && !state.reading
    }
}

impl StreamState {
    /// Registers a new reader; returns its number.
    fn begin(&mut self) -> u64 {
        self.reader += 1;
        self.reading = true;
        self.reader
    }

    /// Notes that every event up to `place` was taken, or skipped by a client that says it has
    /// them.
    fn read_up_to(&mut self, place: u64) {
        let from = self.kept.partition_point(|said| said.place <= self.read);
        let passed = self.kept.range(from..).take_while(|said| said.place <= place);
        self.unread -= passed.map(|said| said.message.size()).sum::<usize>();
        self.read = self.read.max(place);
    }

    fn has_room(&self) -> bool {
        self.unread <= limits::PENDING_BYTES
            && self.kept.len() <= limits::CALLS + limits::KEPT_EVENTS
    }

    /// Keeps a bounded number of unread events, and the last read ones for a client that comes
    /// back.
    fn make_room(&mut self) {
        let mut read = self.kept.partition_point(|said| said.place <= self.read);
        while (self.kept.len() - read > limits::PENDING_EVENTS
            || self.unread > limits::PENDING_BYTES)
            && let Some(oldest) = self.kept.range(read..).position(|said| said.droppable)
            && let Some(given_up) = self.kept.remove(read + oldest)
        {
            self.bytes -= given_up.message.size();
            self.unread -= given_up.message.size();
        }
        while read > 0
            && (self.kept.len() > limits::KEPT_EVENTS || self.bytes > self.keep)
            && let Some(oldest) = self.kept.pop_front()
        {
            self.bytes -= oldest.message.size();
            read -= 1;
        }
    }
}

/// One reader of a stream.
#[derive(Debug)]
pub(crate) struct StreamReader {
    stream: Arc<ClientStream>,
    number: u64,
    place: u64,
}

impl StreamReader {
    /// The place up to which events were read, or skipped.
    pub(crate) fn place(&self) -> u64 {
        self.place
    }

    /// Waits for the next event. Cancel-safe: an event is taken only when it is returned.
    pub(crate) async fn next(&mut self) -> NextEvent {
        loop {
            let stream = Arc::clone(&self.stream);
            let news = stream.news.notified();
            tokio::pin!(news);
            // Registered before `try_next`: an event pushed in between still wakes this task.
            news.as_mut().enable();
            if let Some(next) = self.try_next() {
                return next;
            }
            news.await;
        }
    }

    /// The next event, if there is one.
    pub(crate) fn try_next(&mut self) -> Option<NextEvent> {
        let mut state = self.stream.state();
        if state.reader != self.number {
            return Some(NextEvent::Ended);
        }
        let next = state.kept.partition_point(|said| said.place <= self.place);
        if let Some(said) = state.kept.get(next).cloned() {
            self.place = said.place;
            state.read_up_to(said.place);
            state.make_room();
            drop(state);
            self.stream.taken.notify_waiters();
            if let Some((_, receipt)) = self.stream.call.get().filter(|_| said.last) {
                receipt.delivered();
            }
            return Some(NextEvent::Said(said));
        }
        state.ended.then_some(NextEvent::Ended)
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = self.stream.state();
        // A replaced reader changes nothing: its successor is reading, and the client is still
        // there.
        if state.reader == self.number {
            state.reading = false;
            drop(state);
            self.stream.taken.notify_waiters();
            if let Some((control, _)) = self.stream.call.get() {
                control.leave();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(next: Option<NextEvent>) -> Option<(u64, String)> {
        match next? {
            NextEvent::Said(said) => {
                Some((said.place, String::from_utf8(said.message.whole().to_vec()).unwrap()))
            }
            NextEvent::Ended => Some((0, String::new())),
        }
    }

    #[test]
    fn a_client_that_comes_back_reads_on_from_where_it_was() {
        let stream = ClientStream::resumable(true);
        stream.notify("a");
        stream.notify("b");
        let mut first = stream.reader(0);
        assert_eq!(text(first.try_next()), Some((1, "a".into())));
        assert_eq!(text(first.try_next()), Some((2, "b".into())));
        assert_eq!(first.try_next(), None);
        stream.answer("c");
        stream.notify("too late");

        let mut second = stream.reader(1);
        assert_eq!(first.try_next(), Some(NextEvent::Ended));
        assert_eq!(text(second.try_next()), Some((2, "b".into())));
        assert_eq!(text(second.try_next()), Some((3, "c".into())));
        assert_eq!(second.try_next(), Some(NextEvent::Ended));
        assert!(stream.is_done());
    }

    #[test]
    fn an_answer_that_comes_right_after_a_pause_is_there_for_the_next_reader() {
        let stream = ClientStream::resumable(true);
        let mut first = stream.reader(0);
        stream.pause();
        stream.answer("late");
        assert_eq!(first.try_next(), Some(NextEvent::Ended));
        assert!(stream.is_over());
        assert_eq!(text(stream.reader(0).try_next()), Some((1, "late".to_owned())));
    }

    #[test]
    fn a_flood_gives_way_to_questions_and_the_answer() {
        let stream = ClientStream::resumable(true);
        stream.ask("question");
        for number in 0..10_000 {
            stream.notify(format!("{number}"));
        }
        stream.answer("answer");
        let mut reader = stream.reader(0);
        let mut seen = Vec::new();
        while let Some((place, text)) = text(reader.try_next()) {
            if place == 0 {
                break;
            }
            seen.push(text);
        }
        assert!(seen.len() <= limits::PENDING_EVENTS + 1, "{}", seen.len());
        assert_eq!((seen[0].as_str(), seen[seen.len() - 1].as_str()), ("question", "answer"));
        assert_eq!(seen[seen.len() - 2], "9999");
    }

    #[test]
    fn what_was_read_is_kept_for_a_while_only() {
        let stream = ClientStream::resumable(true);
        let mut reader = stream.reader(0);
        for number in 0..10_000 {
            stream.notify(format!("{number}"));
            reader.try_next();
        }
        assert!(stream.state().kept.len() <= limits::KEPT_EVENTS);
    }
}
