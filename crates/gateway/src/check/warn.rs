//! Finds harmless surprises in a configuration: names, annotations, patterns that fit nothing.

use std::collections::BTreeMap;

use seawall::{Annotations, Fallback, Ground};

use super::needs::Requirement;
use super::{CheckReport, HealthyServer};
use crate::catalog::listed::ListedTool;
use crate::catalog::names;
use crate::config::layers::glob;
use crate::config::{Config, ServerConfig, Transport, nearest};
use crate::runtime::plural::counted;

/// The longest tool name that the strictest clients take.
const LONGEST: usize = 64;
/// The most names that are shown; the rest is counted.
const SHOWN: usize = 5;

/// Adds the warnings to each server, and those about the whole configuration.
pub(super) fn add(config: &Config, report: &mut CheckReport) {
    let is_prefixed = config.rules.prefix.is_used(report.servers.len());
    for (checked, configured) in report.servers.iter_mut().zip(&config.servers) {
        if let Ok(fine) = &checked.found {
            checked.warnings.extend(of_server(config, configured, fine, is_prefixed));
        }
    }
    report.warnings = config.warnings.iter().map(ToString::to_string).collect();
    report.warnings.extend(report.needs.iter().filter_map(Requirement::note));
    report.warnings.extend(patterns(config, report));
    report.warnings.extend(alike(report, is_prefixed));
    report.warnings.extend(stand_ins(config, report));
    report.warnings.extend(queued(config, report));
    report.notes.extend(processes(config));
}

/// The servers that start a process per client. Modern clients have no sessions, so those that look
/// alike share a process.
fn processes(config: &Config) -> Option<String> {
    let has_own = |server: &&ServerConfig| {
        matches!(server.transport, Transport::Stdio { .. }) && !server.shared
    };
    let names: Vec<String> =
        config.servers.iter().filter(has_own).map(|server| server.name.clone()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "each client of serve has its own process of {}; clients without sessions (2026-07-28) that send the same \
             Authorization and clientInfo, or none, share one",
            shown(&names)
        )
    })
}

fn of_server(
    config: &Config,
    server: &ServerConfig,
    fine: &HealthyServer,
    is_prefixed: bool,
) -> Vec<String> {
    let public =
        |name: &str| if is_prefixed { names::public(&server.name, name) } else { name.to_owned() };
    let mut warnings = Vec::new();
    let mut warn = |found: Vec<String>, text: &str| {
        if !found.is_empty() {
            warnings.push(format!("{text}: {}", shown(&found)));
        }
    };
    warn(fine.broken.clone(), "no client can read these tools, so they are left out");
    let names = || fine.tools.iter().map(|(name, _)| public(name));
    let long = names().filter(|name| name.chars().count() > LONGEST).collect();
    warn(long, "longer than 64 letters, which some clients refuse");
    let is_bare =
        |(_, listed): &&(String, ListedTool)| listed.hints.annotations == Annotations::default();
    let bare: Vec<&(String, ListedTool)> = fine.tools.iter().filter(is_bare).collect();
    let is_unknown = |(name, listed): &(String, ListedTool)| {
        let known = config.rules.known(&server.name, &server.rules, name, listed.hints);
        known.facts.judge_effect().1 == Ground::Unknown
    };
    let unknown =
        bare.iter().filter(|tool| is_unknown(tool)).map(|(name, _)| name.clone()).collect();
    warn(
        unknown,
        "nothing says what these do, so they count as writes; set their effect under [tools]",
    );
    if !bare.is_empty() && bare.len() == fine.tools.len() {
        warnings.push(
            "it annotates none of its tools: what they do is concluded from their names".to_owned(),
        );
    } else if !bare.is_empty() {
        let have = if bare.len() == 1 { "has" } else { "have" };
        warnings.push(format!(
            "{} of {} tools {have} no annotations",
            bare.len(),
            fine.tools.len()
        ));
    }
    for (name, listed) in &fine.tools {
        if let Err(invalid) =
            listed.decide(&config.rules, &server.name, &server.rules, name).policy.validate()
        {
            warnings.push(format!("the policy of {name:?} cannot hold: {invalid}"));
        }
    }
    warnings
}

