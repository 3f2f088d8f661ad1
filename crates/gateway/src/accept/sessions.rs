//! The sessions of legacy clients on HTTP: found by their id, bounded, forgotten when nobody uses them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::stream::Stream;
use crate::bridge::park::secret;
use crate::gateway::Route;
use crate::session::Session;
use crate::wire::limits;

/// A session and its streams.
pub struct HttpSession {
    /// The session.
    pub session: Arc<Session>,
    /// The path it was opened on; it is good for no other.
    pub path: String,
    /// Whether streams open with an event that says where they begin.
    pub is_primed: bool,
    streams: Mutex<VecDeque<(u64, Arc<Stream>)>>,
    next: AtomicU64,
    used: Mutex<Instant>,
    _place: OwnedSemaphorePermit,
}

impl HttpSession {
    /// A session on a path, in a place of its own; `identity` is the name of whoever brought a secret, else empty.
    pub fn new(route: &Arc<Route>, path: &str, version: &str, identity: Arc<str>, place: OwnedSemaphorePermit) -> Self {
        Self {
            // Never the same again: nobody else's.
            session: Session::new(&secret(), identity, Arc::clone(route), Stream::resumable(false)),
            path: path.to_owned(),
            is_primed: version >= "2025-11-25",
            streams: Mutex::default(),
            next: AtomicU64::new(1),
            used: Mutex::new(Instant::now()),
            _place: place,
        }
    }

    fn streams(&self) -> MutexGuard<'_, VecDeque<(u64, Arc<Stream>)>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a stream for a client that may come back to it; gives its number. The oldest that is done gives way.
    pub fn keep(&self, stream: &Arc<Stream>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut streams = self.streams();
        if streams.len() >= limits::KEPT_STREAMS {
            let oldest = streams.iter().position(|(_, stream)| stream.is_done()).unwrap_or(0);
            streams.remove(oldest);
        }
        streams.push_back((number, Arc::clone(stream)));
        number
    }

    /// Gives up answers that nobody came back for, the oldest first, until what is left is within bounds.
    pub fn make_room(&self) {
        let mut streams = self.streams();
        let mut bytes: usize = streams.iter().map(|(_, stream)| stream.bytes()).sum();
        while bytes > limits::SESSION_BYTES
            && let Some(oldest) = streams.iter().position(|(_, stream)| stream.is_left() && stream.bytes() > 0)
            && let Some((_, given_up)) = streams.remove(oldest)
        {
            bytes -= given_up.bytes();
        }
    }

    /// The stream and the place that an event id names.
    pub fn resume(&self, event: &str) -> Option<(u64, Arc<Stream>, u64)> {
        let (number, place) = event.split_once('-')?;
        let (number, place) = (number.parse().ok()?, place.parse().ok()?);
        if number == 0 {
            return Some((0, Arc::clone(&self.session.general), place));
        }
        let streams = self.streams();
        streams.iter().find(|(known, _)| *known == number).map(|(_, stream)| (number, Arc::clone(stream), place))
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_idle(&self, now: Instant) -> bool {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        now.saturating_duration_since(used) > limits::SESSION_IDLE && !self.session.general.is_read()
    }
}

/// All sessions.
pub struct Sessions {
    open: Mutex<HashMap<String, Arc<HttpSession>>>,
    places: Arc<Semaphore>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { open: Mutex::default(), places: Arc::new(Semaphore::new(limits::SESSIONS)) }
    }
}

impl Sessions {
    fn open(&self) -> MutexGuard<'_, HashMap<String, Arc<HttpSession>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more, from before its handshake on; none if there are too many.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Adds a session; gives its id.
    pub fn add(&self, session: Arc<HttpSession>) -> String {
        let id = secret();
        self.open().insert(id.clone(), session);
        id
    }

    /// The session with an id, if it belongs to this path.
    pub fn find(&self, id: &str, path: &str) -> Option<Arc<HttpSession>> {
        let session = self.open().get(id).filter(|session| session.path == path).cloned()?;
        session.touch();
        Some(session)
    }

    /// Takes a session out.
    pub fn remove(&self, id: &str) -> Option<Arc<HttpSession>> {
        self.open().remove(id)
    }

    /// Takes those out that nobody used for long.
    pub fn remove_idle(&self) -> Vec<Arc<HttpSession>> {
        let now = Instant::now();
        self.open().extract_if(|_, session| session.is_idle(now)).map(|(_, session)| session).collect()
    }

    /// Takes all out.
    pub fn remove_all(&self) -> Vec<Arc<HttpSession>> {
        self.open().drain().map(|(_, session)| session).collect()
    }
}
