//! Decides which external authorizer is asked, and how: `[ext_authz]`, of the gateway or of one
//! server.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderName, Uri};

use super::expand::Variables;
use super::problem::{ConfigPlace, Problem, Problems};
use super::tree::{ConfigField, ConfigString};
use super::{reconnect, suggest};

const KEYS: [&str; 12] = [
    "service",
    "protocol",
    "timeout",
    "on_unavailable",
    "headers",
    "claims",
    "context_extensions",
    "max_body",
    "cache",
    "filter_lists",
    "concurrency",
    "enabled",
];

/// The largest body that an authorizer is sent, unless configured: Envoy's and agentgateway's users
/// set the same.
const MAX_BODY: u32 = 65_536;
pub(super) const MOST_BODY: u32 = 4 * 1024 * 1024;
/// Checks of one list that run at a time, over all servers of the list.
const CONCURRENCY: u32 = 10;

/// Among the names of headers: all of them.
pub(crate) const ALL_HEADERS: &str = "*";

/// How one authorizer is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtAuthzConfig {
    /// Its address.
    pub service: Uri,
    /// Whether it speaks Envoy's HTTP protocol instead of gRPC.
    pub is_http: bool,
    /// How long a check may take, with all its retries.
    pub timeout: Duration,
    /// The HTTP status for a client when the authorizer is unavailable: 503 or 403.
    pub on_unavailable: u16,
    /// Headers of the client that the authorizer sees; `*` stands for all.
    pub headers: Vec<HeaderName>,
    /// Claims of the caller's token that the authorizer sees, under names of dynamic metadata.
    pub claims: BTreeMap<String, Vec<String>>,
    /// Envoy's `context_extensions`.
    pub context_extensions: BTreeMap<String, String>,
    /// The largest body that is sent along, in bytes; a larger call is refused.
    pub max_body: usize,
    /// How long an allowance is remembered; `None`: not at all.
    pub cache: Option<Duration>,
    /// Whether tool lists show only the tools that their reader may call.
    pub filter_lists: ListFilter,
    /// Checks of one list that run at a time.
    pub concurrency: usize,
}

/// How tool lists are filtered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListFilter {
    /// Not at all.
    #[default]
    Off,
    /// By one check for each tool.
    Each,
    /// By one check with the names of all tools, answered with the names of those that are allowed.
    Once,
}

/// The authorizer of one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ServerAuthz {
    /// That of the gateway, if it has one.
    #[default]
    Inherited,
    /// None, although the gateway has one.
    Off,
    /// One of its own.
    Own(Box<ExtAuthzConfig>),
}

/// The section as it stands in the file.
pub(super) struct RawExtAuthz {
    is_off: bool,
    service: Option<ConfigString>,
    context_extensions: Vec<(String, ConfigString)>,
    rest: ExtAuthzConfig,
}

