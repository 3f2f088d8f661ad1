//! An Envoy ext_authz v3 server that does what a test says, over gRPC.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::service::auth::v3::authorization_server::{
    Authorization, AuthorizationServer,
};
use envoy_types::pb::envoy::service::auth::v3::{CheckRequest, CheckResponse};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service;

use super::Pending;
use super::check::Check;
use super::port::Port;
use super::reply::Reply;
use super::script::{Act, Script};

/// An authorizer on a loopback port. It allows everything until it is told otherwise.
pub struct Authorizer {
    port: Port,
    script: Arc<Script<Check, Reply>>,
}

impl Authorizer {
    /// Listens on a port that was free.
    pub async fn start() -> io::Result<Self> {
        Self::with(Script::always(Reply::allow().into())).await
    }

    /// Listens, and decides by a rule that may take its time.
    pub(super) async fn ruled(
        rule: impl Fn(Arc<Check>) -> Pending<Act<Reply>> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::with(Script::new(rule)).await
    }

    async fn with(script: Script<Check, Reply>) -> io::Result<Self> {
        let script = Arc::new(script);
        let told = Arc::clone(&script);
        let port = Port::open(move |request, reset| {
            let mut server =
                AuthorizationServer::new(Connection { script: Arc::clone(&told), reset });
            Box::pin(async move {
                let Ok(response) = server.call(request).await;
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            })
        });
        Ok(Self { port: port.await?, script })
    }

    /// Where it listens, also while it is stopped.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Does this with the next check that no earlier `next` is for.
    pub fn next(&self, act: impl Into<Act<Reply>>) {
        self.script.push(act.into());
    }

    /// Does this with every check that no `next` is for.
    pub fn always(&self, act: impl Into<Act<Reply>>) {
        let act = act.into();
        self.script.set(move |_| act.clone());
    }

    /// Decides each check that no `next` is for.
    pub fn decide(&self, rule: impl Fn(&Check) -> Act<Reply> + Send + Sync + 'static) {
        self.script.set(rule);
    }

    /// Forgets what was said with `next` and not done yet.
    pub fn clear(&self) {
        self.script.clear_queue();
    }

    /// All checks since the start or the last `forget`, in the order in which they came.
    pub fn checks(&self) -> Vec<Arc<Check>> {
        self.script.asked()
    }

    /// How many these are.
    pub fn count(&self) -> usize {
        self.script.count()
    }

    /// The most checks that were under way at once.
    pub fn peak(&self) -> usize {
        self.script.peak()
    }

    /// How many are under way now.
    pub fn under_way(&self) -> usize {
        self.script.now()
    }

    /// Forgets checks and peak.
    pub fn forget(&self) {
        self.script.forget();
    }

    /// Cuts all connections and refuses new ones.
    pub async fn stop(&self) {
        self.port.shut().await;
    }

    /// Listens again, on the same port.
    pub async fn again(&self) -> io::Result<()> {
        self.port.again().await
    }
}

/// One connection's side of the script.
struct Connection {
    script: Arc<Script<Check, Reply>>,
    reset: CancellationToken,
}

#[tonic::async_trait]
impl Authorization for Connection {
    async fn check(
        &self,
        request: tonic::Request<CheckRequest>,
    ) -> Result<tonic::Response<CheckResponse>, tonic::Status> {
        self.script.play(Check::read(request), &self.reset).await.into_wire()
    }
}
