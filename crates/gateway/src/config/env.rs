//! Decides which variables a child process gets besides the usual ones: inherited ones by name,
//! then those of its env file, then its own.

use super::Secret;
use super::env_file;
use super::expand::Variables;
use super::problem::{ConfigPlace, Problem, Problems};
use super::raw::RawServer;
use super::resolve;
use super::source;
use super::tree::ConfigString;

pub(super) fn resolve(
    raw: &RawServer,
    scope: &Variables<'_>,
    problems: &mut Problems,
) -> Vec<(String, Secret)> {
    let mut env = Vec::new();
    for name in &raw.env_vars {
        if let Some(value) = scope.variable(&name.text) {
            set(&mut env, &name.text, Some(value));
        }
    }
    if let Some(file) = &raw.env_file {
        let variables = read_file(file, scope, problems).unwrap_or_default();
        variables.into_iter().for_each(|(name, value)| set(&mut env, &name, Some(value)));
    }
    for (name, text) in &raw.env {
        match text {
            None => set(&mut env, name, None),
            Some(text) => {
                let value = variable(name, text, scope, problems);
                set(&mut env, name, value);
            }
        }
    }
    env
}

fn variable(
    name: &str,
    text: &ConfigString,
    scope: &Variables<'_>,
    problems: &mut Problems,
) -> Option<String> {
    problems.keep(check_name(name, &text.place))?;
    let value = scope.expand(text, problems)?;
    problems.keep_filled(text.has_references(), resolve::without_nul(text, value))
}

fn read_file(
    file: &ConfigString,
    scope: &Variables<'_>,
    problems: &mut Problems,
) -> Option<Vec<(String, String)>> {
    let path = scope.path(&scope.expand(file, problems)?);
    scope.depends_on(&path);
    let variables = source::read_regular(&path).and_then(|source| env_file::parse(&source.text));
    let lacking = |error| problems.lack(file.place.problem(format!("{} {error}", path.display())));
    variables.map_err(lacking).ok()
}

fn check_name(name: &str, place: &ConfigPlace) -> Result<(), Problem> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(place.problem("is not a variable's name"));
    }
    Ok(())
}

/// Sets or removes a variable; a later source overrides an earlier one.
fn set(env: &mut Vec<(String, Secret)>, name: &str, value: Option<String>) {
    env.retain(|(known, _)| known != name);
    env.extend(value.map(|value| (name.to_owned(), Secret::new(value))));
}
