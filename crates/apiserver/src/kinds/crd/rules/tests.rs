//! Rules of definitions: what they see, say, refuse and cost.

use pumice_objects::schema::Schema;
use serde_json::{Value, json};

use super::{Rules, compile};
use crate::kinds::crd;
use crate::problems::Problems;

fn ready(declared: &Value) -> (Schema, Rules) {
    let schema = crd::schema(declared).expect("schema");
    let mut problems = Problems::default();
    let rules = compile(declared, &schema, "s", &mut problems);
    let errors = problems.into_errors();
    assert!(errors.is_empty(), "{errors:?}");
    (schema, rules.expect("rules"))
}

/// The schema of an object whose `spec` is this.
fn of_spec(spec: &Value) -> Value {
    json!({ "type": "object", "properties": { "spec": spec } })
}

fn told(declared: &Value, new: &Value, old: Option<&Value>) -> Vec<String> {
    let (schema, rules) = ready(declared);
    rules.validate(&schema, new, old).iter().map(ToString::to_string).collect()
}

fn spec_with(rules: &Value) -> Value {
    of_spec(&json!({
        "type": "object",
        "properties": {
            "replicas": { "type": "integer" },
            "minReplicas": { "type": "integer" },
            "ratio": { "type": "number" },
            "name": { "type": "string" },
            "namespace": { "type": "string" },
            "dash-ed": { "type": "string" },
            "port": { "x-kubernetes-int-or-string": true },
            "since": { "type": "string", "format": "date-time" },
            "every": { "type": "string", "format": "duration" },
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "items": { "type": "array", "items": {
                "type": "object", "properties": { "name": { "type": "string" }, "size": { "type": "integer" } } } },
        },
        "x-kubernetes-validations": rules,
    }))
}

#[test]
fn rules_hold_or_say_what_is_wrong() {
    let spec = json!({
        "replicas": 3, "minReplicas": 1, "ratio": 2, "name": "web", "namespace": "n", "dash-ed": "d", "port": "http",
        "since": "2026-01-02T03:04:05Z", "every": "1h30m", "labels": {"a.b/c": "x"}, "any": {"free": [1, 2]},
        "items": [{"name": "a", "size": 1}, {"name": "b", "size": 5}],
    });
    for (rule, wanted) in [
        ("self.replicas >= self.minReplicas", true),
        ("self.replicas > 3", false),
        ("self.ratio > 1.5 && self.ratio == 2.0", true),
        ("self.name.startsWith('we') && self.name.matches('^[a-z]+$')", true),
        ("self.__namespace__ == 'n' && self.dash__dash__ed == 'd'", true),
        ("has(self.name) && !has(self.labels.nothing)", true),
        ("type(self.port) == string", true),
        ("type(self.port) == int ? self.port == 80 : self.port == 'http'", true),
        ("self.since < timestamp('2027-01-01T00:00:00Z')", true),
        ("self.since.getFullYear() == 2026", true),
        ("self.every == duration('90m')", true),
        ("self.labels['a.b/c'] == 'x' && 'a.b/c' in self.labels && !('q' in self.labels)", true),
        ("self.labels.all(key, self.labels[key].size() == 1)", true),
        ("self.any.free[1] == 2 && size(self.any.free) == 2", true),
        ("self.items.all(item, item.size < 6) && self.items.exists(item, item.name == 'b')", true),
        ("self.items.exists_one(item, item.size > 2)", true),
        ("self.items.map(item, item.name) == ['a', 'b']", true),
        ("self.items.filter(item, item.size > 2).size() == 1", true),
        ("self.items.map(item, item.size).sum() == 6", true),
        ("self.?name.orValue('none') == 'web' && self.labels.?none.orValue('y') == 'y'", true),
        ("self.?name.optMap(name, name + '!').orValue('none') == 'web!'", true),
        ("self.labels.?none.optMap(found, found + '!').orValue('none') == 'none'", true),
        ("self.?labels.optFlatMap(all, all[?'a.b/c']).orValue('none') == 'x'", true),
        ("'%s-%d'.format([self.name, self.replicas]) == 'web-3'", true),
        ("quantity('1Gi').isGreaterThan(quantity('1Mi'))", true),
        ("[1, 2].exists(self, self == 2)", true),
        ("self.name in ['web', 'db']", true),
        ("sets.contains(self.items.map(i, i.name), ['a'])", true),
        ("dyn(self.port) == 'http'", true),
        ("isURL('https://a.b') && url('https://a.b/c').getHost() == 'a.b'", true),
    ] {
        let declared = spec_with(&json!([{ "rule": rule, "message": "no" }]));
        let errors = told(&declared, &json!({ "spec": spec }), None);
        let expected: &[&str] = if wanted { &[] } else { &["spec: Invalid value: \"object\": no"] };
        assert_eq!(errors, expected, "{rule}");
    }
}

