//! Decides which words of a client's file change to put Seawall before its servers, and to remove
//! it again.
//!
//! Only `command` and `args` change, in place: comments, order and all fields that only the client
//! knows stay. The result is parsed again and must equal the intended tree; otherwise the file is
//! not changed.

pub(crate) mod clients;
pub(crate) mod file;
mod splice;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::Path;

use self::splice::StartCommand;
use super::import::{PROJECTS, list_key};
use super::name;
use super::problem::{Problem, Problems};
use super::source::{self, FileFormat};
use super::tree::{ConfigField, ConfigNode, ConfigValue};
use super::words;

/// The action on a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileAction<'a> {
    /// Each server is started through Seawall.
    Install {
        /// The path of the Seawall program.
        seawall: &'a str,
        /// The variable `PATH`, in which programs are searched.
        path: &'a str,
    },
    /// Each server is started by its own command again.
    Uninstall {
        /// The path of the Seawall program.
        seawall: &'a str,
    },
}

impl FileAction<'_> {
    /// Whether a server starts through Seawall: by a program of that name, or by the program of
    /// this action, whatever it is called.
    fn is_done(self, start: &StartCommand<'_>) -> bool {
        let (Self::Install { seawall, .. } | Self::Uninstall { seawall }) = self;
        let is_named = Path::new(start.command()).file_stem().is_some_and(|stem| stem == "seawall");
        (is_named || start.command() == seawall)
            && start.args().first().and_then(ConfigNode::text) == Some("run")
    }
}

/// The planned change of each server, and the new text of the file.
#[derive(Debug)]
pub(crate) struct FilePlan {
    /// The servers, in their order.
    pub servers: Vec<ServerFate>,
    /// The whole new text.
    pub text: String,
    /// Whether no server of the file starts through Seawall so far.
    pub is_untouched: bool,
}

/// The planned change of one server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerFate {
    /// Its name in the client's file.
    pub name: String,
    /// The project that it belongs to, if the file has several.
    pub project: Option<String>,
    /// Its line.
    pub line: usize,
    /// The planned change.
    pub then: PlannedServer,
}

/// A server's planned change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PlannedServer {
    /// Its old command, and the words that start it afterwards; its arguments follow them.
    Changed(String, Vec<String>),
    /// The server stays as it is, for this reason.
    Left(&'static str),
}

impl FilePlan {
    /// How many servers change.
    pub(crate) fn changed(&self) -> usize {
        self.servers.iter().filter(|fate| matches!(fate.then, PlannedServer::Changed(..))).count()
    }
}

/// Plans an action on a file, for all its servers or for `only` these.
pub(crate) fn plan(
    path: &Path,
    text: &str,
    deed: FileAction<'_>,
    only: &[String],
) -> Result<FilePlan, Problems> {
    let mut problems = Problems::default();
    let planned = planned(path, text, deed, only, &mut problems);
    problems.in_file(path).finish(planned)
}

fn planned(
    path: &Path,
    text: &str,
    deed: FileAction<'_>,
    only: &[String],
    problems: &mut Problems,
) -> Option<FilePlan> {
    let (root, format) = parse(path, text, problems)?;
    let mut wrong = |why: &str| problems.keep(Err(Problem::of_file(why)));
    let Some(key) = list_key(&ConfigField::root(&root), format) else {
        return wrong(
            "is Seawall's own configuration: its servers are behind Seawall already, at `seawall serve`",
        );
    };
    let lists = lists(&root, key);
    if lists.is_empty() {
        return wrong(&format!("lists no servers under {key:?}"));
    }
    let all = || lists.iter().flat_map(|list| list.servers.iter());
    if let Some(unknown) = only.iter().find(|name| !all().any(|(other, _)| other == *name)) {
        return wrong(&format!("has no server {unknown:?}"));
    }
    let is_untouched =
        !all().any(|(_, server)| StartCommand::of(server).is_ok_and(|start| deed.is_done(&start)));
    // `meant` is the tree after the change; the edited text must parse to exactly this tree.
    let mut meant = root.clone();
    let (mut fates, mut edits) = (Vec::new(), Vec::new());
    for list in &lists {
        let meant = list
            .way
            .iter()
            .try_fold(&mut meant, |node, key| under_mut(node, key))
            .map(|node| &mut node.value);
        let Some(ConfigValue::Table(meant)) = meant else { continue };
        for ((name, server), (_, meant)) in list.servers.iter().zip(meant) {
            if !only.is_empty() && !only.contains(name) {
                continue;
            }
            let then = match StartCommand::of(server)
                .and_then(|start| Ok((change(name, &start, deed, text, format)?, start)))
            {
                Ok((change, start)) => {
                    edits.extend(start.edits(text, format, &change));
                    change.make(&start, meant);
                    PlannedServer::Changed(
                        start.command().to_owned(),
                        change.words(start.command()),
                    )
                }
                Err(why) => PlannedServer::Left(why),
            };
            fates.push(ServerFate {
                name: name.clone(),
                project: list.project.clone(),
                line: server.line,
                then,
            });
        }
    }
    let text = splice::spliced(text, edits);
    match parse(path, &text, &mut Problems::default()) {
        Some((root, _)) if alike(&root, &meant) => {
            Some(FilePlan { servers: fates, text, is_untouched })
        }
        _ => {
            wrong("is written in a way that cannot be changed safely; change its commands by hand")
        }
    }
}

