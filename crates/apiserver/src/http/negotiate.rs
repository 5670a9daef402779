//! Content negotiation: what the client accepts and what its body is.
//!
//! Invariant: JSON is the only encoding written; a client that lists nothing we can write gets 406 and the list.
//! Called by the pipeline and by every document that is served.

use http::{HeaderMap, header};

/// Most ranges of one Accept header that are looked at.
const RANGES_MAX: usize = 64;

/// One entry of an Accept header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MediaRange {
    kind: String,
    parameters: Vec<(String, String)>,
    quality: u16,
}

impl MediaRange {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next().filter(|kind| !kind.is_empty())?.to_ascii_lowercase();
        let mut range = Self { kind, parameters: Vec::new(), quality: 1000 };
        for part in parts {
            let Some((name, value)) = part.split_once('=') else { continue };
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"'));
            if name == "q" {
                range.quality = quality(value)?;
            } else {
                range.parameters.push((name, value.to_owned()));
            }
        }
        Some(range)
    }

    fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
    }

    fn takes_json(&self) -> bool {
        matches!(self.kind.as_str(), "application/json" | "*/*" | "application/*")
    }
}

/// `0.25` as 250. Anything that is no number between 0 and 1 is refused.
fn quality(text: &str) -> Option<u16> {
    let number: f32 = text.parse().ok()?;
    if !(0.0..=1.0).contains(&number) {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Some((number * 1000.0) as u16)
}

/// The ranges of all Accept headers, best first, order kept among equals. No header at all accepts everything.
pub(crate) fn accepted(headers: &HeaderMap) -> Vec<MediaRange> {
    let mut ranges: Vec<MediaRange> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .take(RANGES_MAX)
        .filter_map(MediaRange::parse)
        .filter(|range| range.quality > 0)
        .collect();
    if ranges.is_empty() && !headers.contains_key(header::ACCEPT) {
        ranges.push(MediaRange { kind: "*/*".to_owned(), parameters: Vec::new(), quality: 1000 });
    }
    ranges.sort_by_key(|range| std::cmp::Reverse(range.quality));
    ranges
}

/// How an object is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Whole,
    /// As rows of a `meta.k8s.io/v1` Table.
    Table,
    /// Its metadata only.
    Partial,
}

/// Media types in the text of a 406.
pub(crate) const WRITTEN: &str = "application/json";

/// Chooses how to answer with objects; `None` means 406.
pub(crate) fn shape(headers: &HeaderMap) -> Option<Shape> {
    accepted(headers).iter().filter(|range| range.takes_json()).find_map(|range| {
        let meta = range.parameter("g") == "meta.k8s.io" && range.parameter("v") == "v1";
        match range.parameter("as") {
            "" => Some(Shape::Whole),
            "Table" if meta => Some(Shape::Table),
            "PartialObjectMetadata" | "PartialObjectMetadataList" if meta => Some(Shape::Partial),
            _ => None,
        }
    })
}

/// Whether plain JSON is accepted.
pub(crate) fn takes_json(headers: &HeaderMap) -> bool {
    accepted(headers).iter().any(MediaRange::takes_json)
}

/// Whether the aggregated discovery document (v2) is preferred over the legacy one; `None` means 406.
pub(crate) fn aggregated_discovery(headers: &HeaderMap) -> Option<bool> {
    accepted(headers).iter().filter(|range| range.takes_json()).find_map(|range| match range.parameter("as") {
        "" => Some(false),
        "APIGroupDiscoveryList" if range.parameter("g") == "apidiscovery.k8s.io" && range.parameter("v") == "v2" => {
            Some(true)
        }
        _ => None,
    })
}

/// Media types of patches.
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Media type of protobuf in Kubernetes' envelope.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What a request body claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    Yaml,
    JsonPatch,
    MergePatch,
    StrategicMergePatch,
    Apply,
    Protobuf,
    Unknown,
}

/// Reads the Content-Type header; none is JSON, as upstream.
pub(crate) fn body_kind(headers: &HeaderMap) -> BodyKind {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return BodyKind::Json };
    let kind = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "" | "application/json" => BodyKind::Json,
        "application/yaml" | "text/yaml" | "application/x-yaml" => BodyKind::Yaml,
        JSON_PATCH => BodyKind::JsonPatch,
        MERGE_PATCH => BodyKind::MergePatch,
        STRATEGIC_MERGE_PATCH => BodyKind::StrategicMergePatch,
        APPLY_PATCH | "application/apply-patch+cbor" => BodyKind::Apply,
        PROTOBUF => BodyKind::Protobuf,
        _ => BodyKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().expect("header"));
        headers
    }

    #[test]
    fn shapes_follow_quality_and_order() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        let protobuf = "application/vnd.kubernetes.protobuf";
        let cases = [
            ("application/json".to_owned(), Some(Shape::Whole)),
            ("*/*".to_owned(), Some(Shape::Whole)),
            (format!("{table},application/json"), Some(Shape::Table)),
            (format!("application/json;q=0.5,{table}"), Some(Shape::Table)),
            (format!("{partial};q=0.9,{table};q=0.1"), Some(Shape::Partial)),
            (format!("{protobuf},application/json"), Some(Shape::Whole)),
            (protobuf.to_owned(), None),
            ("application/json;q=0".to_owned(), None),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json".to_owned(), Some(Shape::Whole)),
            ("text/html".to_owned(), None),
        ];
        for (accept, wanted) in cases {
            assert_eq!(shape(&headers(&accept)), wanted, "{accept}");
        }
        assert_eq!(shape(&HeaderMap::new()), Some(Shape::Whole));
    }

    #[test]
    fn discovery_prefers_v2_when_asked() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        assert_eq!(aggregated_discovery(&headers(&format!("{v2},{beta},application/json"))), Some(true));
        assert_eq!(aggregated_discovery(&headers(&format!("{beta},application/json"))), Some(false));
        assert_eq!(aggregated_discovery(&headers("text/plain")), None);
    }

    proptest::proptest! {
        #[test]
        fn no_accept_header_panics(text in "[ -~]{0,80}") {
            let _ = shape(&headers(&text));
        }
    }
}