#[test]
fn a_broken_rule_says_what_its_author_wished() {
    let new = json!({ "spec": { "replicas": 9, "name": "x" } });
    for (rule, wanted) in [
        (json!({"rule": "self.replicas < 5"}), "spec: Invalid value: \"object\": failed rule: self.replicas < 5"),
        (json!({"rule": "self.replicas < 5", "message": "m"}), "spec: Invalid value: \"object\": m"),
        (
            json!({"rule": "self.replicas < 5", "message": "m", "messageExpression": "'got ' + string(self.replicas)"}),
            "spec: Invalid value: \"object\": got 9",
        ),
        (
            json!({"rule": "self.replicas < 5", "message": "m", "messageExpression": "self.labels['none']"}),
            "spec: Invalid value: \"object\": m",
        ),
        (
            json!({"rule": "self.replicas < 5", "message": "m", "messageExpression": "'a\\nb'"}),
            "spec: Invalid value: \"object\": m",
        ),
        (
            json!({"rule": "self.replicas < 5", "message": "m", "reason": "FieldValueForbidden", "fieldPath": ".replicas"}),
            "spec.replicas: Forbidden: m",
        ),
        (
            json!({"rule": "self.replicas < 5", "message": "m", "reason": "FieldValueRequired", "fieldPath": "['labels']['a.b']"}),
            "spec.labels[a.b]: Required value: m",
        ),
        (
            json!({"rule": "self.minReplicas < 5", "message": "m"}),
            "spec: Invalid value: \"object\": no such key: minReplicas evaluating rule: m",
        ),
        (
            json!({"rule": "1 / (self.replicas - 9) == 1", "message": "m"}),
            "spec: Invalid value: \"object\": division by zero evaluating rule: m",
        ),
    ] {
        assert_eq!(told(&spec_with(&json!([rule])), &new, None), [wanted], "{rule}");
    }
}

#[test]
fn mistakes_in_rules_are_refused_with_their_place() {
    for (rule, field, cause) in [
        (json!({"rule": "self.replicas >"}), "rule", "compilation failed"),
        (json!({"rule": " "}), "rule", "Required value"),
        (json!({"rule": "self.replicaz > 1"}), "rule", "undefined field 'replicaz'"),
        (json!({"rule": "self.items.all(i, i.nam == 'x')"}), "rule", "undefined field 'nam'"),
        (json!({"rule": "self.name.first > 1"}), "rule", "type 'string' does not support field selection"),
        (json!({"rule": "other.x"}), "rule", "undeclared reference to 'other'"),
        (json!({"rule": "self.name.frob()"}), "rule", "undeclared reference to 'frob'"),
        (json!({"rule": "self.name"}), "rule", "must evaluate to bool"),
        (
            json!({"rule": "self.name > 1"}),
            "rule",
            "found no matching overload for '_>_' applied to '(string, number)'",
        ),
        (json!({"rule": "self.replicas && true"}), "rule", "found no matching overload"),
        (json!({"rule": "Message{a: 1} == 1"}), "rule", "messages can't be made"),
        (json!({"rule": "true", "messageExpression": "self.replicas"}), "messageExpression", "must evaluate to string"),
        (json!({"rule": "true", "message": "a\nb"}), "message", "line breaks"),
        (json!({"rule": "true", "message": " "}), "message", "non-empty"),
        (json!({"rule": "true", "reason": "Other"}), "reason", "Unsupported value: \"Other\""),
        (json!({"rule": "true", "fieldPath": ".none"}), "fieldPath", "does not refer to a valid field"),
        (json!({"rule": "true", "fieldPath": "name"}), "fieldPath", "expected [' or ."),
        (json!({"rule": "true", "optionalOldSelf": true}), "optionalOldSelf", "oldSelf is not used"),
        (json!({"rule": "(".repeat(80)}), "rule", "nested deeper"),
        (json!({"rule": format!("true{}", " && true".repeat(5000))}), "rule", "longer than"),
        (json!({"rule": format!("1{} > 0", " + 1".repeat(1400))}), "rule", "nested deeper"),
    ] {
        let declared = spec_with(&json!([rule]));
        let schema = crd::schema(&declared).expect("schema");
        let mut problems = Problems::default();
        compile(&declared, &schema, "s", &mut problems);
        let errors: Vec<String> = problems.into_errors().iter().map(ToString::to_string).collect();
        let path = format!("s.properties[spec].x-kubernetes-validations[0].{field}: ");
        assert!(errors.iter().any(|error| error.starts_with(&path) && error.contains(cause)), "{rule}: {errors:?}");
    }
    let mut declared = of_spec(&json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }));
    declared["properties"]["spec"]["anyOf"] = json!([{ "x-kubernetes-validations": [{ "rule": "true" }] }]);
    let mut problems = Problems::default();
    assert!(compile(&declared, &crd::schema(&declared).expect("schema"), "s", &mut problems).is_none());
    assert_eq!(problems.into_errors().len(), 1);
}