/// A list of servers in a file.
struct ServerList<'a> {
    /// The keys that lead to the list.
    way: Vec<&'a str>,
    project: Option<String>,
    servers: &'a [(String, ConfigNode)],
}

/// All lists of a file: Claude Code's own file has one for all projects, and one in each project.
fn lists<'a>(root: &'a ConfigNode, key: &'a str) -> Vec<ServerList<'a>> {
    let list = |node: Option<&'a ConfigNode>, way: Vec<&'a str>, project| match node
        .map(|node| &node.value)
    {
        Some(ConfigValue::Table(servers)) => Some(ServerList { way, project, servers }),
        _ => None,
    };
    let projects = root.under(PROJECTS).next().map(|projects| &projects.value);
    let projects =
        if let Some(ConfigValue::Table(projects)) = projects { projects.as_slice() } else { &[] };
    let in_projects = projects.iter().filter_map(|(name, project)| {
        list(project.under(key).next(), vec![PROJECTS, name, key], Some(name.clone()))
    });
    list(root.under(key).next(), vec![key], None).into_iter().chain(in_projects).collect()
}

/// A server's new start command.
enum ServerChange {
    /// Started by this program, with these words before its own command; or with the third part
    /// instead of that command, if the command is a whole line of words.
    Behind(String, Vec<String>, Option<Vec<String>>),
    /// Started by this command of its own, without this many of its first arguments; without these
    /// bytes, if `args` were added for Seawall.
    Itself(String, usize, Option<Range<usize>>),
}

/// The change of a server's start command, or the reason why it stays.
fn change(
    name: &str,
    start: &StartCommand<'_>,
    deed: FileAction<'_>,
    text: &str,
    format: FileFormat,
) -> Result<ServerChange, &'static str> {
    match (deed, deed.is_done(start)) {
        (FileAction::Install { .. }, true) => Err("starts through Seawall already"),
        (FileAction::Install { seawall, path }, false) => {
            // A name that begins with a dash would be taken for an option.
            let named = name::fit(name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()))
                .map(|name| ["--name".to_owned(), name]);
            let words = ["run".to_owned()]
                .into_iter()
                .chain(named.into_iter().flatten())
                .chain(["--".to_owned()]);
            Ok(ServerChange::Behind(
                seawall.to_owned(),
                words.collect(),
                words::of(start.command(), path),
            ))
        }
        (FileAction::Uninstall { .. }, false) => Err("does not start through Seawall"),
        (FileAction::Uninstall { .. }, true) => {
            let dashes = start.args().iter().position(|word| word.text() == Some("--"));
            let own = dashes.and_then(|at| Some((at + 2, start.args().get(at + 1)?.text()?)));
            let (gone, command) =
                own.ok_or("has no command of its own behind Seawall that could take its place")?;
            Ok(ServerChange::Itself(command.to_owned(), gone, start.added_args(text, format, gone)))
        }
    }
}

impl ServerChange {
    /// The words that start a server with this command of its own.
    fn words(self, own: &str) -> Vec<String> {
        match self {
            ServerChange::Behind(seawall, words, line) => {
                [vec![seawall], words, line.unwrap_or_else(|| vec![own.to_owned()])].concat()
            }
            ServerChange::Itself(command, ..) => vec![command],
        }
    }

    /// Makes the change in the tree of the intended result.
    fn make(&self, start: &StartCommand<'_>, server: &mut ConfigNode) {
        let ConfigValue::Table(entries) = &mut server.value else { return };
        let node = |value| ConfigNode { line: 0, span: 0..0, value };
        let text = |text: &str| node(ConfigValue::Text(text.to_owned()));
        let mut args = start.args().to_vec();
        let command = match self {
            ServerChange::Behind(seawall, words, line) => {
                let own = line.clone().unwrap_or_else(|| vec![start.command().to_owned()]);
                args.splice(..0, words.iter().chain(&own).map(|word| text(word)));
                seawall
            }
            ServerChange::Itself(command, gone, _) => {
                args.drain(..gone);
                command
            }
        };
        entries.retain(|(key, _)| key != "command" && key != "args");
        entries.push(("command".to_owned(), text(command)));
        if !matches!(self, ServerChange::Itself(.., Some(_))) {
            entries.push(("args".to_owned(), node(ConfigValue::List(args))));
        }
    }
}

fn parse(path: &Path, text: &str, problems: &mut Problems) -> Option<(ConfigNode, FileFormat)> {
    let format = source::format(path, text);
    if format == FileFormat::Yaml {
        return problems
            .keep(Err(Problem::of_file("is YAML, which Seawall reads but never changes")));
    }
    Some((super::parsed(text, format, problems)?, format))
}

fn under_mut<'a>(node: &'a mut ConfigNode, key: &str) -> Option<&'a mut ConfigNode> {
    let ConfigValue::Table(entries) = &mut node.value else { return None };
    entries.iter_mut().find(|(name, _)| name == key).map(|(_, node)| node)
}

/// Whether two trees are equal, wherever their keys stand. The parsers bound the nesting, so this
/// recursion is bounded.
fn alike(one: &ConfigNode, other: &ConfigNode) -> bool {
    match (&one.value, &other.value) {
        (ConfigValue::Table(one), ConfigValue::Table(other)) => {
            let is_there = |(key, node): &(String, ConfigNode)| {
                other.iter().any(|(name, it)| name == key && alike(node, it))
            };
            one.len() == other.len() && one.iter().all(is_there)
        }
        (ConfigValue::List(one), ConfigValue::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (one, other) => one == other,
    }
}
