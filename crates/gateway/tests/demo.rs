//! The demo as a newcomer starts it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

use std::process::Command;

fn demo(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    let output = command.arg("demo").args(arguments).env("TMPDIR", folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.stderr.is_empty(),
        "no bar without a terminal: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    String::from_utf8(output.stdout).unwrap()
}

/// The numbers of a line of the table: direct, and through Seawall.
fn numbers(table: &str, name: &str) -> [u64; 2] {
    let line = table
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_else(|| panic!("{name}: {table}"));
    let cells: Vec<&str> =
        line[name.len()..].split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    let number = |cell: &str| cell.split(' ').next().unwrap().parse().unwrap();
    [number(cells[0]), number(cells[1])]
}

#[test]
fn the_same_seed_gives_the_same_counts_and_seawall_repeats_no_write() {
    // Limits that a machine may be held up for without reaching them: then time alone is different.
    let play = || demo(&["--seed", "5", "--calls", "40", "--pace", "4"]);
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(play);
        (play(), other.join().unwrap())
    });
    let counts = |table: &str| {
        [
            "useful answers",
            "honest failures",
            "no answer at all",
            "false answers",
            "duplicate executions",
            "wasted calls",
        ]
        .map(|name| numbers(table, name))
    };
    assert_eq!(counts(&one), counts(&two), "{one}\n{two}");
    let [useful, _, dark, wrong, duplicates, wasted] = counts(&one);
    assert!(useful[1] > useful[0] && wasted[1] < wasted[0], "{one}");
    assert!(duplicates[0] > 0, "the direct agent writes something twice: {one}");
    assert_eq!((duplicates[1], dark[1], wrong[1]), (0, 0, 0), "{one}");
}

#[test]
fn its_help_has_an_example_and_the_server_behind_it_is_no_command_for_users() {
    let help = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_seawall")).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(help(&["demo", "--help"]).contains("Examples:\n  seawall demo"));
    assert!(help(&["--help"]).contains("demo") && !help(&["--help"]).contains("faulty-server"));
}
