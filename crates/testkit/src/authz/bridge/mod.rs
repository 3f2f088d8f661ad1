//! A bridge from ext_authz to OpenFGA that behaves as CAIPE's does: few workers, checks in series,
//! and outages told as `status.code` 14 inside an answer.
//!
//! `decide` is the order of its checks and the words of its denials, `agent` the signed headers
//! that say which agent calls, `bearer` the token that says who, `ask` one check by OpenFGA.

mod agent;
mod ask;
mod bearer;
mod decide;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use self::ask::Ask;
use self::decide::decide;
use super::authorizer::Authorizer;
use super::check::Check;

pub use self::agent::agent_context;

/// What the bridge is told at its start.
#[derive(Clone, Debug)]
pub struct BridgeSettings {
    /// OpenFGA's HTTP address, as a URL.
    pub openfga: String,
    /// The id of the store.
    pub store: String,
    /// How many checks are worked on at once; others wait in line.
    pub workers: usize,
    /// How long one check by OpenFGA may take.
    pub timeout: Duration,
    /// Waited before each check by OpenFGA.
    pub latency: Duration,
    /// No check is answered before the bridge has been up for so long.
    pub cold_start: Duration,
    /// Where the keys are that verify a bearer token; without it, and without a token that holds,
    /// the caller is who the metadata says.
    pub jwks: Option<String>,
    /// The servers that need a grant of their own.
    pub restricted: Vec<String>,
    /// The secret of the signed agent context; without one, calls of tools need no agent.
    pub agent_secret: Option<String>,
    /// Whether the caller too needs a grant for the tool, beside the agent.
    pub check_caller: bool,
}

impl BridgeSettings {
    /// As CAIPE's bridge is by default: ten workers, ten seconds a check, only the gateway's grant.
    pub fn new(openfga: &str, store: &str) -> Self {
        Self {
            openfga: openfga.trim_end_matches('/').to_owned(),
            store: store.to_owned(),
            workers: 10,
            timeout: Duration::from_secs(10),
            latency: Duration::ZERO,
            cold_start: Duration::ZERO,
            jwks: None,
            restricted: Vec::new(),
            agent_secret: None,
            check_caller: false,
        }
    }
}

/// The bridge on a loopback port.
pub struct Bridge {
    authorizer: Authorizer,
    ask: Arc<Ask>,
    warm: Arc<std::sync::Mutex<Instant>>,
    cold_start: Duration,
}

impl Bridge {
    /// Listens on a port that was free.
    pub async fn start(settings: BridgeSettings) -> io::Result<Self> {
        let cold_start = settings.cold_start;
        let warm = Arc::new(std::sync::Mutex::new(Instant::now() + cold_start));
        let workers = Arc::new(Semaphore::new(settings.workers));
        let ask = Arc::new(Ask::new(&settings));
        let settings = Arc::new(settings);
        let (asking, warming) = (Arc::clone(&ask), Arc::clone(&warm));
        let authorizer = Authorizer::ruled(move |check| {
            let (workers, warm) = (Arc::clone(&workers), Arc::clone(&warming));
            let (ask, settings) = (Arc::clone(&asking), Arc::clone(&settings));
            Box::pin(async move {
                let warm = *warm.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                sleep_until(warm).await;
                let _worker = workers.acquire().await;
                decide(&check, &ask, &settings).await.into()
            })
        });
        Ok(Self { authorizer: authorizer.await?, ask, warm, cold_start })
    }

    /// Where it listens, also while it is stopped.
    pub fn address(&self) -> SocketAddr {
        self.authorizer.address()
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        self.authorizer.url()
    }

    /// The checks that it was asked for.
    pub fn checks(&self) -> Vec<Arc<Check>> {
        self.authorizer.checks()
    }

    /// The most checks that were under way or in line at once.
    pub fn peak(&self) -> usize {
        self.authorizer.peak()
    }

    /// What OpenFGA was asked, in order: user, relation, object.
    pub fn asked(&self) -> Vec<[String; 3]> {
        self.ask.asked()
    }

    /// The most checks by OpenFGA that were under way at once.
    pub fn asked_peak(&self) -> usize {
        self.ask.peak()
    }

    /// Forgets what was asked, of it and of OpenFGA.
    pub fn forget(&self) {
        self.authorizer.forget();
        self.ask.forget();
    }

    /// Cuts all connections and refuses new ones.
    pub async fn stop(&self) {
        self.authorizer.stop().await;
    }

    /// Listens again, on the same port, cold.
    pub async fn again(&self) -> io::Result<()> {
        *self.warm.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Instant::now() + self.cold_start;
        self.authorizer.again().await
    }
}
