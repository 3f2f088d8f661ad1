//! Decides how what is wrong with a config is told: where it stands, what it is, what to do.
//!
//! Texts name keys, variables and files, never values that could be secret.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::written::below;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// The file, where there is one.
    pub file: Option<PathBuf>,
    /// The line in the file, from 1.
    pub line: Option<usize>,
    /// The field, as the file spells it (`servers.github.env.TOKEN`); empty for the file as a
    /// whole.
    pub field: String,
    /// What is wrong and what to do.
    pub text: String,
}

/// Everything that is wrong with a config, in the order of its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    wrong: Vec<Problem>,
    /// What the file refers to and the machine does not have: wrong, unless it costs one server
    /// only.
    lacking: Vec<Problem>,
    /// What is not wrong, and yet not done as it stands there.
    warnings: Vec<Problem>,
}

/// Where something stands: the way to it, and its line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConfigPlace {
    path: String,
    line: Option<usize>,
}

impl Problem {
    /// A problem with the file as a whole.
    pub(super) fn of_file(text: impl Into<String>) -> Self {
        ConfigPlace::default().problem(text)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some(line) = self.line {
                write!(f, "{line}:")?;
            }
            f.write_str(" ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.text)
    }
}

impl Problems {
    /// The problems, in the order of their lines.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.wrong.iter()
    }

    pub(super) fn count(&self) -> usize {
        self.wrong.len() + self.lacking.len()
    }

    pub(super) fn push(&mut self, problem: Problem) {
        self.wrong.push(problem);
    }

    /// Notes that a variable or a file which the config refers to is not there.
    pub(super) fn lack(&mut self, problem: Problem) {
        self.lacking.push(problem);
    }

    /// Notes what is wrong with a value: with the file, or only with what the file refers to.
    pub(super) fn keep_filled<T>(
        &mut self,
        is_referred_to: bool,
        result: Result<T, Problem>,
    ) -> Option<T> {
        let note = |problem| if is_referred_to { self.lack(problem) } else { self.push(problem) };
        result.map_err(note).ok()
    }

    /// What is not there, if nothing else is wrong.
    pub(super) fn take_lacking(&mut self) -> Vec<Problem> {
        if self.wrong.is_empty() { std::mem::take(&mut self.lacking) } else { Vec::new() }
    }

    /// Notes what is passed over.
    pub(super) fn warn(&mut self, warning: Problem) {
        self.warnings.push(warning);
    }

    /// What is passed over, in the order of its lines.
    pub(super) fn take_warnings(&mut self) -> Vec<Problem> {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.sort_by_key(|warning| warning.line);
        warnings
    }

    pub(super) fn append(&mut self, mut others: Self) {
        self.wrong.append(&mut others.wrong);
        self.lacking.append(&mut others.lacking);
        self.warnings.append(&mut others.warnings);
    }

    /// The value, or nothing and one problem more.
    pub(super) fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.push(problem)).ok()
    }

    pub(super) fn in_file(mut self, path: &Path) -> Self {
        let all = self.wrong.iter_mut().chain(&mut self.lacking).chain(&mut self.warnings);
        all.for_each(|problem| problem.file = Some(path.to_owned()));
        self
    }

    /// The value if nothing at all is wrong.
    pub(super) fn finish<T>(mut self, value: Option<T>) -> Result<T, Self> {
        self.wrong.append(&mut self.lacking);
        match value {
            Some(value) if self.wrong.is_empty() => Ok(value),
            _ => {
                self.wrong.sort_by_key(|problem| problem.line);
                Err(self)
            }
        }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self { wrong: vec![problem], ..Self::default() }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.wrong.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{problem}")?;
        }
        Ok(())
    }
}

impl ConfigPlace {
    /// A place outside any file, such as an argument of the command line.
    pub(super) fn named(path: &str) -> Self {
        Self { path: path.to_owned(), line: None }
    }

    /// A line of the file, whatever stands there.
    pub(super) fn line(line: usize) -> Self {
        Self { path: String::new(), line: Some(line) }
    }

    /// The place of `key` in the table that stands here.
    pub(super) fn key(&self, key: &str, line: usize) -> Self {
        Self { path: below(&self.path, key), line: Some(line) }
    }

    /// The way to it, as the file spells it.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The line, where there is one.
    pub(super) fn own_line(&self) -> Option<usize> {
        self.line
    }

    /// The place of an item of the list that stands here.
    pub(super) fn item(&self, index: usize, line: usize) -> Self {
        Self { path: format!("{}[{index}]", self.path), line: Some(line) }
    }

    pub(super) fn problem(&self, text: impl Into<String>) -> Problem {
        Problem { file: None, line: self.line, field: self.path.clone(), text: text.into() }
    }
}
