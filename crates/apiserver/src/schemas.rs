//! Schemas of the built-in kinds: one committed OpenAPI document, parsed once per process.
//!
//! Invariant: the document is generated from the same types that clients compile against; nothing here edits it but the
//! schema of schemas, which is recursive and taken as free-form JSON.

mod ranges;
pub(crate) mod zero_values;

use std::sync::LazyLock;

use pumice_objects::schema::Schema;
use serde_json::{Map, Value, json};

use ranges::range_of;

const DOCUMENT: &str = include_str!("../schemas/builtin.json");
const SCHEMA_OF_SCHEMAS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
/// The component that every object's metadata follows.
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

static COMPONENTS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let document: Value = serde_json::from_str(DOCUMENT).expect("the committed document is JSON: a test reads it");
    let mut components = document["components"]["schemas"].as_object().cloned().unwrap_or_default();
    components.insert(
        SCHEMA_OF_SCHEMAS.to_owned(),
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
    );
    components
});

/// All components by name.
pub(crate) fn components() -> &'static Map<String, Value> {
    &COMPONENTS
}

/// The schema of a built-in kind.
pub(crate) fn builtin(component: &str) -> Schema {
    let whole = COMPONENTS.get(component).expect("every built-in descriptor names a component: a test walks them");
    Schema::of_builtin_within(whole, components(), range_of)
        .expect("the committed schemas are structural: a test walks them")
}

/// A reference to a component.
pub(crate) fn reference(component: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{component}") })
}
