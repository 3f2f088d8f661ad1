//! Processes as the system shows them: signals, descriptors, memory, and whether one is still
//! there.

use std::fs;

pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

pub(crate) const STOP: Signal = Signal::STOP;
pub(crate) const CONTINUE: Signal = Signal::CONT;
pub(crate) const KILL: Signal = Signal::KILL;
pub(crate) const TERMINATE: Signal = Signal::TERM;

/// Whether the process runs and has this word in its command line: numbers are given again.
pub(crate) fn is_there(pid: u32, word: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|part| part == word.as_bytes())
}

/// Signals a process that has this word in its command line.
pub(crate) fn send(pid: u32, word: &str, signal: Signal) {
    if is_there(pid, word)
        && let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
    {
        _ = kill_process(pid, signal);
    }
}

/// How many descriptors a process holds.
pub(crate) fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count).unwrap_or(0)
}

/// Its memory in MiB.
pub(crate) fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) >> 10
}