#[test]
fn of_metadata_only_the_name_is_seen() {
    let rule = |rule: &str| json!({ "type": "object", "x-kubernetes-validations": [{ "rule": rule }] });
    let new = json!({ "metadata": { "name": "long" } });
    assert!(told(&rule("self.metadata.name.size() < 5"), &new, None).is_empty());
    let declared = rule("self.metadata.labels.size() < 5");
    let mut problems = Problems::default();
    compile(&declared, &crd::schema(&declared).expect("schema"), "s", &mut problems);
    assert!(problems.into_errors()[0].to_string().contains("undefined field 'labels'"));
}

#[test]
fn transitions_compare_with_what_was() {
    let keyed = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": { "type": "object", "required": ["name"],
            "properties": { "name": { "type": "string" }, "size": { "type": "integer" } },
            "x-kubernetes-validations": [{ "rule": "self.size >= oldSelf.size", "message": "shrinks" }] },
    });
    let mut atomic = keyed.clone();
    atomic["x-kubernetes-list-type"] = json!("atomic");
    let spec = |items: &Value| of_spec(&json!({ "type": "object", "properties": { "items": items } }));
    let object = |items: Value| json!({ "spec": { "items": items } });
    let old = object(json!([{"name": "a", "size": 3}, {"name": "b", "size": 3}]));
    let new = object(json!([{"name": "b", "size": 2}, {"name": "c", "size": 1}, {"name": "a", "size": 3}]));
    let wanted = ["spec.items[0]: Invalid value: \"object\": shrinks"];
    assert_eq!(told(&spec(&keyed), &new, Some(&old)), wanted);
    assert!(told(&spec(&atomic), &new, Some(&old)).is_empty(), "items of an atomic list have no before");
    assert!(told(&spec(&keyed), &new, None).is_empty(), "nothing was before a create");

    let fixed =
        json!({ "type": "string", "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "fixed" }] });
    let declared = spec(&json!({ "type": "array", "items": { "type": "string" } }));
    let mut declared = declared;
    declared["properties"]["spec"]["properties"]["class"] = fixed;
    let class = |class: &str| json!({ "spec": { "class": class } });
    assert_eq!(told(&declared, &class("b"), Some(&class("a"))), ["spec.class: Invalid value: \"string\": fixed"]);
    assert!(told(&declared, &class("b"), Some(&json!({ "spec": {} }))).is_empty());

    let optional = of_spec(&json!({
        "type": "object", "properties": { "n": { "type": "integer" } },
        "x-kubernetes-validations": [{
            "rule": "oldSelf.hasValue() ? self.n >= oldSelf.value().n : self.n == 0", "optionalOldSelf": true, "message": "o" }],
    }));
    let n = |n: i64| json!({ "spec": { "n": n } });
    assert!(told(&optional, &n(0), None).is_empty());
    assert_eq!(told(&optional, &n(1), None).len(), 1);
    assert!(told(&optional, &n(2), Some(&n(1))).is_empty());
    assert_eq!(told(&optional, &n(0), Some(&n(1))).len(), 1);
}

#[test]
fn what_was_invalid_before_may_stay_as_it_is() {
    let declared = of_spec(&json!({
        "type": "object",
        "properties": {
            "a": { "type": "integer", "x-kubernetes-validations": [{ "rule": "self > 0", "message": "positive" }] },
            "b": { "type": "integer" },
        },
    }));
    let object = |a: i64, b: i64| json!({ "spec": { "a": a, "b": b } });
    assert!(told(&declared, &object(-1, 2), Some(&object(-1, 1))).is_empty());
    assert_eq!(told(&declared, &object(-2, 1), Some(&object(-1, 1))).len(), 1);
    assert_eq!(told(&declared, &object(-1, 1), None).len(), 1);
}

#[test]
fn evaluation_is_bounded() {
    let items: Vec<Value> = (0..3000).map(|n| json!({ "name": "x".repeat(50), "size": n })).collect();
    let new = json!({ "spec": { "items": items, "name": "a".repeat(100_000), "replicas": 1 } });
    for rule in [
        // Loops within loops.
        "self.items.all(a, self.items.all(b, self.items.all(c, a.size + b.size + c.size >= 0)))",
        "self.items.map(a, self.items.map(b, b)).size() > 0",
        // Texts and lists that double.
        "[self.name].all(a, [a + a].all(b, [b + b].all(c, [c + c].all(d, [d + d].all(e, [e + e].all(f, [f + f].all(g, \
         [g + g].all(h, [h + h].all(i, [i + i + i + i + i + i + i + i].all(j, j.size() > 0))))))))))",
        "[[self.items]].all(a, [[a, a, a, a]].all(b, [[b, b, b, b]].all(c, [[c, c, c, c]].all(d, [[d, d, d, d]].all(e, true)))))",
        "lists.range(1000000000).size() > 0",
        "self.name.replace('', self.name).size() > 0",
        "self.items.map(a, self.name).join(self.name).size() > 0",
        // Work that is more than linear.
        "sets.contains(self.items.map(a, a.size), self.items.map(a, a.size))",
        "self.name.matches('(a*)*(a*)*b')",
        "'%.99999999f'.format([1.0]).size() > 0",
    ] {
        let declared = spec_with(&json!([{ "rule": rule, "message": "m" }]));
        let began = tokio::time::Instant::now();
        let errors = told(&declared, &new, None);
        assert_eq!(errors.len(), 1, "{rule}");
        assert!(began.elapsed().as_secs() < 20, "{rule}: {:?}", began.elapsed());
    }
}

#[test]
fn a_deep_rule_needs_no_deep_stack() {
    let nested = (0..30).fold("self.replicas".to_owned(), |inner, _| format!("(1 + {inner})"));
    let declared = spec_with(&json!([{ "rule": format!("{nested} == 31") }]));
    assert!(told(&declared, &json!({ "spec": { "replicas": 1 } }), None).is_empty());
}

#[test]
fn the_rules_of_volcano_hold() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/crds/all.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("crds")).expect("json");
    let crds = all["items"].as_array().cloned().or_else(|| all.as_array().cloned()).expect("a list of definitions");
    let crd = crds.iter().find(|crd| crd["metadata"]["name"] == "hypernodes.topology.volcano.sh").expect("hypernodes");
    let declared = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let member = |selector: Value| json!({ "spec": { "members": [{ "type": "Node", "selector": selector }] } });
    assert!(told(declared, &member(json!({ "exactMatch": { "name": "n" } })), None).is_empty());
    let errors = told(declared, &member(json!({})), None);
    assert!(errors[0].contains("must be specified"), "{errors:?}");
    let both = member(json!({ "exactMatch": { "name": "n" }, "regexMatch": { "pattern": "n" } }));
    assert!(told(declared, &both, None)[0].contains("Only one of"));
}
