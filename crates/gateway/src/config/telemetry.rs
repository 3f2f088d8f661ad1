//! Decides where spans and metrics go, and which: the section `[telemetry]`, with OpenTelemetry's
//! own variables as its defaults.

use std::time::Duration;

use http::{HeaderName, Uri};

use super::expand::Variables;
use super::problem::{ConfigPlace, Problem, Problems};
use super::tree::{ConfigField, ConfigString};
use super::{Secret, ext_authz, reconnect, suggest};

const KEYS: [&str; 10] = [
    "enabled",
    "endpoint",
    "protocol",
    "headers",
    "timeout",
    "sampling",
    "service_name",
    "interval",
    "metrics_interval",
    "conventions",
];

/// Where spans and metrics go.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryConfig {
    /// How the collector is spoken to.
    pub protocol: OtlpProtocol,
    /// The collector's address for spans.
    pub traces: Uri,
    /// The collector's address for metrics.
    pub metrics: Uri,
    /// Headers of every export.
    pub headers: Vec<(HeaderName, Secret)>,
    /// How long one export may take.
    pub timeout: Duration,
    /// The share of traces that are exported, of those that nobody before has decided about.
    pub sampling: f64,
    /// `service.name`.
    pub service_name: String,
    /// Further attributes of the resource.
    pub resource: Vec<(String, String)>,
    /// How long a span waits for others to be exported with.
    pub interval: Duration,
    /// How often metrics are exported.
    pub metrics_interval: Duration,
    /// Which names are used.
    pub conventions: Conventions,
}

/// How a collector is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// OTLP over gRPC.
    #[default]
    Grpc,
    /// OTLP over HTTP, in protobuf.
    Http,
}

/// Which of OpenTelemetry's names are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conventions {
    /// Those for MCP too, whose status is Development: they may change.
    #[default]
    Mcp,
    /// The stable ones alone: then there are no histograms, for none is stable.
    Stable,
}

/// The section as it stands in the file.
pub(super) struct RawTelemetry {
    is_off: bool,
    place: ConfigPlace,
    endpoint: Option<ConfigString>,
    protocol: Option<OtlpProtocol>,
    headers: Vec<(String, ConfigString)>,
    timeout: Option<Duration>,
    service_name: Option<ConfigString>,
    sampling: f64,
    interval: Duration,
    metrics_interval: Duration,
    conventions: Conventions,
}

