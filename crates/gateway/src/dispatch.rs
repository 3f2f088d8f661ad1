//! The path of a call: from the client that asked, to the server it is for, and back. Read this page first.
//!
//! 1. A call that comes while the gateway goes down is refused.
//! 2. The handshake is answered from what the servers said (`catalog::hello`); what is ours is read here (`resources`).
//! 3. With one server everything passes as it is; with several the call finds its server (`catalog`).
//! 4. A list stays as it was while its server is away (`catalog::stable`); a tool, and all that reads, has a policy (`policies`).
//! 5. Under its policy the call is tried, given up or rescued (`carry`); one whose client has gone may run on (`detached`).
//! 6. It goes out in the server's own era (`bridge`), over a conversation that knows whose it is (`upstream`).
//! 7. What comes back gets the client's id; what does not come back becomes an honest failure (`answer`).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use seawall::Report;

use crate::accept::stream::Stream;
use crate::answer;
use crate::bridge::{to_legacy, to_modern};
use crate::call::Call;
use crate::carry::carry;
use crate::catalog;
use crate::catalog::layer::Rejoining;
use crate::gateway::Route;
use crate::policies::ToolPolicy;
use crate::resources;
use crate::session::Session;
use crate::upstream::{Failure, SendAgain, Server};
use crate::wire::build::Error;
use crate::wire::edit::Object;
use crate::wire::names::{CLIENT_INFO, Era};
use crate::wire::pieces::Pieces;
use crate::wire::{Kind, Message, limits};

/// Who asks.
#[derive(Clone)]
pub enum Caller {
    /// A session, on one of its streams.
    Legacy(Arc<Session>, Arc<Stream>),
    /// Somebody who says everything with each request; by what name, if it gave a secret of its own.
    Modern(Arc<str>),
}

/// Why there is no answer of a server.
#[derive(Debug)]
pub enum Refusal {
    /// A server failed.
    Failed(String, Failure),
    /// A call under a policy failed; and whether its tool has an output schema.
    Reported(Box<Report>, bool),
    /// The request is wrong, or we are.
    Wrong(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Wrong(error)
    }
}

/// An answer with whatever id, or why there is none.
pub type Reply = Result<Message, Refusal>;

/// One call and its answer, ready for the client. `None`: the client called it off and waits for nothing.
pub async fn dispatch(route: &Arc<Route>, caller: &Caller, call: Call) -> Option<Pieces> {
    if route.lifecycle.draining.is_cancelled() {
        return Some(answer::going_down(&call));
    }
    let _under_way = route.lifecycle.call();
    let cancel = Arc::clone(&call.cancel);
    let mut reply = pin!(reply(route, caller, &call));
    let ended = tokio::select! {
        biased;
        reply = reply.as_mut() => Some(reply),
        () = cancel.cancelled() => None,
    };
    let is_called_off = || cancel.is_cancelled() && !route.lifecycle.closing.is_cancelled();
    let reply = match ended {
        // Whoever called it off hears no failure of it.
        Some(Err(_)) if is_called_off() => return None,
        Some(reply) => reply,
        None if !route.lifecycle.closing.is_cancelled() => return None,
        // It was not the client that called it off: whatever became of it is said.
        None => match tokio::time::timeout(limits::LAST_ANSWER, reply).await {
            Ok(reply) => reply,
            Err(_) => return Some(answer::going_down(&call)),
        },
    };
    Some(answer::to_client(route, caller.era(), &call, reply))
}

async fn reply(route: &Arc<Route>, caller: &Caller, call: &Call) -> Reply {
    match (call.request.method(), route.single()) {
        ("initialize", _) => catalog::hello::initialize(route, caller, call).await,
        ("resources/read", _) if resources::is_ours(&call.request) => resources::read(route, caller, call).await,
        ("server/discover", None) => catalog::hello::discover(route, caller, call).await,
        // Boxed, so that what is asked once does not take room in every call.
        ("server/discover", Some(server)) => Box::pin(catalog::hello::discover_one(route, caller, server, call)).await,
        (_, Some(server)) => exchange(route, caller, server, call).await,
        (_, None) => catalog::reply(route, caller, call).await,
    }
}

/// One call to one server: its lists stay as they were while it is away, its tools and what it reads have policies.
pub async fn exchange(route: &Arc<Route>, caller: &Caller, server: &Arc<Server>, call: &Call) -> Reply {
    let request = &call.request;
    if catalog::stable::is_list(request) {
        let list = catalog::stable::list(route, caller, server, call).await?;
        if request.method() == "tools/list" {
            route.policies.learn(&server.name, &request.field_text("cursor").unwrap_or_default(), &list, false);
        }
        return Ok(list);
    }
    if let Some(policy) = policy(route, caller, server, call).await {
        return carry(route, caller, server, policy, call).await;
    }
    let (wait, again) = (server.reconnect.patience(), SendAgain::default());
    loop {
        match once(route, caller, server, call, wait).await {
            Err(Refusal::Failed(name, failure)) => {
                again.after(failure).map_err(|failure| Refusal::Failed(name, failure))?;
            }
            reply => return reply,
        }
    }
}

