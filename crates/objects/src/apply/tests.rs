//! Owners through applies and updates.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn schema() -> Schema {
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "properties": {"name": text, "image": text,
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object", "properties": {"port": {"type": "integer"},
                "protocol": {"type": "string", "default": "TCP"}, "name": text}}},
        "args": {"type": "array", "items": text}}});
    let kind = json!({"type": "object", "properties": {
        "apiVersion": text, "kind": text,
        "metadata": {"type": "object", "properties": {"name": text, "resourceVersion": text,
            "labels": {"type": "object", "additionalProperties": text},
            "annotations": {"type": "object", "additionalProperties": text},
            "finalizers": {"type": "array", "items": text, "x-kubernetes-list-type": "set"}}},
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "selector": {"type": "object", "additionalProperties": text, "x-kubernetes-map-type": "atomic"},
            "containers": {"type": "array", "items": item, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"]},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
    }});
    Schema::of_builtin(&kind, &Map::new()).unwrap()
}

fn by<'a>(manager: &'a str, now: &'a str) -> By<'a> {
    By { manager, api_version: "v1", subresource: "", now }
}

fn named(rest: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}});
    for (name, value) in rest.as_object().unwrap() {
        if name == "metadata" {
            for (name, value) in value.as_object().unwrap() {
                object["metadata"][name] = value.clone();
            }
        } else {
            object[name] = value.clone();
        }
    }
    object
}

/// The object without the record, and who owns which paths.
fn told(object: &Value) -> (Value, Vec<(String, Vec<String>)>) {
    let mut object = object.clone();
    let managers = managers::take(&mut object);
    (object, managers.iter().map(|manager| (manager.to_string(), manager.fields.paths())).collect())
}

fn applied(live: Option<&Value>, config: &Value, manager: &str) -> Value {
    apply(live, config, &schema(), &by(manager, "t1"), false).unwrap()
}

#[test]
fn an_applier_owns_what_it_says_and_what_it_no_longer_says_goes() {
    let first = named(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x/y"]}, "spec": {"replicas": 1,
        "selector": {"k": "v"}, "containers": [{"name": "m", "image": "i", "ports": [{"port": 80}], "args": ["1", "2"]}],
        "free": {"deep": {"x": [1]}}}}),
    );
    let made = applied(None, &first, "ann");
    let (object, owners) = told(&made);
    assert_eq!(object, first);
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0].0, "\"ann\"");
    assert_eq!(
        owners[0].1,
        [
            ".metadata.finalizers[=\"x/y\"]",
            ".metadata.labels.a",
            ".metadata.labels.b",
            ".spec.containers[name=\"m\"]",
            ".spec.containers[name=\"m\"].args",
            ".spec.containers[name=\"m\"].image",
            ".spec.containers[name=\"m\"].name",
            ".spec.containers[name=\"m\"].ports[port=80,protocol=\"TCP\"]",
            ".spec.containers[name=\"m\"].ports[port=80,protocol=\"TCP\"].port",
            ".spec.free.deep",
            ".spec.free.deep.x",
            ".spec.replicas",
            ".spec.selector"
        ]
    );
    assert_eq!(applied(Some(&made), &first, "ann"), made, "the same again changes nothing");
    let later = apply(Some(&made), &first, &schema(), &by("ann", "t9"), false).unwrap();
    assert_eq!(later, made, "not even the time");

    let second = named(json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "n"}]}}));
    let (object, owners) = told(&applied(Some(&made), &second, "ann"));
    assert_eq!(object, second, "all else is gone");
    assert_eq!(
        owners[0].1,
        [".metadata.labels.a", ".spec.containers[name=\"n\"]", ".spec.containers[name=\"n\"].name"]
    );
}

#[test]
fn what_others_own_stays_and_clashes() {
    let ann = named(json!({"spec": {"replicas": 1, "containers": [{"name": "m", "image": "i"}]}}));
    let bob = named(json!({"spec": {"containers": [{"name": "side", "image": "s"}, {"name": "m", "args": ["x"]}]}}));
    let made = applied(Some(&applied(None, &ann, "ann")), &bob, "bob");
    let (object, owners) = told(&made);
    assert_eq!(
        object["spec"]["containers"],
        json!([{"name": "side", "image": "s"}, {"name": "m", "image": "i", "args": ["x"]}])
    );
    assert_eq!(owners.len(), 2);
    // Ann lets go of what both own, and of what is hers alone.
    let less = named(json!({"spec": {"replicas": 1}}));
    let (object, _) = told(&applied(Some(&made), &less, "ann"));
    assert_eq!(object["spec"]["containers"], json!([{"name": "side", "image": "s"}, {"name": "m", "args": ["x"]}]));

    let clash = named(json!({"spec": {"replicas": 3, "containers": [{"name": "m", "image": "j"}]}}));
    let error = apply(Some(&made), &clash, &schema(), &by("eve", "t2"), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"ann\":\n- .spec.containers[name=\"m\"].image\n- .spec.replicas"
    );
    let status = Status::from(error);
    assert_eq!((status.code, status.reason), (409, StatusReason::Conflict));
    let forced = apply(Some(&made), &clash, &schema(), &by("eve", "t2"), true).unwrap();
    let (object, owners) = told(&forced);
    assert_eq!((&object["spec"]["replicas"], &object["spec"]["containers"][1]["image"]), (&json!(3), &json!("j")));
    let of_ann = owners.iter().find(|(name, _)| name == "\"ann\"").unwrap();
    assert_eq!(of_ann.1, [".spec.containers[name=\"m\"]", ".spec.containers[name=\"m\"].name"]);
    // The same value is no clash: both own it then.
    let agrees = named(json!({"spec": {"replicas": 3}}));
    let (_, owners) = told(&applied(Some(&forced), &agrees, "zoe"));
    assert_eq!(owners.iter().filter(|(_, paths)| paths.contains(&".spec.replicas".to_owned())).count(), 2);
}

