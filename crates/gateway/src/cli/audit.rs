//! Runs `seawall audit`: says whether an audit log is whole.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{CommandEnd, UNREACHABLE, USAGE};
use crate::runtime::plural::counted;
use crate::store::audit::verify::{AuditReport, verify};

#[derive(Args, Debug)]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    action: AuditAction,
}

#[derive(Debug, Subcommand)]
enum AuditAction {
    /// See whether every line is the one that was written, over all files of the log
    #[command(
        after_help = "Examples:\n  seawall audit verify /var/log/seawall/audit.jsonl\n  seawall audit verify audit.jsonl --contains 5f2b…\n\n\
                            It prints the hash of the last line. Kept elsewhere, and given later with --contains, it shows that no line since was cut off or replaced.\n\
                            Exit codes: 0 whole, 1 broken, 4 it cannot be read."
    )]
    Verify {
        /// The file of [audit]; its earlier files (.1, .2, …) are read with it
        path: PathBuf,
        /// The hash of a line that must be in the log
        #[arg(long, value_name = "HASH")]
        contains: Option<String>,
        /// Print what was found, as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: AuditArgs) -> CommandEnd {
    let AuditAction::Verify { path, contains, json } = args.action;
    let report = verify(&path, contains.as_deref()).map_err(|error| {
        (UNREACHABLE, format!("cannot read the audit log {}: {error}", path.display()))
    })?;
    let text = if json { as_json(&report) } else { in_words(&report) };
    super::out(&text);
    match report.broken.as_slice() {
        [] => Ok(()),
        broken => Err((USAGE, format!("the audit log is broken: {}", broken.join("; ")))),
    }
}

fn as_json(report: &AuditReport) -> String {
    let found = json!({
        "files": report.files, "lines": report.lines, "first": report.first, "last": report.last,
        "cutOff": report.cut_off, "missing": report.missing, "broken": report.broken,
    });
    format!("{found}\n")
}

fn in_words(report: &AuditReport) -> String {
    let files = counted(report.files.len(), "file");
    let mut text = format!("{} in {files}", counted(report.lines, "line"));
    if report.first > 1 {
        text += &format!("; the first is number {}: older files are not kept", report.first);
    }
    if report.cut_off > 0 {
        text += &format!("; {} cut off when a process was killed", counted(report.cut_off, "line"));
    }
    if report.missing > 0 {
        text += &format!("; the log says that {} missing", counted(report.missing, "call"));
    }
    text += &format!("\nlast hash {}\n", report.last);
    text
}
