//! Decides which bytes of a file hold a server's start command, and how they change.

use std::ops::Range;

use super::ServerChange;
use crate::config::import::ADDRESSES;
use crate::config::source::FileFormat;
use crate::config::tree::{ConfigNode, ConfigValue};

/// Marks a list that was empty before Seawall: on uninstall it becomes empty again, while a list
/// that Seawall added is removed.
const WAS_EMPTY: char = ' ';

/// New text for some bytes.
pub(super) struct TextEdit {
    span: Range<usize>,
    with: String,
}

/// The text with all edits made; they do not overlap.
pub(super) fn spliced(text: &str, mut edits: Vec<TextEdit>) -> String {
    edits.sort_by_key(|edit| edit.span.start);
    let (mut out, mut at) = (String::with_capacity(text.len() + 64 * edits.len()), 0);
    for edit in &edits {
        out.push_str(&text[at..edit.span.start]);
        out.push_str(&edit.with);
        at = edit.span.end;
    }
    out.push_str(&text[at..]);
    out
}

/// A server's start command.
pub(super) struct StartCommand<'a> {
    command: &'a ConfigNode,
    text: &'a str,
    args: Option<&'a ConfigNode>,
}

impl<'a> StartCommand<'a> {
    /// Finds the start command, or the reason why it cannot be changed.
    pub(super) fn of(server: &'a ConfigNode) -> Result<Self, &'static str> {
        const UNCLEAR: &str = "has no plain command";
        let ConfigValue::Table(entries) = &server.value else { return Err(UNCLEAR) };
        let Some(command) = server.under("command").next() else {
            let is_remote = entries.iter().any(|(key, _)| ADDRESSES.contains(&key.as_str()));
            return Err(if is_remote {
                "is remote: its client reaches it itself"
            } else {
                UNCLEAR
            });
        };
        let args = server.under("args").next();
        let is_twice = ["command", "args"].iter().any(|key| server.under(key).count() > 1);
        match command.text() {
            Some(text) if !is_twice && args.is_none_or(|args| args.items().is_some()) => {
                Ok(Self { command, text, args })
            }
            _ => Err(UNCLEAR),
        }
    }

    /// The command.
    pub(super) fn command(&self) -> &'a str {
        self.text
    }

    /// Its arguments.
    pub(super) fn args(&self) -> &'a [ConfigNode] {
        self.args.and_then(ConfigNode::items).unwrap_or_default()
    }

    /// The edits that a change makes. The server's own command keeps its spelling wherever it
    /// moves.
    pub(super) fn edits(
        &self,
        text: &str,
        format: FileFormat,
        change: &ServerChange,
    ) -> Vec<TextEdit> {
        let own = self.command.span.clone();
        let (command, args) = match change {
            ServerChange::Behind(seawall, words, line) => {
                let line =
                    line.as_ref().map(|words| words.iter().map(|word| quoted(word)).collect());
                let own = line.unwrap_or_else(|| vec![text[own.clone()].to_owned()]);
                let words: Vec<String> = words.iter().map(|word| quoted(word)).chain(own).collect();
                let words = words.join(", ");
                let args = self.args.map(|args| put_before(text, args, &words));
                (quoted(seawall), Some(args.unwrap_or_else(|| self.add_args(text, format, &words))))
            }
            ServerChange::Itself(_, gone, added) => {
                let again = text[self.args()[gone - 1].span.clone()].to_owned();
                let away =
                    |span: &Range<usize>| TextEdit { span: span.clone(), with: String::new() };
                (
                    again,
                    added
                        .as_ref()
                        .map(away)
                        .or_else(|| self.args.map(|args| take_away(text, args, *gone))),
                )
            }
        };
        [TextEdit { span: own, with: command }].into_iter().chain(args).collect()
    }

    /// The bytes of `args`, key included, if no argument is left in them and they stand as
    /// [`Self::add_args`] writes them: then the server had none before Seawall.
    pub(super) fn added_args(
        &self,
        text: &str,
        format: FileFormat,
        gone: usize,
    ) -> Option<Range<usize>> {
        let args = self.args.filter(|_| self.args().len() == gone)?;
        let end = self.command.span.end;
        if text[self.args().last()?.span.end..args.span.end - 1].starts_with(WAS_EMPTY)
            || args.span.start < end
        {
            return None;
        }
        let between = &text[end..args.span.start];
        let (start, key) = match (between.strip_prefix(','), between.find('\n')) {
            (Some(rest), _) => (end, rest),
            (None, Some(line)) if format == FileFormat::Toml => {
                (end + between[..line].trim_end_matches('\r').len(), &between[line..])
            }
            _ => return None,
        };
        let (name, is) = if format == FileFormat::Json { ("\"args\"", ':') } else { ("args", '=') };
        let rest = key.trim_start().strip_prefix(name)?.trim_start().strip_prefix(is)?;
        rest.trim().is_empty().then_some(start..args.span.end)
    }

    /// Adds `args` after the command, in the layout of the command.
    fn add_args(&self, text: &str, format: FileFormat, words: &str) -> TextEdit {
        let Range { start, end } = self.command.span;
        let line = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let before = &text[line..start];
        let indent = &before[..before.len() - before.trim_start().len()];
        let break_line = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let rest = text[end..].lines().next().unwrap_or_default();
        let (at, with) = match format {
            FileFormat::Json if before.trim_start().starts_with("\"command\"") => {
                (end, format!(",{break_line}{indent}\"args\": [{words}]"))
            }
            FileFormat::Json => (end, format!(", \"args\": [{words}]")),
            FileFormat::Toml
                if rest.trim_start().is_empty() || rest.trim_start().starts_with('#') =>
            {
                (end + rest.len(), format!("{break_line}{indent}args = [{words}]"))
            }
            FileFormat::Toml | FileFormat::Yaml => (end, format!(", args = [{words}]")),
        };
        TextEdit { span: at..at, with }
    }
}

/// Inserts words at the start of a list, in the layout of its first item.
fn put_before(text: &str, list: &ConfigNode, words: &str) -> TextEdit {
    let open = list.span.start + 1;
    let first = list.items().unwrap_or_default().first();
    let with = match first.map(|first| &text[open..first.span.start]) {
        None => format!("{words}{WAS_EMPTY}"),
        Some("") => format!("{words}, "),
        Some(gap) if gap.trim().is_empty() => format!("{gap}{words},"),
        // A comment stays before the item it belongs to.
        Some(_) => format!("{words},"),
    };
    TextEdit { span: open..open, with }
}

/// Removes the first items of a list.
fn take_away(text: &str, list: &ConfigNode, gone: usize) -> TextEdit {
    let items = list.items().unwrap_or_default();
    let open = list.span.start + 1;
    let last = items[gone - 1].span.end;
    let Some(next) = items.get(gone) else {
        let rest = text[last..list.span.end - 1].strip_prefix(WAS_EMPTY).unwrap_or_default();
        return TextEdit { span: open..list.span.end - 1, with: rest.to_owned() };
    };
    let between = &text[last..next.span.start];
    let after_comma = last + between.find(',').map_or(0, |at| at + 1);
    match text[after_comma..next.span.start].trim().is_empty() {
        true => TextEdit {
            span: open..next.span.start,
            with: text[open..items[0].span.start].to_owned(),
        },
        false => TextEdit { span: open..after_comma, with: String::new() },
    }
}

/// A word as JSON spells it, which TOML reads too.
fn quoted(word: &str) -> String {
    serde_json::Value::from(word).to_string()
}