/// Reads the section.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> RawExtAuthz {
    let mut read = RawExtAuthz {
        is_off: false,
        service: None,
        context_extensions: Vec::new(),
        rest: ExtAuthzConfig::at(Uri::default()),
    };
    for (key, value) in section.entries(problems) {
        let rest = &mut read.rest;
        match key {
            "service" => read.service = problems.keep(value.text()),
            "protocol" => rest.is_http = problems.keep(protocol(&value)).unwrap_or_default(),
            "timeout" => {
                rest.timeout = problems.keep(reconnect::some_time(&value)).unwrap_or(rest.timeout);
            }
            "on_unavailable" => {
                rest.on_unavailable = problems.keep(status(&value)).unwrap_or(rest.on_unavailable);
            }
            "headers" => rest.headers = headers(&value, problems),
            "claims" => rest.claims = claims(&value, problems),
            "context_extensions" => read.context_extensions = value.pairs(problems),
            "max_body" => {
                let bytes = problems.keep(value.whole(1, MOST_BODY)).unwrap_or(MAX_BODY);
                rest.max_body = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
            "cache" => {
                let time = problems.keep(reconnect::time(&value));
                rest.cache = time.filter(|time| !time.is_zero());
            }
            "filter_lists" => {
                rest.filter_lists = problems.keep(filter(&value)).unwrap_or_default();
            }
            "concurrency" => {
                let count = problems.keep(value.whole(1, 1_000)).unwrap_or(CONCURRENCY);
                rest.concurrency = usize::try_from(count).unwrap_or(1);
            }
            "enabled" => read.is_off = problems.keep(value.flag()) == Some(false),
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    if section.is_table() && !read.is_off && !section.has("service") {
        problems.push(
            section.place.problem(
                "needs service: the address of the authorizer, like \"authz.internal:9100\"",
            ),
        );
    }
    read
}

impl ExtAuthzConfig {
    /// An authorizer at an address, with the defaults of everything else.
    pub(crate) fn at(service: Uri) -> Self {
        Self {
            service,
            is_http: false,
            timeout: Duration::from_secs(10),
            on_unavailable: 503,
            headers: Vec::new(),
            claims: BTreeMap::new(),
            context_extensions: BTreeMap::new(),
            max_body: MAX_BODY as usize,
            cache: None,
            filter_lists: ListFilter::Off,
            concurrency: CONCURRENCY as usize,
        }
    }
}

impl RawExtAuthz {
    /// An authorizer at `service`, with the rest as it is.
    pub(super) fn of(
        service: ConfigString,
        context_extensions: Vec<(String, ConfigString)>,
        rest: ExtAuthzConfig,
    ) -> Self {
        Self { is_off: false, service: Some(service), context_extensions, rest }
    }

    /// Fills in variables. `None`: the section is switched off, or wrong.
    pub(super) fn resolve(
        self,
        scope: &Variables<'_>,
        problems: &mut Problems,
    ) -> Option<ExtAuthzConfig> {
        if self.is_off {
            return None;
        }
        let service = self.service?;
        let mut config = self.rest;
        for (key, value) in &self.context_extensions {
            let value = scope.expand(value, problems)?;
            config.context_extensions.insert(key.clone(), value);
        }
        let text = scope.expand(&service, problems)?;
        config.service = problems.keep(address(&service.place, &text))?;
        Some(config)
    }

    /// What a server's own section says.
    pub(super) fn of_server(self, scope: &Variables<'_>, problems: &mut Problems) -> ServerAuthz {
        match self.is_off {
            true => ServerAuthz::Off,
            false => self
                .resolve(scope, problems)
                .map_or(ServerAuthz::Inherited, |own| ServerAuthz::Own(Box::new(own))),
        }
    }
}

/// The address of an authorizer: `host:port`, or a URL.
pub(crate) fn parse_address(text: &str) -> Result<Uri, &'static str> {
    const WRONG: &str =
        "must be an address like \"authz.internal:9100\" or \"https://authz.internal:9100\"";
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
        Some(("grpc", rest)) => ("http", rest),
        Some(_) => return Err(WRONG),
        None => ("http", text),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_six = host.starts_with('[') && host.ends_with(']');
    let is_host = !host.is_empty() && (is_six || host.chars().all(is_name));
    let is_port = port.is_none_or(|port| {
        port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok()
    });
    let url = format!("{scheme}://{rest}").parse().map_err(|_| WRONG)?;
    (is_host && is_port).then_some(url).ok_or(WRONG)
}

fn address(place: &ConfigPlace, text: &str) -> Result<Uri, Problem> {
    parse_address(text).map_err(|wrong| place.problem(wrong))
}

fn protocol(value: &ConfigField<'_>) -> Result<bool, Problem> {
    let ConfigString { place, text } = value.text()?;
    match text.as_str() {
        "grpc" => Ok(false),
        "http" => Ok(true),
        _ => Err(place.problem(format!("{text:?} is neither \"grpc\" nor \"http\""))),
    }
}

fn status(value: &ConfigField<'_>) -> Result<u16, Problem> {
    match value.count()? {
        503 => Ok(503),
        403 => Ok(403),
        _ => Err(value
            .place
            .problem("must be 503, which clients try again, or 403, which they take for a denial")),
    }
}

fn filter(value: &ConfigField<'_>) -> Result<ListFilter, Problem> {
    if let Ok(flag) = value.flag() {
        return Ok(if flag { ListFilter::Each } else { ListFilter::Off });
    }
    match value.text().map(|text| text.text).as_deref() {
        Ok("each") => Ok(ListFilter::Each),
        Ok("once") => Ok(ListFilter::Once),
        _ => Err(value.place.problem("must be true, false, \"each\" or \"once\"")),
    }
}

fn headers(value: &ConfigField<'_>, problems: &mut Problems) -> Vec<HeaderName> {
    let one = |ConfigString { place, text }: ConfigString| {
        HeaderName::try_from(text.as_str())
            .map_err(|_| place.problem(format!("{text:?} is not the name of a header")))
    };
    let texts = value.texts(problems);
    texts.into_iter().filter_map(|text| problems.keep(one(text))).collect()
}

fn claims(value: &ConfigField<'_>, problems: &mut Problems) -> BTreeMap<String, Vec<String>> {
    let entries = value.entries(problems);
    let one = |(name, list): &(&str, ConfigField<'_>)| {
        let claims = list.texts(problems).into_iter().map(|claim| claim.text).collect();
        ((*name).to_owned(), claims)
    };
    entries.iter().map(one).collect()
}