/// Reads the section.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> RawTelemetry {
    let mut raw = RawTelemetry {
        is_off: false,
        place: section.place.clone(),
        endpoint: None,
        protocol: None,
        headers: Vec::new(),
        timeout: None,
        service_name: None,
        sampling: 1.0,
        interval: Duration::from_secs(5),
        metrics_interval: Duration::from_secs(60),
        conventions: Conventions::default(),
    };
    for (key, value) in section.entries(problems) {
        let time = |problems: &mut Problems| problems.keep(reconnect::some_time(&value));
        match key {
            "enabled" => raw.is_off = problems.keep(value.flag()) == Some(false),
            "endpoint" => raw.endpoint = problems.keep(value.text()),
            "protocol" => raw.protocol = problems.keep(protocol(&value)),
            "headers" => raw.headers = value.pairs(problems),
            "timeout" => raw.timeout = time(problems),
            "sampling" => raw.sampling = problems.keep(share(&value)).unwrap_or(raw.sampling),
            "service_name" => raw.service_name = problems.keep(name(&value)),
            "interval" => raw.interval = time(problems).unwrap_or(raw.interval),
            "metrics_interval" => {
                raw.metrics_interval = time(problems).unwrap_or(raw.metrics_interval);
            }
            "conventions" => {
                raw.conventions = problems.keep(conventions(&value)).unwrap_or_default();
            }
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    raw
}

fn protocol(value: &ConfigField<'_>) -> Result<OtlpProtocol, Problem> {
    let ConfigString { place, text } = value.text()?;
    protocol_named(&text).map_err(|wrong| place.problem(wrong))
}

fn protocol_named(text: &str) -> Result<OtlpProtocol, String> {
    match text {
        "grpc" => Ok(OtlpProtocol::Grpc),
        "http/protobuf" => Ok(OtlpProtocol::Http),
        _ => Err(format!("{text:?} is neither \"grpc\" nor \"http/protobuf\"")),
    }
}

fn share(value: &ConfigField<'_>) -> Result<f64, Problem> {
    match value.number()? {
        share if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(value.place.problem("must be from 0 to 1: a share of the traces")),
    }
}

fn name(value: &ConfigField<'_>) -> Result<ConfigString, Problem> {
    let name = value.text()?;
    match name.text.is_empty() {
        true => Err(name.place.problem("must not be empty")),
        false => Ok(name),
    }
}

fn conventions(value: &ConfigField<'_>) -> Result<Conventions, Problem> {
    let ConfigString { place, text } = value.text()?;
    match text.as_str() {
        "mcp" => Ok(Conventions::Mcp),
        "stable" => Ok(Conventions::Stable),
        _ => Err(place.problem(format!("{text:?} is neither \"mcp\" nor \"stable\""))),
    }
}

impl RawTelemetry {
    /// Fills in variables. `None`: the section is switched off, or wrong.
    pub(super) fn resolve(
        self,
        scope: &Variables<'_>,
        problems: &mut Problems,
    ) -> Option<TelemetryConfig> {
        if self.is_off {
            return None;
        }
        let otlp = |name: &str| {
            let name = format!("OTEL_EXPORTER_OTLP_{name}");
            scope.variable(&name).filter(|value| !value.is_empty()).map(|value| (name, value))
        };
        let protocol = match (self.protocol, otlp("PROTOCOL")) {
            (Some(stated), _) => stated,
            (None, Some((name, value))) => {
                problems.keep(protocol_named(&value).map_err(|wrong| of_variable(&name, wrong)))?
            }
            (None, None) => OtlpProtocol::default(),
        };
        let base = match (&self.endpoint, otlp("ENDPOINT")) {
            (Some(stated), _) => {
                let text = scope.expand(stated, problems)?;
                problems.keep(address(&stated.place, &text))?
            }
            (None, Some((name, value))) => {
                problems.keep(address(&ConfigPlace::named(&name), &value))?
            }
            (None, None) => default_endpoint(protocol),
        };
        // A variable for one kind of signal is the whole address, and counts where the file is
        // silent.
        let mut of = |variable: &str, path: &str| match otlp(variable) {
            Some((name, value)) if self.endpoint.is_none() => {
                problems.keep(address(&ConfigPlace::named(&name), &value))
            }
            _ => problems.keep(below(&self.place, &base, protocol, path)),
        };
        let traces = of("TRACES_ENDPOINT", "v1/traces")?;
        let metrics = of("METRICS_ENDPOINT", "v1/metrics")?;
        let timeout = otlp("TIMEOUT").and_then(|(_, millis)| millis.parse().ok());
        let service_name = match &self.service_name {
            Some(stated) => Some(scope.expand(stated, problems)?),
            None => scope.variable("OTEL_SERVICE_NAME").filter(|name| !name.is_empty()),
        };
        let mut resource = pairs(&scope.variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        let named = resource.iter().position(|(key, _)| key == "service.name");
        let named = named.map(|place| resource.remove(place).1);
        Some(TelemetryConfig {
            protocol,
            traces,
            metrics,
            headers: self.headers(otlp("HEADERS"), scope, problems)?,
            timeout: self
                .timeout
                .or(timeout.map(Duration::from_millis))
                .unwrap_or(Duration::from_secs(10)),
            sampling: self.sampling,
            service_name: service_name.or(named).unwrap_or_else(|| "seawall".to_owned()),
            resource,
            interval: self.interval,
            metrics_interval: self.metrics_interval,
            conventions: self.conventions,
        })
    }

    /// The headers of the file, then those of the variable that the file does not set.
    fn headers(
        &self,
        of_variable: Option<(String, String)>,
        scope: &Variables<'_>,
        problems: &mut Problems,
    ) -> Option<Vec<(HeaderName, Secret)>> {
        let mut headers: Vec<(HeaderName, Secret)> = Vec::new();
        for (name, text) in &self.headers {
            let value = scope.expand(text, problems)?;
            headers.push(problems.keep(header(&text.place, name, value))?);
        }
        let (variable, stated) = of_variable.unwrap_or_default();
        for (name, value) in pairs(&stated) {
            let header = problems.keep(header(&ConfigPlace::named(&variable), &name, value))?;
            if headers.iter().all(|(known, _)| *known != header.0) {
                headers.push(header);
            }
        }
        Some(headers)
    }
}

fn of_variable(name: &str, wrong: String) -> Problem {
    ConfigPlace::named(name).problem(wrong)
}

fn default_endpoint(protocol: OtlpProtocol) -> Uri {
    Uri::from_static(match protocol {
        OtlpProtocol::Grpc => "http://localhost:4317",
        OtlpProtocol::Http => "http://localhost:4318",
    })
}

fn address(place: &ConfigPlace, text: &str) -> Result<Uri, Problem> {
    let is_url = text.starts_with("http://") || text.starts_with("https://");
    let is_plain = is_url && !text.contains(['?', '#']);
    ext_authz::parse_address(text).ok().filter(|_| is_plain).ok_or_else(|| {
        place.problem("must be the URL of a collector, like \"http://127.0.0.1:4317\"")
    })
}

/// The address of one kind of signal: over HTTP a path below the collector's.
fn below(
    place: &ConfigPlace,
    base: &Uri,
    protocol: OtlpProtocol,
    path: &str,
) -> Result<Uri, Problem> {
    match protocol {
        OtlpProtocol::Grpc => Ok(base.clone()),
        OtlpProtocol::Http => {
            address(place, &format!("{}/{path}", base.to_string().trim_end_matches('/')))
        }
    }
}

fn header(place: &ConfigPlace, name: &str, value: String) -> Result<(HeaderName, Secret), Problem> {
    // The value may be a secret and is not quoted.
    let wrong = || place.problem("is not a header: a name, and a value of printable ASCII");
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
    let is_text = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if is_text { Ok((name, Secret::new(value))) } else { Err(wrong()) }
}

/// OpenTelemetry's list `key=value,key=value`, with `%xx` in values.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        Some((key.trim().to_owned(), unescaped(value.trim()))).filter(|(key, _)| !key.is_empty())
    };
    text.split(',').filter_map(pair).collect()
}

fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let code = code.and_then(|two| u8::from_str_radix(two, 16).ok());
        match code.filter(|_| *first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
