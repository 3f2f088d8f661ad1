//! Decides which tasks the agent of the demo has, and when it repeats a call.
//!
//! The agent repeats a failed call at most three times, as most models do. It heeds an answer that
//! says that repeating cannot help, how long to wait, or that the call may have been executed. In
//! the last case it reads before it repeats.

use std::time::Duration;

use crate::client::{ClientAnswer, DemoClient};
use crate::faults::drawn;
use crate::faulty::{APPEND, WRITTEN, arguments};
use crate::verdict::{Verdict, judge};

/// How often a failed call is repeated.
const REPEATS: u64 = 3;
/// How many different notes the agent reads; repeated reads can be answered from a cache.
const READ: u64 = 6;

/// One task of the agent.
#[derive(Clone, Debug)]
pub struct Task {
    /// Whether the task is for the server on pipes; else it is for the HTTP server.
    pub is_notes: bool,
    /// The tool.
    pub tool: &'static str,
    /// The number in the arguments, which identifies the task.
    pub number: u64,
}

/// The outcome of a task, and how many calls were wasted on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskResult {
    /// An answer that the agent can use.
    Useful {
        /// Calls before it that gave no usable answer.
        wasted: u64,
        /// Whether a fallback answered instead of the live server.
        is_stand_in: bool,
    },
    /// The last answer reported a failure.
    Failed {
        /// Calls that gave no usable answer.
        wasted: u64,
    },
    /// The last call was not answered.
    Dark {
        /// Calls that gave no usable answer.
        wasted: u64,
    },
    /// The answer was false.
    Wrong {
        /// Calls that gave no usable answer.
        wasted: u64,
    },
}

/// The agent's tasks, in order: most of them read, three of ten are writes that must not be
/// executed twice.
pub fn tasks(seed: u64, count: u64) -> Vec<Task> {
    let task = |place: u64| {
        let tool = match drawn(seed, "tool", place, 0) % 10 {
            0..4 => "read_note",
            4 => "search_notes",
            5 => "list_notes",
            6 => "set_note",
            _ => APPEND,
        };
        let is_read = !matches!(tool, "set_note" | APPEND);
        let number =
            if is_read { 1 + drawn(seed, "number", place, 0) % READ } else { 1000 + place };
        Task { is_notes: drawn(seed, "server", place, 0).is_multiple_of(2), tool, number }
    };
    (0..count).map(task).collect()
}

/// Works on one task until it has an answer or gives up.
pub async fn work(client: &DemoClient, task: &Task, patience: Duration) -> TaskResult {
    let arguments = arguments(task.tool, task.number);
    let mut wasted = 0;
    loop {
        let told = client.call(task.tool, &arguments, patience).await;
        let is_failed = match judge(&told, task.tool, task.number) {
            Verdict::Useful { by } => {
                return TaskResult::Useful { wasted, is_stand_in: by.is_some() };
            }
            Verdict::Queued => return TaskResult::Useful { wasted, is_stand_in: true },
            Verdict::Wrong(_) => return TaskResult::Wrong { wasted: wasted + 1 },
            Verdict::Dark => false,
            Verdict::Failed(failed) => {
                let can_be_repeated =
                    failed.is_retryable != Some(false) && failed.retry_after.is_none();
                match failed.may_have_executed == Some(true) && task.tool == APPEND {
                    false if can_be_repeated => {}
                    // The write is repeated only if a live read shows that it had no effect.
                    true => match is_written(client, task.number, patience).await {
                        Some(true) => {
                            return TaskResult::Useful { wasted: wasted + 1, is_stand_in: false };
                        }
                        Some(false) if can_be_repeated => {}
                        Some(false) | None => return TaskResult::Failed { wasted: wasted + 1 },
                    },
                    false => return TaskResult::Failed { wasted: wasted + 1 },
                }
                true
            }
        };
        wasted += 1;
        if wasted > REPEATS {
            return if is_failed {
                TaskResult::Failed { wasted }
            } else {
                TaskResult::Dark { wasted }
            };
        }
    }
}

/// Whether a write took effect, by a live read; a cached response does not count.
async fn is_written(client: &DemoClient, number: u64, patience: Duration) -> Option<bool> {
    let told = client.call("read_note", &arguments("read_note", number), patience).await;
    let ClientAnswer::Message(message) = &told else { return None };
    let is_live = judge(&told, "read_note", number) == Verdict::Useful { by: None };
    is_live.then(|| {
        message["result"]["content"][0]["text"].as_str().is_some_and(|text| text.ends_with(WRITTEN))
    })
}
