//! Any schema of a definition, with rules in CEL, and any object against it: refused or taken, never a panic; what was filled
//! and pruned once stays so; and whatever the server stored it can show.

#![no_main]

use http::Method;
use libfuzzer_sys::fuzz_target;
use pumice_fuzz::{Bytes, kinds, server};
use pumice_objects::schema::Schema;
use serde_json::{Map, Value};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.fuzz.io";
const THINGS: &str = "/apis/fuzz.io/v1/namespaces/default/things";
const JSON: &str = "application/json";

fuzz_target!(|bytes: &[u8]| {
    let [choice, rest @ ..] = bytes else { return };
    let mut bytes = Bytes::new(rest);
    let schema = match choice & 3 {
        0 => match serde_json::from_slice(rest) {
            Ok(schema) => schema,
            Err(_) => return,
        },
        _ => kinds::schema(&mut bytes),
    };
    let objects = [kinds::object(&mut bytes, 3), kinds::object(&mut bytes, 3)];
    if let Ok(schema) = Schema::from_openapi(&schema, &Map::new()) {
        objects.iter().for_each(|object| walk(&schema, object));
    }
    // Through the server, which compiles the rules, for one input of two: that is much slower.
    if choice & 4 == 0 {
        server::with(|server| through(server, &schema, &objects));
    }
});

/// The walks over one object.
fn walk(schema: &Schema, object: &Value) {
    let mut admitted = object.clone();
    schema.admit(&mut admitted);
    let mut filled = object.clone();
    schema.complete(&mut filled);
    let once = filled.clone();
    schema.complete(&mut filled);
    assert_eq!(filled, once);
    assert!(schema.unknown_fields(&filled).is_empty(), "{filled}");
    schema.validate(&mut filled);
}

fn through(server: &server::Server, schema: &Value, objects: &[Value]) {
    let merge = "application/merge-patch+json";
    let versions = serde_json::json!({"spec": {"versions": kinds::definition(schema)["spec"]["versions"]}});
    server.json(Method::PATCH, DEFINITION, merge, &versions);
    for object in objects {
        let (code, _) = server.json(Method::PUT, &format!("{THINGS}/x"), JSON, object);
        assert!(code.as_u16() < 500, "{code}: {object} with {schema}");
        let apply = format!("{THINGS}/x?fieldManager=f&force=true");
        let (code, _) = server.json(Method::PATCH, &apply, "application/apply-patch+yaml", object);
        assert!(code.as_u16() < 500, "{code}: {object} with {schema}");
    }
    let (code, list) = server.json(Method::GET, THINGS, JSON, &Value::Null);
    assert!(code.is_success() && list["items"].is_array(), "{code}: {list}");
}
