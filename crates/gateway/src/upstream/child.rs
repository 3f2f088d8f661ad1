//! Processes: started, spoken to over stdin and stdout, and ended with everything they started. Nothing else starts any.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Weak};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncRead;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::pipe::{self, Pipe};
use super::{Failure, Link, Wire};
use crate::call::Outlet;
use crate::ops::config::Transport;
use crate::ops::lifecycle::Lifecycle;
use crate::wire::limits;
use crate::wire::lines::{Line, Lines};

/// What a child gets of our environment when it is not ours to hand on whole.
const PASSED_ON: [&str; 7] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG"];

/// The longest line of a child's stderr that is shown.
const STDERR_LINE: usize = 8 << 10;

/// Starts a server's process and opens a conversation with it.
pub fn start(
    name: &str,
    transport: &Transport,
    general: Arc<dyn Outlet>,
    lifecycle: &Arc<Lifecycle>,
) -> Result<Arc<Link>, Failure> {
    let mut child = spawn(transport)?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Failure::Unreachable("its stdin or stdout could not be opened".to_owned()));
    };
    if let Some(stderr) = child.stderr.take() {
        lifecycle.spawn(show(name.to_owned(), stderr));
    }
    let (pipe, outgoing) = Pipe::new();
    let ended = CancellationToken::new();
    let link = Link::new(name, Wire::Pipe(pipe), general, ended.clone());
    let (weak, named) = (Arc::downgrade(&link), name.to_owned());
    let noise = move |line: &[u8]| {
        let shown: String = String::from_utf8_lossy(line).chars().take(200).collect();
        if !shown.trim().is_empty() {
            crate::ops::log::line(&format!("{named}: not a message on stdout, skipped: {shown}"));
        }
    };
    lifecycle.spawn(pipe::write_lines(outgoing, stdin, ended.clone()));
    lifecycle.spawn(async move {
        let reader = pipe::read_lines(stdout, weak.clone(), noise);
        supervise(child, reader, weak, ended).await;
    });
    Ok(link)
}

fn spawn(transport: &Transport) -> Result<Child, Failure> {
    let Transport::Stdio { command, args, env, cwd, inherit_env } = transport else {
        return Err(Failure::Unreachable("it is no command".to_owned()));
    };
    let mut process = Command::new(command);
    process.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
    if *inherit_env {
        process.stderr(Stdio::inherit());
    } else {
        process.stderr(Stdio::piped()).env_clear();
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                process.env(name, value);
            }
        }
    }
    process.envs(env.iter().map(|(name, value)| (name, value.expose())));
    if let Some(cwd) = cwd {
        process.current_dir(cwd);
    }
    process.spawn().map_err(|error| Failure::Unreachable(format!("cannot start {command:?}: {error}")))
}

/// Lives as long as the process does: hears it end, or ends it when the conversation is over.
async fn supervise(
    mut child: Child,
    reader: impl Future<Output = Failure>,
    link: Weak<Link>,
    ended: CancellationToken,
) {
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let why = ended.run_until_cancelled(reader).await;
    ended.cancel();
    let exit = stop(&mut child, group).await;
    if let Some(link) = link.upgrade() {
        link.lose(match (why, exit) {
            (Some(Failure::Lost(_)), Some(exit)) => Failure::Lost(format!("its process ended ({exit})")),
            (Some(why), _) => why,
            (None, _) => Failure::Lost("the session was closed".to_owned()),
        });
    }
}

/// Waits for a process whose stdin is closed, then asks, then insists; its whole group goes with it.
async fn stop(child: &mut Child, group: Option<Pid>) -> Option<ExitStatus> {
    let signal = |signal| group.map(|group| kill_process_group(group, signal));
    let mut exit = tokio::time::timeout(limits::CHILD_GRACE, child.wait()).await;
    if exit.is_err() {
        signal(Signal::TERM);
        exit = tokio::time::timeout(limits::CHILD_GRACE, child.wait()).await;
    }
    // Also after a polite end: what the process started and left behind goes now.
    signal(Signal::KILL);
    match exit {
        Ok(exit) => exit.ok(),
        Err(_) => child.wait().await.ok(),
    }
}

/// Shows a server's stderr under its name.
async fn show(name: String, stderr: impl AsyncRead + Unpin) {
    let mut lines = Lines::new(stderr, STDERR_LINE);
    while let Ok(Some(line)) = lines.next().await {
        match line {
            Line::Whole(line) => crate::ops::log::line(&format!("{name}: {}", String::from_utf8_lossy(&line))),
            Line::TooLong => crate::ops::log::line(&format!("{name}: (a line of over {STDERR_LINE} bytes)")),
        }
    }
}
