//! Finds the configuration of a command: from its arguments, and the file that they name.

use std::path::{Path, PathBuf};

use super::{RunArgs, ServeArgs, hint};
use crate::config;
use crate::config::Config;
use crate::config::prefix::NamePrefix;
use crate::runtime::log;

pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn loaded(path: &Path) -> Result<Config, String> {
    config::load(path, &variable).map_err(|problems| problems.to_string())
}

pub(super) fn wrapped(run: RunArgs) -> Result<Config, String> {
    let name = run.name.as_deref();
    if run.url.as_ref().is_some_and(|url| !url.contains("://")) {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        if let Some(line) = hint::run_line(&arguments) {
            return Err(format!("a command stands behind `--`; write: {line}"));
        }
    }
    let given = match run.url {
        Some(url) => Some(Config::for_url(name, &url)),
        None if run.command.is_empty() && run.config.is_some() => None,
        None => Some(Config::for_command(name, run.command)),
    };
    let mut config = match (given, run.config) {
        (Some(given), None) => {
            let mut config = given.map_err(|problems| problems.to_string())?;
            config.take_env(&variable).map_err(|problem| problem.to_string())?;
            config
        }
        (Some(given), Some(path)) => {
            let settings =
                config::load_policies(&path, &variable).map_err(|problems| problems.to_string())?;
            given.map_err(|problems| problems.to_string())?.under(settings)
        }
        (None, path) => loaded(&path.unwrap_or_default())?,
    };
    if config.servers.len() > 1 && name.is_some() {
        config.servers.retain(|server| Some(server.name.as_str()) == name);
    }
    // The client of `run` knows the tools by the server's own names, also if a shared configuration
    // sets another prefix.
    config.rules.prefix = NamePrefix::Auto;
    match config.servers.len() {
        1 => Ok(config),
        0 => Err("the configuration has no server of this name".to_owned()),
        count => Err(format!(
            "`run` wraps one server, the configuration has {count}: choose one with --name, or use `seawall serve --stdio`"
        )),
    }
}

/// Logs the parts of a file that are ignored.
pub(super) fn warn(config: &Config) {
    config.warnings.iter().for_each(|warning| log::warn(&warning.to_string()));
}

/// Logs which servers, and whether the admin API, lack a variable that the file refers to.
pub(super) fn tell_lacking(config: &Config) {
    for (admin, problem) in
        config.admin.iter().flat_map(|admin| admin.lacking.iter().map(move |it| (admin, it)))
    {
        log::line(&format!("{problem}; until then nothing can be changed at {}", admin.listen));
    }
    for server in &config.servers {
        let told =
            |problem| log::line(&format!("{problem}; until then {} is not available", server.name));
        server.transport.lacking().iter().for_each(told);
    }
}

/// The configuration in the given file, or in the first default place.
pub(super) fn configured(path: Option<&Path>) -> Result<Config, String> {
    loaded(&located(path)?)
}

/// The path of the configuration file.
pub(super) fn located(path: Option<&Path>) -> Result<PathBuf, String> {
    let none =
        "no configuration found: give --config FILE, set SEAWALL_CONFIG, or write ./seawall.toml";
    config::find(path, &variable).ok_or_else(|| none.to_owned())
}

pub(super) fn served(serve: &ServeArgs) -> Result<Config, String> {
    let mut config = configured(serve.config.as_deref())?;
    config.listen = serve.listen.unwrap_or(config.listen);
    Ok(config)
}
