//! Bytes into objects of the API server's kinds, into patches of them, and into definitions with schemas and rules.
//!
//! Invariant: equal bytes give equal values, of bounded depth and size.

use std::sync::LazyLock;

use pumice_objects::schema::Schema;
use serde_json::{Map, Value, json};

use crate::Bytes;
use crate::edits::Vocabulary;

/// Member names of objects and of patches.
pub const FIELDS: Vocabulary<'_> = Vocabulary {
    keys: &[
        "metadata",
        "name",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "managedFields",
        "resourceVersion",
        "uid",
        "generateName",
        "deletionTimestamp",
        "generation",
        "spec",
        "status",
        "data",
        "binaryData",
        "immutable",
        "containers",
        "initContainers",
        "image",
        "ports",
        "containerPort",
        "protocol",
        "env",
        "value",
        "valueFrom",
        "volumes",
        "volumeMounts",
        "mountPath",
        "tolerations",
        "key",
        "operator",
        "effect",
        "resources",
        "requests",
        "limits",
        "cpu",
        "memory",
        "restartPolicy",
        "nodeName",
        "selector",
        "matchLabels",
        "matchExpressions",
        "values",
        "replicas",
        "template",
        "a",
        "b",
        "list",
        "map",
        "set",
        "any",
        "text",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
        "/",
        "f:a",
        ".",
        "k:{}",
        "apiVersion",
        "kind",
        "items",
        "type",
        "conditions",
        "lastTransitionTime",
        "message",
        "reason",
    ],
    words: &[
        "",
        "a",
        "b",
        "x",
        "main",
        "default",
        "v1",
        "1",
        "-1",
        "0",
        "0.5",
        "1Gi",
        "9Ei",
        "1e400",
        "TCP",
        "UDP",
        "Always",
        "Never",
        "replace",
        "delete",
        "merge",
        "In",
        "Exists",
        "DoesNotExist",
        "NoSchedule",
        "pumice.sh/x",
        "orphan",
        "2026-01-01T00:00:00Z",
        "9999-99-99T99:99:99Z",
        "\u{0}",
        "\u{e4}",
        "YQ==",
        "/spec",
        "/metadata/labels/a~1b",
        "busybox:1",
        "Foreground",
        "kubernetes.io/hostname",
        "true",
    ],
};

/// Member names of schemas, and expressions among the words.
pub const SCHEMAS: Vocabulary<'_> = Vocabulary {
    keys: &[
        "type",
        "properties",
        "items",
        "additionalProperties",
        "required",
        "enum",
        "default",
        "nullable",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
        "x-kubernetes-validations",
        "rule",
        "message",
        "messageExpression",
        "fieldPath",
        "reason",
        "optionalOldSelf",
        "$ref",
        "description",
        "title",
        "a",
        "b",
        "list",
        "map",
        "any",
        "text",
        "spec",
        "status",
        "metadata",
    ],
    words: &[
        "object",
        "array",
        "string",
        "integer",
        "number",
        "boolean",
        "null",
        "map",
        "set",
        "atomic",
        "granular",
        "a",
        "b",
        "int32",
        "int64",
        "double",
        "date-time",
        "duration",
        "byte",
        "ipv4",
        "cidr",
        "uuid",
        "email",
        "uri",
        "",
        "^a+$",
        "(a+)+$",
        "((a{99}){99}){99}",
        "[",
        "\\p{L}",
        "(?i)x",
        "self",
        "true",
        "self.a > 1",
        "self.a == oldSelf.a",
        "self.list.all(x, self.list.exists(y, x == y))",
        "size(self.text) < 5",
        "self.text.matches('(a+)+$')",
        "self.map.all(k, self.map[k] == k)",
        "has(self.a) ? self.a : self.b",
        "self.a / 0 == 1",
        "'a' + self.text",
        "self.a + 9223372036854775807 > 0",
        "-self.a",
        "duration('1h') > duration(self.text)",
        "self.list[9]",
        "timestamp(self.text).getFullYear()",
        "quantity(self.text).isGreaterThan(quantity('1'))",
        "((((((((1))))))))",
        "[1].map(x, [x].map(y, y))",
        "self.text.replace('a', 'aaaaaaaaaaaaaaaa')",
        "#/components/schemas/a",
        "url(self.text)",
        "ip(self.text)",
        "cidr(self.text)",
        "self.text.split('').join('aaaa')",
        "optional.of(self.?a)",
        "format.dns1123Label()",
    ],
};

