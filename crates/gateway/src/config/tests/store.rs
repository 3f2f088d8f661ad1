//! The section `[store]`.

use super::*;
use crate::config::RedisConfig;

const SERVER: &str = "[servers.a]\ncommand = 'a'\n";

fn kit(text: &str) -> Kit {
    toml_file(&format!("{text}\n{SERVER}")).var("PASS", "swordfish").var("HOME", "/home/me")
}

#[test]
fn a_redis_is_read_with_its_defaults_and_its_secrets_are_shown_nowhere() {
    let config =
        kit("[store]\nredis = 'redis://me:${env:PASS}@r.example:6380/2'").good("seawall.toml");
    assert_eq!(config.store, None, "there is no folder");
    let redis = RedisConfig {
        url: Secret::new("redis://me:swordfish@r.example:6380/2"),
        prefix: "seawall".to_owned(),
        key: Secret::new("swordfish"),
        wait_replicas: 0,
        quorum_share: 0.5,
        quorum_min: 2,
    };
    assert_eq!(config.redis, Some(redis));
    assert!(!format!("{config:?}").contains("swordfish"));
    let text = "[store]\npath = '/s'\nredis = 'rediss://r.example'\nkey = '0123456789abcdef'\nprefix = 'b'";
    let config = kit(text).good("seawall.toml");
    let redis = config.redis.unwrap();
    assert_eq!((redis.key, redis.prefix), (Secret::new("0123456789abcdef"), "b".to_owned()));
    assert_eq!(config.store, Some("/s".into()));
}

#[test]
fn a_redis_that_cannot_be_used_is_refused_with_the_next_step() {
    let form =
        "write it like \"redis://user:password@redis.example:6379/0\", or with rediss:// for TLS";
    let no_cluster = format!(
        "Sentinel and Cluster are not supported yet; give the address of one Redis, or of the proxy or service that follows its master; {form}"
    );
    for (url, wrong) in [
        ("redis://r.example", "needs a key beside it, [store] key = \"${env:SEAWALL_STORE_KEY}\": replicas sign what they write, and its url has no password to derive one from".to_owned()),
        ("r.example:6379", format!("is not an address of Redis; {form}")),
        ("http://:swordfish@r.example", format!("is not an address of Redis; {form}")),
        ("redis://:swordfish@r.example:x", format!("is not an address of Redis; {form}")),
        ("redis://:swordfish@a.example:1,b.example:2", no_cluster.clone()),
        ("redis+sentinel://:swordfish@a.example", no_cluster),
        ("rediss://:swordfish@a.example/#insecure", format!("has a fragment; certificates are always checked; {form}")),
    ] {
        let problems = kit(&format!("[store]\nredis = '{url}'")).problems("seawall.toml");
        assert_eq!(problems, format!("seawall.toml:2: store.redis: {wrong}"));
    }
    let problems = kit(
        "[store]\nredis = 'redis://r.example'\nkey = 'short'\nprefix = 'a:b'\nquorum_share = 1.5\nquorum_min = 0",
    )
    .problems("seawall.toml");
    let lines: Vec<&str> = problems.lines().collect();
    assert_eq!(lines.len(), 4, "{problems}");
    assert!(!problems.contains("short"), "{problems}");
}

#[test]
fn writes_can_wait_in_redis_without_a_folder() {
    let queue = kit("[store]\nredis = 'redis://:p@r.example'\n[kinds.write]\nfallback = ['queue']");
    assert!(queue.good("seawall.toml").has_queue());
}
