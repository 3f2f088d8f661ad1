//! Decides how the audit log is kept: the section `[audit]`.

use std::path::PathBuf;

use super::expand::Variables;
use super::problem::{Problem, Problems};
use super::tree::{ConfigField, ConfigString};
use super::{size, suggest};

const KEYS: [&str; 4] = ["path", "arguments", "max_size", "keep"];
/// The bounds of `max_size`.
const SMALLEST: usize = 64 * 1024;
const LARGEST: usize = 64 * 1024 * 1024;

/// The most files that `keep` may ask for.
pub(crate) const KEPT: u32 = 1000;

/// How the audit log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// The file that is written.
    pub path: PathBuf,
    /// What is said of arguments.
    pub arguments: AuditArguments,
    /// A file that would grow larger is renamed, and a new one is begun.
    pub max_size: u64,
    /// How many renamed files are kept.
    pub keep: u32,
}

/// What the audit log says of a call's arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditArguments {
    /// Their hash: two calls with the same arguments can be seen to be the same.
    #[default]
    Digest,
    /// Their names and the kinds of their values.
    Redacted,
    /// Nothing.
    Omitted,
}

/// The section as it stands in the file.
pub(super) struct RawAudit {
    path: Option<ConfigString>,
    arguments: AuditArguments,
    max_size: usize,
    keep: u32,
}

/// Reads the section.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> RawAudit {
    let mut audit =
        RawAudit { path: None, arguments: AuditArguments::default(), max_size: LARGEST, keep: 8 };
    for (key, value) in section.entries(problems) {
        match key {
            "path" => audit.path = problems.keep(value.text()),
            "arguments" => audit.arguments = problems.keep(arguments(&value)).unwrap_or_default(),
            "max_size" => {
                let size = size::read(&value, SMALLEST, LARGEST);
                audit.max_size = problems.keep(size).unwrap_or(audit.max_size);
            }
            "keep" => audit.keep = problems.keep(keep(&value)).unwrap_or(audit.keep),
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    if section.is_table() && !section.has("path") {
        problems
            .push(section.place.problem("needs a path: the file that gets a line for each call"));
    }
    audit
}

fn keep(value: &ConfigField<'_>) -> Result<u32, Problem> {
    match value.count()? {
        0 => Err(value.place.problem("must be at least 1: the file before this one")),
        count if count > KEPT => Err(value.place.problem(format!("must be at most {KEPT}"))),
        count => Ok(count),
    }
}

fn arguments(value: &ConfigField<'_>) -> Result<AuditArguments, Problem> {
    let ConfigString { place, text } = value.text()?;
    match text.as_str() {
        "digest" => Ok(AuditArguments::Digest),
        "redacted" => Ok(AuditArguments::Redacted),
        "omitted" => Ok(AuditArguments::Omitted),
        _ => Err(place.problem(format!("{text:?} is none of digest, redacted, omitted"))),
    }
}

impl RawAudit {
    pub(super) fn resolve(
        self,
        scope: &Variables<'_>,
        problems: &mut Problems,
    ) -> Option<AuditConfig> {
        let path = scope.path(&scope.expand(&self.path?, problems)?);
        let (arguments, keep) = (self.arguments, self.keep);
        Some(AuditConfig { path, arguments, max_size: self.max_size as u64, keep })
    }
}
