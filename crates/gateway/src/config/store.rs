//! Decides where state is kept that must outlive a process or that replicas share: the section
//! `[store]`.

use std::path::PathBuf;

use super::expand::Variables;
use super::problem::{Problem, Problems};
use super::tree::{ConfigField, ConfigString};
use super::{Secret, suggest};

const KEYS: [&str; 7] =
    ["path", "redis", "prefix", "key", "wait_replicas", "quorum_share", "quorum_min"];
/// The shortest key: shorter ones can be guessed.
const SHORTEST_KEY: usize = 16;
/// The longest prefix: it begins every key in Redis.
const LONGEST_PREFIX: usize = 64;
/// The most replicas of Redis that a write may wait for, and of the gateway that a quorum may ask.
const MOST_REPLICAS: u32 = 1000;

/// The Redis that replicas of the gateway share.
#[derive(Clone, Debug, PartialEq)]
pub struct RedisConfig {
    /// Its address, with the user and the password.
    pub url: Secret,
    /// What every key and channel begins with: two fleets on one Redis have two prefixes.
    pub prefix: String,
    /// What values are signed with.
    pub key: Secret,
    /// How many replicas of Redis have to acknowledge what must not be lost.
    pub wait_replicas: u32,
    /// The share of the live replicas whose breaker must be open until it opens for all.
    pub quorum_share: f64,
    /// The least number of replicas whose breaker must be open until it opens for all.
    pub quorum_min: u32,
}

/// The section as it stands in the file.
pub(super) struct RawStore {
    path: Option<ConfigString>,
    redis: Option<ConfigString>,
    prefix: String,
    key: Option<ConfigString>,
    wait_replicas: u32,
    quorum_share: f64,
    quorum_min: u32,
}

/// Reads the section.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> RawStore {
    let mut store = RawStore {
        path: None,
        redis: None,
        prefix: "seawall".to_owned(),
        key: None,
        wait_replicas: 0,
        quorum_share: 0.5,
        quorum_min: 2,
    };
    for (key, value) in section.entries(problems) {
        match key {
            "path" => store.path = problems.keep(value.text()),
            "redis" => store.redis = problems.keep(value.text()),
            "prefix" => store.prefix = problems.keep(prefix(&value)).unwrap_or(store.prefix),
            "key" => store.key = problems.keep(value.text()),
            "wait_replicas" => {
                let count = value.whole(0, MOST_REPLICAS);
                store.wait_replicas = problems.keep(count).unwrap_or_default();
            }
            "quorum_share" => {
                store.quorum_share = problems.keep(share(&value)).unwrap_or(store.quorum_share);
            }
            "quorum_min" => {
                let count = value.whole(1, MOST_REPLICAS);
                store.quorum_min = problems.keep(count).unwrap_or(store.quorum_min);
            }
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    if section.is_table() && !section.has("path") && !section.has("redis") {
        problems.push(section.place.problem(
            "needs a path, the folder where writes wait for their server; or redis, what replicas share; or both",
        ));
    }
    store
}

fn prefix(value: &ConfigField<'_>) -> Result<String, Problem> {
    let ConfigString { place, text } = value.text()?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    match (1..=LONGEST_PREFIX).contains(&text.len()) && text.chars().all(is_plain) {
        true => Ok(text),
        false => Err(place.problem("must be 1 to 64 of A-Z a-z 0-9 _ - .")),
    }
}

fn share(value: &ConfigField<'_>) -> Result<f64, Problem> {
    match value.number()? {
        share if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(value.place.problem("must be above 0, to 1: a share of the live replicas")),
    }
}

impl RawStore {
    /// The folder, with variables filled in.
    pub(super) fn folder(&self, scope: &Variables<'_>, problems: &mut Problems) -> Option<PathBuf> {
        Some(scope.path(&scope.expand(self.path.as_ref()?, problems)?))
    }

    /// Redis, with variables filled in.
    pub(super) fn redis(
        &self,
        scope: &Variables<'_>,
        problems: &mut Problems,
    ) -> Option<RedisConfig> {
        let stated = self.redis.as_ref()?;
        let url = scope.expand(stated, problems);
        let own_key = self.key.as_ref().map(|key| (key, scope.expand(key, problems)));
        let url = url?;
        let password = problems.keep(password(stated, &url))?;
        let key = match own_key {
            Some((place, key)) => problems.keep(long_enough(place, key?))?,
            // Whoever knows the password may write anyway.
            None if !password.is_empty() => password,
            None => {
                problems.push(stated.place.problem(
                    "needs a key beside it, [store] key = \"${env:SEAWALL_STORE_KEY}\": replicas sign what they write, and its url has no password to derive one from",
                ));
                return None;
            }
        };
        Some(RedisConfig {
            url: Secret::new(url),
            prefix: self.prefix.clone(),
            key: Secret::new(key),
            wait_replicas: self.wait_replicas,
            quorum_share: self.quorum_share,
            quorum_min: self.quorum_min,
        })
    }
}

/// The password of an address that can be connected to, empty without one. The address may hold a
/// secret, so problems do not quote it.
fn password(stated: &ConfigString, url: &str) -> Result<String, Problem> {
    const FORM: &str =
        "write it like \"redis://user:password@redis.example:6379/0\", or with rediss:// for TLS";
    let wrong = |text: String| stated.place.problem(text);
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(wrong(format!("is not an address of Redis; {FORM}")));
    };
    if scheme.contains("sentinel") || scheme.contains("cluster") || rest.contains(',') {
        return Err(wrong(format!(
            "Sentinel and Cluster are not supported yet; give the address of one Redis, or of the proxy or service that follows its master; {FORM}"
        )));
    }
    if rest.contains('#') {
        return Err(wrong(format!("has a fragment; certificates are always checked; {FORM}")));
    }
    let is_redis = ["redis", "rediss"].contains(&scheme);
    let info = redis::IntoConnectionInfo::into_connection_info(url);
    let info = info.ok().filter(|_| is_redis);
    let info = info.ok_or_else(|| wrong(format!("is not an address of Redis; {FORM}")))?;
    Ok(info.redis_settings().password().unwrap_or_default().to_owned())
}

fn long_enough(stated: &ConfigString, key: String) -> Result<String, Problem> {
    match key.len() >= SHORTEST_KEY {
        true => Ok(key),
        false => Err(stated
            .place
            .problem("must have at least 16 characters; make one with: openssl rand -hex 32")),
    }
}
