//! Definitions with several versions: each with its own schema, converted by name alone or by a webhook.

use http::Method;
use serde_json::{Value, json};

use crate::definitions::DEFINITIONS;
use crate::harness::{Server, server};
use crate::webhooks::Hooks;

const V1: &str = "/apis/example.com/v1/namespaces/default/boxes";
const V2: &str = "/apis/example.com/v2/namespaces/default/boxes";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boxes.example.com";

fn version(name: &str, spec: &Value) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}});
    json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}})
}

/// Boxes: `spec.size` in v1 becomes `spec.extent.width` in v2, where the definition says how.
fn definition(conversion: &Value) -> Value {
    let integer = json!({"type": "integer"});
    let extent = json!({"type": "object", "properties": {"width": integer}});
    let color = json!({"type": "string", "default": "red"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"},
            "conversion": conversion,
            "versions": [
                version("v1", &json!({"size": integer, "note": {"type": "string"}})),
                version("v2", &json!({"size": integer, "extent": extent, "color": color})),
            ],
        },
    })
}

fn small(name: &str, size: u32) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": name}, "spec": {"size": size}})
}

/// Converts boxes as their webhook should.
fn converted(request: &Value) -> Value {
    let wanted = request["desiredAPIVersion"].clone();
    let objects = request["objects"].as_array().expect("objects").iter().map(|object| {
        let mut object = object.clone();
        object["spec"] = match wanted.as_str() {
            Some("example.com/v2") => json!({"extent": {"width": object["spec"]["size"]}}),
            _ => json!({"size": object["spec"]["extent"]["width"]}),
        };
        object["apiVersion"] = wanted.clone();
        object
    });
    json!({"result": {"status": "Success"}, "convertedObjects": objects.collect::<Vec<_>>()})
}

