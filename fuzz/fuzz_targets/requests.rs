//! Any method, path, query, headers and body to an API server in the process: an answer with a valid code in time, never a
//! panic, also of those that the server catches.

#![no_main]

use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use pumice_fuzz::{Bytes, kinds, server};

/// Most requests of one input.
const REQUESTS_MAX: u8 = 6;

const METHODS: &[&str] = &["GET", "GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "X"];

const PATHS: &[&str] = &[
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/x",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/x",
    "/api/v1/namespaces/default/pods/x/status",
    "/api/v1/namespaces/default/pods/x/binding",
    "/api/v1/namespaces/default/pods/x/eviction",
    "/api/v1/namespaces/default/pods/x/log",
    "/api/v1/namespaces/default/pods/x/exec",
    "/api/v1/namespaces/default/services/x",
    "/apis/fuzz.io/v1/namespaces/default/things",
    "/apis/fuzz.io/v1/namespaces/default/things/x",
    "/apis/fuzz.io/v1/namespaces/default/things/x/status",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apps/v1/namespaces/default/deployments/x/scale",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.fuzz.io",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/x",
    "/api/v1/namespaces/default/events",
    "/api/v1/namespaces/default/serviceaccounts/default/token",
    "/api/v1/namespaces/default/resourcequotas",
    "/api/v1/namespaces",
    "/api/v1/namespaces/x/finalize",
    "/api/v1/nodes/n/proxy/a/b",
    "/openapi/v3/apis/fuzz.io/v1",
    "/openapi/v2",
    "/apis",
    "/metrics",
    "/readyz",
];

const QUERIES: &[&str] = &[
    "watch=1",
    "watch=true&allowWatchBookmarks=true",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "resourceVersion=0",
    "resourceVersion=1",
    "resourceVersion=18446744073709551615",
    "timeoutSeconds=0",
    "limit=1",
    "limit=-1",
    "continue=x",
    "labelSelector=a%3Db",
    "labelSelector=a+notin+(b,c)",
    "fieldSelector=metadata.name%3Dx",
    "fieldManager=f",
    "force=true",
    "dryRun=All",
    "fieldValidation=Strict",
    "gracePeriodSeconds=0",
    "propagationPolicy=Foreground",
    "pretty=true",
    "labelSelector=%00",
    "resourceVersionMatch=Exact",
    "as=x",
    "%",
    "&&==",
];

const HEADERS: &[(&str, &str)] = &[
    ("content-type", "application/json"),
    ("content-type", "application/yaml"),
    ("content-type", "application/vnd.kubernetes.protobuf"),
    ("content-type", "application/json-patch+json"),
    ("content-type", "application/merge-patch+json"),
    ("content-type", "application/strategic-merge-patch+json"),
    ("content-type", "application/apply-patch+yaml"),
    ("accept", "application/json;as=Table;g=meta.k8s.io;v=v1"),
    ("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
    ("accept", "application/vnd.kubernetes.protobuf"),
    ("accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"),
    ("accept-encoding", "gzip"),
    ("impersonate-user", "ann"),
    ("authorization", "Bearer a.b.c"),
    ("upgrade", "websocket"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-version", "13"),
    ("connection", "upgrade"),
    ("if-none-match", "*"),
];

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes::new(bytes);
    server::with(|server| {
        for _ in 0..=bytes.below(REQUESTS_MAX) {
            if let Some(request) = request(&mut bytes) {
                server.ask(request);
            }
        }
    });
});

/// A request, unless the HTTP library refuses it.
fn request(bytes: &mut Bytes<'_>) -> Option<Request<Full<bytes::Bytes>>> {
    let mut path = bytes.pick(PATHS).to_owned();
    match bytes.below(8) {
        0 => path = bytes.text(),
        1 => path.push_str(&bytes.text()),
        2 => path = path.replacen("default", &bytes.text(), 1),
        _ => {}
    }
    let query: Vec<String> = (0..bytes.below(4))
        .map(|_| if bytes.one_in(8) { bytes.text() } else { bytes.pick(QUERIES).to_owned() })
        .collect();
    let target = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
    let uri: Uri = target.parse().ok()?;
    let method = Method::from_bytes(bytes.pick(METHODS).as_bytes()).ok()?;
    let mut request = Request::builder().method(method).uri(uri);
    for _ in 0..bytes.below(4) {
        let (name, value) = HEADERS[usize::from(bytes.byte()) % HEADERS.len()];
        let value = if bytes.one_in(16) { bytes.text() } else { value.to_owned() };
        request = request.header(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).ok()?);
    }
    let kind = usize::from(bytes.below(4));
    let body = match bytes.below(8) {
        0 => Vec::new(),
        1 => bytes.rest().to_vec(),
        2 => kinds::operations(bytes).to_string().into_bytes(),
        3 => kinds::FIELDS.any(bytes, 4).to_string().into_bytes(),
        4 => kinds::definition(&kinds::schema(bytes)).to_string().into_bytes(),
        _ => kinds::object(bytes, kind).to_string().into_bytes(),
    };
    request.body(Full::new(body.into())).ok()
}
