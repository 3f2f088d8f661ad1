//! Decides what a call is: what the client asked for, once. And what one try of it is told.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::control::CallControl;

/// What a client asked for, once.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The tool's arguments.
    pub arguments: Arc<Value>,
    /// The arguments as they were written, where reading them lost something. Then no fallback
    /// writes them anew.
    pub written: Option<Arc<str>>,
    /// What it says beside its arguments, such as a tenant. What is read with another context is
    /// another answer; a write with the same arguments is the same write. A call with a context is
    /// not put into a queue, which keeps arguments only.
    pub context: Option<Arc<str>>,
    /// Who asks. Answers are never shared between callers; calls that name none are one caller's.
    pub caller: Arc<str>,
    /// In which session. Loops are looked for within a session; calls that name none are in the
    /// same one, so whoever serves several agents should name theirs.
    pub session: Arc<str>,
    /// The client's own limit, if it is shorter than the policy's.
    pub timeout: Option<Duration>,
    /// The client retries by itself, so one attempt is enough here.
    pub retried_outside: bool,
    /// The client wants to know details of a failure.
    pub debug: bool,
    /// What stands before the names of this server's tools where the client reads them.
    pub prefix: Arc<str>,
    /// How it is told more while it runs.
    pub control: Option<Arc<CallControl>>,
    /// Whether it may be answered with what an identical call came to whose client has gone; not
    /// without a `control`, which tells whether it has.
    pub rejoin: Option<Rejoin>,
}

/// When a call is taken for one that was made before, and by whom.
#[derive(Clone, Debug)]
pub struct Rejoin {
    /// Who counts as the same caller: a client that comes back names the same.
    pub scope: Arc<str>,
    /// A client that makes the identical call after this long has given up the first. Sooner, it
    /// means two calls.
    pub after: Duration,
    /// Whether the answer may be given to whoever is in the same scope; else identical writes only
    /// go one after the other.
    pub takes: bool,
    /// It brings what an identical call has asked its client for, and goes on with that one.
    pub continues: bool,
}

impl Call {
    /// A call without caller or session.
    pub fn new(arguments: Value) -> Self {
        Self { arguments: Arc::new(arguments), ..Self::default() }
    }

    /// Asked by `caller`.
    pub fn by(mut self, caller: impl Into<Arc<str>>) -> Self {
        self.caller = caller.into();
        self
    }

    /// Asked in `session`.
    pub fn in_session(mut self, session: impl Into<Arc<str>>) -> Self {
        self.session = session.into();
        self
    }

    /// To be answered within `timeout`.
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// With details of a failure.
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

/// A tool and its server.
#[derive(Debug)]
pub(crate) struct ToolNames {
    pub(crate) server: Arc<str>,
    pub(crate) tool: Arc<str>,
}

/// One try of a call at a server, as the code that makes it sees it.
///
/// A fallback may try another tool, other arguments, or another server: use what stands here, not
/// what the call said.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// 1 for the first try of the call.
    pub number: u32,
    /// Whom to ask.
    pub(crate) names: Arc<ToolNames>,
    /// With these arguments.
    pub arguments: Arc<Value>,
    /// How long it may take before it is dropped.
    pub timeout: Duration,
}

impl Attempt {
    /// The server to ask.
    pub fn server(&self) -> &str {
        &self.names.server
    }

    /// The tool to call.
    pub fn tool(&self) -> &str {
        &self.names.tool
    }
}
