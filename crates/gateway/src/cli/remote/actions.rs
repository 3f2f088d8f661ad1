//! Runs the commands that talk to a running gateway through its admin API.

use std::io::{self, IsTerminal, Write};

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::super::config_args::variable;
use super::super::{AUTH, CommandEnd, UNREACHABLE, USAGE};
use super::{
    AdminArgs, AdminPlace, BreakerAction, ForcedArg, MoveTarget, QueueAction, RemoteCommand,
    ServerAction, moving,
};
use crate::protocol::limits;
use crate::protocol::sse::SseDecoder;
use crate::remote::address::AdminAddress;
use crate::remote::client::{AdminClient, RemoteError, encoded};
use crate::remote::show;
use crate::runtime::clock::now;
use crate::runtime::log::{self, plain};
use crate::top;

/// Sends the request and shows the answer.
pub(in crate::cli) async fn run(remote: RemoteCommand) -> CommandEnd {
    match remote {
        RemoteCommand::Status { at } => status(&RemoteRequest::new(&at)?).await,
        RemoteCommand::Breakers { at, deed } => breakers(&RemoteRequest::new(&at)?, deed).await,
        RemoteCommand::Queue { at, deed: Some(QueueAction::Move { to: MoveTarget::Redis }) } => {
            moving::to_redis(&at).await
        }
        RemoteCommand::Queue { at, deed } => queue(&RemoteRequest::new(&at)?, deed).await,
        RemoteCommand::Servers { at, deed } => servers(&RemoteRequest::new(&at)?, deed).await,
        RemoteCommand::Reload { at } => reload(&RemoteRequest::new(&at)?).await,
        RemoteCommand::Logs { at, name } => logs(&RemoteRequest::new(&at)?, &name).await,
        RemoteCommand::Top { at } => top(&at).await,
        RemoteCommand::Tap { at, tool, class, last } => {
            let filter = |name: &str, value: Option<String>| {
                value.map(|value| format!("&{name}={}", encoded(&value)))
            };
            let filters = [filter("tool", tool), filter("class", class)]
                .into_iter()
                .flatten()
                .collect::<String>();
            tap(&RemoteRequest::new(&at)?, &format!("/resilience/events?last={last}{filters}"))
                .await
        }
    }
}

/// The admin client, and how its answer is shown.
struct RemoteRequest {
    client: AdminClient,
    as_json: bool,
}

impl RemoteRequest {
    fn new(at: &AdminArgs) -> Result<Self, (u8, String)> {
        Ok(Self { client: client(&at.place)?, as_json: at.json })
    }

    async fn get(&self, path: &str) -> Result<Value, (u8, String)> {
        self.client.get(path).await.map_err(ended)
    }

    async fn change(&self, method: Method, path: &str, body: &str) -> Result<Value, (u8, String)> {
        self.client.ask(method, path, body).await.map_err(ended)
    }

    fn show(&self, answer: &Value, text: impl FnOnce() -> String) -> CommandEnd {
        print(&if self.as_json { show::json(answer) } else { text() })
    }
}

fn client(at: &AdminPlace) -> Result<AdminClient, (u8, String)> {
    let place = AdminAddress::find(at.admin.as_deref(), at.config.as_deref(), &variable)
        .map_err(|text| (USAGE, text))?;
    AdminClient::new(place).map_err(ended)
}

/// The exit code and text of a failed request.
fn ended(trouble: RemoteError) -> (u8, String) {
    match trouble {
        RemoteError::Unreachable(text) => (UNREACHABLE, text),
        RemoteError::Auth(text) => (AUTH, text),
        // Who works with commands is told the command, not the request.
        RemoteError::Refused(_, text) => (USAGE, text.replace("GET /resilience/", "seawall ")),
    }
}

/// Prints a text; a reader that has closed the pipe is no failure.
fn print(text: &str) -> CommandEnd {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err((USAGE, format!("cannot write: {error}")))
        }
        _ => Ok(()),
    }
}

