//! Decides the structure of a file, before its meaning: values with their lines.

use std::collections::BTreeMap;
use std::ops::Range;

use super::problem::{ConfigPlace, Problem, Problems};
use crate::config::written::{WrittenLines, below};

/// A value, and the line of its key, or its own line if it has no key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConfigNode {
    pub(super) line: usize,
    /// The bytes of the value itself.
    pub(super) span: Range<usize>,
    pub(super) value: ConfigValue,
}

/// The values of JSON and TOML. Numbers stay as they are written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ConfigValue {
    Null,
    Flag(bool),
    Number(String),
    Date,
    Text(String),
    List(Vec<ConfigNode>),
    /// In the order of the file, duplicate keys included.
    Table(Vec<(String, ConfigNode)>),
}

impl ConfigNode {
    /// The values under a key, in the order of the file.
    pub(super) fn under<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a ConfigNode> {
        let entries =
            if let ConfigValue::Table(entries) = &self.value { entries.as_slice() } else { &[] };
        entries.iter().filter(move |(name, _)| name == key).map(|(_, node)| node)
    }

    /// The text, if the value is one.
    pub(super) fn text(&self) -> Option<&str> {
        if let ConfigValue::Text(text) = &self.value { Some(text) } else { None }
    }

    /// The items, if the value is a list.
    pub(super) fn items(&self) -> Option<&[ConfigNode]> {
        if let ConfigValue::List(items) = &self.value { Some(items) } else { None }
    }
}

/// A value and its place.
pub(super) struct ConfigField<'a> {
    pub(super) place: ConfigPlace,
    value: &'a ConfigValue,
}

/// A text and its place.
pub(super) struct ConfigString {
    pub(super) place: ConfigPlace,
    pub(super) text: String,
}

impl ConfigString {
    /// Whether a part of the text comes from outside the file.
    pub(super) fn has_references(&self) -> bool {
        self.text.contains("${")
    }
}

impl<'a> ConfigField<'a> {
    pub(super) fn root(node: &'a ConfigNode) -> Self {
        Self { place: ConfigPlace::default(), value: &node.value }
    }

    pub(super) fn is_null(&self) -> bool {
        *self.value == ConfigValue::Null
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.has_any(|name| name == key)
    }