/// Tool names that are equal for clients that replace unusual characters by `_`.
fn alike(report: &CheckReport, is_prefixed: bool) -> Option<String> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for checked in &report.servers {
        for (name, _) in checked.found.iter().flat_map(|fine| &fine.tools) {
            let name = if is_prefixed { names::public(&checked.name, name) } else { name.clone() };
            let plain = |letter: char| {
                if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' }
            };
            seen.entry(name.chars().map(plain).collect()).or_default().push(name);
        }
    }
    let alike: Vec<String> = seen.into_values().filter(|names| names.len() > 1).flatten().collect();
    (!alike.is_empty())
        .then(|| format!("some clients cannot tell these names apart: {}", shown(&alike)))
}

/// Patterns that fit no tool. A pattern is judged only if all servers it could fit have listed
/// their tools.
fn patterns(config: &Config, report: &CheckReport) -> Vec<String> {
    let mut warnings = Vec::new();
    for (pattern, _) in &config.rules.tools {
        let Some((of, tool)) = pattern.split_once('/') else { continue };
        let Some(names) = tools(report, |server| glob(of, server)) else { continue };
        if names.iter().any(|name| glob(tool, name)) {
            continue;
        }
        let line = config.rules.written.line(&["tools", pattern]);
        let place = line.map(|line| format!("{}:{line}: ", report.file)).unwrap_or_default();
        let heading = config.rules.written.heading(&["tools", pattern]);
        warnings.push(format!("{place}{heading} fits no tool{}", meant(tool, &names)));
    }
    warnings
}

/// Alternate tools of fallbacks that their server does not have.
fn stand_ins(config: &Config, report: &CheckReport) -> Vec<String> {
    let rules = &config.rules;
    let of_servers = config.servers.iter().map(|server| &server.rules.layer);
    let layers =
        rules.kinds.iter().map(|(_, layer)| layer).chain([&rules.defaults]).chain(of_servers);
    let layers = layers.chain(rules.tools.iter().map(|(_, layer)| layer));
    let mut warnings = Vec::new();
    for step in layers.flat_map(|layer| layer.alone().fallback) {
        let Fallback::Alternate { server: of, tool, .. } = step else { continue };
        let Some(names) = tools(report, |server| server == of) else { continue };
        if !names.contains(&tool.as_str()) {
            let text = format!(
                "{of}/{tool} is to stand in for others, and {of} has no such tool{}",
                meant(&tool, &names)
            );
            warnings.push(text);
        }
    }
    warnings.sort();
    warnings.dedup();
    warnings
}

/// Tools whose writes would be queued if there were a store.
fn queued(config: &Config, report: &CheckReport) -> Option<String> {
    let mut count = 0;
    for (checked, server) in report.servers.iter().zip(&config.servers) {
        let tools = checked.found.as_ref().map(|fine| fine.tools.as_slice()).unwrap_or_default();
        let waits = tools.iter().filter(|(name, listed)| {
            let policy = listed.decide(&config.rules, &server.name, &server.rules, name).policy;
            policy.fallback.contains(&Fallback::Queue)
        });
        count += waits.count();
    }
    (count > 0 && !config.has_queue()).then(|| {
        format!(
            "without a [store] no write waits for a server that is away ({})",
            counted(count, "tool")
        )
    })
}

/// The tools of all servers that `is_meant` accepts; `None` if one of them could not be listed.
fn tools(report: &CheckReport, is_meant: impl Fn(&str) -> bool) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    for checked in report.servers.iter().filter(|checked| is_meant(&checked.name)) {
        names.extend(checked.found.as_ref().ok()?.tools.iter().map(|(name, _)| name.as_str()));
    }
    Some(names)
}

fn meant(name: &str, known: &[&str]) -> String {
    nearest(name, known).map(|near| format!("; did you mean {near:?}?")).unwrap_or_default()
}

fn shown(names: &[String]) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let first = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}
