//! Input that nobody should send: a clear 4xx, never a panic.

use http::Method;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::harness::{MAPS, PODS, config_map, pod, server};

#[tokio::test]
async fn bad_bodies_get_clear_answers() {
    let server = server().await;
    let deep = format!("{}1{}", r#"{"a":"#.repeat(500), "}".repeat(500));
    let large = vec![b' '; 10 * 1024 * 1024];
    let yaml = "application/yaml";
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        ("application/json", b"{".to_vec(), 400, "not valid JSON"),
        ("application/json", b"".to_vec(), 400, "not valid JSON"),
        ("application/json", b"\xff\xfe".to_vec(), 400, "not valid UTF-8"),
        ("application/json", deep.clone().into_bytes(), 400, "nested deeper"),
        ("application/json", large, 413, "Request entity is too large"),
        (yaml, b"a: [".to_vec(), 400, "not valid YAML"),
        (yaml, b"- a\n- b\n".to_vec(), 400, "not an object"),
        (yaml, deep.into_bytes(), 400, "not valid YAML"),
        ("application/vnd.kubernetes.protobuf", b"k8s\0".to_vec(), 400, "send JSON"),
        ("application/vnd.kubernetes.protobuf", b"{}".to_vec(), 400, "not valid protobuf"),
        ("text/html", b"<p>".to_vec(), 415, "unknown format"),
    ];
    for (kind, body, code, text) in cases {
        let answer = server.raw(Method::POST, MAPS, &[("content-type", kind)], body).await;
        assert!(answer.code == code && answer.message().contains(text), "{kind}: {:.300}", answer.text);
        assert_eq!(answer.body["kind"], "Status");
    }
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {a: 'x'}\n";
    server.raw(Method::POST, MAPS, &[("content-type", yaml)], text).await.is(201);
}

#[tokio::test]
async fn paths_and_headers_are_checked() {
    let server = server().await;
    server.post(MAPS, &config_map("a")).await.is(201);
    for (method, path, code) in [
        (Method::GET, "/nothing", 404),
        (Method::GET, "/", 404),
        (Method::POST, "/api", 405),
        (Method::GET, "/api/v1/namespaces/default/configmaps/a/status", 404),
        (Method::GET, "/api/v1/configmaps/a", 404),
        (Method::GET, "/api/v1/namespaces/default/nodes", 404),
        (Method::GET, "/api/v1/namespaces/default/configmaps/%ff", 400),
        (Method::GET, "/api/v1/namespaces/default/configmaps?labelSelector=%zz", 400),
        (Method::PUT, MAPS, 405),
        (Method::OPTIONS, MAPS, 405),
        (Method::GET, "/openapi/v1", 404),
        (Method::DELETE, "/api/v1/namespaces/default", 403),
    ] {
        let answer = server.raw(method.clone(), path, &[], "").await;
        assert_eq!(answer.code.as_u16(), code, "{method} {path}: {}", answer.text);
        assert_eq!(answer.body["kind"], "Status", "{path}");
    }
    let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
    server.raw(Method::GET, MAPS, &protobuf, "").await.is(406);
    let both = [("accept", "application/vnd.kubernetes.protobuf,application/json;q=0.5")];
    server.raw(Method::GET, MAPS, &both, "").await.is(200);
}

// INV-5
#[tokio::test]
async fn rights_and_identity_come_first() {
    use http::Request;
    use tower::Service;

    let server = server().await;
    let nobody = server.as_user("nobody");
    let denied = nobody.get(MAPS).await.is(403);
    assert_eq!(
        denied.message(),
        "configmaps is forbidden: User \"nobody\" cannot list resource \"configmaps\" in API group \"\" in the \
         namespace \"default\""
    );
    nobody.post(MAPS, &json!("not even an object")).await.is(403);
    nobody.get("/apis/none.io/v1/things").await.is(403);
    nobody.get("/version").await.is(200);
    nobody.get("/apis").await.is(200);
    let mut bare = server.api.clone();
    for (path, code) in [(MAPS, 401), ("/apis", 401), ("/readyz", 200), ("/version", 200)] {
        let request = Request::get(path).body(pumice_apiserver::Body::empty()).expect("request");
        assert_eq!(bare.call(request).await.expect("infallible").status().as_u16(), code, "{path}");
    }
}

