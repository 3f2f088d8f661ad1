//! Checks the gateway's own needs on this machine: addresses to listen on, a store to write to.
//!
//! The check creates, changes, locks and listens on nothing. A port or store that a running gateway
//! holds is reported, but no failure.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpSocket;

use crate::authz::identity::Identity;
use crate::config::{Config, Problem, ServerAuthz};
use crate::frontend::http;
use crate::platform;
use crate::queue::{self, StoreTrouble};
use crate::runtime::http_client::SharedHttpClient;

/// How long the disk may take to answer.
const DISK: Duration = Duration::from_secs(10);

/// How long an authorizer may take to take a connection.
const REACHED: Duration = Duration::from_secs(3);

/// The one problem that is only a missing credential.
pub(super) const NO_TOKEN: &str = "no_token";

/// A port or folder that the gateway needs.
pub(crate) struct Requirement {
    /// The section of the configuration.
    pub(super) what: &'static str,
    /// The address or the folder.
    pub(super) at: String,
    /// `Ok` if the gateway can have it, perhaps with a note; else the reason.
    pub(super) found: Result<Option<String>, UnmetRequirement>,
}

/// Why the gateway cannot have it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnmetRequirement {
    /// The problem in one word, for programs.
    pub(super) problem: &'static str,
    /// The problem in a sentence.
    pub(super) text: String,
    /// The remedy.
    pub(super) next: String,
}

impl Requirement {
    /// The note about a requirement that is met.
    pub(super) fn note(&self) -> Option<String> {
        let note = self.found.as_ref().ok()?.as_ref()?;
        Some(format!("{} {}: {note}", self.what, self.at))
    }
}

fn unmet(
    problem: &'static str,
    text: impl Into<String>,
    next: impl Into<String>,
) -> UnmetRequirement {
    UnmetRequirement { problem, text: text.into(), next: next.into() }
}

/// Checks every address and folder that `seawall serve` would open.
pub(crate) async fn look(config: &Config) -> Vec<Requirement> {
    let mut needs = Vec::new();
    let found = match http::refusal(config.listen, config.identity.is_some()) {
        Some(why) => Err(unmet("open_to_others", why, "Listen on 127.0.0.1.")),
        None => address(config.listen),
    };
    let is_stated = config.rules.written.has(&["listen"]);
    let found = if is_stated { found } else { softened(found) };
    needs.push(Requirement { what: "listen", at: config.listen.to_string(), found });
    if let Some(admin) = &config.admin {
        let is_same = admin.listen.port() != 0 && admin.listen == config.listen;
        let found = match is_same {
            true => {
                Err(unmet("taken", "clients connect there", "Give [admin] a listen of its own."))
            }
            false => {
                address(admin.listen).and_then(|found| token(&admin.lacking).map_or(Ok(found), Err))
            }
        };
        needs.push(Requirement { what: "admin", at: admin.listen.to_string(), found });
    }
    needs.extend(issuers(config).await);
    needs.extend(authorizers(config).await);
    if let Some(folder) = config.store.clone() {
        let at = folder.display().to_string();
        needs.push(Requirement { what: "store", at, found: in_time(move || store(&folder)).await });
    }
    needs
}

/// The keys of every issuer of tokens: without them nobody gets in.
async fn issuers(config: &Config) -> Vec<Requirement> {
    let Some(settings) = &config.identity else { return Vec::new() };
    let next = "Look at jwks under [[identity.jwt]]; until the keys are there, clients get 503.";
    let tried = Identity::new(settings, None, &SharedHttpClient::default()).try_keys().await;
    let needs = tried.into_iter().map(|(at, fetched)| Requirement {
        what: "identity",
        at,
        found: fetched.map(|()| None).map_err(|why| unmet("no_keys", why, next)),
    });
    needs.collect()
}

/// The authorizers, each once: while one is away, its servers' calls fail. No check is made.
async fn authorizers(config: &Config) -> Vec<Requirement> {
    let own = config.servers.iter().filter_map(|server| match &server.access.authz {
        ServerAuthz::Own(settings) => Some(&**settings),
        ServerAuthz::Inherited | ServerAuthz::Off => None,
    });
    let mut needs: Vec<Requirement> = Vec::new();
    for settings in config.ext_authz.iter().chain(own) {
        let at = settings.service.authority().map_or("", |authority| authority.as_str()).to_owned();
        if needs.iter().any(|known| known.at == at) {
            continue;
        }
        let default = if settings.service.scheme_str() == Some("https") { 443 } else { 80 };
        let host = settings.service.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = settings.service.port_u16().unwrap_or(default);
        let connected =
            tokio::time::timeout(REACHED, tokio::net::TcpStream::connect((host, port))).await;
        let why = match connected {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no connection within {} s", REACHED.as_secs())),
        };
        let next = "Start it, or look at service under [ext_authz]; until then calls fail as AUTHZ_UNAVAILABLE.";
        let found = why.map_or(Ok(None), |why| Err(unmet("authorizer_away", why, next)));
        needs.push(Requirement { what: "ext_authz", at, found });
    }
    needs
}

