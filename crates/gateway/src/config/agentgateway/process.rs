//! Decides what agentgateway's section `config` means: the admin address; the rest has no use here.

use std::net::{Ipv4Addr, SocketAddr};

use super::unsupported;
use crate::config::admin::RawAdmin;
use crate::config::expand::Variables;
use crate::config::problem::{ConfigPlace, Problem, Problems};
use crate::config::tree::{ConfigField, ConfigString};

const KEYS: [&str; 4] = ["adminAddr", "statsAddr", "readinessAddr", "logging"];
const LOGGING_KEYS: [&str; 2] = ["level", "format"];
/// The variable with the admin token: agentgateway's file has no place for one.
const TOKEN: &str = "SEAWALL_ADMIN_TOKEN";
/// Where agentgateway's sidecars look for it.
const PORT: u16 = 15_000;

/// The admin server. Others can reach it only if there is a token, so without one it stays on
/// loopback, where a sidecar of the same pod finds it.
pub(super) fn admin(
    root: &ConfigField<'_>,
    scope: &Variables<'_>,
    problems: &mut Problems,
) -> RawAdmin {
    let stated = root.find("config").and_then(|config| config.find("adminAddr"));
    let place = stated.as_ref().map_or_else(ConfigPlace::default, |value| value.place.clone());
    let listen = stated.and_then(|value| problems.keep(address(&value)));
    let listen = listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)));
    let has_token = scope.variable(TOKEN).is_some_and(|token| !token.is_empty());
    if has_token {
        let text = format!("${{env:{TOKEN}}}");
        return RawAdmin::at(listen, Some(ConfigString { place: place.clone(), text }), place);
    }
    if listen.ip().is_loopback() {
        return RawAdmin::at(listen, None, place);
    }
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, listen.port()));
    problems.warn(place.problem(format!(
        "others could reach {listen} without a token, so the admin API listens on {local}; set {TOKEN} to open it"
    )));
    RawAdmin::at(local, None, place)
}

/// Checks the section; [`admin`] reads the address.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) {
    for (key, value) in section.entries(problems) {
        match key {
            "adminAddr" => {}
            "statsAddr" => {
                problems.keep(address(&value));
                problems.warn(value.place.problem("not applied: /metrics is at the admin address"));
            }
            "readinessAddr" => {
                problems.keep(address(&value));
                problems.warn(value.place.problem("not applied: /readyz is at the admin address"));
            }
            "logging" => {
                for (key, value) in value.entries(problems) {
                    match key {
                        "level" | "format" => drop(problems.keep(value.text())),
                        _ => problems.push(unsupported(&value, &LOGGING_KEYS)),
                    }
                }
                problems.warn(
                    value.place.problem("not applied: SEAWALL_LOG sets the level of Seawall's log"),
                );
            }
            _ => problems.push(unsupported(&value, &KEYS)),
        }
    }
}

fn address(value: &ConfigField<'_>) -> Result<SocketAddr, Problem> {
    let ConfigString { place, text } = value.text()?;
    let plain = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    plain.as_deref().unwrap_or(&text).parse().map_err(|_| {
        place.problem(format!("{text:?} is not an address; write it like \"127.0.0.1:15000\""))
    })
}
