//! When servers run, and how they are reconnected.

use super::*;
use crate::config::{ReconnectConfig, ServerLifetime};

fn life(text: &str) -> ServerLifetime {
    toml_file(text).good("seawall.toml").servers[0].life
}

#[test]
fn a_reconnect_that_says_nothing_tries_for_ever() {
    let seconds = Duration::from_secs;
    let reconnect = ReconnectConfig {
        base: Duration::from_millis(500),
        max: seconds(60),
        attempts: None,
        wait: seconds(20),
    };
    assert_eq!(
        life("[servers.a]\ncommand = 'a'\n[reconnect]"),
        ServerLifetime { reconnect, ..ServerLifetime::default() }
    );
}

#[test]
fn every_key_is_read_for_every_server() {
    let text = "[reconnect]\nbase = '1s'\nmax = '2m'\nattempts = 20\nwait = '0s'\n\
                [servers.a]\ncommand = 'a'\nlazy = true\nidle_stop = '10m'\nkeep_warm = '0s'";
    let seconds = Duration::from_secs;
    let reconnect = ReconnectConfig {
        base: seconds(1),
        max: seconds(120),
        attempts: Some(20),
        wait: seconds(0),
    };
    assert_eq!(
        life(text),
        ServerLifetime {
            lazy: true,
            idle_stop: Some(seconds(600)),
            keep_warm: seconds(0),
            reconnect
        }
    );
}

#[test]
fn they_may_stand_in_another_clients_file() {
    let kit = json_file(
        r#"{"x-seawall": {"reconnect": {"attempts": 3}},
            "mcpServers": {"a": {"command": "a", "x-seawall": {"idle_stop": "1h", "lazy": true}}}}"#,
    );
    let life = kit.good("mcp.json").servers[0].life;
    assert_eq!(
        (life.lazy, life.idle_stop, life.reconnect.attempts),
        (true, Some(Duration::from_secs(3600)), Some(3))
    );
}

#[test]
fn what_makes_no_sense_is_told() {
    let text = "[reconnect]\nbase = '0s'\nmax = 60\nattempts = 0\nwait = 'soon'\nretries = 3\n\
                [servers.a]\ncommand = 'a'\nlazy = 'yes'\nidle_stop = '0ms'";
    assert_eq!(
        toml_file(text).problems("seawall.toml"),
        "seawall.toml:2: reconnect.base: must not be zero\n\
         seawall.toml:3: reconnect.max: must be a string, not a number\n\
         seawall.toml:4: reconnect.attempts: must be a whole number from 1\n\
         seawall.toml:5: reconnect.wait: \"soon\" is not a duration; write for example \"250ms\", \"30s\", \"2m\" or \"1h\"\n\
         seawall.toml:6: reconnect.retries: unknown key; known are base, max, attempts, wait\n\
         seawall.toml:9: servers.a.lazy: must be true or false, not a string\n\
         seawall.toml:10: servers.a.idle_stop: must not be zero"
    );
    assert_eq!(
        toml_file("[servers.a]\ncommand = 'a'\n[reconnect]\nbase = '2m'").problems("seawall.toml"),
        "seawall.toml:3: reconnect: max must not be shorter than base"
    );
}
