//! `commands.md`: every command with its options, and the exit codes.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};
use seawall_gateway::cli::Cli;
use seawall_testkit::page;

/// An argument as it is typed.
fn typed(arg: &Arg) -> String {
    let value = arg.get_value_names().map_or_else(String::new, |names| names.join(" "));
    let takes = arg.get_action().takes_values();
    match arg.get_long() {
        Some(long) if takes => format!("--{long} {value}"),
        Some(long) => format!("--{long}"),
        None if arg.is_last_set() => format!("-- {value}…"),
        None => value,
    }
}

fn command(page: &mut String, way: &str, of: &Command) {
    let about = of.get_about().map(ToString::to_string).unwrap_or_default();
    write!(page, "\n## {way}\n\n{about}.\n").unwrap();
    let shown =
        |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help" && arg.get_id() != "version";
    let args: Vec<&Arg> = of.get_arguments().filter(shown).collect();
    if !args.is_empty() {
        page.push_str("\n| argument | default | what it means |\n|---|---|---|\n");
    }
    for arg in args {
        let default: Vec<String> =
            arg.get_default_values().iter().map(|value| format!("`{}`", value.display())).collect();
        let possible: Vec<String> = arg
            .get_possible_values()
            .iter()
            .filter(|_| arg.get_action().takes_values())
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        let choice =
            if possible.is_empty() { String::new() } else { format!(": {}", possible.join(", ")) };
        let default = match default.is_empty() {
            true if arg.is_required_set() => "required".to_owned(),
            true => "none".to_owned(),
            false => default.join(" "),
        };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        writeln!(page, "| `{}` | {default} | {help}{choice} |", typed(arg)).unwrap();
    }
    if let Some(after) = of.get_after_help() {
        write!(page, "\n```text\n{after}\n```\n").unwrap();
    }
    for below in
        of.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        command(page, &format!("{way} {}", below.get_name()), below);
    }
}

/// The exit codes: the constants of the command line, with their comments.
fn exit_codes() -> Vec<(u8, String)> {
    let source = page::read("crates/gateway/src/cli/mod.rs");
    let lines: Vec<&str> = source.lines().collect();
    let mut found = vec![(0, "All is well.".to_owned())];
    for pair in lines.windows(2) {
        let code = pair[1]
            .split_once(": u8 = ")
            .and_then(|(_, code)| code.trim_end_matches(';').parse().ok());
        if let (Some(code), Some(told)) = (code, pair[0].strip_prefix("/// ")) {
            found.push((code, told.to_owned()));
        }
    }
    assert!(found.len() >= 4, "{found:?}");
    found
}

#[test]
fn the_reference_of_the_commands_is_what_the_command_line_reads() {
    let mut text = String::from(
        "# Commands\n\n\
         `seawall COMMAND --help` says the same. `stdout` belongs to the protocol, or to what was asked for; everything\n\
         else goes to `stderr`.\n\n\
         This page is written by a test from the command line that the program reads\n\
         (`crates/gateway/src/cli/mod.rs`).\n\n\
         ## Exit codes\n\n| code | when |\n|---|---|\n",
    );
    for (code, told) in exit_codes() {
        writeln!(text, "| {code} | {told} |").unwrap();
    }
    let mut cli = Cli::command();
    cli.build();
    for below in
        cli.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        command(&mut text, &format!("seawall {}", below.get_name()), below);
    }
    page::is_current("commands.md", &text);
}