fn by_webhook(hooks: &Hooks, path: &str) -> Value {
    let url = format!("https://127.0.0.1:{}{path}", hooks.port);
    let config = json!({"url": url, "caBundle": hooks.trusted});
    json!({"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]}})
}

async fn with_boxes(conversion: &Value) -> Server {
    let server = server().await;
    server.post(DEFINITIONS, &definition(conversion)).await.is(201);
    server
}

#[tokio::test]
async fn each_version_has_its_own_schema() {
    let server = with_boxes(&json!({"strategy": "None"})).await;
    let mut made = small("a", 5);
    made["spec"]["note"] = json!("n");
    server.post(V1, &made).await.is(201);
    let seen = server.get(&format!("{V2}/a")).await.is(200).body;
    assert_eq!(seen["apiVersion"], "example.com/v2");
    assert_eq!(seen["spec"], json!({"size": 5, "color": "red"}), "pruned and filled by the version that is served");
    assert_eq!(server.get(&format!("{V1}/a")).await.body["spec"], json!({"size": 5, "note": "n"}));
    let wanted = json!({"spec": {"size": 6, "color": "blue"}});
    assert_eq!(server.merge(&format!("{V2}/a"), &wanted).await.is(200).body["spec"]["color"], "red");
    assert_eq!(server.get(&format!("{V1}/a")).await.body["spec"], json!({"size": 6}), "as the stored version has it");
    let list = server.get(V2).await.is(200).body;
    assert_eq!((&list["apiVersion"], &list["items"][0]["apiVersion"]), (&seen["apiVersion"], &seen["apiVersion"]));
    let mut watch = server.watch(&format!("{V2}?watch=1")).await;
    assert_eq!(watch.next().await.expect("an event")["object"]["apiVersion"], "example.com/v2");
    server.delete(&format!("{V2}/a"), &Value::Null).await.is(200);
    let gone = watch.next().await.expect("an event");
    assert_eq!((&gone["type"], &gone["object"]["apiVersion"]), (&json!("DELETED"), &json!("example.com/v2")));
}

#[tokio::test]
async fn what_was_stored_before_is_served_in_the_new_storage_version() {
    let server = with_boxes(&json!({"strategy": "None"})).await;
    server.post(V1, &small("a", 5)).await.is(201);
    let mut changed = server.get(DEFINITION).await.body;
    changed["spec"]["versions"][0]["storage"] = json!(false);
    changed["spec"]["versions"][1]["storage"] = json!(true);
    let changed = server.put(DEFINITION, &changed).await.is(200).body;
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(server.get(&format!("{V2}/a")).await.is(200).body["apiVersion"], "example.com/v2");
    assert_eq!(server.get(V2).await.is(200).body["items"][0]["apiVersion"], "example.com/v2");
    assert_eq!(server.get(&format!("{V1}/a")).await.is(200).body["apiVersion"], "example.com/v1");

    // A version goes when nothing is stored in it any more, which whoever migrated says.
    let mut without = changed.clone();
    without["spec"]["versions"] = json!([changed["spec"]["versions"][1]]);
    let refused = server.put(DEFINITION, &without).await.is(422);
    assert!(refused.message().contains("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions"));
    let status = format!("{DEFINITION}/status");
    server.merge(&status, &json!({"status": {"storedVersions": ["v1"]}})).await.is(422);
    server.merge(&status, &json!({"status": {"storedVersions": []}})).await.is(422);
    server.merge(&format!("{V2}/a"), &json!({"metadata": {"labels": {"migrated": "yes"}}})).await.is(200);
    let migrated = server.merge(&status, &json!({"status": {"storedVersions": ["v2"]}})).await.is(200).body;
    without["metadata"] = migrated["metadata"].clone();
    server.put(DEFINITION, &without).await.is(200);
    server.get(V1).await.is(404);
    assert_eq!(server.get(&format!("{V2}/a")).await.is(200).body["metadata"]["labels"]["migrated"], "yes");
}

#[tokio::test]
async fn a_webhook_converts_all_that_is_read_and_written() {
    let hooks = Hooks::new(|_, request| converted(request)).await;
    let server = with_boxes(&by_webhook(&hooks, "/convert")).await;
    server.post(V1, &small("a", 5)).await.is(201);
    assert!(hooks.asked().is_empty(), "nothing to convert");
    let mut watch = server.watch(&format!("{V2}?watch=1")).await;
    let told = watch.next().await.expect("an event");
    assert_eq!(told["object"]["spec"]["extent"]["width"], 5);

    let seen = server.get(&format!("{V2}/a")).await.is(200).body;
    assert_eq!(seen["spec"], json!({"extent": {"width": 5}, "color": "red"}));
    let request = hooks.last();
    assert_eq!(request["desiredAPIVersion"], "example.com/v2");
    assert_eq!(request["objects"][0]["apiVersion"], "example.com/v1");
    assert_eq!(seen["metadata"], request["objects"][0]["metadata"]);

    // Made and changed in the other version.
    let mut wide = small("b", 0);
    wide["apiVersion"] = json!("example.com/v2");
    wide["spec"] = json!({"extent": {"width": 8}});
    assert_eq!(server.post(V2, &wide).await.is(201).body["spec"]["extent"]["width"], 8);
    assert_eq!(server.get(&format!("{V1}/b")).await.body["spec"], json!({"size": 8}));
    let wider = json!({"spec": {"extent": {"width": 9}}});
    assert_eq!(server.merge(&format!("{V2}/b"), &wider).await.is(200).body["spec"]["extent"]["width"], 9);
    let mut replaced = server.get(&format!("{V2}/b")).await.body;
    replaced["spec"]["extent"]["width"] = json!(10);
    server.put(&format!("{V2}/b"), &replaced).await.is(200);
    assert_eq!(server.get(&format!("{V1}/b")).await.body["spec"], json!({"size": 10}));
    for wanted in ["ADDED 8", "MODIFIED 9", "MODIFIED 10"] {
        let told = watch.next().await.expect("an event");
        let width = &told["object"]["spec"]["extent"]["width"];
        assert_eq!(format!("{} {width}", told["type"].as_str().expect("text")), wanted);
    }

    // Applied, and the owner's record with it.
    wide["spec"]["extent"]["width"] = json!(11);
    let apply = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{V2}/b?fieldManager=m&force=true");
    let applied = server.raw(Method::PATCH, &path, &apply, wide.to_string()).await.is(200).body;
    assert_eq!(applied["spec"]["extent"]["width"], 11);
    assert_eq!(server.get(&format!("{V1}/b")).await.body["spec"], json!({"size": 11}));

    // A list is one question.
    let before = hooks.asked().len();
    let list = server.get(V2).await.is(200).body;
    let widths: Vec<&Value> =
        list["items"].as_array().expect("items").iter().map(|one| &one["spec"]["extent"]["width"]).collect();
    assert_eq!((widths, hooks.asked().len() - before), (vec![&json!(5), &json!(11)], 1));
    assert_eq!(hooks.last()["objects"].as_array().map(Vec::len), Some(2));
    server.delete(V2, &Value::Null).await.is(200);
    assert_eq!(server.get(V1).await.body["items"], json!([]));
}

#[tokio::test]
async fn what_a_webhook_must_not_do_fails() {
    let hooks = Hooks::new(|path, request| {
        let mut answer = converted(request);
        match path {
            "/refuses" => answer["result"] = json!({"status": "Failed", "message": "not today"}),
            "/renames" => answer["convertedObjects"][0]["metadata"]["name"] = json!("other"),
            "/drops" => answer["convertedObjects"] = json!([]),
            "/leaves" => answer["convertedObjects"] = request["objects"].clone(),
            _ => answer["convertedObjects"][0]["metadata"]["generation"] = json!(99),
        }
        answer
    })
    .await;
    for (path, cause) in [
        ("/refuses", "failed: not today"),
        ("/renames", "returned invalid converted object at index 0: must have the same name"),
        ("/drops", "returned 0 objects, expected 1"),
        ("/leaves", "invalid groupVersion (expected example.com/v2"),
    ] {
        let server = with_boxes(&by_webhook(&hooks, path)).await;
        server.post(V1, &small("a", 5)).await.is(201);
        for place in [format!("{V2}/a"), V2.to_owned()] {
            let failed = server.get(&place).await.is(500);
            assert!(failed.message().contains("conversion webhook for example.com/v1, Kind=Box "), "{}", failed.text);
            assert!(failed.message().contains(cause), "{path}: {}", failed.message());
        }
        server.get(&format!("{V1}/a")).await.is(200);
        let told = server.watch(&format!("{V2}?watch=1")).await.next().await.expect("an event");
        assert_eq!((&told["type"], &told["object"]["code"]), (&json!("ERROR"), &json!(500)));
        let mut wide = small("b", 0);
        wide["apiVersion"] = json!("example.com/v2");
        server.post(V2, &wide).await.is(500);
        server.get(&format!("{V1}/b")).await.is(404);
    }
    let server = with_boxes(&by_webhook(&hooks, "/counts")).await;
    server.post(V1, &small("a", 5)).await.is(201);
    let kept = server.get(&format!("{V2}/a")).await.is(200).body;
    assert_eq!(kept["metadata"]["generation"], 1, "metadata is not the webhook's");
    let nobody = json!({"service": {"name": "none", "namespace": "default"}});
    let mut away = by_webhook(&hooks, "/");
    away["webhook"]["clientConfig"] = nobody;
    let server = with_boxes(&away).await;
    server.post(V1, &small("a", 5)).await.is(201);
    let failed = server.get(&format!("{V2}/a")).await.is(500);
    assert!(failed.message().contains("service \"none\" not found"), "{}", failed.message());
}

#[tokio::test]
async fn mistakes_in_conversions_are_refused() {
    let hooks = Hooks::new(|_, request| converted(request)).await;
    let server = server().await;
    let with = |change: &dyn Fn(&mut Value)| {
        let mut conversion = by_webhook(&hooks, "/");
        change(&mut conversion);
        definition(&conversion)
    };
    for (definition, text) in [
        (with(&|one| one["strategy"] = json!("Magic")), "spec.conversion.strategy: Unsupported value: \"Magic\""),
        (with(&|one| one["strategy"] = json!("None")), "should not be set when strategy is not set to Webhook"),
        (with(&|one| one["webhook"]["clientConfig"] = Value::Null), "required when strategy is set to Webhook"),
        (with(&|one| one["webhook"]["clientConfig"] = json!({})), "exactly one of url or service is required"),
        (with(&|one| one["webhook"]["conversionReviewVersions"] = json!(["v9"])), "must include at least one of v1"),
        (
            with(&|one| one["webhook"]["clientConfig"]["url"] = json!("http://a")),
            "'https' is the only allowed URL scheme",
        ),
    ] {
        let refused = server.post(DEFINITIONS, &definition).await.is(422);
        assert!(refused.message().contains(text), "{text}: {}", refused.message());
    }
}
