//! Decides which words of a client's file change to put Seawall before its servers, and to take it away again.
//!
//! Only `command` and `args` are touched, in place: comments, order and all that only the client knows stay as they are. What
//! comes out is read again and has to say what was meant; otherwise nothing is changed.

pub mod clients;
pub mod file;
mod splice;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::Path;

use self::splice::Start;
use super::import::{PROJECTS, list_key};
use super::name;
use super::problem::{Problem, Problems};
use super::source::{self, Format};
use super::tree::{Field, Node, Value};
use super::words;

/// What is to be done to a file.
#[derive(Clone, Copy, Debug)]
pub enum Deed<'a> {
    /// Each server is started through a program.
    Install {
        /// The program.
        seawall: &'a str,
        /// Where programs are looked for: the variable `PATH`.
        path: &'a str,
    },
    /// Each server is started by its own command again.
    Uninstall,
}

/// What becomes of the servers of a file, and the file as it will be.
#[derive(Debug)]
pub struct Plan {
    /// The servers, in their order.
    pub servers: Vec<Fate>,
    /// The whole text.
    pub text: String,
    /// So far no server of it starts through Seawall.
    pub is_untouched: bool,
}

/// What becomes of one server.
#[derive(Debug, PartialEq, Eq)]
pub struct Fate {
    /// What its client calls it.
    pub name: String,
    /// The project that has it alone, where the file knows several.
    pub project: Option<String>,
    /// Where it stands.
    pub line: usize,
    /// What becomes of it.
    pub then: Then,
}

/// What becomes of a server.
#[derive(Debug, PartialEq, Eq)]
pub enum Then {
    /// It was started by this command so far, and is started by these words then; its arguments follow.
    Changed(String, Vec<String>),
    /// It stays as it is, because of this.
    Left(&'static str),
}

impl Plan {
    /// How many servers change.
    pub fn changed(&self) -> usize {
        self.servers.iter().filter(|fate| matches!(fate.then, Then::Changed(..))).count()
    }
}

/// What a deed does to a file; for all its servers, or for `only` those.
pub fn plan(path: &Path, text: &str, deed: Deed<'_>, only: &[String]) -> Result<Plan, Problems> {
    let mut problems = Problems::default();
    let planned = planned(path, text, deed, only, &mut problems);
    problems.in_file(path).finish(planned)
}

fn planned(path: &Path, text: &str, deed: Deed<'_>, only: &[String], problems: &mut Problems) -> Option<Plan> {
    let (root, format) = parse(path, text, problems)?;
    let mut wrong = |why: &str| problems.keep(Err(Problem::of_file(why)));
    let Some(key) = list_key(&Field::root(&root), format) else {
        return wrong("is Seawall's own configuration: its servers are behind Seawall already, at `seawall serve`");
    };
    let lists = lists(&root, key);
    if lists.is_empty() {
        return wrong(&format!("lists no servers under {key:?}"));
    }
    let all = || lists.iter().flat_map(|list| list.servers.iter());
    if let Some(unknown) = only.iter().find(|name| !all().any(|(other, _)| other == *name)) {
        return wrong(&format!("has no server {unknown:?}"));
    }
    let is_untouched = !all().any(|(_, server)| Start::of(server).is_ok_and(|start| is_ours(&start)));
    let mut meant = root.clone();
    let (mut fates, mut edits) = (Vec::new(), Vec::new());
    for list in &lists {
        let meant = list.way.iter().try_fold(&mut meant, |node, key| under_mut(node, key)).map(|node| &mut node.value);
        let Some(Value::Table(meant)) = meant else { continue };
        for ((name, server), (_, meant)) in list.servers.iter().zip(meant) {
            if !only.is_empty() && !only.contains(name) {
                continue;
            }
            let then = match Start::of(server).and_then(|start| Ok((change(name, &start, deed, text, format)?, start)))
            {
                Ok((change, start)) => {
                    edits.extend(start.edits(text, format, &change));
                    change.make(&start, meant);
                    Then::Changed(start.command().to_owned(), change.words(start.command()))
                }
                Err(why) => Then::Left(why),
            };
            fates.push(Fate { name: name.clone(), project: list.project.clone(), line: server.line, then });
        }
    }
    let text = splice::spliced(text, edits);
    match parse(path, &text, &mut Problems::default()) {
        Some((root, _)) if alike(&root, &meant) => Some(Plan { servers: fates, text, is_untouched }),
        _ => wrong("is written in a way that cannot be changed safely; change its commands by hand"),
    }
}

/// A list of servers in a file.
struct List<'a> {
    /// The keys that lead to it.
    way: Vec<&'a str>,
    project: Option<String>,
    servers: &'a [(String, Node)],
}

