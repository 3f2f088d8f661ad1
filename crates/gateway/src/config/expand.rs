//! Decides the value of each `${…}`. A bare `$VAR` stays as it is, and so does a `${…}` inside a
//! variable's value.

use std::cell::RefCell;
use std::path::{Path, PathBuf, absolute};

use super::problem::Problems;
use super::source::{self, LONGEST};
use super::stamp::{FileStamp, FileStamps};
use super::tree::ConfigString;

const FORMS: &str = "${VAR}, ${VAR:-default}, ${env:VAR}, ${file:PATH}, ${input:ID}, ${userHome}, \
    ${workspaceFolder}, ${workspaceFolderBasename} and ${pathSeparator}";

/// The source of the values.
pub(super) struct Variables<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    folder: PathBuf,
    /// Values that were filled in and may be secret.
    filled: RefCell<Vec<String>>,
    /// Files that values were read from, or would have been.
    files: RefCell<FileStamps>,
}

/// Parts of variable names that mark a value as no secret: it names a place, a person or a setting.
const PLAIN: [&str; 22] = [
    "HOST", "PORT", "URL", "URI", "ADDR", "DOMAIN", "ENDPOINT", "PATH", "DIR", "FOLDER", "HOME",
    "ROOT", "FILE", "USER", "NAME", "REGION", "ZONE", "LANG", "LEVEL", "MODE", "VERSION", "SHELL",
];
/// Parts of variable names that mark a value as secret; they outrank the plain ones.
const SECRET: [&str; 8] = ["TOK", "KEY", "SECRET", "PASS", "PWD", "AUTH", "CRED", "COOKIE"];

fn may_be_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
    name != "PWD" && (says(&SECRET) || !says(&PLAIN))
}

/// Why a `${…}` could not be filled in.
enum UnfilledVariable {
    /// The reference is valid, but its variable or file is missing.
    Lacking(String),
    /// The reference is malformed.
    Malformed(String),
}

/// The user's home folder, if it is known.
pub(super) fn home(env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    ["HOME", "USERPROFILE"].into_iter().filter_map(env).find(|home| !home.is_empty())
}

impl<'a> Variables<'a> {
    pub(super) fn new(config: &Path, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        let config = absolute(config).unwrap_or_else(|_| config.to_owned());
        let folder = config.parent().unwrap_or(&config);
        // Editors keep their file in a folder of their own, one below the workspace.
        let is_editors = folder.ends_with(".vscode") || folder.ends_with(".cursor");
        let workspace = folder.parent().filter(|_| is_editors).unwrap_or(folder);
        Self {
            env,
            folder: workspace.to_owned(),
            filled: RefCell::default(),
            files: RefCell::default(),
        }
    }

    /// Takes the values that were filled in since the last call and may be secret.
    pub(super) fn take_filled(&self) -> Vec<String> {
        self.filled.take()
    }

    /// Notes a file that the configuration depends on, before it is read.
    pub(super) fn depends_on(&self, file: &Path) {
        let stamp = || FileStamp::of(file);
        self.files.borrow_mut().entry(file.to_owned()).or_insert_with(stamp);
    }

    /// The files that the configuration depends on, beside its own.
    pub(super) fn files(&self) -> FileStamps {
        self.files.borrow().clone()
    }

