//! Decides how YAML is read, with the line of each value.
//!
//! `saphyr-parser` reads the syntax; this file makes the tree, without recursion, and bounds it:
//! its depth, and the number of its values with every alias written out.

use std::borrow::Cow;
use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::problem::{ConfigPlace, Problem};
use super::tree::{ConfigNode, ConfigValue};

/// Deeper than any config, and shallow enough for every stack.
const DEEPEST: usize = 64;
/// A config of a megabyte has fewer values, unless aliases multiply them.
const MOST_VALUES: usize = 200_000;

/// Parses a YAML text into a tree.
pub(super) fn parse(text: &str) -> Result<ConfigNode, Problem> {
    let mut reader = YamlReader::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| slip(error.marker().line(), error.info()))?;
        reader.take(event, span)?;
    }
    Ok(reader.root.unwrap_or(ConfigNode { line: 1, span: 0..0, value: ConfigValue::Null }))
}

#[derive(Default)]
struct YamlReader {
    root: Option<ConfigNode>,
    /// The lists and tables that are open, the innermost last.
    open: Vec<OpenNode>,
    /// Values that an alias may name, each whole.
    anchors: BTreeMap<usize, AnchoredNode>,
    /// The number of values so far, with those that aliases repeat.
    values: usize,
}

/// A value that an alias may name.
struct AnchoredNode {
    node: ConfigNode,
    values: usize,
    depth: usize,
}

/// A list or a table that is not closed yet.
struct OpenNode {
    line: usize,
    anchor: usize,
    value: ConfigValue,
    /// The key whose value comes next, with its line.
    key: Option<(String, usize)>,
}

impl YamlReader {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        let line = span.start.line().max(1);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                untagged(tag.as_ref(), line)?;
                self.put(node(line, scalar(&text, style)), anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                untagged(tag.as_ref(), line)?;
                self.open(line, anchor, ConfigValue::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                untagged(tag.as_ref(), line)?;
                self.open(line, anchor, ConfigValue::Table(Vec::new()))
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(closed) => self.put(node(closed.line, closed.value), closed.anchor),
                None => Err(slip(line, "a list or a table ends that did not begin")),
            },
            Event::Alias(anchor) => self.repeat(anchor, line),
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(slip(line, "a second document begins; keep one"))
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, line: usize, anchor: usize, value: ConfigValue) -> Result<(), Problem> {
        if self.open.len() >= DEEPEST {
            return Err(slip(line, &format!("values nest deeper than {DEEPEST}")));
        }
        self.open.push(OpenNode { line, anchor, value, key: None });
        Ok(())
    }

    /// Repeats the value of an anchor. An anchor counts when its value is whole, so no value can
    /// hold itself.
    fn repeat(&mut self, anchor: usize, line: usize) -> Result<(), Problem> {
        let known = self.anchors.get(&anchor);
        let known = known.ok_or_else(|| slip(line, "an alias stands within its own anchor"))?;
        let (values, depth) = (known.values, known.depth);
        if self.open.len() + depth > DEEPEST {
            return Err(slip(line, &format!("values nest deeper than {DEEPEST}")));
        }
        self.count(values, line)?;
        let node = self.anchors.get(&anchor).map(|known| known.node.clone());
        node.map_or(Ok(()), |node| self.put(ConfigNode { line, ..node }, 0))
    }

    /// Counts values before they are made.
    fn count(&mut self, values: usize, line: usize) -> Result<(), Problem> {
        self.values = self.values.saturating_add(values);
        if self.values > MOST_VALUES {
            return Err(slip(
                line,
                &format!("more than {MOST_VALUES} values, aliases written out"),
            ));
        }
        Ok(())
    }

    /// Puts a whole value where it belongs: into the innermost open list or table.
    fn put(&mut self, node: ConfigNode, anchor: usize) -> Result<(), Problem> {
        let line = node.line;
        self.count(1, line)?;
        if anchor > 0 {
            let (values, depth) = extent(&node);
            self.count(values, line)?;
            self.anchors.insert(anchor, AnchoredNode { node: node.clone(), values, depth });
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match (&mut parent.value, parent.key.take()) {
            (ConfigValue::Table(entries), Some((key, line))) => {
                // An entry carries the line of its key, where users look for a problem.
                entries.push((key, ConfigNode { line, ..node }));
            }
            (ConfigValue::Table(_), None) => parent.key = Some((key(node)?, line)),
            (ConfigValue::List(items), _) => items.push(node),
            _ => {}
        }
        Ok(())
    }
}

/// How many values a value is, and how deep they nest. [`DEEPEST`] bounds this recursion.
fn extent(node: &ConfigNode) -> (usize, usize) {
    let inner: Vec<&ConfigNode> = match &node.value {
        ConfigValue::List(items) => items.iter().collect(),
        ConfigValue::Table(entries) => entries.iter().map(|(_, node)| node).collect(),
        _ => return (1, 0),
    };
    inner
        .into_iter()
        .map(extent)
        .fold((1, 1), |(values, depth), (more, below)| (values + more, depth.max(below + 1)))
}

fn key(node: ConfigNode) -> Result<String, Problem> {
    let line = node.line;
    match node.value {
        ConfigValue::Text(text) if text == "<<" => {
            Err(slip(line, "merge keys (<<) are not supported; write the values out"))
        }
        ConfigValue::Text(text) | ConfigValue::Number(text) => Ok(text),
        ConfigValue::Flag(flag) => Ok(flag.to_string()),
        _ => Err(slip(line, "a key must be a text")),
    }
}

/// A tag could make a value something else than it seems; no config needs one.
fn untagged(tag: Option<&Cow<'_, Tag>>, line: usize) -> Result<(), Problem> {
    match tag {
        Some(tag) => Err(slip(line, &format!("tags are not supported; remove {tag}"))),
        None => Ok(()),
    }
}

/// The value of a scalar, as YAML's core schema has it. Numbers in other bases stay texts.
fn scalar(text: &str, style: ScalarStyle) -> ConfigValue {
    if style != ScalarStyle::Plain {
        return ConfigValue::Text(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => ConfigValue::Null,
        "true" | "True" | "TRUE" => ConfigValue::Flag(true),
        "false" | "False" | "FALSE" => ConfigValue::Flag(false),
        _ if is_number(text) => ConfigValue::Number(text.to_owned()),
        _ => ConfigValue::Text(text.to_owned()),
    }
}

/// Digits, perhaps with a sign before and a fraction behind them.
fn is_number(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits =
        |part: &str| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
    is_digits(whole.strip_prefix('-').unwrap_or(whole)) && is_digits(fraction)
}

fn node(line: usize, value: ConfigValue) -> ConfigNode {
    // Nothing is ever changed in a YAML file, so no value needs the bytes where it stands.
    ConfigNode { line, span: 0..0, value }
}

fn slip(line: usize, what: &str) -> Problem {
    ConfigPlace::line(line).problem(format!("not valid YAML: {what}"))
}
