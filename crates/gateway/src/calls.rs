//! The calls of one client that are under way, by the client's own ids: none twice, none too many, each can be called off.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::call::Cancel;
use crate::wire::{Id, Message, build, limits};

/// The calls of one client that are under way, by the client's own ids.
#[derive(Debug, Default)]
pub struct Calls {
    open: Arc<Mutex<HashMap<Id, Arc<Cancel>>>>,
}

impl Calls {
    fn open(&self) -> MutexGuard<'_, HashMap<Id, Arc<Cancel>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call; an id that is under way cannot begin again, and too many cannot be.
    pub fn begin(&self, id: &Id, cancel: &Arc<Cancel>) -> Result<Began, build::Error> {
        let mut open = self.open();
        if open.contains_key(id) {
            return Err(build::Error::new(build::INVALID_REQUEST, "this id is in use by a call that is under way"));
        }
        if open.len() >= limits::CALLS {
            return Err(build::Error::new(build::OVERLOADED, format!("over {} calls are under way", limits::CALLS)));
        }
        open.insert(id.clone(), Arc::clone(cancel));
        Ok(Began { open: Arc::clone(&self.open), id: id.clone() })
    }

    /// Calls one off.
    pub fn cancel(&self, id: &Id, notification: &Message) {
        let cancel = self.open().get(id).cloned();
        if let Some(cancel) = cancel {
            cancel.cancel(Bytes::copy_from_slice(notification.body_json()));
        }
    }

    /// Calls all off.
    pub fn cancel_all(&self) {
        for cancel in self.open().values() {
            cancel.cancel(Bytes::new());
        }
    }
}

/// A call under way; over when dropped.
#[derive(Debug)]
pub struct Began {
    open: Arc<Mutex<HashMap<Id, Arc<Cancel>>>>,
    id: Id,
}

impl Drop for Began {
    fn drop(&mut self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