/// All lists of a file: Claude Code's own has one for all projects, and one in each project.
fn lists<'a>(root: &'a Node, key: &'a str) -> Vec<List<'a>> {
    let list = |node: Option<&'a Node>, way: Vec<&'a str>, project| match node.map(|node| &node.value) {
        Some(Value::Table(servers)) => Some(List { way, project, servers }),
        _ => None,
    };
    let projects = root.under(PROJECTS).next().map(|projects| &projects.value);
    let projects = if let Some(Value::Table(projects)) = projects { projects.as_slice() } else { &[] };
    let in_projects = projects
        .iter()
        .filter_map(|(name, project)| list(project.under(key).next(), vec![PROJECTS, name, key], Some(name.clone())));
    list(root.under(key).next(), vec![key], None).into_iter().chain(in_projects).collect()
}

/// How a server is started from now on.
enum Change {
    /// By this program, with these words before its own command; and with these instead of it, if that is a whole line.
    Behind(String, Vec<String>, Option<Vec<String>>),
    /// By this command of its own, and without so many of its arguments; without these bytes, if `args` were added for Seawall.
    Itself(String, usize, Option<Range<usize>>),
}

/// Whether a server starts through Seawall.
fn is_ours(start: &Start<'_>) -> bool {
    Path::new(start.command()).file_stem().is_some_and(|stem| stem == "seawall")
        && start.args().first().and_then(Node::text) == Some("run")
}

/// How a server is to be started, or why it stays as it is.
fn change(name: &str, start: &Start<'_>, deed: Deed<'_>, text: &str, format: Format) -> Result<Change, &'static str> {
    match (deed, is_ours(start)) {
        (Deed::Install { .. }, true) => Err("starts through Seawall already"),
        (Deed::Install { seawall, path }, false) => {
            let named = name::fit(name).map(|name| ["--name".to_owned(), name]);
            let words = ["run".to_owned()].into_iter().chain(named.into_iter().flatten()).chain(["--".to_owned()]);
            Ok(Change::Behind(seawall.to_owned(), words.collect(), words::of(start.command(), path)))
        }
        (Deed::Uninstall, false) => Err("does not start through Seawall"),
        (Deed::Uninstall, true) => {
            let dashes = start.args().iter().position(|word| word.text() == Some("--"));
            let own = dashes.and_then(|at| Some((at + 2, start.args().get(at + 1)?.text()?)));
            let (gone, command) = own.ok_or("has no command of its own behind Seawall that could take its place")?;
            Ok(Change::Itself(command.to_owned(), gone, start.added_args(text, format, gone)))
        }
    }
}

impl Change {
    /// What starts a server whose own command is this.
    fn words(self, own: &str) -> Vec<String> {
        match self {
            Change::Behind(seawall, words, line) => {
                [vec![seawall], words, line.unwrap_or_else(|| vec![own.to_owned()])].concat()
            }
            Change::Itself(command, ..) => vec![command],
        }
    }

    /// Makes it in the tree of what is meant.
    fn make(&self, start: &Start<'_>, server: &mut Node) {
        let Value::Table(entries) = &mut server.value else { return };
        let node = |value| Node { line: 0, span: 0..0, value };
        let text = |text: &str| node(Value::Text(text.to_owned()));
        let mut args = start.args().to_vec();
        let command = match self {
            Change::Behind(seawall, words, line) => {
                let own = line.clone().unwrap_or_else(|| vec![start.command().to_owned()]);
                args.splice(..0, words.iter().chain(&own).map(|word| text(word)));
                seawall
            }
            Change::Itself(command, gone, _) => {
                args.drain(..gone);
                command
            }
        };
        entries.retain(|(key, _)| key != "command" && key != "args");
        entries.push(("command".to_owned(), text(command)));
        if !matches!(self, Change::Itself(.., Some(_))) {
            entries.push(("args".to_owned(), node(Value::List(args))));
        }
    }
}

fn parse(path: &Path, text: &str, problems: &mut Problems) -> Option<(Node, Format)> {
    let format = problems.keep(source::format(path, text))?;
    Some((super::parsed(text, format, problems)?, format))
}

fn under_mut<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let Value::Table(entries) = &mut node.value else { return None };
    entries.iter_mut().find(|(name, _)| name == key).map(|(_, node)| node)
}

/// Whether two files say the same, wherever it stands. Files nest only so deep, so this recursion is bounded.
fn alike(one: &Node, other: &Node) -> bool {
    match (&one.value, &other.value) {
        (Value::Table(one), Value::Table(other)) => {
            let is_there = |(key, node): &(String, Node)| other.iter().any(|(name, it)| name == key && alike(node, it));
            one.len() == other.len() && one.iter().all(is_there)
        }
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (one, other) => one == other,
    }
}
