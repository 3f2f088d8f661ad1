//! Decides whether another server process may start, and which idle process gives way when the
//! limit is reached.
//!
//! Abandoned sessions can hold processes for an hour. At the limit, the least recently used idle
//! connection ends with its process; its supervisor stays, and starts the process again for the
//! next call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Connection, UpstreamFailure};
use crate::protocol::limits;

/// How long a new process waits for another to go: its stdin is closed, then SIGTERM, then SIGKILL.
const ROOM_WAIT: Duration = limits::CHILD_GRACE.saturating_mul(3);

/// The child processes of one gateway.
#[derive(Debug)]
pub struct Processes {
    limit: usize,
    places: Arc<Semaphore>,
    /// The connections to running processes.
    running: Mutex<Vec<Weak<Connection>>>,
}

/// A permit for one process, given back on drop.
pub(crate) type ProcessPermit = OwnedSemaphorePermit;

impl Default for Processes {
    fn default() -> Self {
        Self::new(limits::PROCESSES)
    }
}

impl Processes {
    /// At most `limit` processes at a time.
    pub fn new(limit: usize) -> Self {
        Self { limit, places: Arc::new(Semaphore::new(limit)), running: Mutex::default() }
    }

    fn running(&self) -> MutexGuard<'_, Vec<Weak<Connection>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for one more process; at the limit, the permit of an idle process that gives way.
    pub async fn place(&self) -> Result<ProcessPermit, UpstreamFailure> {
        let full = UpstreamFailure::NoRoom(self.limit);
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        if self.places.is_closed() || !self.evict() {
            return Err(full);
        }
        match tokio::time::timeout(ROOM_WAIT, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(full),
        }
    }

    /// Notes a connection to a process: it may have to give way.
    pub fn note(&self, connection: &Arc<Connection>) {
        let mut running = self.running();
        running.retain(|connection| {
            connection.upgrade().is_some_and(|connection| connection.is_alive())
        });
        running.push(Arc::downgrade(connection));
    }

    /// Ends the least recently used connection, if it is idle; returns whether one ended.
    fn evict(&self) -> bool {
        let mut idle: Vec<Arc<Connection>> =
            self.running().iter().filter_map(Weak::upgrade).collect();
        idle.retain(|connection| connection.is_alive());
        // Spare connections, which only wait for their next client, go first.
        idle.sort_by_key(|connection| {
            std::cmp::Reverse((connection.is_spare(), connection.idle()))
        });
        let least = |connection: &Connection| {
            if connection.is_spare() { Duration::ZERO } else { limits::GIVES_WAY }
        };
        // `give_way` checks again under the connection's lock: a call may have come since the sort.
        let gone = idle.into_iter().find(|connection| connection.give_way(least(connection)));
        if let Some(connection) = &gone {
            let text = "the process that was not used for longest is stopped, as there is no room for another";
            crate::runtime::log::line(&format!(
                "{}: {text}; the next call starts it",
                connection.server
            ));
        }
        gone.is_some()
    }

    /// From now on there is no permit.
    #[cfg(test)]
    pub fn close(&self) {
        self.places.close();
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::protocol::{Id, Message, build};
    use crate::upstream::Wire;
    use crate::upstream::call::{GatewayCall, NoClient};
    use crate::upstream::pipe::{PipeMessage, PipeWriter};

    /// A connection to a process that holds its permit until it ends.
    async fn started(processes: &Processes) -> (Arc<Connection>, PipeMessage) {
        let (place, (pipe, outgoing)) = (processes.place().await.unwrap(), PipeWriter::new());
        let connection =
            Connection::new("it", Wire::Pipe(pipe), Arc::new(NoClient), CancellationToken::new());
        processes.note(&connection);
        let over = connection.over.clone();
        tokio::spawn(async move {
            over.cancelled().await;
            drop(place);
        });
        (connection, outgoing)
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_nobody_has_used_for_longest_gives_way() {
        let processes = Processes::new(3);
        let (first, _to_first) = started(&processes).await;
        tokio::time::advance(limits::GIVES_WAY).await;
        let (second, _to_second) = started(&processes).await;
        let (third, _to_third) = started(&processes).await;
        tokio::time::advance(limits::GIVES_WAY).await;
        first.touch();
        second.touch();
        tokio::time::advance(limits::GIVES_WAY).await;

        let _fourth = started(&processes).await;
        assert_eq!(
            [&first, &second, &third].map(|connection| connection.is_alive()),
            [true, true, false]
        );
        assert!(third.gave_way() && !first.gave_way());

        second.set_spare(true);
        second.touch();
        let _fifth = started(&processes).await;
        assert_eq!(
            [&first, &second].map(|connection| connection.is_alive()),
            [true, false],
            "it only waits for its next client"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_gives_way_who_is_used_and_the_limit_is_told() {
        let processes = Processes::new(2);
        let ((busy, _to_busy), (fresh, _to_fresh)) =
            (started(&processes).await, started(&processes).await);
        let request = build::request(&Id::number(1), "tools/call", br#"{"name":"x"}"#);
        let call = GatewayCall::new(Message::parse(request).unwrap(), Arc::new(NoClient));
        let asked = async {
            tokio::time::sleep(limits::GIVES_WAY * 2).await;
            fresh.touch();
            let failure = processes.place().await.unwrap_err();
            assert_eq!(
                failure.to_string(),
                "was not started: 2 server processes are running, as many as this gateway starts"
            );
        };
        tokio::select! {
            _answer = busy.request(&call) => panic!("it is never answered"),
            () = asked => {}
        }
        assert!(busy.is_alive() && fresh.is_alive());
    }
}