/// JSON of any shape, with the names that objects use.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z./:-]{0,8}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("metadata".to_owned()),
        Just("spec".to_owned()),
        Just("status".to_owned()),
        Just("containers".to_owned()),
        Just("name".to_owned()),
        Just("labels".to_owned()),
        Just("finalizers".to_owned()),
        Just("data".to_owned()),
        Just("ownerReferences".to_owned()),
        Just("volumes".to_owned()),
        Just("resources".to_owned()),
        Just("ports".to_owned()),
        Just("env".to_owned()),
        Just("limits".to_owned()),
        Just("conditions".to_owned()),
        Just("names".to_owned()),
        Just("versions".to_owned()),
        Just("schema".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

const PLURALS: [&str; 12] = [
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/persistentvolumeclaims",
    "/api/v1/namespaces/default/events",
    "/api/v1/namespaces/default/bindings",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
];

// INV-6
#[test]
fn no_object_of_any_shape_breaks_the_server() {
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let server = runtime.block_on(server());
    runtime.block_on(async { server.post(PODS, &pod("p")).await.is(201) });
    proptest!(ProptestConfig::with_cases(400), |(object in any_json(), which in 0usize..12, table: bool)| {
        runtime.block_on(async {
            let path = PLURALS[which];
            let answer = server.post(path, &object).await;
            assert!(answer.code.as_u16() < 500, "{path} {object}: {}", answer.text);
            let accept = if table { "application/json;as=Table;g=meta.k8s.io;v=v1" } else { "application/json" };
            let list = server.raw(Method::GET, path, &[("accept", accept)], "").await;
            assert!(list.code.as_u16() < 500, "{path}: {}", list.text);
            for sub in ["", "/status", "/binding", "/eviction"] {
                let answer = server.merge(&format!("{PODS}/p{sub}"), &object).await;
                assert!(answer.code.as_u16() < 500, "{sub} {object}: {}", answer.text);
            }
            let answer = server.delete(&format!("{PODS}/none"), &object).await;
            assert!(answer.code.as_u16() < 500, "{object}: {}", answer.text);
        });
    });
}

// INV-6
#[test]
fn no_request_line_breaks_the_server() {
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let server = runtime.block_on(server());
    let segment = prop_oneof![
        Just("api".to_owned()),
        Just("apis".to_owned()),
        Just("v1".to_owned()),
        Just("namespaces".to_owned()),
        Just("pods".to_owned()),
        Just("default".to_owned()),
        Just("log".to_owned()),
        Just("status".to_owned()),
        Just("openapi".to_owned()),
        Just("v3".to_owned()),
        "[a-z%0-9.]{0,6}",
    ];
    let method = prop_oneof![
        Just(Method::GET),
        Just(Method::POST),
        Just(Method::PUT),
        Just(Method::PATCH),
        Just(Method::DELETE),
        Just(Method::HEAD),
    ];
    let line = (method, proptest::collection::vec(segment, 0..8), "[a-zA-Z=&%0-9!,]{0,30}");
    proptest!(ProptestConfig::with_cases(400), |((method, segments, query) in line)| {
        let path = format!("/{}?{}", segments.join("/"), query);
        if path.parse::<http::Uri>().is_ok() && !query.contains("watch") {
            let answer = runtime.block_on(server.raw(method, &path, &[], "{}"));
            assert!(answer.code.as_u16() < 500 || answer.code == 504, "{path}: {}", answer.text);
        }
    });
}

/// Panics on one object.
struct Fragile;

impl pumice_apiserver::Admission for Fragile {
    fn admit(
        &self,
        request: &pumice_apiserver::AdmissionRequest<'_>,
        _object: Option<&mut Value>,
    ) -> Result<pumice_apiserver::Admitted, pumice_objects::status::Status> {
        assert_ne!(request.name, "fatal");
        Ok(pumice_apiserver::Admitted::default())
    }
}

// INV-6
#[tokio::test]
async fn a_panic_stays_with_its_request() {
    let server =
        crate::harness::build(std::sync::Arc::new(Fragile), std::sync::Arc::new(pumice_apiserver::NoNodes)).await;
    server.post(MAPS, &config_map("fatal")).await.is(500);
    server.post(MAPS, &config_map("fine")).await.is(201);
}
