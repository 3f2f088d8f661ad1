//! Finds the processes that servers started, wherever they went: every process of a server carries
//! the mark of its gateway.
//!
//! The mark is an environment variable, which children inherit and a new session does not shake
//! off. It names the gateway so that no other process can be taken for it (pid namespace, pid,
//! start time) and the connection. A process with the mark of a gateway that is gone is an orphan.
//! A process that removes the variable is left alone.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ChildStdin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, PidfdFlags, Signal, getuid, pidfd_open, pidfd_send_signal};
use tokio::process::Child;

use crate::platform::ending;
use crate::platform::watcher;

/// The variable that holds the mark.
const VARIABLE: &str = "SEAWALL_GATEWAY";

/// The most bytes of an environment that are read; the system allows about as many.
const ENVIRONMENT: u64 = 6 << 20;

/// A mark that no other connection has; `None` where processes cannot be told apart.
pub(in crate::platform) struct Mark(Option<String>);

impl Mark {
    pub(in crate::platform) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(own().map(|own| format!("{own}-{}", NEXT.fetch_add(1, Ordering::Relaxed))))
    }

    /// The variable that the server gets.
    pub(in crate::platform) fn variable(&self) -> Option<(OsString, OsString)> {
        self.0.as_ref().map(|mark| (VARIABLE.into(), mark.into()))
    }

    /// Makes sure that somebody ends what the server starts, if the gateway cannot: starts the
    /// watcher, once. Without a watcher, the next gateway ends it.
    pub(in crate::platform) async fn started(&self, launcher: &Path, _: Pid, _: &mut Child) {
        /// The writing end of the watcher's pipe, held for as long as the gateway lives.
        static ALIVE: OnceLock<Option<ChildStdin>> = OnceLock::new();
        ALIVE.get_or_init(|| watcher::start(launcher));
    }

    /// Ends every process with this mark: SIGTERM, then SIGKILL. The group was ended, but does not
    /// reach processes that moved to a session of their own.
    pub(in crate::platform) async fn ended(self, _: Option<Pid>) {
        if let Some(mark) = self.0 {
            end_all(move |found| found == mark, |_| {}).await;
        }
    }
}

/// Ends the orphans of gateways that are gone, and logs a line for each.
pub(crate) async fn sweep() {
    // This gateway may itself run as a server under another gateway: processes with the inherited
    // mark are its siblings, or its parents.
    let inherited = std::env::var(VARIABLE).unwrap_or_default();
    let tell = |pid| {
        crate::runtime::log::line(&format!(
            "ending process {pid}: the gateway that started it is gone"
        ))
    };
    end_all(move |mark| mark != inherited && is_orphan(mark), tell).await;
}

async fn end_all(is_wanted: impl Fn(&str) -> bool + Clone + Send + 'static, tell: impl Fn(i32)) {
    let look = async || {
        let is_wanted = is_wanted.clone();
        tokio::task::spawn_blocking(move || marked(is_wanted)).await.unwrap_or_default()
    };
    let signal = |process: &MarkedProcess, signal| {
        // SIGTERM is the first.
        if signal == Signal::TERM {
            tell(process.pid);
        }
        let _gone = pidfd_send_signal(&process.handle, signal);
    };
    ending::end_all(look, signal).await;
}

/// A process, held by a pidfd so that its pid cannot come to mean another process.
#[derive(Debug)]
struct MarkedProcess {
    pid: i32,
    handle: OwnedFd,
}

/// The processes of this user whose mark is wanted; never this process.
fn marked(is_wanted: impl Fn(&str) -> bool) -> Vec<MarkedProcess> {
    let user = getuid().as_raw();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let is_ours = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|data| data.uid() == user);
    let pids = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let pid = entry.file_name().to_str()?.parse::<i32>().ok()?;
        is_ours(&entry).then_some(pid)
    });
    let own = std::process::id().cast_signed();
    let is_it = |pid: i32| mark_of(pid).is_some_and(|mark| is_wanted(&mark));
    pids.filter(|pid| *pid != own && is_it(*pid))
        .filter_map(|pid| {
            let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
            // Checked again now that the pidfd is held: the pid may have been reused before.
            is_it(pid).then_some(MarkedProcess { pid, handle })
        })
        .collect()
}

/// The mark that a process has.
fn mark_of(pid: i32) -> Option<String> {
    let mut environment = Vec::new();
    fs::File::open(format!("/proc/{pid}/environ"))
        .ok()?
        .take(ENVIRONMENT)
        .read_to_end(&mut environment)
        .ok()?;
    let mark = environment.split(|byte| *byte == 0).find_map(|variable| {
        let value = variable.strip_prefix(VARIABLE.as_bytes())?;
        value.strip_prefix(b"=")
    })?;
    String::from_utf8(mark.to_vec()).ok()
}

/// Whether the gateway that a mark names is certainly gone. A gateway in another pid namespace
/// cannot be seen from here.
fn is_orphan(mark: &str) -> bool {
    let mut parts = mark.split('-').map(str::parse::<u64>);
    let (Some(Ok(namespace)), Some(Ok(pid)), Some(Ok(start)), Some(Ok(_)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    own_namespace() == Some(namespace) && start_of(pid) != Some(start)
}

/// This gateway's part of a mark.
fn own() -> Option<&'static str> {
    static OWN: OnceLock<Option<String>> = OnceLock::new();
    let name = || {
        let pid = u64::from(std::process::id());
        Some(format!("{}-{pid}-{}", own_namespace()?, start_of(pid)?))
    };
    OWN.get_or_init(name).as_deref()
}

fn own_namespace() -> Option<u64> {
    let connection = fs::read_link("/proc/self/ns/pid").ok()?;
    connection.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// The start time of a process; `None` if it is gone, or a zombie.
fn start_of(pid: u64) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in parentheses and may itself contain any character.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    fields.nth(18)?.parse().ok().filter(|_| !matches!(state, "Z" | "X"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_gateway_of_this_namespace_that_is_gone_leaves_orphans() {
        let ours = Mark::new().0.unwrap();
        assert!(!is_orphan(&ours), "{ours}");
        let parts: Vec<&str> = ours.split('-').collect();
        let with = |place: usize, value: &str| {
            let mut parts = parts.clone();
            parts[place] = value;
            parts.join("-")
        };
        assert!(is_orphan(&with(2, "1")), "another process has its number now");
        assert!(is_orphan(&with(1, "4194999")), "no process has its number");
        assert!(!is_orphan(&with(0, "1")), "what cannot be seen is not judged");
        for nonsense in ["", "1", "a-b-c-d", &format!("{ours}-1"), &ours[1..]] {
            assert!(!is_orphan(nonsense), "{nonsense}");
        }
    }

    #[test]
    fn no_two_marks_are_the_same() {
        assert_ne!(Mark::new().0, Mark::new().0);
    }
}
