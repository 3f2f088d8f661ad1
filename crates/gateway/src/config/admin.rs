//! Decides the admin server's settings: the section `[admin]`.

use std::net::SocketAddr;

use super::expand::Variables;
use super::problem::{ConfigPlace, Problem, Problems};
use super::settings::listen;
use super::tree::{ConfigField, ConfigString};
use super::{Secret, suggest};

const KEYS: [&str; 2] = ["listen", "token"];

/// The address and token of the admin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// The address of the admin server; other machines can reach it only if there is a token.
    pub listen: SocketAddr,
    /// The token that operators show to change anything, and off loopback also to read.
    pub token: Option<Secret>,
    /// Missing variables or files that the token refers to: until they are set, operators can
    /// change nothing.
    pub lacking: Vec<Problem>,
}

/// The section as it stands in the file.
pub(super) struct RawAdmin {
    place: ConfigPlace,
    listen: SocketAddr,
    token: Option<ConfigString>,
}

/// Reads the section.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> RawAdmin {
    let listen_on = SocketAddr::from(([127, 0, 0, 1], 7333));
    let mut admin = RawAdmin { place: section.place.clone(), listen: listen_on, token: None };
    for (key, value) in section.entries(problems) {
        match key {
            "listen" => {
                admin.place = value.place.clone();
                admin.listen = problems.keep(listen(&value)).unwrap_or(admin.listen);
            }
            "token" => admin.token = problems.keep(value.text()),
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    admin
}

impl RawAdmin {
    /// An admin server that no section describes.
    pub(super) fn at(listen: SocketAddr, token: Option<ConfigString>, place: ConfigPlace) -> Self {
        Self { place, listen, token }
    }

    /// Fills in the token. Off loopback a token is required. On loopback a missing token only
    /// disables changes; it is no reason to refuse to serve clients.
    pub(super) fn resolve(
        self,
        scope: &Variables<'_>,
        problems: &mut Problems,
    ) -> Option<AdminConfig> {
        let is_given = self.token.is_some();
        let is_local = self.listen.ip().is_loopback();
        let mut lacking = Vec::new();
        let token = self.token.and_then(|token| {
            let mut found = Problems::default();
            let text = scope.expand(&token, &mut found);
            if is_local {
                lacking = found.take_lacking();
            }
            problems.append(found);
            let text = text?;
            if text.is_empty() || text.trim() != text || text.contains(|c: char| !c.is_ascii() || c.is_control()) {
                let problem = "must be printable ASCII, not empty, without spaces around it: it is sent in a header";
                problems.push(token.place.problem(problem));
                return None;
            }
            Some(Secret::new(text))
        });
        if !is_given && !is_local {
            let text = format!(
                "others can reach {}; set admin.token, or listen on 127.0.0.1",
                self.listen
            );
            problems.push(self.place.problem(text));
        }
        Some(AdminConfig { listen: self.listen, token, lacking })
    }
}