async fn status(asking: &RemoteRequest) -> CommandEnd {
    let ready = asking.get("/readyz").await?;
    let (servers, breakers) =
        (asking.get("/resilience/servers").await?, asking.get("/resilience/breakers").await?);
    let queue = match asking.client.get("/resilience/queue?limit=1").await {
        Err(RemoteError::Refused(StatusCode::NOT_FOUND, _)) => None,
        queue => Some(queue.map_err(ended)?),
    };
    let reload = match asking.client.get("/resilience/reload").await {
        Err(RemoteError::Refused(StatusCode::NOT_FOUND, _)) => None,
        reload => Some(reload.map_err(ended)?),
    };
    let fleet = match asking.client.get("/resilience/fleet").await {
        Err(RemoteError::Refused(StatusCode::NOT_FOUND, _)) => None,
        fleet => Some(fleet.map_err(ended)?),
    };
    let whole = json!({
        "ready": ready, "servers": servers["servers"], "breakers": breakers["breakers"], "metrics": breakers["metrics"],
        "queue": queue, "fleet": fleet, "config": reload,
    });
    asking.show(&whole, || {
        let optional = [queue.as_ref(), fleet.as_ref(), reload.as_ref()];
        show::status(asking.client.address(), &ready, &servers, &breakers, optional)
    })
}

async fn breakers(asking: &RemoteRequest, deed: Option<BreakerAction>) -> CommandEnd {
    match deed {
        None => {
            let answer = asking.get("/resilience/breakers").await?;
            asking.show(&answer, || show::breakers(&answer))
        }
        Some(BreakerAction::Force { tool, state }) => {
            let state = match state {
                ForcedArg::Open => "open",
                ForcedArg::Closed => "closed",
                ForcedArg::Auto => "auto",
            };
            let path = format!("/resilience/breakers/{}/force", encoded(&tool));
            let answer =
                asking.change(Method::POST, &path, &json!({ "state": state }).to_string()).await?;
            asking.show(&answer, || show::forced(&answer))
        }
        Some(BreakerAction::Reset { tool: Some(tool), .. }) => {
            let answer = reset(asking, &tool).await?;
            asking.show(&answer, || {
                format!("{} is closed, and its failures are forgotten", plain(&tool))
            })
        }
        Some(BreakerAction::Reset { tool: None, all: false }) => {
            let text = "name a breaker, or give --all; seawall breakers lists them";
            Err((USAGE, text.to_owned()))
        }
        Some(BreakerAction::Reset { tool: None, all: true }) => {
            let answer = asking.change(Method::POST, "/resilience/breakers/reset", "").await?;
            let names = answer["reset"].as_array().into_iter().flatten();
            let names: Vec<&str> = names.filter_map(Value::as_str).collect();
            asking.show(&answer, || match names.as_slice() {
                [] => "every breaker is closed already, or held by an operator".to_owned(),
                names => format!("closed: {}", plain(&names.join(", "))),
            })
        }
    }
}

async fn reset(asking: &RemoteRequest, tool: &str) -> Result<Value, (u8, String)> {
    let path = format!("/resilience/breakers/{}/reset", encoded(tool));
    let answer = asking.client.ask(Method::POST, &path, "").await;
    answer.map_err(|trouble| match trouble {
        RemoteError::Refused(StatusCode::CONFLICT, _) => (
            USAGE,
            format!("an operator holds {tool} open; seawall breakers force {tool} auto lets it go"),
        ),
        other => ended(other),
    })
}

