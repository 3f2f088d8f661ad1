//! What helps to set Seawall up, as a person at a terminal finds it: the real command, its output
//! and its exit code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]
#![allow(clippy::disallowed_methods, reason = "the command runs in its own process, in real time")]

mod check;
mod explain;
mod incomplete;
mod install;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../gateway/kit.rs"]
mod kit;
mod needs;
mod newcomer;
mod schema;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../policies/server.rs"]
mod server;
#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../hostile/kit/upstream.rs"]
mod upstream;

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use self::kit::soon;

/// A folder with a configuration, in which the command is run; nothing else is known there.
struct Place {
    folder: TempDir,
    env: Vec<(&'static str, &'static str)>,
}

/// What a command wrote, and how it ended.
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Place {
    fn new(file: &str, text: &str) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join(file), text).unwrap();
        Self { folder, env: Vec::new() }
    }

    fn toml(text: &str) -> Self {
        Self::new("seawall.toml", text)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn home(&self) -> &Path {
        self.folder.path()
    }

    async fn seawall(&self, args: &[&str]) -> Ended {
        let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
        process
            .args(args)
            .current_dir(self.home())
            .env("HOME", self.home())
            .env("XDG_STATE_HOME", self.home())
            .envs(self.env.iter().copied());
        process.stdin(std::process::Stdio::null()).kill_on_drop(true);
        let output = soon(process.output()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended {
            code: output.status.code().unwrap(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    async fn json(&self, args: &[&str]) -> Value {
        let ended = self.seawall(&[args, &["--json"]].concat()).await;
        serde_json::from_str(&ended.out)
            .unwrap_or_else(|error| panic!("{error}: {} {}", ended.out, ended.err))
    }
}
