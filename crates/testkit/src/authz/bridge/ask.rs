//! One check by OpenFGA over HTTP, each on a connection of its own as CAIPE's bridge has it, and
//! what was asked.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;

use super::BridgeSettings;
use crate::authz::MOST;
use crate::authz::real::post;

/// Asks OpenFGA.
pub(super) struct Ask {
    url: String,
    timeout: Duration,
    latency: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    asked: Vec<[String; 3]>,
    now: usize,
    peak: usize,
}

impl Ask {
    pub(super) fn new(settings: &BridgeSettings) -> Self {
        Self {
            url: format!("{}/stores/{}/check", settings.openfga, settings.store),
            timeout: settings.timeout,
            latency: settings.latency,
            state: Mutex::default(),
        }
    }

    /// Whether OpenFGA allows it; an error: it did not say.
    pub(super) async fn allows(
        &self,
        user: &str,
        relation: &str,
        object: &str,
    ) -> io::Result<bool> {
        let _under_way = self.begin([user, relation, object].map(str::to_owned));
        tokio::time::sleep(self.latency).await;
        let body = json!({"tuple_key": {"user": user, "relation": relation, "object": object}});
        let answer = tokio::time::timeout(self.timeout, post(&self.url, &body)).await??;
        Ok(answer["allowed"] == true)
    }

    pub(super) fn asked(&self) -> Vec<[String; 3]> {
        self.state().asked.clone()
    }

    pub(super) fn peak(&self) -> usize {
        self.state().peak
    }

    pub(super) fn forget(&self) {
        let mut state = self.state();
        state.asked.clear();
        state.peak = state.now;
    }

    fn begin(&self, asked: [String; 3]) -> UnderWay<'_> {
        let mut state = self.state();
        if state.asked.len() < MOST {
            state.asked.push(asked);
        }
        state.now += 1;
        state.peak = state.peak.max(state.now);
        UnderWay(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct UnderWay<'a>(&'a Ask);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state().now -= 1;
    }
}
