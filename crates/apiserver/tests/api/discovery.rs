//! Documents that clients find their way by.

use http::Method;
use serde_json::{Value, json};

use crate::definitions::with_widgets;

fn named<'a>(list: &'a Value, field: &str, name: &str) -> &'a Value {
    list.as_array().expect("list").iter().find(|one| one[field] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[tokio::test]
async fn both_forms_of_discovery_agree() {
    let server = with_widgets().await;
    let groups = server.get("/apis").await.is(200).body;
    assert_eq!(named(&groups["groups"], "name", "example.com")["preferredVersion"]["version"], "v1");
    let list = server.get("/apis/example.com/v1").await.is(200).body;
    assert_eq!(named(&list["resources"], "name", "widgets")["shortNames"], json!(["wd"]));
    assert_eq!(named(&list["resources"], "name", "widgets/scale")["kind"], "Scale");
    let core = server.get("/api/v1").await.is(200).body;
    assert_eq!(named(&core["resources"], "name", "pods/log")["verbs"], json!(["get"]));
    for (name, kind) in [
        ("pods/exec", "PodExecOptions"),
        ("pods/attach", "PodAttachOptions"),
        ("pods/portforward", "PodPortForwardOptions"),
    ] {
        let stream = named(&core["resources"], "name", name);
        assert_eq!((&stream["kind"], &stream["verbs"]), (&json!(kind), &json!(["create", "get"])), "{name}");
    }
    let added = named(&core["resources"], "name", "pods/ephemeralcontainers");
    assert_eq!((&added["kind"], &added["verbs"]), (&json!("Pod"), &json!(["get", "patch", "update"])));
    assert_eq!(named(&core["resources"], "name", "nodes")["namespaced"], false);
    server.get("/apis/example.com").await.is(200);
    server.get("/apis/none.io/v1").await.is(404);

    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")];
    let answer = server.raw(Method::GET, "/apis", &accept, "").await.is(200);
    assert!(answer.headers["content-type"].to_str().expect("text").contains("as=APIGroupDiscoveryList"));
    let group =
        answer.body["items"].as_array().expect("items").iter().find(|one| one["metadata"]["name"] == "example.com");
    let versions = &group.expect("group")["versions"];
    assert_eq!(versions[0]["resources"][0]["responseKind"]["kind"], "Widget");
    let tag = answer.headers["etag"].to_str().expect("text").to_owned();
    let known = [accept[0], ("if-none-match", tag.as_str())];
    server.raw(Method::GET, "/apis", &known, "").await.is(304);
    server
        .delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", &Value::Null)
        .await
        .is(200);
    server.until("/apis/example.com/v1", 404).await;
    server.raw(Method::GET, "/apis", &known, "").await.is(200);
}

#[tokio::test]
async fn openapi_tells_what_writes_take() {
    let server = with_widgets().await;
    let index = server.get("/openapi/v3").await.is(200).body;
    for (path, kind, component) in
        [("api/v1", "Pod", "io.k8s.api.core.v1.Pod"), ("apis/example.com/v1", "Widget", "com.example.v1.Widget")]
    {
        let url = index["paths"][path]["serverRelativeURL"].as_str().expect("url");
        let document = server.get(url).await.is(200).body;
        let patch = document["paths"]
            .as_object()
            .expect("paths")
            .values()
            .map(|path| &path["patch"])
            .find(|patch| patch["x-kubernetes-group-version-kind"]["kind"] == kind)
            .expect("a patch of the kind");
        for parameter in ["fieldValidation", "dryRun"] {
            named(&patch["parameters"], "name", parameter);
        }
        assert!(document["components"]["schemas"][component].is_object(), "{component}");
        assert_eq!(dangling(&document), Vec::<String>::new());
    }
}

/// References that lead nowhere.
fn dangling(document: &Value) -> Vec<String> {
    fn walk(value: &Value, document: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(target) = fields.get("$ref").and_then(Value::as_str)
                    && document.pointer(target.trim_start_matches('#')).is_none()
                {
                    found.push(target.to_owned());
                }
                fields.values().for_each(|field| walk(field, document, found));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, document, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(document, document, &mut found);
    found
}

#[tokio::test]
async fn aggregated_groups_are_found_and_answered() {
    use std::sync::Arc;

    use futures::future::BoxFuture;
    use http::{Request, Response};
    use pumice_apiserver::{AggregatedApi, AggregatedResource, ApiServer, Body, Verb};
    use pumice_auth::{Identity, Policy, built_in};
    use pumice_store::{Options, Store};
    use tower::Service;

    let answer = |request: Request<Body>| -> BoxFuture<'static, Response<Body>> {
        let user = request.extensions().get::<Identity>().map_or("nobody", |one| one.user.as_str()).to_owned();
        Box::pin(async move { Response::new(Body::from(format!("{user} {}", request.uri().path()))) })
    };
    let api = ApiServer::builder(Store::in_memory(Options::default()).expect("store"), Policy::new(built_in()))
        .aggregate(AggregatedApi {
            group: "why.example.com".to_owned(),
            version: "v1".to_owned(),
            resources: vec![AggregatedResource {
                name: "reports".to_owned(),
                kind: "Report".to_owned(),
                namespaced: true,
                verbs: vec![Verb::Get],
            }],
            right: None,
            service: Arc::new(answer),
        })
        .build()
        .await
        .expect("build");
    let ask = |identity: Identity, path: &'static str| {
        let mut service = api.client_service(identity);
        async move {
            let response = service.call(Request::get(path).body(Body::empty()).expect("request")).await.expect("ok");
            let code = response.status().as_u16();
            let body = http_body_util::BodyExt::collect(response.into_body()).await.expect("body").to_bytes();
            (code, String::from_utf8_lossy(&body).into_owned())
        }
    };
    let path = "/apis/why.example.com/v1/namespaces/a/reports/x";
    assert_eq!(ask(crate::harness::administrator(), path).await, (200, format!("admin {path}")));
    assert_eq!(ask(Identity::new("nobody", Vec::<String>::new()), path).await.0, 403);
    assert!(ask(crate::harness::administrator(), "/apis").await.1.contains("why.example.com"));
}
