//! Decides how JSON with comments and trailing commas is read, with the line of each value.
//!
//! `serde_json` reads strings and numbers; this file adds only the parts it lacks: lines, comments,
//! duplicate keys.

use super::problem::{ConfigPlace, Problem};
use super::tree::{ConfigNode, ConfigValue};

/// Deeper than any config, and shallow enough for every stack.
const DEEPEST: usize = 64;

/// Parses a JSON text into a tree.
pub(super) fn parse(text: &str) -> Result<ConfigNode, Problem> {
    let mut reader = JsonReader { text, at: 0, line: 1 };
    reader.skip_blanks()?;
    let root = reader.value(0)?;
    reader.skip_blanks()?;
    if reader.at < text.len() {
        return Err(reader.slip("expected the end of the file"));
    }
    Ok(root)
}

/// Invariant: `at` is always between two characters.
struct JsonReader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> JsonReader<'a> {
    fn value(&mut self, depth: usize) -> Result<ConfigNode, Problem> {
        if depth > DEEPEST {
            return Err(self.slip(&format!("values nest deeper than {DEEPEST}")));
        }
        let (line, start) = (self.line, self.at);
        let value = match self.peek() {
            Some(b'{') => self.table(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => ConfigValue::Text(self.string()?),
            _ => self.word()?,
        };
        Ok(ConfigNode { line, span: start..self.at, value })
    }

    fn table(&mut self, depth: usize) -> Result<ConfigValue, Problem> {
        self.at += 1;
        let mut entries = Vec::new();
        loop {
            self.skip_blanks()?;
            if self.take(b'}') {
                return Ok(ConfigValue::Table(entries));
            }
            let line = self.line;
            if self.peek() != Some(b'"') {
                return Err(self.slip("expected a key in double quotes, or \"}\""));
            }
            let key = self.string()?;
            self.skip_blanks()?;
            if !self.take(b':') {
                return Err(self.slip("expected \":\" after a key"));
            }
            self.skip_blanks()?;
            let node = self.value(depth + 1)?;
            // An entry carries the line of its key, where users look for a problem.
            entries.push((key, ConfigNode { line, ..node }));
            self.separator(b'}')?;
        }
    }

    fn list(&mut self, depth: usize) -> Result<ConfigValue, Problem> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.skip_blanks()?;
            if self.take(b']') {
                return Ok(ConfigValue::List(items));
            }
            items.push(self.value(depth + 1)?);
            self.separator(b']')?;
        }
    }

    /// Takes a comma; accepts the closing bracket without taking it.
    fn separator(&mut self, end: u8) -> Result<(), Problem> {
        self.skip_blanks()?;
        if self.take(b',') || self.peek() == Some(end) {
            return Ok(());
        }
        Err(self.slip(&format!("expected \",\" or \"{}\"", char::from(end))))
    }

    fn string(&mut self) -> Result<String, Problem> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(b'\n') | None => return Err(self.slip("a string is not closed")),
                Some(_) => end += 1,
            }
        }
        let text = serde_json::from_str(&self.text[self.at..=end])
            .map_err(|_| self.slip("a string has a bad escape or a control character"))?;
        self.at = end + 1;
        Ok(text)
    }

    fn word(&mut self) -> Result<ConfigValue, Problem> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c))
            .unwrap_or(rest.len());
        let word = &rest[..end];
        let value = match serde_json::from_str(word) {
            Ok(serde_json::Value::Null) => ConfigValue::Null,
            Ok(serde_json::Value::Bool(flag)) => ConfigValue::Flag(flag),
            Ok(serde_json::Value::Number(_)) => ConfigValue::Number(word.to_owned()),
            _ => {
                return Err(
                    self.slip("expected a value: a string in double quotes, a number, true, false, null, [ or {")
                );
            }
        };
        self.at += end;
        Ok(value)
    }

    fn skip_blanks(&mut self) -> Result<(), Problem> {
        loop {
            let rest = self.rest();
            let length = match self.peek() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => 1,
                Some(b'/') if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
                Some(b'/') if rest.starts_with("/*") => match rest[2..].find("*/") {
                    Some(end) => end + 4,
                    None => return Err(self.slip("a comment is not closed")),
                },
                _ => return Ok(()),
            };
            self.line += rest[..length].matches('\n').count();
            self.at += length;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn slip(&self, what: &str) -> Problem {
        ConfigPlace::line(self.line).problem(format!("not valid JSON: {what}"))
    }
}
