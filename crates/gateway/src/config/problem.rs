//! Decides how problems with a config are reported: their place, the mistake, the remedy.
//!
//! Texts name keys, variables and files, never values that could be secret.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::written::below;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The line in the file, from 1.
    pub line: Option<usize>,
    /// The field, as the file spells it (`servers.github.env.TOKEN`); empty for the file as a
    /// whole.
    pub field: String,
    /// The mistake and its remedy.
    pub text: String,
}

/// All problems of a config, in the order of its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    wrong: Vec<Problem>,
    /// Missing variables and files that the config refers to: problems, unless they cost a single
    /// server only.
    lacking: Vec<Problem>,
    /// Settings that are valid and yet not applied as they stand.
    warnings: Vec<Problem>,
}

/// A place in a config: the path to a value, and its line.
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

    /// Notes that a variable or a file which the config refers to is missing.
    pub(super) fn lack(&mut self, problem: Problem) {
        self.lacking.push(problem);
    }

    /// Notes a problem with a value: of the file itself, or only of a variable or file it refers
    /// to.
    pub(super) fn keep_filled<T>(
        &mut self,
        is_referred_to: bool,
        result: Result<T, Problem>,
    ) -> Option<T> {
        let note = |problem| if is_referred_to { self.lack(problem) } else { self.push(problem) };
        result.map_err(note).ok()
    }

    /// Takes the missing variables and files, if there is no other problem.
    pub(super) fn take_lacking(&mut self) -> Vec<Problem> {
        if self.wrong.is_empty() { std::mem::take(&mut self.lacking) } else { Vec::new() }
    }

    /// Notes a setting that is skipped.
    pub(super) fn warn(&mut self, warning: Problem) {
        self.warnings.push(warning);
    }

    /// The skipped settings, in the order of their lines.
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

    /// The value; or `None`, with the problem noted.
    pub(super) fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.push(problem)).ok()
    }

    pub(super) fn in_file(mut self, path: &Path) -> Self {
        let all = self.wrong.iter_mut().chain(&mut self.lacking).chain(&mut self.warnings);
        all.for_each(|problem| problem.file = Some(path.to_owned()));
        self
    }

    /// The value, if there is no problem at all.
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

    /// A line of the file as a whole.
    pub(super) fn line(line: usize) -> Self {
        Self { path: String::new(), line: Some(line) }
    }

    /// The place of `key` in the table at this place.
    pub(super) fn key(&self, key: &str, line: usize) -> Self {
        Self { path: below(&self.path, key), line: Some(line) }
    }

    /// The path to the value, as the file spells it.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The line, if there is one.
    pub(super) fn own_line(&self) -> Option<usize> {
        self.line
    }

    /// The place of an item of the list at this place.
    pub(super) fn item(&self, index: usize, line: usize) -> Self {
        Self { path: format!("{}[{index}]", self.path), line: Some(line) }
    }

    pub(super) fn problem(&self, text: impl Into<String>) -> Problem {
        Problem { file: None, line: self.line, field: self.path.clone(), text: text.into() }
    }
}
