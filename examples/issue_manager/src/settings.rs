//! Decides how the program is set up: its command line and its two variables. What is wrong is said
//! with the name of the setting and the next step.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::HeaderValue;
use clap::Parser;
use seawall::parse_duration;
use url::{Host, Url};

/// GitHub's issues over MCP, kept usable while GitHub fails.
#[derive(Debug, Parser)]
#[command(name = "issue-manager", version, after_help = VARIABLES)]
pub(crate) struct Cli {
    /// GitHub's REST API, such as `https://HOST/api/v3` of your own GitHub; `imitation` is one
    /// repository, acme/harbour, in memory, that can be told to fail.
    #[arg(long, value_name = "URL", default_value = "https://api.github.com")]
    api: String,
    /// Speak streamable HTTP at this address, at the path /mcp, instead of stdio.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Speak stdio as well where --listen is given.
    #[arg(long)]
    stdio: bool,
    /// A name by which clients reach --listen, beside localhost; may be repeated.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Keep writes that certainly did not run in this folder, and make them when GitHub is back.
    #[arg(long, value_name = "FOLDER")]
    store: Option<PathBuf>,
    /// How many requests a key may make within a minute.
    #[arg(long, value_name = "COUNT", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// The first pause between two attempts, for tests: the library's is 1s or 2s.
    #[arg(long, value_name = "DURATION")]
    pause: Option<String>,
    /// What a million tokens cost you, for agent_total_cost_usd.
    #[arg(long, value_name = "USD", default_value_t = 0.0)]
    usd_per_million_tokens: f64,
}

const VARIABLES: &str = "\
Variables:
  GITHUB_TOKEN  what GitHub knows you by; without it only public repositories can be read
  AUTH_KEYS     the keys of your clients, separated by commas, for --listen: sent as X-API-Key

Examples:
  issue-manager --api imitation
  GITHUB_TOKEN=… issue-manager --store ~/.local/state/issue-manager
  GITHUB_TOKEN=… AUTH_KEYS=… issue-manager --listen 127.0.0.1:3001";

/// What the program does, checked.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) api: Api,
    pub(crate) token: Option<HeaderValue>,
    pub(crate) http: Option<HttpSetup>,
    pub(crate) stdio: bool,
    pub(crate) store: Option<PathBuf>,
    pub(crate) pause: Option<Duration>,
    pub(crate) usd_per_token: f64,
}

/// Where the issues are.
#[derive(Debug, PartialEq)]
pub(crate) enum Api {
    At(Url),
    Imitation,
}

/// How HTTP is spoken.
#[derive(Debug)]
pub(crate) struct HttpSetup {
    pub(crate) listen: SocketAddr,
    pub(crate) hosts: Vec<String>,
    pub(crate) keys: Vec<String>,
    pub(crate) rate: u32,
}

impl Setup {
    /// Checks the command line together with the variables.
    pub(crate) fn read(cli: Cli, set: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let api = api(&cli.api)?;
        let token = set("GITHUB_TOKEN").filter(|token| !token.trim().is_empty());
        let token = token.map(|token| bearer(&token)).transpose()?;
        if let (Api::At(url), Some(_)) = (&api, &token)
            && url.scheme() == "http"
            && !is_here(url)
        {
            return Err(format!(
                "--api: {url} would send GITHUB_TOKEN unencrypted; write https://"
            ));
        }
        let keys = set("AUTH_KEYS").unwrap_or_default();
        let http = cli.listen.map(|listen| HttpSetup {
            listen,
            hosts: cli.hosts,
            keys: keys
                .split(',')
                .map(|key| key.trim().to_owned())
                .filter(|key| !key.is_empty())
                .collect(),
            rate: cli.rate,
        });
        if let Some(http) = http.as_ref().filter(|http| http.keys.is_empty()) {
            return Err(format!(
                "AUTH_KEYS: is not set, so everybody who reaches {} could use your token; set it to the keys of \
                 your clients, separated by commas",
                http.listen
            ));
        }
        let pause = cli.pause.map(|text| parse_duration("--pause", &text)).transpose();
        let usd = cli.usd_per_million_tokens;
        if !(usd >= 0.0 && usd.is_finite()) {
            return Err(format!(
                "--usd-per-million-tokens: {usd} is no price; write a number such as 3.5"
            ));
        }
        Ok(Self {
            api,
            token,
            stdio: cli.stdio || http.is_none(),
            http,
            store: cli.store,
            pause: pause.map_err(|error| error.to_string())?,
            usd_per_token: usd / 1e6,
        })
    }
}

fn api(text: &str) -> Result<Api, String> {
    if text == "imitation" {
        return Ok(Api::Imitation);
    }
    let next = "write a URL such as https://api.github.com, or imitation";
    let url = Url::parse(text).map_err(|error| format!("--api: {text:?}: {error}; {next}"))?;
    match url.scheme() {
        "http" | "https" if url.query().is_none() && url.fragment().is_none() => Ok(Api::At(url)),
        "http" | "https" => Err(format!("--api: {text:?} has more than a path; {next}")),
        other => Err(format!("--api: nobody speaks {other} to GitHub; {next}")),
    }
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| {
        "GITHUB_TOKEN: has a character that no header may have; copy it again".to_owned()
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether a URL leads to this machine.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

    use super::*;

    fn read(words: &str, variables: &[(&str, &str)]) -> Result<Setup, String> {
        let words = std::iter::once("issue-manager").chain(words.split_whitespace());
        let set = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Setup::read(Cli::try_parse_from(words).unwrap(), set)
    }

    #[test]
    fn what_is_wrong_is_named_with_the_next_step() {
        let token = [("GITHUB_TOKEN", "t")];
        for (words, variables, error) in [
            (
                "--api github.com",
                &[][..],
                "--api: \"github.com\": relative URL without a base; write a URL such",
            ),
            ("--api ftp://x", &[], "--api: nobody speaks ftp to GitHub; write a URL such"),
            ("--api https://x/?a=b", &[], "has more than a path"),
            (
                "--api http://example.com",
                &token,
                "would send GITHUB_TOKEN unencrypted; write https://",
            ),
            (
                "--listen 127.0.0.1:0",
                &[],
                "AUTH_KEYS: is not set, so everybody who reaches 127.0.0.1:0",
            ),
            ("--listen 127.0.0.1:0", &[("AUTH_KEYS", " , ")], "AUTH_KEYS: is not set"),
            ("--pause soon", &[], "--pause"),
            ("--usd-per-million-tokens NaN", &[], "is no price"),
            (
                "",
                &[("GITHUB_TOKEN", "a\nb")],
                "GITHUB_TOKEN: has a character that no header may have",
            ),
        ] {
            let said = read(words, variables).unwrap_err();
            assert!(said.contains(error), "{words}: {said}");
        }
    }

    #[test]
    fn a_token_goes_unencrypted_to_this_machine_only_and_is_not_shown() {
        let setup = read("--api http://127.0.0.1:1", &[("GITHUB_TOKEN", "top-secret")]).unwrap();
        assert!(setup.stdio && setup.http.is_none());
        assert!(!format!("{setup:?}").contains("top-secret"));
    }
}
