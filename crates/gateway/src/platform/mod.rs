//! What the gateway asks of the operating system about processes, and which system answers.
//!
//! The system is chosen when the gateway is compiled: Linux, any other Unix (`portable`), or
//! Windows. `--cfg seawall_portable` makes Linux a system like any other Unix: so the life tests
//! run with both (`tests/portable/run`). Everything that only one system has is in this folder.
//!
//! `ServerProcess` is a server's process; `ServerCommand` says what it runs. Stopping it stops what
//! it started. On Unix, `seawall` starts it by way of itself (`become_server`), and a process that
//! outlives the gateway (`watch`) ends what a killed gateway leaves behind; `end_orphans` ends what
//! is left even so. `end_with` ties this process to another one. `input` reads stdin and
//! `output` writes stdout. `stdin_is_closed`, `port_holder` and `lock_holder` look, and change
//! nothing.
//!
//! How each system finds what a server started, and what it cannot find, is in docs/platforms.md.

#[cfg(all(target_os = "linux", not(seawall_portable)))]
mod linux;
#[cfg(all(unix, any(not(target_os = "linux"), seawall_portable, test)))]
#[cfg_attr(
    all(target_os = "linux", not(seawall_portable)),
    allow(dead_code, unused_imports, reason = "compiled for its tests")
)]
mod portable;
#[cfg(windows)]
mod windows;

#[cfg(all(target_os = "linux", not(seawall_portable)))]
use self::linux as system;
#[cfg(all(unix, any(not(target_os = "linux"), seawall_portable)))]
use self::portable as system;
#[cfg(windows)]
use self::windows as system;

#[cfg(unix)]
mod ending;
#[cfg(unix)]
mod ends;
#[cfg(unix)]
mod server_process;
#[cfg(unix)]
mod stdin;
#[cfg(any(not(target_os = "linux"), seawall_portable, test))]
#[cfg_attr(
    all(target_os = "linux", not(seawall_portable)),
    allow(dead_code, reason = "compiled for its tests")
)]
mod unknown_holder;
#[cfg(unix)]
mod watcher;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[cfg(unix)]
pub(crate) use self::ends::{input, output};
#[cfg(unix)]
pub(crate) use self::server_process::{
    ServerProcess, become_server, is_program, start_servers_through_this_program,
};
#[cfg(unix)]
pub(crate) use self::stdin::is_closed as stdin_is_closed;
pub(crate) use self::system::{end_orphans, end_with, lock_holder, port_holder};
#[cfg(unix)]
pub(crate) use self::watcher::watch;
#[cfg(windows)]
pub(crate) use self::windows::{
    ServerJob as ServerProcess, become_server, input, is_program, output,
    start_servers_through_this_program, stdin_is_closed, watch,
};

/// What a server's process runs.
pub(crate) struct ServerCommand<'a> {
    pub(crate) program: PathBuf,
    pub(crate) args: &'a [String],
    pub(crate) cwd: Option<&'a Path>,
    /// The variables of the gateway's environment that it gets.
    pub(crate) passed_on: Vec<(OsString, OsString)>,
    /// Its own variables: they come last, so they replace all others of the same name.
    pub(crate) own: Vec<(OsString, OsString)>,
}
