//! `seawall install` and `seawall uninstall`: put Seawall before the servers of a client, and take
//! it away again.

use std::path::{Path, PathBuf};

use clap::Args;

use super::config_args::variable;
use super::{CommandEnd, USAGE, out};
use crate::check::reached::shell;
use crate::config::client_files::file::ClientFile;
use crate::config::client_files::{FileAction, FilePlan, PlannedServer, ServerFate, clients, plan};
use crate::runtime::log::plain;
use crate::runtime::plural::counted;

/// What both can be told.
#[derive(Args, Debug)]
pub(super) struct ClientFileArgs {
    /// A client by its name, or its MCP file
    #[arg(value_name = "CLIENT|FILE")]
    file: String,
    /// Write it; without this, only show what would change
    #[arg(long)]
    write: bool,
    /// Only this server; may be given more than once
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// What the client starts to reach Seawall [default: the full path of this program]
    #[arg(long, value_name = "PROGRAM")]
    command: Option<String>,
}

/// Puts Seawall before the servers of a client.
pub(super) fn install(target: &ClientFileArgs) -> CommandEnd {
    let path = variable("PATH").unwrap_or_default();
    run("install", target, FileAction::Install { seawall: &program(target)?, path: &path })
}

/// Takes Seawall away from the servers of a client.
pub(super) fn uninstall(target: &ClientFileArgs) -> CommandEnd {
    run("uninstall", target, FileAction::Uninstall { seawall: &program(target)? })
}

/// The program that stands, or will stand, in the client's file.
fn program(target: &ClientFileArgs) -> Result<String, (u8, String)> {
    target
        .command
        .clone()
        .or_else(this_program)
        .ok_or((USAGE, "this program does not know its own path: give --command".to_owned()))
}

fn run(name: &str, target: &ClientFileArgs, deed: FileAction<'_>) -> CommandEnd {
    let home = variable("HOME").map(PathBuf::from);
    let path =
        clients::file(&target.file, Path::new(""), home.as_deref()).map_err(|why| (USAGE, why))?;
    let wrong = |why: String| (USAGE, format!("{}: {why}", path.display()));
    let current = ClientFile::read(&path).map_err(wrong)?;
    let plan = plan(&path, current.text(), deed, &target.server)
        .map_err(|problems| (USAGE, problems.to_string()))?;
    out(shown(&path, &plan, deed, target.write).trim_end());
    if plan.changed() == 0 {
        return Ok(());
    }
    let (file, servers) = (
        shell(&target.file),
        target.server.iter().map(|name| format!(" --server {}", shell(name))),
    );
    let given = target.command.as_ref().map(|command| format!(" --command {}", shell(command)));
    let rest = format!("{file}{}{}", servers.collect::<String>(), given.unwrap_or_default());
    if !target.write {
        out(&format!("\nNothing is written yet. To write it: seawall {name} {rest} --write"));
        return Ok(());
    }
    let copy = current.replace(&plan.text, plan.is_untouched).map_err(wrong)?;
    let copy = copy.display();
    out(&format!(
        "\nWritten. The file as it was before Seawall: {copy}\nRestart the client for it to take effect."
    ));
    if name == "install" {
        out(&format!("To undo it: seawall uninstall {rest} --write"));
    }
    Ok(())
}

/// The plan for each server. Arguments are not shown: they may hold secrets.
fn shown(path: &Path, plan: &FilePlan, deed: FileAction<'_>, writes: bool) -> String {
    let (changed, all) = (plan.changed(), counted(plan.servers.len(), "server"));
    let s = if plan.servers.len() == 1 { "s" } else { "" };
    let does = match (deed, writes) {
        (FileAction::Install { .. }, false) => "would start through Seawall".to_owned(),
        (FileAction::Install { .. }, true) => format!("start{s} through Seawall from now on"),
        (FileAction::Uninstall { .. }, false) => "would start without Seawall again".to_owned(),
        (FileAction::Uninstall { .. }, true) => format!("start{s} without Seawall again"),
    };
    let mut text = format!("{}: {changed} of {all} {does}\n", path.display());
    for ServerFate { name, project, line, then } in &plan.servers {
        let of =
            project.as_ref().map(|project| format!(" of {}", plain(project))).unwrap_or_default();
        let name = format!("{}{of}", plain(name));
        match then {
            PlannedServer::Left(why) => text.push_str(&format!("\n{name} (line {line}) {why}\n")),
            PlannedServer::Changed(from, words) => {
                let to = words.iter().map(|word| shell(word)).collect::<Vec<_>>().join(" ");
                let (from, to) = (plain(&shell(from)), plain(&to));
                text.push_str(&format!("\n{name} (line {line})\n  - {from} …\n  + {to} …\n"));
            }
        }
    }
    text
}

/// The path by which a client starts this program: the one in `PATH`, which survives an update,
/// else its own.
fn this_program() -> Option<String> {
    let own = std::env::current_exe().ok()?;
    let folders = variable("PATH").unwrap_or_default();
    let known = std::env::split_paths(&folders).map(|folder| folder.join("seawall"));
    let is_this =
        |path: &PathBuf| path.is_absolute() && path.canonicalize().ok() == own.canonicalize().ok();
    known.into_iter().find(is_this).unwrap_or(own).into_os_string().into_string().ok()
}
