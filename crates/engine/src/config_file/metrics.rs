//! `metrics:` where the use of machines is measured. The engine only reads the section; the shell asks the source and
//! tells the engine of each node's use.

use std::collections::BTreeMap;

use pumice_units::GoDuration;

use super::map;
use super::tree::{Tree, Value};
use crate::config::{Argument, ConfigError, MetricsKind, MetricsSource, WarningKind};

/// How often a source is asked where the file does not say.
const INTERVAL_MS: i64 = 30_000;

/// Reads the section; nothing where its type is none of Volcano's. What does not read warns and is as absent.
pub(super) fn read(tree: &Tree, mut warn: impl FnMut(u64, WarningKind)) -> Result<Option<MetricsSource>, ConfigError> {
    let mut fields: BTreeMap<&str, (u64, String)> = BTreeMap::new();
    for (key, value) in map(tree, "metrics")? {
        fields.insert(key, (value.line, word(key, value)?));
    }
    let ignored = |what: &str, value: &str, wanted: &'static str| WarningKind::IgnoredValue {
        what: format!("{what} {value:?} of metrics"),
        wanted,
    };
    let (line, name) = fields.remove("type").unwrap_or((tree.line, String::new()));
    let kind = match name.as_str() {
        "prometheus" => MetricsKind::Prometheus,
        "prometheus_adaptor" => MetricsKind::PrometheusAdaptor,
        "elasticsearch" => MetricsKind::Elasticsearch,
        _ => {
            warn(line, ignored("type", &name, "prometheus, prometheus_adaptor or elasticsearch"));
            return Ok(None);
        }
    };
    let mut interval_ms = INTERVAL_MS;
    if let Some((line, text)) = fields.remove("interval") {
        match text.parse::<GoDuration>().map(GoDuration::as_millis) {
            Ok(given) if given > 0 => interval_ms = given,
            _ => warn(line, ignored("interval", &text, "a duration above zero such as 30s")),
        }
    }
    let mut take = |key: &str| fields.remove(key).map_or_else(String::new, |(_, text)| text);
    let (address, insecure) = (take("address"), take("tls.insecureSkipVerify") == "true");
    let others = fields.into_iter().map(|(key, (_, text))| (key.to_owned(), text)).collect();
    Ok(Some(MetricsSource { kind, address, interval_ms, insecure, others }))
}

/// A value of the section, which Volcano reads as text whatever it looks like.
fn word(key: &str, tree: &Tree) -> Result<String, ConfigError> {
    match &tree.value {
        Value::Scalar(Argument::Text(text)) => Ok(text.clone()),
        Value::Scalar(Argument::Null) => Ok(String::new()),
        Value::Scalar(Argument::Bool(value)) => Ok(value.to_string()),
        Value::Scalar(Argument::Int(value)) => Ok(value.to_string()),
        Value::Scalar(Argument::Float(value)) => Ok(value.to_string()),
        _ => Err(ConfigError::WrongType { line: tree.line, what: format!("{key} of metrics"), wanted: "text" }),
    }
}
