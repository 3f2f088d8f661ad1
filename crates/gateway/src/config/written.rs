//! Holds the line of each setting in its file, so that a value can be traced to its line.

use std::collections::BTreeMap;

/// The lines of one part of a file: of all its settings, or of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenLines {
    /// The path to this part, as the file spells it; empty for the whole file.
    pub at: String,
    lines: BTreeMap<String, usize>,
    /// Settings for this part that stand at another place: the heading and line of each.
    elsewhere: BTreeMap<String, (String, usize)>,
}

impl WrittenLines {
    /// Notes the line of a key.
    pub fn note(&mut self, way: String, line: usize) {
        self.lines.insert(way, line);
    }

    /// Notes a setting for this part that stands at another place.
    pub(crate) fn note_elsewhere(&mut self, way: &[&str], heading: String, line: usize) {
        self.elsewhere.insert(joined(way), (heading, line));
    }

    /// The other place of a setting, if it stands at one.
    pub fn elsewhere(&self, way: &[&str]) -> Option<&(String, usize)> {
        self.elsewhere.get(&joined(way))
    }

    /// Whether a setting stands at this path.
    pub fn has(&self, way: &[&str]) -> bool {
        self.lines.contains_key(&joined(way))
    }

    /// The line of a setting; of the table around it, if it has none of its own.
    pub fn line(&self, way: &[&str]) -> Option<usize> {
        (1..=way.len()).rev().find_map(|length| self.lines.get(&joined(&way[..length])).copied())
    }

    /// A table of this part as its heading is written: `[tools."github/*"]`.
    pub(crate) fn heading(&self, way: &[&str]) -> String {
        let way = joined(way);
        let parts: Vec<&str> =
            [self.at.as_str(), &way].into_iter().filter(|part| !part.is_empty()).collect();
        format!("[{}]", parts.join("."))
    }
}

/// One key below another, as files spell it.
pub(crate) fn below(way: &str, key: &str) -> String {
    let is_bare =
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let key = if is_bare { key.to_owned() } else { format!("{key:?}") };
    if way.is_empty() { key } else { format!("{way}.{key}") }
}

fn joined(way: &[&str]) -> String {
    way.iter().fold(String::new(), |way, key| below(&way, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_way_or_by_the_table_around_it() {
        let mut written = WrittenLines { at: "x-seawall".to_owned(), ..WrittenLines::default() };
        written.note(joined(&["tools", "gh/*"]), 3);
        written.note(joined(&["tools", "gh/*", "retry", "base"]), 5);
        let line = |key| written.line(&["tools", "gh/*", "retry", key]);
        assert_eq!(
            (line("base"), line("max"), written.line(&["defaults"])),
            (Some(5), Some(3), None)
        );
        assert_eq!(written.heading(&["tools", "gh/*"]), "[x-seawall.tools.\"gh/*\"]");
        assert_eq!(WrittenLines::default().heading(&["kinds", "write"]), "[kinds.write]");
    }
}
