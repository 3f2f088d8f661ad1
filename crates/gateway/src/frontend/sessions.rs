//! Decides which legacy HTTP sessions exist: found by id, bounded, removed when idle.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::records::{SessionRecord, SessionRecords};
use crate::client::event_id::{StreamName, StreamRequest};
use crate::client::session::Session;
use crate::client::stream::ClientStream;
use crate::gateway::Gateway;
use crate::protocol::{Message, limits};
use crate::route::Route;
use crate::runtime::log;
use crate::runtime::random::secret;

/// A session and its streams.
pub(crate) struct HttpSession {
    /// The session.
    pub session: Arc<Session>,
    /// The route of the session, as the configuration in force has it.
    route: RwLock<Arc<Route>>,
    /// The path that the session was opened on; it is valid for no other.
    pub path: String,
    /// Whether streams open with a priming event, which carries the id to resume from.
    pub is_primed: bool,
    /// The life of the session: empty until a restarted gateway goes on with it.
    life: String,
    streams: Mutex<VecDeque<(u64, Arc<ClientStream>)>>,
    requests: Mutex<VecDeque<(u64, Message)>>,
    next: AtomicU64,
    used: Mutex<Instant>,
    _place: OwnedSemaphorePermit,
}

/// The result of resuming from an event id.
pub(super) enum ResumedStream {
    /// A stream, from a place on.
    Stream(StreamName, Arc<ClientStream>, u64),
    /// The stream of a request that was in flight when the previous process of this gateway ended.
    Interrupted(StreamRequest),
    /// The id leads nowhere.
    Nothing,
}

impl HttpSession {
    /// A session on a path, with its permit; `identity` is derived from the client's secret, and
    /// empty without one.
    pub(crate) fn new(
        route: &Arc<Route>,
        path: &str,
        version: &str,
        identity: Arc<str>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        // A random id that no other session ever has.
        let session = Session::new(
            &secret(),
            identity,
            Arc::clone(&route.set),
            ClientStream::resumable(false),
        );
        Self::of(route, session, path, version, String::new(), place)
    }

    /// A session restored from a record of the previous process.
    fn restored(route: &Arc<Route>, record: &SessionRecord, place: OwnedSemaphorePermit) -> Self {
        let general = ClientStream::resumable(false);
        let session = Session::new(
            &record.owner,
            record.identity.as_str().into(),
            Arc::clone(&route.set),
            general,
        );
        session.go_on(record.initialize.get(), record.log_level.clone(), record.subscribed.clone());
        let version = session.asked_version();
        Self::of(route, session, &record.path, &version, secret()[..8].to_owned(), place)
    }

