//! Decides which words of a client's file change to put Seawall before its servers, and to take it away again.
//!
//! Only `command` and `args` are touched, in place: comments, order and all that only the client knows stay as they are. What
//! comes out is read again and has to say what was meant; otherwise nothing is changed.

pub mod clients;
pub mod file;
mod splice;

#[cfg(test)]
mod tests;

use std::path::Path;

use self::splice::Start;
use super::import::list_key;
use super::name;
use super::problem::{Problem, Problems};
use super::source::{self, Format};
use super::tree::{Field, Node, Value};

/// What is to be done to a file.
#[derive(Clone, Copy, Debug)]
pub enum Deed<'a> {
    /// Each server is started through this program.
    Import(&'a str),
    /// Each server is started by its own command again.
    Eject,
}

/// What becomes of the servers of a file, and the file as it will be.
#[derive(Debug)]
pub struct Plan {
    /// The servers, in their order.
    pub servers: Vec<Fate>,
    /// The whole text.
    pub text: String,
}

/// What becomes of one server.
#[derive(Debug, PartialEq, Eq)]
pub struct Fate {
    /// What its client calls it.
    pub name: String,
    /// Where it stands.
    pub line: usize,
    /// What becomes of it.
    pub then: Then,
}

/// What becomes of a server.
#[derive(Debug, PartialEq, Eq)]
pub enum Then {
    /// It was started by this command so far, and is started by these words from now on; its arguments follow.
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
    let mut meant = root.clone();
    let lists = (root.under(key).next(), under_mut(&mut meant, key));
    let (Some(Value::Table(servers)), Some(Value::Table(meant_servers))) = (lists.0.map(|list| &list.value), lists.1)
    else {
        return wrong(&format!("lists no servers under {key:?}"));
    };
    if let Some(unknown) = only.iter().find(|name| !servers.iter().any(|(other, _)| other == *name)) {
        return wrong(&format!("has no server {unknown:?}"));
    }
    let (mut fates, mut edits) = (Vec::new(), Vec::new());
    for ((name, server), (_, meant)) in servers.iter().zip(meant_servers) {
        if !only.is_empty() && !only.contains(name) {
            continue;
        }
        let then = match Start::of(server).and_then(|start| change(name, &start, deed).map(|change| (start, change))) {
            Ok((start, change)) => {
                edits.extend(start.edits(text, format, &change));
                change.make(&start, meant);
                Then::Changed(start.command().to_owned(), change.words(start.command()))
            }
            Err(why) => Then::Left(why),
        };
        fates.push(Fate { name: name.clone(), line: server.line, then });
    }
    let text = splice::spliced(text, edits);
    match parse(path, &text, &mut Problems::default()) {
        Some((root, _)) if alike(&root, &meant) => Some(Plan { servers: fates, text }),
        _ => wrong("is written in a way that cannot be changed safely; change its commands by hand"),
    }
}

/// How a server is started from now on.
enum Change {
    /// By this program, with these words before its own command.
    Behind(String, Vec<String>),
    /// By this command of its own, and without so many of its arguments.
    Itself(String, usize),
}

/// How a server is to be started, or why it stays as it is.
fn change(name: &str, start: &Start<'_>, deed: Deed<'_>) -> Result<Change, &'static str> {
    let is_ours = Path::new(start.command()).file_stem().is_some_and(|stem| stem == "seawall")
        && start.args().first().and_then(Node::text) == Some("run");
    match deed {
        Deed::Import(_) if is_ours => Err("starts through Seawall already"),
        Deed::Import(seawall) => {
            let named = name::fit(name).map(|name| ["--name".to_owned(), name]);
            let words = ["run".to_owned()].into_iter().chain(named.into_iter().flatten()).chain(["--".to_owned()]);
            Ok(Change::Behind(seawall.to_owned(), words.collect()))
        }
        Deed::Eject if !is_ours => Err("does not start through Seawall"),
        Deed::Eject => {
            let dashes = start.args().iter().position(|word| word.text() == Some("--"));
            let own = dashes.and_then(|at| Some((at + 2, start.args().get(at + 1)?.text()?)));
            let (gone, command) = own.ok_or("has no command of its own behind Seawall that could take its place")?;
            Ok(Change::Itself(command.to_owned(), gone))
        }
    }
}

impl Change {
    /// What starts a server whose own command is this.
    fn words(self, own: &str) -> Vec<String> {
        match self {
            Change::Behind(seawall, words) => [vec![seawall], words, vec![own.to_owned()]].concat(),
            Change::Itself(command, _) => vec![command],
        }
    }

    /// Makes it in the tree of what is meant.
    fn make(&self, start: &Start<'_>, server: &mut Node) {
        let Value::Table(entries) = &mut server.value else { return };
        let node = |value| Node { line: 0, span: 0..0, value };
        let text = |text: &str| node(Value::Text(text.to_owned()));
        let mut args = start.args().to_vec();
        let command = match self {
            Change::Behind(seawall, words) => {
                args.splice(..0, words.iter().map(|word| text(word)).chain([text(start.command())]));
                seawall
            }
            Change::Itself(command, gone) => {
                args.drain(..gone);
                command
            }
        };
        entries.retain(|(key, _)| key != "command" && key != "args");
        entries.push(("command".to_owned(), text(command)));
        entries.push(("args".to_owned(), node(Value::List(args))));
    }
}

fn parse(path: &Path, text: &str, problems: &mut Problems) -> Option<(Node, Format)> {
    let format = problems.keep(source::format(path, text))?;
    Some((super::parsed(text, format, problems)?, format))
}

fn under_mut<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Value> {
    let Value::Table(entries) = &mut node.value else { return None };
    entries.iter_mut().find(|(name, _)| name == key).map(|(_, node)| &mut node.value)
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