/// The admin token that the configuration refers to is not set.
fn token(lacking: &[Problem]) -> Option<UnmetRequirement> {
    let told: Vec<String> = lacking.iter().map(ToString::to_string).collect();
    let next = "Set it where `seawall` is started; until then nothing can be changed there.";
    (!told.is_empty()).then(|| unmet(NO_TOKEN, told.join("; "), next))
}

/// Turns a failure into a note where the configuration names no `listen`: the gateway may only be
/// meant for a client on stdio.
fn softened(
    found: Result<Option<String>, UnmetRequirement>,
) -> Result<Option<String>, UnmetRequirement> {
    found.or_else(|unmet| {
        Ok(Some(format!(
            "`seawall serve` could not listen there, unless on stdio: {}. {}",
            unmet.text, unmet.next
        )))
    })
}

/// Whether the gateway can listen on an address. Binds it for a moment, and never listens.
fn address(address: SocketAddr) -> Result<Option<String>, UnmetRequirement> {
    match bind(address) {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            match platform::port_holder(address) {
                Some(holder) if holder.is_ours() => {
                    Ok(Some(format!("a gateway that runs has it: {}", holder.words())))
                }
                Some(holder) => Err(taken(&holder.words())),
                None => Err(taken("another program")),
            }
        }
        Err(error) => Err(unbound(&error)),
    }
}

fn bind(address: SocketAddr) -> io::Result<()> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As a listener does: TIME_WAIT entries of a gateway that is gone do not count.
    socket.set_reuseaddr(true)?;
    socket.bind(address)
}

fn taken(by: &str) -> UnmetRequirement {
    unmet("taken", format!("{by} listens there"), "End it, or choose another port.")
}

fn unbound(error: &io::Error) -> UnmetRequirement {
    let (problem, next) = match error.kind() {
        ErrorKind::PermissionDenied => {
            ("no_permission", "Choose a port from 1024 on, which every user may have.")
        }
        ErrorKind::AddrNotAvailable => {
            ("no_such_address", "No interface of this machine has this address: is it right?")
        }
        _ => ("unbound", "Is the address right?"),
    };
    unmet(problem, format!("it cannot be listened on: {error}"), next)
}

/// Asks the disk on a thread of its own: a disk that hangs blocks only that thread. A blocking task
/// of tokio would also delay the end of the runtime.
async fn in_time(
    ask: impl FnOnce() -> Result<Option<String>, UnmetRequirement> + Send + 'static,
) -> Result<Option<String>, UnmetRequirement> {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || tell.send(ask()));
    let silent = || Err(unmet("timeout", "its disk does not answer", "Is it mounted?"));
    tokio::time::timeout(DISK, told).await.ok().and_then(Result::ok).unwrap_or_else(silent)
}

fn store(folder: &Path) -> Result<Option<String>, UnmetRequirement> {
    let next = "Give [store] a path that this user can write to.";
    let file = queue::probe(folder).map_err(|trouble| match &trouble {
        StoreTrouble::Io { .. } => unmet("cannot_write", trouble.to_string(), next),
        _ => unmet("damaged", trouble.to_string(), "Nothing is repaired or deleted by itself."),
    })?;
    match file.as_deref().and_then(platform::lock_holder) {
        None => Ok(None),
        Some(Some(holder)) if holder.is_ours() => {
            Ok(Some(format!("a gateway that runs has it: {}", holder.words())))
        }
        Some(holder) => {
            let by = holder.map_or_else(|| "another program".to_owned(), |holder| holder.words());
            Err(unmet("taken", format!("{by} has it"), "End it, or give [store] another path."))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_an_address_cannot_be_had_is_said_with_the_next_step() {
        let of = |kind: ErrorKind| unbound(&kind.into());
        assert_eq!(
            of(ErrorKind::PermissionDenied),
            unmet(
                "no_permission",
                "it cannot be listened on: permission denied",
                "Choose a port from 1024 on, which every user may have."
            )
        );
        assert_eq!(of(ErrorKind::AddrNotAvailable).problem, "no_such_address");
        assert_eq!(of(ErrorKind::Other).problem, "unbound");
    }

    #[test]
    fn nobody_fails_for_an_address_that_nobody_chose() {
        let found = softened(Err(taken("x (process 7)")));
        let text = "`seawall serve` could not listen there, unless on stdio: x (process 7) listens there. \
                    End it, or choose another port.";
        assert_eq!(found, Ok(Some(text.to_owned())));
        assert_eq!(softened(Ok(None)), Ok(None));
    }
}