    fn of(
        route: &Arc<Route>,
        session: Arc<Session>,
        path: &str,
        version: &str,
        life: String,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            session,
            route: RwLock::new(Arc::clone(route)),
            path: path.to_owned(),
            is_primed: version >= "2025-11-25",
            life,
            streams: Mutex::default(),
            requests: Mutex::default(),
            next: AtomicU64::new(1),
            used: Mutex::new(Instant::now()),
            _place: place,
        }
    }

    /// The route of the session.
    pub(crate) fn route(&self) -> Arc<Route> {
        Arc::clone(&self.route.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Goes on over this route, that of the configuration in force.
    fn move_to(&self, route: &Arc<Route>) {
        {
            let mut own = self.route.write().unwrap_or_else(PoisonError::into_inner);
            if Arc::ptr_eq(&own, route) {
                return;
            }
            own.clone_from(route);
        }
        self.session.move_to(&route.set);
    }

    /// The record of this session for a restarted gateway.
    fn record(&self) -> Option<SessionRecord> {
        let handshake = self.session.handshake.get()?;
        let initialize =
            RawValue::from_string(String::from_utf8(handshake.initialize.to_vec()).ok()?).ok()?;
        let mut record =
            SessionRecord::new(&self.path, &self.session.id, &self.session.identity, initialize);
        record.log_level = self.session.log_level();
        record.subscribed = self.session.subscriptions();
        Some(record)
    }

    fn streams(&self) -> MutexGuard<'_, VecDeque<(u64, Arc<ClientStream>)>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of one of the session's streams, for event ids.
    pub(super) fn name(&self, number: u64, request: Option<StreamRequest>) -> StreamName {
        StreamName { life: self.life.clone(), number, request }
    }

    /// Keeps a stream for a client that may come back to it; returns its number. The oldest
    /// finished stream gives way.
    pub(crate) fn keep(&self, stream: &Arc<ClientStream>, request: Option<Message>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(request) = request {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            if requests.len() >= limits::KEPT_STREAMS {
                requests.pop_front();
            }
            requests.push_back((number, request));
        }
        let mut streams = self.streams();
        if streams.len() >= limits::KEPT_STREAMS {
            let oldest = streams.iter().position(|(_, stream)| stream.is_done()).unwrap_or(0);
            streams.remove(oldest);
        }
        self.route().pending.keep(stream);
        streams.push_back((number, Arc::clone(stream)));
        number
    }

    /// The request whose answer a stream carries, where whoever comes back for it must be allowed
    /// to have it.
    pub(super) fn request_of(&self, number: u64) -> Option<Message> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.iter().find(|(known, _)| *known == number).map(|(_, request)| request.clone())
    }

    /// Drops answers that no client came back for, the oldest first, until the session is within
    /// its limit.
    pub(crate) fn make_room(&self) {
        let mut streams = self.streams();
        let mut bytes: usize = streams.iter().map(|(_, stream)| stream.bytes()).sum();
        while bytes > limits::SESSION_BYTES
            && let Some(oldest) =
                streams.iter().position(|(_, stream)| stream.is_left() && stream.bytes() > 0)
            && let Some((_, given_up)) = streams.remove(oldest)
        {
            bytes -= given_up.bytes();
        }
    }

    /// Resolves an event id. An id from an earlier life of the session is no dead end: the general
    /// stream goes on from its start, and a request that was in flight is answered.
    pub(super) fn resume(&self, event: &str) -> ResumedStream {
        let Some((name, place)) = StreamName::read(event) else { return ResumedStream::Nothing };
        let is_now = name.life == self.life;
        if name.number == 0 {
            let place = if is_now { place } else { 0 };
            return ResumedStream::Stream(
                self.name(0, None),
                Arc::clone(&self.session.general),
                place,
            );
        }
        let known = self
            .streams()
            .iter()
            .find(|(known, _)| *known == name.number)
            .map(|(_, stream)| Arc::clone(stream));
        match (known.filter(|stream| is_now && !stream.is_forgotten()), &name.request) {
            (Some(stream), _) => ResumedStream::Stream(name, stream, place),
            (None, Some(asked)) if !is_now => ResumedStream::Interrupted(asked.clone()),
            (None, _) => ResumedStream::Nothing,
        }
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long the session has been idle.
    fn idle(&self) -> Duration {
        // A long call or an open stream counts as use up to this moment.
        if self.session.is_in_use() {
            self.touch();
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// All sessions of a listener.
pub(crate) struct Sessions {
    open: Mutex<HashMap<String, Arc<HttpSession>>>,
    places: Arc<Semaphore>,
    gateway: Option<Arc<Gateway>>,
    records: Option<Arc<SessionRecords>>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            places: Arc::new(Semaphore::new(limits::SESSIONS)),
            gateway: None,
            records: None,
        }
    }
}

impl Sessions {
    /// The sessions of a listener; `folder` holds the records of the previous process.
    pub(super) fn new(
        gateway: &Arc<Gateway>,
        folder: Option<&Path>,
        address: std::net::SocketAddr,
    ) -> Self {
        let records = folder.and_then(|folder| {
            let opened = SessionRecords::open(folder, address, now());
            let failed = |error: &std::io::Error| {
                let folder = folder.display();
                log::warn(&format!("sessions will not survive a restart: {folder}: {error}"));
            };
            opened.inspect_err(failed).ok().map(Arc::new)
        });
        Self { gateway: Some(Arc::clone(gateway)), records, ..Self::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Arc<HttpSession>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for one more session, taken before its handshake; `None` if there are too many.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Adds a session; returns its id. The record is written before the client learns the id: a
    /// client with an id can come back after a restart.
    pub(crate) async fn add(&self, session: Arc<HttpSession>) -> String {
        let id = secret();
        self.open().insert(id.clone(), Arc::clone(&session));
        self.keep(&id, &session).await;
        id
    }

    /// Writes the record of a session.
    pub(crate) async fn keep(&self, id: &str, session: &Arc<HttpSession>) {
        let Some(records) = self.records.clone() else { return };
        let (id, session) = (id.to_owned(), Arc::clone(session));
        let written =
            tokio::task::spawn_blocking(move || records.keep(&id, || session.record())).await;
        if let Ok(Err(error)) = written {
            log::warn(&format!("a session will not survive a restart: {error}"));
        }
    }

    /// The session with an id, if it belongs to this path: an open one, or one restored from its
    /// record.
    pub(crate) fn find(&self, id: &str, path: &str) -> Option<Arc<HttpSession>> {
        // The lock is held while a record is restored: two requests at once must not restore two
        // sessions.
        let mut open = self.open();
        let session = match open.get(id) {
            Some(session) => Arc::clone(session),
            None => {
                let session = Arc::new(self.restore(id, path)?);
                open.insert(id.to_owned(), Arc::clone(&session));
                session
            }
        };
        drop(open);
        (session.path == path).then(|| {
            session.touch();
            if let Some(route) = self.route(path) {
                session.move_to(&route);
            }
            session
        })
    }

    fn restore(&self, id: &str, path: &str) -> Option<HttpSession> {
        // A small local file: reading it takes less time than handing it to another thread.
        let record = self.records.as_ref()?.find(id, now()).filter(|it| it.path == path)?;
        Some(HttpSession::restored(&self.route(path)?, &record, self.place()?))
    }

    /// The route of a path in the configuration in force.
    fn route(&self, path: &str) -> Option<Arc<Route>> {
        self.gateway.as_ref()?.route(path)
    }

    /// Moves all sessions to the routes of the configuration in force; returns those whose route is
    /// there no longer.
    pub(super) fn move_all(&self) -> Vec<Arc<HttpSession>> {
        let open: Vec<_> =
            self.open().iter().map(|(id, session)| (id.clone(), Arc::clone(session))).collect();
        let mut lost = Vec::new();
        for (id, session) in open {
            match self.route(&session.path) {
                Some(route) => session.move_to(&route),
                None => lost.extend(self.remove(&id)),
            }
        }
        lost
    }

    /// Removes a session and its record.
    pub(crate) fn remove(&self, id: &str) -> Option<Arc<HttpSession>> {
        let removed = self.open().remove(id);
        if let Some(records) = &self.records {
            records.forget(id);
        }
        removed
    }

    /// Removes sessions that were idle for too long; the records of the others are marked as used.
    pub(crate) fn remove_idle(&self) -> Vec<Arc<HttpSession>> {
        let mut open = self.open();
        let idle: Vec<_> =
            open.extract_if(|_, session| session.idle() > limits::SESSION_IDLE).collect();
        if let Some(records) = self.records.clone() {
            let (gone, used): (Vec<String>, Vec<String>) =
                (idle.iter().map(|(id, _)| id.clone()).collect(), open.keys().cloned().collect());
            tokio::task::spawn_blocking(move || {
                gone.iter().for_each(|id| records.forget(id));
                used.iter().for_each(|id| records.touch(id, now()));
                records.sweep(now());
            });
        }
        idle.into_iter().map(|(_, session)| session).collect()
    }

    /// The sessions that were idle for longer than `limit`.
    pub(crate) fn idle_for(&self, limit: Duration) -> Vec<Arc<HttpSession>> {
        self.open().values().filter(|session| session.idle() > limit).cloned().collect()
    }

    /// Removes all sessions; their records stay, for the next process.
    pub(crate) fn remove_all(&self) -> Vec<Arc<HttpSession>> {
        self.open().drain().map(|(_, session)| session).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "what is kept in files is dated by wall time")]
fn now() -> SystemTime {
    SystemTime::now()
}
