//! Decides which facts make up a call (one request of a client) and an attempt (one try of a call
//! at a server).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::control::CallControl;

/// One request of a client to a tool.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The tool's arguments.
    pub arguments: Arc<Value>,
    /// The arguments as the client wrote them, where parsing them lost something. No fallback then
    /// rewrites the arguments.
    pub written: Option<Arc<str>>,
    /// Further input of the call beside its arguments, such as a tenant. Reads with different
    /// contexts are different reads and share no cached response; a write with the same arguments
    /// is the same write in any context. A call with a context is never queued, because the queue
    /// keeps arguments only.
    pub context: Option<Arc<str>>,
    /// The caller. Callers never share answers; all calls without a caller name count as one
    /// caller.
    pub caller: Arc<str>,
    /// Whoever the call is made for, in words of the embedder's own. A queued write keeps them, so
    /// that the embedder can check again whether the write is allowed when it is delivered. The
    /// library does not read them.
    pub principal: Option<Arc<str>>,
    /// The session of the call. The loop guard counts within a session. Calls without a session
    /// name share one session, so an embedder that serves several agents should name the session of
    /// each.
    pub session: Arc<str>,
    /// The client's own timeout, if it is shorter than the policy's.
    pub timeout: Option<Duration>,
    /// The client retries by itself, so the pipeline makes a single attempt.
    pub retried_outside: bool,
    /// The client wants details of a failure.
    pub debug: bool,
    /// The prefix of this server's tool names as the client sees them; texts for the client repeat
    /// it.
    pub prefix: Arc<str>,
    /// The handle through which the running call learns of questions to its client, of the client
    /// leaving, and of shutdown.
    pub control: Option<Arc<CallControl>>,
    /// Whether the call may get the answer of an identical call that its client had given up. Needs
    /// a `control`, which tells whether the client has left.
    pub rejoin: Option<Rejoin>,
}

/// When a call counts as the repeat of an earlier call, and within which scope.
#[derive(Clone, Debug)]
pub struct Rejoin {
    /// Identifies the client: a client that reconnects names the same scope.
    pub scope: Arc<str>,
    /// A client that repeats an identical call after this long has given up the first one. A repeat
    /// that comes sooner means a second call.
    pub after: Duration,
    /// Whether any call of the same scope may take the answer. If not, identical writes are only
    /// sent one after the other.
    pub takes: bool,
    /// The call carries the client's reply to a question that an identical call had asked, and
    /// continues that call.
    pub continues: bool,
}

impl Call {
    /// A call without caller or session.
    pub fn new(arguments: Value) -> Self {
        Self { arguments: Arc::new(arguments), ..Self::default() }
    }

    /// Sets the caller.
    pub fn by(mut self, caller: impl Into<Arc<str>>) -> Self {
        self.caller = caller.into();
        self
    }

    /// Sets the session.
    pub fn in_session(mut self, session: impl Into<Arc<str>>) -> Self {
        self.session = session.into();
        self
    }

    /// Sets the client's own timeout.
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Asks for details of a failure.
    pub fn with_debug(mut self) -> Self {
        self.debug = true;
        self
    }
}

impl From<Value> for Call {
    fn from(arguments: Value) -> Self {
        Self::new(arguments)
    }
}

/// The names of a tool and its server.
#[derive(Debug)]
pub(crate) struct ToolNames {
    pub(crate) server: Arc<str>,
    pub(crate) tool: Arc<str>,
}

/// One try of a call at a server, as the code that sends it sees it.
///
/// A fallback may use another tool, other arguments or another server: send the values of the
/// attempt, not those of the call.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// 1 for the first attempt of the call.
    pub number: u32,
    /// The server and the tool to call.
    pub(crate) names: Arc<ToolNames>,
    /// The arguments to send.
    pub arguments: Arc<Value>,
    /// The timeout of the attempt; when it ends, the attempt is dropped.
    pub timeout: Duration,
}

impl Attempt {
    /// The server to call.
    pub fn server(&self) -> &str {
        &self.names.server
    }

    /// The tool to call.
    pub fn tool(&self) -> &str {
        &self.names.tool
    }
}