    /// The value under a key.
    pub(super) fn find(&self, key: &str) -> Option<ConfigField<'a>> {
        let ConfigValue::Table(entries) = self.value else { return None };
        let (_, node) = entries.iter().find(|(name, _)| name == key)?;
        Some(ConfigField { place: self.place.key(key, node.line), value: &node.value })
    }

    pub(super) fn has_any(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        matches!(self.value, ConfigValue::Table(entries) if entries.iter().any(|(name, _)| is_wanted(name)))
    }

    pub(super) fn flag(&self) -> Result<bool, Problem> {
        match self.value {
            ConfigValue::Flag(flag) => Ok(*flag),
            _ => Err(self.wrong("true or false")),
        }
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.value, ConfigValue::List(_))
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.value, ConfigValue::Table(_))
    }

    /// A whole number that is not negative.
    pub(super) fn count(&self) -> Result<u32, Problem> {
        match self.value {
            ConfigValue::Number(number) => whole(number).ok_or_else(|| {
                self.place.problem(format!("must be a whole number from 0 to {}", u32::MAX))
            }),
            _ => Err(self.wrong("a whole number")),
        }
    }

    /// A number.
    pub(super) fn number(&self) -> Result<f64, Problem> {
        match self.value {
            ConfigValue::Number(number) => {
                number.parse().map_err(|_| self.place.problem("must be a number"))
            }
            _ => Err(self.wrong("a number")),
        }
    }

    pub(super) fn text(&self) -> Result<ConfigString, Problem> {
        match self.value {
            ConfigValue::Text(text) => {
                Ok(ConfigString { place: self.place.clone(), text: text.clone() })
            }
            _ => Err(self.wrong("a string")),
        }
    }

    /// A whole number from `least` to `most`.
    pub(super) fn whole(&self, least: u32, most: u32) -> Result<u32, Problem> {
        let ConfigValue::Number(text) = self.value else {
            return Err(self.wrong("a whole number"));
        };
        let number = whole(text).filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| {
            self.place.problem(format!("must be a whole number from {least} to {most}, not {text}"))
        })
    }

    /// The text of a variable: numbers and flags are written out, null is no text.
    pub(super) fn variable(&self) -> Result<Option<ConfigString>, Problem> {
        let text = match self.value {
            ConfigValue::Null => return Ok(None),
            ConfigValue::Text(text) | ConfigValue::Number(text) => text.clone(),
            ConfigValue::Flag(flag) => flag.to_string(),
            _ => return Err(self.wrong("a string, a number, true or false")),
        };
        Ok(Some(ConfigString { place: self.place.clone(), text }))
    }

    /// The items of a list; any other value is a problem and has none.
    pub(super) fn items(&self, problems: &mut Problems) -> Vec<ConfigField<'a>> {
        let ConfigValue::List(nodes) = self.value else {
            problems.push(self.wrong("a list"));
            return Vec::new();
        };
        let item = |(index, node): (usize, &'a ConfigNode)| ConfigField {
            place: self.place.item(index, node.line),
            value: &node.value,
        };
        nodes.iter().enumerate().map(item).collect()
    }

    /// The entries of a table, each key once; any other value is a problem and has none.
    pub(super) fn entries(&self, problems: &mut Problems) -> Vec<(&'a str, ConfigField<'a>)> {
        let ConfigValue::Table(nodes) = self.value else {
            problems.push(self.wrong("a table"));
            return Vec::new();
        };
        let mut lines = BTreeMap::new();
        let mut entries = Vec::new();
        for (key, node) in nodes {
            let place = self.place.key(key, node.line);
            match lines.insert(key, node.line) {
                None => entries.push((key.as_str(), ConfigField { place, value: &node.value })),
                Some(first) => problems
                    .push(place.problem(format!("stands on line {first} already; keep one"))),
            }
        }
        entries
    }

    /// A list of texts.
    pub(super) fn texts(&self, problems: &mut Problems) -> Vec<ConfigString> {
        let items = self.items(problems);
        items.iter().filter_map(|item| problems.keep(item.text())).collect()
    }

    /// A table of texts.
    pub(super) fn pairs(&self, problems: &mut Problems) -> Vec<(String, ConfigString)> {
        let entries = self.entries(problems);
        entries
            .iter()
            .filter_map(|(key, field)| Some(((*key).to_owned(), problems.keep(field.text())?)))
            .collect()
    }

    /// Notes the lines of all keys below, each under the path that leads to it.
    pub(super) fn note(&self, key: &str, written: &mut WrittenLines) {
        if let (way, Some(line)) = (below("", key), self.place.own_line()) {
            note(&way, line, self.value, written);
        }
    }

    fn wrong(&self, wanted: &str) -> Problem {
        let found = match self.value {
            ConfigValue::Null => "null",
            ConfigValue::Flag(_) => "true or false",
            ConfigValue::Number(_) => "a number",
            ConfigValue::Date => "a date",
            ConfigValue::Text(_) => "a string",
            ConfigValue::List(_) => "a list",
            ConfigValue::Table(_) => "a table",
        };
        self.place.problem(format!("must be {wanted}, not {found}"))
    }
}

/// A whole number, also as JSON may spell it: `3.0` is 3.
fn whole(text: &str) -> Option<u32> {
    let plain = text
        .split_once('.')
        .filter(|(_, zeros)| !zeros.is_empty() && zeros.bytes().all(|digit| digit == b'0'));
    plain.map_or(text, |(number, _)| number).parse().ok()
}

/// The parsers bound the nesting, so this recursion is bounded too.
fn note(way: &str, line: usize, value: &ConfigValue, written: &mut WrittenLines) {
    written.note(way.to_owned(), line);
    if let ConfigValue::Table(entries) = value {
        entries
            .iter()
            .for_each(|(key, node)| note(&below(way, key), node.line, &node.value, written));
    }
}