    fn fill(&self, value: String) -> String {
        self.filled.borrow_mut().push(value.clone());
        value
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.env)(name)
    }

    /// The path relative to the workspace folder; `~/` is the user's home.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), home(self.env)) {
            (Some(rest), Some(home)) => Path::new(&home).join(rest),
            _ => self.folder.join(path),
        }
    }

    /// The text with every `${…}` filled in; each `${…}` without a value is a problem.
    pub(super) fn expand(&self, text: &ConfigString, problems: &mut Problems) -> Option<String> {
        let before = problems.count();
        let mut expanded = String::new();
        let mut rest = text.text.as_str();
        while let Some((plain, reference)) = rest.split_once("${") {
            expanded.push_str(plain);
            let Some((reference, after)) = reference.split_once('}') else {
                problems.push(text.place.problem("has a \"${\" without its \"}\""));
                return None;
            };
            match self.value(reference) {
                Ok(value) => expanded.push_str(&value),
                Err(UnfilledVariable::Lacking(error)) => problems.lack(text.place.problem(error)),
                Err(UnfilledVariable::Malformed(error)) => problems.push(text.place.problem(error)),
            }
            if expanded.len() > LONGEST {
                problems.push(text.place.problem("becomes longer than 1 MiB"));
                return None;
            }
            rest = after;
        }
        expanded.push_str(rest);
        (problems.count() == before).then_some(expanded)
    }

    /// The value of the text between `${` and `}`. Malformed text may be part of a secret, so
    /// problems do not quote it.
    fn value(&self, reference: &str) -> Result<String, UnfilledVariable> {
        match reference {
            "userHome" => {
                home(self.env).ok_or_else(|| lacking("the variable HOME is not set; set it"))
            }
            "workspaceFolder" => Ok(self.folder.to_string_lossy().into_owned()),
            "workspaceFolderBasename" => Ok(basename(&self.folder)),
            "pathSeparator" | "/" => Ok(std::path::MAIN_SEPARATOR.to_string()),
            _ => {
                if let Some(path) = reference.strip_prefix("file:") {
                    return self.file(path);
                }
                if let Some(id) = reference.strip_prefix("input:") {
                    return self.input(id);
                }
                self.env_value(reference)
            }
        }
    }

    /// As in a shell, the default also replaces a variable that is set to an empty text.
    fn env_value(&self, reference: &str) -> Result<String, UnfilledVariable> {
        let is_stated = reference.starts_with("env:");
        let reference = reference.strip_prefix("env:").unwrap_or(reference);
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        let is_name = if is_stated { is_stated_name(name) } else { is_name(name) };
        if !is_name || default.is_some_and(|default| default.contains("${")) {
            let text = format!(
                "has a ${{…}} that cannot be filled in; there are {FORMS}, and none within another"
            );
            return Err(UnfilledVariable::Malformed(text));
        }
        match (self.variable(name), default) {
            (Some(value), _) if !value.is_empty() && may_be_secret(name) => Ok(self.fill(value)),
            (Some(value), _) if !value.is_empty() => Ok(value),
            (_, Some(default)) => Ok(default.to_owned()),
            (Some(empty), None) => Ok(empty),
            (None, None) => Err(lacking(format!(
                "the variable {name} is not set; set it, or write ${{{name}:-default}}"
            ))),
        }
    }

    fn file(&self, path: &str) -> Result<String, UnfilledVariable> {
        let file = self.path(path);
        self.depends_on(&file);
        let text = source::read_regular(&file)
            .map_err(|error| lacking(format!("{} {error}", file.display())))?
            .text;
        // A secret that is being rotated may be empty for a moment; sent, it would be no secret.
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(lacking(format!("{} is empty", file.display()))),
            text => Ok(self.fill(text.to_owned())),
        }
    }

    /// Reads an input from a variable: the gateway may have no terminal to ask on.
    fn input(&self, id: &str) -> Result<String, UnfilledVariable> {
        let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let name = format!("INPUT_{}", id.chars().map(upper).collect::<String>());
        self.variable(&name).map(|value| self.fill(value)).ok_or_else(|| {
            lacking(format!("the variable {name} is not set, which is the input {id:?}; set it"))
        })
    }
}

fn lacking(text: impl Into<String>) -> UnfilledVariable {
    UnfilledVariable::Lacking(text.into())
}

fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

/// After `env:` a name must follow, so unusual ones like `ProgramFiles(x86)` are valid too.
fn is_stated_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_control() || "=${".contains(c))
}

fn basename(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
