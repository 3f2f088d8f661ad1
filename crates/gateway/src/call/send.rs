//! Sends one call to one server, in the server's era; at once again if the server certainly did not
//! process it: it forgot the session, or the connection ended before the request went out.

use std::sync::Arc;
use std::time::Duration;

use crate::call::traced;
use crate::client::caller::Caller;
use crate::protocol::MessageKind;
use crate::protocol::names::Era;
use crate::route::Route;
use crate::translate::{to_legacy, to_modern};
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Refusal, Reply};
use crate::upstream::{Connection, SendAgain, Server, UpstreamFailure};

/// Sends a call, and resends it as long as `again` allows. `wait` says how long to wait for the
/// connection, given whether the server was found away.
pub(crate) async fn send(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
    again: &SendAgain,
    wait: impl Fn(bool) -> Duration,
) -> Reply {
    let mut is_away = server.reconnect.last().is_some();
    loop {
        match once(route, caller, server, call, wait(is_away)).await {
            Err(Refusal::Failed(name, failure)) => {
                again.after(failure).map_err(|failure| Refusal::Failed(name, failure))?;
            }
            reply => return reply,
        }
        is_away = true;
    }
}

/// Sends a call once, in the server's era, when the connection is up; waits up to `wait` for it.
/// While calls are traced, that is one span.
pub(crate) async fn once(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
    wait: Duration,
) -> Reply {
    match &call.trace {
        None => untraced(route, caller, server, call, wait).await,
        // Boxed, so that a call that is not traced takes no room for it.
        Some(trace) => {
            Box::pin(async move {
                let (span, call) = traced::request(route, server, call, trace);
                let reply = untraced(route, caller, server, &call, wait).await;
                traced::end(span, &call, &reply);
                reply
            })
            .await
        }
    }
}

async fn untraced(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
    wait: Duration,
) -> Reply {
    let failed = |failure| Refusal::Failed(server.name.clone(), failure);
    // A call that still waits for its connection when the gateway ends was certainly not sent.
    let ends = || UpstreamFailure::Unreachable("Seawall is going down".to_owned());
    let closing = &route.lifecycle.closing;
    match caller {
        Caller::Legacy(session, stream) => {
            let supervisor = session.supervisor(server).map_err(failed)?;
            // Without a connection nothing was sent, so even a write may be repeated.
            let connection = closing
                .run_until_cancelled(supervisor.connection(wait))
                .await
                .unwrap_or_else(|| Err(ends()))
                .map_err(UpstreamFailure::before_sending)
                .map_err(failed)?;
            traced::note_version(call, &connection);
            add_faults(server, &connection, call).await.map_err(failed)?;
            if connection.era() == Era::Modern {
                // Boxed, here and below: between two clients of one era nothing is translated.
                return Box::pin(to_modern::exchange(session, stream, server, &connection, call))
                    .await;
            }
            let answer = connection.request(call).await.map_err(failed)?;
            // Only after success: the session replays these requests (subscriptions, log level)
            // when it reconnects.
            if answer.kind() == MessageKind::Result {
                session.note(server, &call.request);
            }
            Ok(answer)
        }
        Caller::Modern(_) => {
            let Some(pool) = route.pool(server) else {
                return Err(failed(UpstreamFailure::Unreachable(
                    "it is not on this route".to_owned(),
                )));
            };
            let connection = closing
                .run_until_cancelled(pool.connection(server, call, wait))
                .await
                .unwrap_or_else(|| Err(ends()))
                .map_err(UpstreamFailure::before_sending)
                .map_err(failed)?;
            let call = &server
                .header_params
                .settle(&connection, call, server.sees_headers(&connection))
                .await?;
            traced::note_version(call, &connection);
            add_faults(server, &connection, call).await.map_err(failed)?;
            match connection.era() {
                Era::Modern => connection.request(call).await.map_err(failed),
                Era::Legacy => Box::pin(to_legacy::exchange(server, pool, connection, call)).await,
            }
        }
    }
}

/// Lets a call fail that the configuration wants to fail.
async fn add_faults(
    server: &Server,
    connection: &Arc<Connection>,
    call: &GatewayCall,
) -> Result<(), UpstreamFailure> {
    match &server.chaos {
        Some(chaos) => chaos.strike(connection, call).await,
        None => Ok(()),
    }
}