async fn queue(asking: &RemoteRequest, deed: Option<QueueAction>) -> CommandEnd {
    match deed.unwrap_or(QueueAction::List { all: false, after: None }) {
        QueueAction::List { all, after } => {
            let states = if all { "" } else { "&state=waiting,delivering,dead" };
            let after =
                after.map(|after| format!("&after={}", encoded(&after))).unwrap_or_default();
            let answer = asking
                .get(&format!("/resilience/queue?limit={}{states}{after}", limits::QUEUE_PAGE))
                .await?;
            asking.show(&answer, || show::queue(&answer, now()))
        }
        QueueAction::Retry { id, even_if_executed } => {
            let path = format!("/resilience/queue/{}/retry", encoded(&id));
            let body = json!({ "even_if_executed": even_if_executed }).to_string();
            let answer = asking.client.ask(Method::POST, &path, &body).await.map_err(|trouble| match trouble {
                RemoteError::Refused(StatusCode::CONFLICT, why) if why.contains("even_if_executed") => (
                    USAGE,
                    format!(
                        "{id} may have been executed, and sending it again may do it twice; look first, then say --even-if-executed if it is meant"
                    ),
                ),
                other => ended(other),
            })?;
            asking.show(&answer, || {
                format!("{id} is sent as soon as its turn comes and its server is well")
            })
        }
        QueueAction::Drop { id, even_if_delivered } => {
            let path = format!("/resilience/queue/{}", encoded(&id));
            let body = json!({ "even_if_delivered": even_if_delivered }).to_string();
            let answer = asking.client.ask(Method::DELETE, &path, &body).await.map_err(|trouble| match trouble {
                RemoteError::Refused(StatusCode::CONFLICT, why) if why.contains("even_if_delivered") => (
                    USAGE,
                    format!(
                        "{id} was delivered already, and its client can read the answer until it is forgotten after a day; say --even-if-delivered if the answer is meant to go"
                    ),
                ),
                other => ended(other),
            })?;
            asking.show(&answer, || format!("{id} is dropped"))
        }
        // It does not go through a running gateway.
        QueueAction::Move { .. } => Ok(()),
    }
}

async fn servers(asking: &RemoteRequest, deed: Option<ServerAction>) -> CommandEnd {
    let Some(ServerAction::Restart { name }) = deed else {
        let answer = asking.get("/resilience/servers").await?;
        return asking.show(&answer, || show::servers(&answer, now()));
    };
    let path = format!("/resilience/servers/{}/restart", encoded(&name));
    let answer = asking.change(Method::POST, &path, "").await?;
    asking.show(&answer, || format!("{name} is started anew, for whoever uses it"))
}

async fn reload(asking: &RemoteRequest) -> CommandEnd {
    let answer = asking.change(Method::POST, "/resilience/reload", "").await?;
    asking.show(&answer, || show::reloaded(&answer))
}

async fn logs(asking: &RemoteRequest, name: &str) -> CommandEnd {
    let answer = asking.get("/resilience/servers").await?;
    let Some(server) = answer["servers"].get(name) else {
        let names: Vec<&String> =
            answer["servers"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
        let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
        return Err((
            USAGE,
            format!("there is no server {name:?}; there are: {}", names.join(", ")),
        ));
    };
    let lines: Vec<&str> =
        server["stderr"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if lines.is_empty() && !asking.as_json {
        log::tell(&format!("{name} has said nothing on stderr that is still known"));
        return Ok(());
    }
    asking.show(&server["stderr"], || {
        lines.iter().map(|line| log::plain(line)).collect::<Vec<_>>().join("\n")
    })
}

async fn top(at: &AdminPlace) -> CommandEnd {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err((
            USAGE,
            "seawall top needs a terminal; seawall status and seawall tap print".to_owned(),
        ));
    }
    let watched = top::run(client(at)?).await;
    watched.map_err(|error| (UNREACHABLE, format!("cannot use the terminal: {error}")))
}

async fn tap(asking: &RemoteRequest, path: &str) -> CommandEnd {
    let mut body = asking.client.stream(path).await.map_err(ended)?;
    // Registered once, before the loop: a ctrl-c between two events counts too.
    let interrupt = signal(SignalKind::interrupt());
    let mut interrupt =
        interrupt.map_err(|error| (UNREACHABLE, format!("cannot listen for signals: {error}")))?;
    let mut decoder = SseDecoder::new(limits::FROM_CLIENT);
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            _ = interrupt.recv() => return Ok(()),
        };
        let Some(frame) = frame else {
            log::tell("the gateway has gone down");
            return Ok(());
        };
        let lost = |error: &dyn std::fmt::Display| {
            (UNREACHABLE, format!("the stream of events was lost: {error}"))
        };
        let frame = frame.map_err(|error| lost(&error))?;
        decoder.push(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
        while let Some(event) = decoder.event().map_err(|reject| lost(&reject))? {
            let Ok(Value::Object(told)) = serde_json::from_slice(&event.data) else { continue };
            let line =
                if asking.as_json { show::json(&Value::Object(told)) } else { show::event(&told) };
            if writeln!(io::stdout().lock(), "{line}").is_err() {
                return Ok(());
            }
        }
    }
}
