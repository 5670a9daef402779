//! Paths as they stand in printer columns, and texts that are none.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn sample() -> Value {
    json!({
        "metadata": {"labels": {"a.b/c": "dotted", "plain": "x"}},
        "spec": {"list": [{"x": 1, "n": "one"}, {"x": 2, "n": "two"}, {"x": 3}], "empty": []},
        "status": {
            "state": {"phase": "Running"},
            "conditions": [
                {"type": "Ready", "status": "False"},
                {"type": "Done", "status": "True", "probe": {"ok": true}}
            ]
        }
    })
}

#[test]
fn paths_lead_to_values() {
    for (path, expected) in [
        (".status.state.phase", json!(["Running"])),
        ("{.status.state.phase}", json!(["Running"])),
        ("$.status.state.phase", json!(["Running"])),
        (".metadata.labels.a\\.b/c", json!(["dotted"])),
        (".metadata.labels['a.b/c']", json!(["dotted"])),
        (".metadata['labels'].plain", json!(["x"])),
        (".spec.list[0].x", json!([1])),
        (".spec.list[-1].x", json!([3])),
        (".spec.list[9].x", json!([])),
        (".spec.list[-9].x", json!([])),
        (".spec.list[*].n", json!(["one", "two"])),
        (".spec.list[1:].x", json!([2, 3])),
        (".spec.list[:-1].x", json!([1, 2])),
        (".spec.list[0:1].x", json!([1])),
        (".spec.list[2:1].x", json!([])),
        (".spec.empty[*]", json!([])),
        (".metadata.labels.*", json!(["dotted", "x"])),
        (".status.conditions[?(@.type==\"Ready\")].status", json!(["False"])),
        (".status.conditions[?(@.type == 'Done')].status", json!(["True"])),
        (".status.conditions[?(@.type!='Done')].status", json!(["False"])),
        (".status.conditions[?(@.probe)].type", json!(["Done"])),
        (".status.conditions[?(@.probe.ok==true)].type", json!(["Done"])),
        (".spec.list[?(@.x>1)].x", json!([2, 3])),
        (".spec.list[?(@.x<=2)].x", json!([1, 2])),
        (".spec.list[?(@.x==2.0)].n", json!(["two"])),
        (".spec.list[?(@.n>'one')].x", json!([2])),
        (".missing.x", json!([])),
        (".status.state.phase.x", json!([])),
    ] {
        let parsed = JsonPath::parse(path).unwrap_or_else(|error| panic!("{error}"));
        let sample = sample();
        let found = parsed.all(&sample);
        assert_eq!(json!(found), expected, "{path}");
        assert_eq!(parsed.first(&sample), found.first().copied(), "{path}");
    }
    assert_eq!(JsonPath::parse(".").unwrap().first(&json!(1)), Some(&json!(1)));
}

#[test]
fn malformed_paths_are_refused() {
    for (path, at) in [
        ("", 0),
        ("spec", 0),
        (".spec.", 6),
        (".spec..x", 5),
        (".a[", 3),
        (".a[x]", 3),
        (".a[0", 4),
        (".a['b]", 3),
        (".a[0,1]", 4),
        (".a[0:2:1]", 6),
        (".a[?(@.b==)]", 10),
        (".a[?(@.b==null)]", 10),
        (".a[?(@.b=='c']", 13),
        (".a]", 2),
        (".a[99999999999999999999]", 3),
    ] {
        match JsonPath::parse(path) {
            Err(PathError::Unexpected { at: found, .. } | PathError::Unsupported { at: found, .. }) => {
                assert_eq!(found, at, "{path}");
            }
            other => panic!("{path}: {other:?}"),
        }
    }
    let nested = format!(".a{}{}", "[?(@.a".repeat(9), ")]".repeat(9));
    assert!(matches!(JsonPath::parse(&nested), Err(PathError::Unsupported { .. })));
    assert!(matches!(JsonPath::parse(&".a".repeat(3000)), Err(PathError::TooLong { len: 6000 })));
}

proptest! {
    #[test]
    fn no_text_panics(path in "[.a\\[\\]0:?(@='\")*\\\\-]{0,20}|\\PC{0,20}") {
        if let Ok(path) = JsonPath::parse(&path) {
            path.all(&sample());
        }
    }

    #[test]
    fn an_escaped_name_leads_to_its_member(name in "[a-z./ \\[\\]'=]{1,12}") {
        let escaped: String = name.chars().flat_map(|c| ['\\', c]).collect();
        let path = JsonPath::parse(&format!(".{escaped}")).unwrap();
        let object = json!({name: 7});
        prop_assert_eq!(path.first(&object), Some(&json!(7)));
    }
}
