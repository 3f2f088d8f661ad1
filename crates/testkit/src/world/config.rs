//! The configuration of a world's gateway: small times, and only keys that the program knows.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::plan::{Era, Face, History, Ms};
use super::server;

/// How long a call may take in all.
pub(crate) const DEADLINE: Ms = 1_000;
/// After how long an unanswered call that is repeated is the same intent.
pub(crate) const REJOIN_AFTER: Ms = 200;
/// How long a question may stop a call's clock.
pub(crate) const QUESTION_TIME: Ms = 1_000;
/// How long a terminated gateway lets its calls finish.
pub(crate) const GRACE: Ms = 500;

/// The keys that a program knows, read from its own schema.
#[derive(Clone, Debug)]
pub struct Keys {
    schema: String,
}

impl Keys {
    /// Asks the program.
    pub fn of(seawall: &Path) -> std::io::Result<Self> {
        let output = Command::new(seawall).arg("schema").output()?;
        Ok(Self { schema: String::from_utf8_lossy(&output.stdout).into_owned() })
    }

    /// Whether there is such a key.
    pub fn knows(&self, key: &str) -> bool {
        self.schema.contains(&format!("\"{key}\":"))
    }

    /// A line, if its key is known.
    fn line(&self, key: &str, value: &str) -> String {
        if self.knows(key) { format!("{key} = {value}\n") } else { String::new() }
    }
}

/// The file for `serve` or, without a store of its own, for `run`.
pub(crate) fn toml(
    history: &History,
    keys: &Keys,
    folder: &Path,
    relay: &Path,
    ports: &[u16],
    run: bool,
) -> String {
    let settings = &history.settings;
    let mut text = format!("listen = \"127.0.0.1:{}\"\ngrace = \"{GRACE}ms\"\n", ports[0]);
    _ = write!(text, "[timeouts]\nquick = \"{DEADLINE}ms\"\nheavy = \"{DEADLINE}ms\"\n");
    _ = write!(text, "[reconnect]\nbase = \"{}ms\"\nwait = \"500ms\"\n", settings.reconnect);
    let startup = if keys.knows("startup") { "startup" } else { "load" };
    _ = write!(text, "[{startup}]\nbackoff = \"20ms\"\n");
    if settings.store && !run {
        _ = write!(text, "[store]\npath = {:?}\n", folder.join("store"));
    }
    text += "[defaults]\nretry = { base = \"20ms\", jitter = 0.0 }\nbreaker = { cooldown = \"200ms\" }\n";
    _ = writeln!(text, "on_abandon = {:?}", settings.on_abandon);
    text += &keys.line("rejoin_after", &format!("\"{REJOIN_AFTER}ms\""));
    text += &keys.line("question_time", &format!("\"{QUESTION_TIME}ms\""));
    for (place, server) in history.servers.iter().enumerate() {
        _ = writeln!(text, "[servers.s{place}]");
        match server.face {
            Face::Http => {
                _ = write!(
                    text,
                    "url = \"http://127.0.0.1:{}/mcp\"\ntype = \"http\"\n",
                    ports[place + 1]
                )
            }
            Face::Stdio => {
                let socket = server::socket(folder, place);
                _ = write!(text, "command = {relay:?}\nargs = [{socket:?}]\n");
            }
        }
        if server.shared {
            text += "shared = true\n";
        }
    }
    text
}

/// The revision that a client of this era speaks.
pub(crate) fn revision(era: Era) -> &'static str {
    match era {
        Era::Legacy => "2025-11-25",
        Era::Modern => "2026-07-28",
    }
}
