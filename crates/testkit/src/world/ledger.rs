//! The servers' ledger: every execution of every call, with the request that caused it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// One execution.
#[derive(Clone, Debug)]
pub struct Execution {
    /// Its number among all of the world, from 1; the answer carries it.
    pub number: usize,
    /// Where.
    pub server: usize,
    /// Of what.
    pub intent: String,
    /// The client's request that it belongs to.
    pub request: String,
    /// When it began.
    pub at: Instant,
    /// When its answer left the server, if one did.
    pub answered: Option<Instant>,
}

/// What the servers of a world did.
#[derive(Default)]
pub struct Ledger {
    page: Mutex<Page>,
    grew: Notify,
}

#[derive(Default)]
struct Page {
    executions: Vec<Execution>,
    attempts: HashMap<String, usize>,
    children: Vec<(usize, u32)>,
}

impl Ledger {
    fn page(&self) -> MutexGuard<'_, Page> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an attempt; gives how many there were before.
    pub(crate) fn attempt(&self, intent: &str) -> usize {
        let mut page = self.page();
        let count = page.attempts.entry(intent.to_owned()).or_default();
        *count += 1;
        *count - 1
    }

    /// Notes an execution; gives its number.
    pub(crate) fn execute(&self, server: usize, intent: &str, request: &str) -> usize {
        let mut page = self.page();
        let number = page.executions.len() + 1;
        page.executions.push(Execution {
            number,
            server,
            intent: intent.to_owned(),
            request: request.to_owned(),
            at: Instant::now(),
            answered: None,
        });
        drop(page);
        self.grew.notify_waiters();
        number
    }

    /// The answer of this execution is about to leave.
    pub(crate) fn answered(&self, number: usize) {
        if let Some(execution) = self.page().executions.get_mut(number - 1) {
            execution.answered.get_or_insert_with(Instant::now);
        }
    }

    /// Waits until an intent was executed, and tells when it was for the first time.
    pub(crate) async fn executed(&self, intent: &str) -> Instant {
        loop {
            let grew = self.grew.notified();
            if let Some(found) =
                self.page().executions.iter().find(|execution| execution.intent == intent)
            {
                return found.at;
            }
            grew.await;
        }
    }

    pub(crate) fn child(&self, server: usize, pid: u32) {
        self.page().children.push((server, pid));
    }

    /// The processes that said they are this server.
    pub(crate) fn children_of(&self, server: usize) -> Vec<u32> {
        self.page().children.iter().filter(|(of, _)| *of == server).map(|(_, pid)| *pid).collect()
    }

    /// All executions so far.
    pub fn executions(&self) -> Vec<Execution> {
        self.page().executions.clone()
    }
}