#[test]
fn what_was_there_before_the_first_apply_has_an_owner_too() {
    let live = named(json!({"spec": {"replicas": 1, "selector": {"a": "b"}}}));
    let clash = named(json!({"spec": {"replicas": 2}}));
    let error = apply(Some(&live), &clash, &schema(), &by("ann", "t1"), false).unwrap_err().to_string();
    assert_eq!(
        error,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1 at t1: .spec.replicas"
    );
    let (object, owners) = told(&applied(Some(&live), &named(json!({"metadata": {"labels": {"x": "y"}}})), "ann"));
    assert_eq!(object["spec"], live["spec"]);
    assert_eq!(owners[1].1, [".spec.replicas", ".spec.selector"]);

    // What kubectl itself has applied on the client's side is its own, as long as nobody changed it.
    let mut client = live.clone();
    client["metadata"]["annotations"] = json!({ (LAST_APPLIED): live.to_string() });
    let (object, _) = told(&applied(Some(&client), &clash, "kubectl"));
    assert_eq!(object["spec"]["replicas"], 2);
    client["spec"]["replicas"] = json!(7);
    assert!(apply(Some(&client), &clash, &schema(), &by("kubectl", "t1"), false).is_err());
}

#[test]
fn updates_are_recorded_once_somebody_applies() {
    let schema = schema();
    let plain = named(json!({"spec": {"replicas": 1}}));
    let mut changed = named(json!({"spec": {"replicas": 2}}));
    update(&plain, &mut changed, &schema, &by("kubectl-edit", "t2"));
    assert_eq!(changed["metadata"].get("managedFields"), None);

    let made = applied(None, &named(json!({"spec": {"replicas": 1, "selector": {"a": "b"}}})), "ann");
    let mut changed = made.clone();
    changed["spec"]["replicas"] = json!(5);
    changed["spec"].as_object_mut().unwrap().remove("selector");
    changed["metadata"]["resourceVersion"] = json!("9");
    update(&made, &mut changed, &schema, &by("edit", "t2"));
    let (_, owners) = told(&changed);
    assert_eq!(owners, [("\"edit\" using v1 at t2".to_owned(), vec![".spec.replicas".to_owned()])]);
    let mut same = changed.clone();
    update(&changed, &mut same, &schema, &by("edit", "t3"));
    assert_eq!(same, changed, "a write that changes nothing is none");
    let mut forgotten = changed.clone();
    forgotten["metadata"]["managedFields"] = json!([{}]);
    update(&changed, &mut forgotten, &schema, &by("edit", "t3"));
    assert_eq!(forgotten["metadata"].get("managedFields"), None);

    let mut object = made;
    for number in 0..30 {
        let mut next = object.clone();
        next["metadata"]["labels"][format!("l{number}")] = json!("x");
        let time = format!("t{number:02}");
        update(&object, &mut next, &schema, &by(&format!("m{number}"), &time));
        object = next;
    }
    let (_, owners) = told(&object);
    assert_eq!(owners.len(), 11, "{owners:?}");
    assert!(owners[1].0.starts_with("\"ancient-changes\" using v1") && owners[1].1.len() == 21, "{owners:?}");
}

#[test]
fn items_that_cannot_be_told_apart_are_refused() {
    for (config, wanted) in [
        (json!([1]), "a configuration to apply must be an object"),
        (json!({"metadata": {"managedFields": []}}), "metadata.managedFields must be nil"),
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            ".spec.containers[0]: element of a list lacks all of its keys",
        ),
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}),
            ".spec.containers[1]: duplicate entries for key",
        ),
        (json!({"metadata": {"finalizers": ["a", "a"]}}), ".metadata.finalizers[1]: duplicate entries for key"),
    ] {
        let error = apply(None, &config, &schema(), &by("ann", "t1"), false).unwrap_err();
        assert_eq!(error.to_string(), wanted);
        assert_eq!(Status::from(error).code, 400);
    }
}