/// The policy of what is called. A server that is well and whose tools were never listed is asked for them first: what it
/// says of a tool decides whether it may be repeated.
async fn policy(route: &Arc<Route>, caller: &Caller, server: &Arc<Server>, call: &Call) -> Option<Arc<ToolPolicy>> {
    let request = &call.request;
    if request.method() != "tools/call" {
        return route.policies.method(&server.name, request.method()).cloned();
    }
    if !route.policies.has_heard_tools(&server.name) && server.reconnect.last().is_none() {
        catalog::look_up_tools(route, caller, server, call).await;
    }
    route.policies.call(&server.name, request)
}

/// One call to one server, in the era it speaks, once it is there; `wait` is how long it is waited for.
pub async fn once(route: &Arc<Route>, caller: &Caller, server: &Arc<Server>, call: &Call, wait: Duration) -> Reply {
    let failed = |failure| Refusal::Failed(server.name.clone(), failure);
    match caller {
        Caller::Legacy(session, stream) => {
            let keeper = session.keeper(server).map_err(failed)?;
            let link = keeper.link(wait).await.map_err(Failure::before_sending).map_err(failed)?;
            if link.era() == Era::Modern {
                return to_modern::exchange(session, stream, server, &link, call).await;
            }
            let answer = link.request(call).await.map_err(failed)?;
            if answer.kind() == Kind::Result {
                session.note(server, &call.request);
            }
            Ok(answer)
        }
        Caller::Modern(_) => {
            let Some(pool) = route.pool(server) else {
                return Err(failed(Failure::Unreachable("it is not on this route".to_owned())));
            };
            let link = pool.link(server, call, wait).await.map_err(Failure::before_sending).map_err(failed)?;
            let call = &server.mirror.settle(&link, call, server.sees_headers(&link)).await?;
            match link.era() {
                Era::Modern => link.request(call).await.map_err(failed),
                Era::Legacy => to_legacy::exchange(server, pool, link, call).await,
            }
        }
    }
}

impl Caller {
    /// The era of the client.
    pub fn era(&self) -> Era {
        match self {
            Self::Legacy(..) => Era::Legacy,
            Self::Modern(_) => Era::Modern,
        }
    }

    /// Who counts as the same caller when the identical call is made again, and whether one of them may get another's
    /// answer. `None`: nobody does.
    pub fn rejoins(&self, request: &Message, rejoin: Rejoining) -> Option<(Arc<str>, bool)> {
        let named = |name: &str, info: &[u8]| format!("{name} {}", String::from_utf8_lossy(info)).into();
        match (self, rejoin) {
            (_, Rejoining::Off) => None,
            (Self::Legacy(session, _), Rejoining::Caller) if !session.identity.is_empty() => {
                let params = session.opening.get().map(|opening| opening.initialize.clone()).unwrap_or_default();
                let info = Object::of(&params).get("clientInfo").unwrap_or_default().to_vec();
                Some((named(&session.identity, &info), true))
            }
            (Self::Legacy(session, _), _) => Some((Arc::clone(&session.id), true)),
            (Self::Modern(_), Rejoining::Session) => None,
            // Clients that cannot be told apart must not get each other's answers.
            (Self::Modern(name), Rejoining::Caller) => {
                let info = request.meta_json(CLIENT_INFO).unwrap_or_default();
                Some((named(name, info), !name.is_empty()))
            }
        }
    }

    /// Who the client is. Clients that cannot be told apart, neither by a secret nor by what they say of themselves, are one.
    pub fn identity(&self, request: &Message) -> Arc<str> {
        match self {
            Self::Legacy(session, _) => session.owner(),
            Self::Modern(name) if name.is_empty() => self.conversation(request, Rejoining::Caller),
            Self::Modern(name) => Arc::clone(name),
        }
    }

    /// What one conversation with it is. A client that is known may open a session for each call, so all of them are one, unless
    /// it speaks for many.
    pub fn conversation(&self, request: &Message, rejoin: Rejoining) -> Arc<str> {
        match self {
            Self::Legacy(session, _) if rejoin == Rejoining::Caller => session.owner(),
            Self::Legacy(session, _) => Arc::clone(&session.id),
            Self::Modern(name) => {
                let info = request.meta_json(CLIENT_INFO).unwrap_or_default();
                format!("{name} {}", String::from_utf8_lossy(info)).into()
            }
        }
    }
}
