//! Decides which process groups end with the gateway: the watcher is told of each before its server
//! runs, and when it has ended.
//!
//! A server starts only when the gateway says so, by one byte on its stdin, and the gateway says so
//! once the watcher was told. A gateway that is killed in between leaves a launcher that reads the
//! end of its stdin, and exits.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, kill_process_group, test_kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::process::Child;

use crate::platform::ending;
use crate::platform::watcher;

/// What the gateway writes to the stdin of a launcher.
const GO: u8 = b'\n';

static WATCHED: Mutex<WatchedGroups> =
    Mutex::new(WatchedGroups { watcher: None, groups: BTreeSet::new() });

/// The groups of this gateway's servers, as the watcher knows them.
struct WatchedGroups {
    watcher: Option<ChildStdin>,
    groups: BTreeSet<i32>,
}

impl WatchedGroups {
    fn started(&mut self, launcher: &Path, group: i32) {
        self.groups.insert(group);
        if self.tell(&format!("+{group}\n")).is_err() {
            // There is no watcher yet, or it was killed: a new one is told of all groups.
            self.watcher = watcher::start(launcher);
            let all: String = self.groups.iter().map(|group| format!("+{group}\n")).collect();
            let _unwatched = self.tell(&all);
        }
    }

    fn ended(&mut self, group: i32) {
        self.groups.remove(&group);
        let _unwatched = self.tell(&format!("-{group}\n"));
    }

    /// The watcher reads at once; only one that is stopped lets this wait, and after thousands of
    /// groups.
    fn tell(&mut self, lines: &str) -> io::Result<()> {
        let watcher = self.watcher.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        watcher.write_all(lines.as_bytes())
    }
}

/// Changes the groups on a thread that may wait.
async fn change(change: impl FnOnce(&mut WatchedGroups) + Send + 'static) {
    let locked = || change(&mut WATCHED.lock().unwrap_or_else(PoisonError::into_inner));
    let _changed = tokio::task::spawn_blocking(locked).await;
}

/// A server's process group, of which the watcher knows.
pub(in crate::platform) struct NotedGroup;

impl NotedGroup {
    pub(in crate::platform) fn new() -> Self {
        Self
    }

    /// No variable of the environment finds processes here.
    pub(in crate::platform) fn variable(&self) -> Option<(OsString, OsString)> {
        None
    }

    /// Tells the watcher of the group, then lets the server start.
    pub(in crate::platform) async fn started(
        &self,
        launcher: &Path,
        group: Pid,
        child: &mut Child,
    ) {
        let (launcher, group) = (PathBuf::from(launcher), group.as_raw_nonzero().get());
        change(move |watched| watched.started(&launcher, group)).await;
        if let Some(stdin) = &mut child.stdin {
            // A launcher that is gone is noticed by whoever reads from it.
            let _gone = stdin.write_all(&[GO]).await;
        }
    }

    /// The group was ended.
    pub(in crate::platform) async fn ended(self, group: Option<Pid>) {
        if let Some(group) = group.map(|group| group.as_raw_nonzero().get()) {
            change(move |watched| watched.ended(group)).await;
        }
    }
}

/// Waits until the gateway lets this process become a server; fails if the gateway is gone. Reads
/// one byte: what follows is for the server.
pub(in crate::platform) fn tie_to(_gateway: u32) -> io::Result<()> {
    let mut byte = [0; 1];
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut byte) {
            Ok(1) => return Ok(()),
            Ok(_) => return Err(io::Error::other("its gateway is gone")),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The groups that are left when the gateway says nothing more.
fn heard(mut pipe: impl BufRead) -> io::Result<BTreeSet<i32>> {
    let (mut groups, mut said) = (BTreeSet::new(), String::new());
    while pipe.read_line(&mut said)? > 0 {
        // A gateway that was killed while it wrote may leave half a number at the end.
        let line = said.strip_suffix('\n').unwrap_or_default();
        let (sign, group) = line.split_at_checked(1).unwrap_or_default();
        match (sign, group.parse::<i32>()) {
            // To `kill`, group 1 and below mean other processes.
            ("+", Ok(group)) if group > 1 => groups.insert(group),
            ("-", Ok(group)) => groups.remove(&group),
            _ => false,
        };
        said.clear();
    }
    Ok(groups)
}

/// Waits until the gateway is gone, then ends the groups that it left.
pub(in crate::platform) async fn end_left(gateway: impl BufRead) -> io::Result<()> {
    let groups = heard(gateway)?;
    let is_there = |group: &Pid| test_kill_process_group(*group).is_ok();
    let look =
        async || groups.iter().filter_map(|id| Pid::from_raw(*id)).filter(is_there).collect();
    ending::end_all(look, |group: &Pid, signal| {
        let _gone = kill_process_group(*group, signal);
    })
    .await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watcher_ends_the_groups_that_have_not_ended() {
        let said = b"+12\n+13\n-12\n+14\n\nnonsense\n+1\n+-7\n+0\n-99\n+12x\n".as_slice();
        assert_eq!(heard(said).unwrap(), BTreeSet::from([13, 14]));
        assert!(heard(b"".as_slice()).unwrap().is_empty());
        assert_eq!(heard(b"+12\n-1".as_slice()).unwrap(), BTreeSet::from([12]));
        assert!(heard(b"+12\n-12\n+15".as_slice()).unwrap().is_empty(), "half of +1512");
    }
}
