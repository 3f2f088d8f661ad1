//! Decides whether a client may begin another call: no id twice, within limits of count and bytes;
//! each call in flight can be cancelled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::protocol::{Id, Message, build, limits};
use crate::upstream::call::CallCancel;

/// The calls in flight of one client, by the client's own ids.
#[derive(Debug, Default)]
pub(crate) struct ClientCalls {
    open: Arc<Mutex<OpenCalls>>,
}

#[derive(Debug, Default)]
struct OpenCalls {
    calls: HashMap<Id, Arc<CallCancel>>,
    bytes: usize,
}

impl ClientCalls {
    fn open(&self) -> MutexGuard<'_, OpenCalls> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call of `bytes` bytes. Refused while a call with the same id is in flight, and
    /// beyond the limits.
    pub(crate) fn begin(
        &self,
        id: &Id,
        cancel: &Arc<CallCancel>,
        bytes: usize,
    ) -> Result<CallInProgress, build::RpcError> {
        let mut open = self.open();
        if open.calls.contains_key(id) {
            return Err(build::RpcError::new(
                build::INVALID_REQUEST,
                "this id is in use by a call that is under way",
            ));
        }
        if open.calls.len() >= limits::CALLS {
            return Err(build::RpcError::new(
                build::OVERLOADED,
                format!("over {} calls are under way", limits::CALLS),
            ));
        }
        if open.bytes + bytes > limits::CALL_BYTES {
            let text = format!("calls of over {} bytes are under way", limits::CALL_BYTES);
            return Err(build::RpcError::new(build::OVERLOADED, text));
        }
        open.calls.insert(id.clone(), Arc::clone(cancel));
        open.bytes += bytes;
        Ok(CallInProgress { open: Arc::clone(&self.open), id: id.clone(), bytes })
    }

    /// Whether no call is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.open().calls.is_empty()
    }

    /// Cancels one call, with the client's own notification.
    pub(crate) fn cancel(&self, id: &Id, notification: &Message) {
        let cancel = self.open().calls.get(id).cloned();
        if let Some(cancel) = cancel {
            cancel.cancel(Bytes::copy_from_slice(notification.body_json()));
        }
    }

    /// Cancels all calls.
    pub(crate) fn cancel_all(&self) {
        for cancel in self.open().calls.values() {
            cancel.cancel(Bytes::new());
        }
    }
}

/// A call in flight; it ends when dropped.
#[derive(Debug)]
pub(crate) struct CallInProgress {
    open: Arc<Mutex<OpenCalls>>,
    id: Id,
    bytes: usize,
}

impl Drop for CallInProgress {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.calls.remove(&self.id);
        open.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_under_way_are_bounded_in_number_and_in_bytes() {
        let calls = ClientCalls::default();
        let begin = |number, bytes| calls.begin(&Id::number(number), &Arc::default(), bytes);
        let large: Vec<CallInProgress> =
            (0..16).map(|number| begin(number, limits::CALL_BYTES / 16).unwrap()).collect();
        assert_eq!(begin(16, 1).unwrap_err().message, "calls of over 67108864 bytes are under way");
        assert_eq!(begin(3, 1).unwrap_err().code, build::INVALID_REQUEST);
        drop(large);
        let small: Vec<CallInProgress> =
            (0..1024).map(|number| begin(number, 100).unwrap()).collect();
        assert_eq!(begin(1024, 1).unwrap_err().message, "over 1024 calls are under way");
        drop(small);
        assert!(begin(0, 1).is_ok());
    }
}