#[test]
fn items_stand_in_the_order_of_who_applies() {
    let list = |names: &[&str]| -> Value { names.iter().map(|name| json!({ "name": name })).collect() };
    for (live, config, wanted) in [
        (&["a", "b"][..], &["c"][..], &["a", "b", "c"][..]),
        (&["a", "b"], &["b", "a"], &["b", "a"]),
        (&["x", "a", "y", "b"], &["a", "b"], &["x", "a", "y", "b"]),
        (&["a", "y", "b"], &["b", "a"], &["b", "a", "y"]),
        (&["a", "y"], &["a", "n", "y"], &["a", "n", "y"]),
        (&[], &["a"], &["a"]),
    ] {
        let live = named(json!({"spec": {"containers": list(live)}}));
        let config = named(json!({"spec": {"containers": list(config)}}));
        let (object, _) = told(&applied(Some(&live), &config, "ann"));
        assert_eq!(object["spec"]["containers"], list(wanted));
    }
}

#[test]
fn who_owns_an_object_goes_on_to_when_others_fill_and_empty_it() {
    let filled = named(json!({"spec": {"free": {"a": "a"}}}));
    let bare = named(json!({"spec": {"free": {}}}));
    let owner = |made: &Value| told(made).1;
    let of_ann = ("\"ann\"".to_owned(), vec![".spec.free".to_owned()]);
    let mut made = applied(Some(&applied(None, &filled, "eve")), &bare, "ann");
    for _ in 0..2 {
        made = applied(Some(&made), &named(json!({"spec": {"containers": []}})), "eve");
        assert_eq!((&made["spec"]["free"], owner(&made)), (&json!({}), vec![of_ann.clone()]));
    }
    let mut made = applied(None, &bare, "ann");
    for free in [json!({"a": "b"}), json!({})] {
        let mut changed = made.clone();
        changed["spec"]["free"] = free;
        update(&made, &mut changed, &schema(), &by("edit", "t2"));
        assert!(owner(&changed).contains(&of_ann), "{changed}");
        made = changed;
    }
}

fn object() -> impl Strategy<Value = Value> {
    let text = || prop::sample::select(vec!["a", "b", "c"]);
    let container = (text(), prop::option::of(text()), prop::option::of(prop::collection::vec(text(), 0..3)));
    let containers = prop::collection::vec(container, 0..3).prop_map(|containers| {
        let mut seen = std::collections::BTreeMap::new();
        for (name, image, args) in containers {
            let mut item = json!({ "name": name });
            if let Some(image) = image {
                item["image"] = json!(image);
            }
            if let Some(args) = args {
                item["args"] = json!(args);
            }
            seen.insert(name, item);
        }
        Value::Array(seen.into_values().collect())
    });
    let map = || prop::collection::btree_map(text(), text(), 0..3).prop_map(|map| json!(map));
    let spec = (prop::option::of(0..3), prop::option::of(containers), prop::option::of(map()), prop::option::of(map()));
    (spec, prop::option::of(map())).prop_map(|((replicas, containers, selector, free), labels)| {
        let mut spec = Map::new();
        let members = [
            ("replicas", replicas.map(Value::from)),
            ("containers", containers),
            ("selector", selector),
            ("free", free),
        ];
        spec.extend(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        let metadata = labels.map_or_else(|| json!({}), |labels| json!({ "labels": labels }));
        named(json!({"spec": spec, "metadata": metadata}))
    })
}

proptest! {
    /// Whatever was there: after an apply by force the object says what the configuration says, and again changes nothing.
    #[test]
    fn an_apply_by_force_gets_its_way_and_is_idempotent(configs in prop::collection::vec((object(), 0..3_usize), 1..6)) {
        let names = ["ann", "bob", "eve"];
        let schema = schema();
        let mut live: Option<Value> = None;
        for (config, who) in configs {
            let by = by(names[who], "t1");
            let new = apply(live.as_ref(), &config, &schema, &by, true).unwrap();
            let at = Some(schema.root());
            let (object, _) = told(&new);
            let changes = typed::changes(&object, &typed::merge(&object, &config, at), at);
            prop_assert!(changes.set.is_empty() && changes.removed.is_empty(), "{} lost {}", object, config);
            prop_assert_eq!(&apply(Some(&new), &config, &schema, &by, false).unwrap(), &new);
            live = Some(new);
        }
        // Each field of the object has an owner, but for what the server owns.
        let mut object = live.unwrap();
        let managers = managers::take(&mut object);
        let mut left = managers::without_owner(typed::fields_of(&object, Some(schema.root())));
        managers.iter().for_each(|manager| left.subtract(&manager.fields));
        prop_assert!(left.paths().iter().all(|path| path == ".spec" || path.ends_with(".containers")), "{:?}", left.paths());
    }
}