/// The published schemas of built-in kinds.
static COMPONENTS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let whole: Value =
        serde_json::from_str(include_str!("../../crates/apiserver/schemas/builtin.json")).expect("a committed file");
    let components = whole.get("components").and_then(|found| found.get("schemas")).unwrap_or(&whole);
    components.as_object().cloned().expect("components by name")
});

/// Schemas that patches go by: of built-in kinds, and one as a definition declares it.
pub static PATCHED: LazyLock<Vec<Schema>> = LazyLock::new(|| {
    let builtin = ["ConfigMap", "Pod", "Service"].map(|kind| {
        let whole = COMPONENTS.get(&format!("io.k8s.api.core.v1.{kind}")).expect("a built-in kind");
        Schema::of_builtin(whole, &COMPONENTS).expect("sound")
    });
    let declared = Schema::from_openapi(&structural(), &Map::new()).expect("sound");
    builtin.into_iter().chain([declared]).collect()
});

/// A schema with a list, a map, a set and an atom of each.
pub fn structural() -> Value {
    let item = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "value": {"type": "integer", "default": 1}}});
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "a": {"type": "integer"}, "b": {"type": "integer", "default": 2}, "text": {"type": "string", "maxLength": 64},
            "list": {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "map": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 8},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "atom": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}}},
            "x-kubernetes-validations": [{"rule": "self.a == self.a", "message": "equal"}]},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
}

/// A good object that the schema at this place of [`PATCHED`] describes.
pub fn good(kind: usize) -> Value {
    let metadata = json!({"name": "x", "namespace": "default", "labels": {"a": "b"}, "finalizers": ["a/b", "c/d"]});
    match kind {
        0 => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1", "b": "2"}}),
        1 => json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {
            "containers": [{"name": "main", "image": "busybox:1", "ports": [{"containerPort": 1, "protocol": "TCP"}],
                "env": [{"name": "a", "value": "1"}]}, {"name": "b", "image": "i"}],
            "tolerations": [{"key": "a", "operator": "Exists"}]}}),
        2 => json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {
            "selector": {"a": "b"}, "ports": [{"name": "a", "port": 80, "protocol": "TCP"}, {"name": "b", "port": 81}]}}),
        _ => json!({"apiVersion": "fuzz.io/v1", "kind": "Thing", "metadata": metadata, "spec": {
            "a": 1, "list": [{"name": "a", "value": 1}, {"name": "b"}], "set": ["a", "b"], "map": {"a": "b"},
            "any": {"list": [1, {"a": null}]}, "atom": {"a": "b"}}}),
    }
}

/// An object: a good one with edits.
pub fn object(bytes: &mut Bytes<'_>, kind: usize) -> Value {
    FIELDS.edited(good(kind), bytes)
}

/// The schema of a definition: a good one with edits, sometimes of any shape.
pub fn schema(bytes: &mut Bytes<'_>) -> Value {
    if bytes.one_in(8) { SCHEMAS.any(bytes, 6) } else { SCHEMAS.edited(structural(), bytes) }
}

/// A definition of `things.fuzz.io` with this schema.
pub fn definition(schema: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.fuzz.io"},
        "spec": {"group": "fuzz.io", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}})
}

/// Operations of a JSON patch.
pub fn operations(bytes: &mut Bytes<'_>) -> Value {
    const PATHS: &[&str] = &[
        "",
        "/",
        "/metadata",
        "/metadata/labels/a",
        "/metadata/labels/a~1b",
        "/spec/containers/0",
        "/spec/containers/-",
        "/spec/containers/1/ports/0/containerPort",
        "/data/a",
        "/data",
        "/spec/list/0",
        "/spec/list/-",
        "/spec/any/list/1/a",
        "/metadata/finalizers/0",
        "/spec/containers/99999999999999999999",
        "/spec/~2",
        "x",
        "/spec/set/00",
        "/spec",
    ];
    let operation = |bytes: &mut Bytes<'_>| {
        let kind = bytes.pick(&["add", "remove", "replace", "move", "copy", "test", "", "ADD"]);
        json!({"op": kind, "path": bytes.pick(PATHS), "from": bytes.pick(PATHS), "value": FIELDS.any(bytes, 3)})
    };
    let operations: Vec<Value> = (0..bytes.below(24)).map(|_| operation(bytes)).collect();
    if bytes.one_in(16) { FIELDS.any(bytes, 3) } else { operations.into() }
}
