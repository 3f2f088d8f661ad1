//! The sections `[telemetry]` and `[log]`.

use std::time::Duration;

use super::*;
use crate::config::telemetry::{Conventions, OtlpProtocol, TelemetryConfig};

const SERVER: &str = "[servers.a]\ncommand = 'a'\n";

fn read(text: &str, vars: &[(&str, &str)]) -> Option<TelemetryConfig> {
    let file = toml_file(&format!("{text}\n{SERVER}"));
    let file = vars.iter().fold(file, |file, (name, value)| file.var(name, value));
    file.good("seawall.toml").telemetry
}

fn shown(headers: &[(HeaderName, Secret)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect()
}

#[test]
fn nothing_is_sent_unless_the_file_says_so() {
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1")];
    assert_eq!(read("", &env), None);
    assert_eq!(read("[telemetry]\nenabled = false", &env), None);
    let config = read("[telemetry]", &[]).unwrap();
    assert_eq!(config.traces, "http://localhost:4317");
    assert_eq!((config.protocol, config.sampling), (OtlpProtocol::Grpc, 1.0));
    assert_eq!((config.service_name.as_str(), config.conventions), ("seawall", Conventions::Mcp));
    let http = read("[telemetry]\nprotocol = 'http/protobuf'", &[]).unwrap();
    assert_eq!(http.traces, "http://localhost:4318/v1/traces");
    assert_eq!(http.metrics, "http://localhost:4318/v1/metrics");
}

#[test]
fn opentelemetrys_own_variables_count_where_the_file_is_silent() {
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1/base/"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://m:2/all"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s%203cret, other=x"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
        ("OTEL_SERVICE_NAME", "edge"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,zone=a%2Cb"),
    ];
    let config = read("[telemetry]", &env).unwrap();
    assert_eq!(config.traces, "http://c:1/base/v1/traces");
    assert_eq!(config.metrics, "https://m:2/all");
    assert_eq!(shown(&config.headers), [("api-key", "s 3cret"), ("other", "x")]);
    assert_eq!(config.timeout, Duration::from_millis(1500));
    assert_eq!(config.service_name, "edge");
    assert_eq!(config.resource, [("zone".to_owned(), "a,b".to_owned())]);
    assert!(!format!("{config:?}").contains("3cret"));

    let file = "[telemetry]\nendpoint = 'http://f:3'\nprotocol = 'grpc'\ntimeout = '2s'\nservice_name = 'own'\n\
                headers = { Api-Key = '${KEY}' }";
    let config = read(file, &[&env[..], &[("KEY", "mine")]].concat()).unwrap();
    assert_eq!(
        (config.traces, config.metrics),
        ("http://f:3".parse().unwrap(), "http://f:3".parse().unwrap())
    );
    assert_eq!(shown(&config.headers), [("api-key", "mine"), ("other", "x")]);
    assert_eq!((config.timeout, config.service_name.as_str()), (Duration::from_secs(2), "own"));
}

#[test]
fn what_cannot_work_is_named() {
    let problems = |text: &str| toml_file(&format!("{text}\n{SERVER}")).problems("seawall.toml");
    for (text, told) in [
        ("endpoint = 'c:4317'", "endpoint: must be the URL of a collector"),
        ("protocol = 'http/json'", "protocol: \"http/json\" is neither"),
        ("sampling = 1.5", "sampling: must be from 0 to 1"),
        ("service_name = ''", "service_name: must not be empty"),
        ("interval = '0s'", "interval: must not be zero"),
        ("headers = { 'a b' = 'x' }", "is not a header"),
        ("conventions = 'new'", "conventions: \"new\" is neither"),
    ] {
        let said = problems(&format!("[telemetry]\n{text}"));
        assert!(said.contains(told), "{text}: {said}");
    }
    let file = toml_file(&format!("[telemetry]\n{SERVER}"));
    let said = file.var("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json").problems("seawall.toml");
    assert!(said.contains("OTEL_EXPORTER_OTLP_PROTOCOL: \"http/json\" is neither"), "{said}");
}
