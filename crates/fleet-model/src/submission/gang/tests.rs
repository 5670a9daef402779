//! Each rule of gangs, kept and broken.

use super::super::tests::{check_one, item, item_of, map, pod_spec, submission};
use super::super::{Completed, check};
use super::*;

fn member(entries: &[(&str, &str)]) -> Item {
    Item { annotations: map(entries), ..item() }
}

/// `Ok` or the text behind the item's place.
fn refusal(items: Vec<Item>, rules: &Rules) -> Option<String> {
    check(&submission(items), rules).err().map(|error| error.to_string())
}

#[test]
fn gangs_are_told_well_and_agree() {
    let two = [(GANG_ID, "g"), (GANG_CARDINALITY, "2")];
    let with = |key: &'static str, value: &'static str| [two.as_slice(), &[(key, value)]].concat();
    let of_class = |class: &str| Item {
        pod_specs: vec![pod_spec(serde_json::json!({"priorityClassName": class}))],
        ..member(&two)
    };
    let labelled = Rules { add_gang_id_label: true, ..Rules::default() };
    let plain = Rules::default();
    for (rules, items, text) in [
        (&plain, vec![member(&two), member(&two)], None),
        (&plain, vec![member(&[(GANG_ID, ""), (GANG_CARDINALITY, "2")])], Some("gangId]: it is empty")),
        (&plain, vec![member(&[(GANG_ID, "g")])], Some("gangCardinality]: it is missing")),
        (&plain, vec![member(&[(GANG_ID, "g"), (GANG_CARDINALITY, "two")])], Some("\"two\" is no number above zero")),
        (&plain, vec![member(&[(GANG_ID, "g"), (GANG_CARDINALITY, "0")])], Some("\"0\" is no number above zero")),
        (&plain, vec![member(&[(GANG_ID, "g"), (GANG_CARDINALITY, "-3")])], Some("\"-3\" is no number above zero")),
        (&plain, vec![member(&[(GANG_CARDINALITY, "0"), (FAIL_FAST, "no")])], None),
        (&plain, vec![member(&with(FAIL_FAST, "true"))], None),
        (&plain, vec![member(&with(FAIL_FAST, "false"))], Some("failFast]: \"false\" on a gang")),
        (&plain, vec![member(&[(GANG_ID, "g"), (GANG_CARDINALITY, "1"), (FAIL_FAST, "false")])], None),
        (&plain, vec![member(&two), member(&[(GANG_ID, "h"), (GANG_CARDINALITY, "3")])], None),
        (
            &plain,
            vec![member(&two), item(), member(&[(GANG_ID, "g"), (GANG_CARDINALITY, "3")])],
            Some(
                "jobRequestItems[2].annotations[armadaproject.io/gangCardinality]: \"3\", but \"2\" in jobRequestItems[0]",
            ),
        ),
        (&plain, vec![member(&two), of_class("armada-default")], None),
        (
            &plain,
            vec![member(&two), of_class("armada-resilient")],
            Some("priorityClassName: \"armada-resilient\", but"),
        ),
        (&plain, vec![member(&with(GANG_UNIFORMITY, "rack")), member(&with(GANG_UNIFORMITY, "rack"))], None),
        (
            &plain,
            vec![member(&with(GANG_UNIFORMITY, "rack")), member(&two)],
            Some("UniformityLabel]: \"\", but \"rack\""),
        ),
        (&plain, vec![member(&[(GANG_ID, "a b"), (GANG_CARDINALITY, "2")])], None),
        (&labelled, vec![member(&two)], None),
        (&labelled, vec![member(&[(GANG_ID, "a b"), (GANG_CARDINALITY, "2")])], Some("\"a b\" can't be a label")),
    ] {
        match (refusal(items.clone(), rules), text) {
            (None, None) => {}
            (Some(refusal), Some(text)) if refusal.contains(text) => {}
            (refusal, text) => panic!("{refusal:?} is not {text:?}: {items:?}"),
        }
    }
}

#[test]
fn gangs_are_completed() {
    let rules =
        Rules { default_gang_node_uniformity_label: "rack".to_owned(), add_gang_id_label: true, ..Rules::default() };
    let job = |entries: &[(&str, &str)], rules: &Rules| -> Completed {
        check_one(Item { annotations: map(entries), ..item_of(pod_spec(serde_json::json!({}))) }, rules)
            .expect("accepted")
    };
    let two = [(GANG_ID, "g"), (GANG_CARDINALITY, "2")];
    let gang = |uniformity: &str| Gang {
        id: "g".to_owned(),
        cardinality: 2,
        uniformity_label: uniformity.to_owned(),
        fail_fast: true,
    };

    let completed = job(&two, &rules);
    assert_eq!(completed.gang, Some(gang("rack")));
    assert!(completed.fail_fast);
    assert_eq!(completed.labels, map(&[(GANG_ID, "g")]));
    let wanted = [two.as_slice(), &[(GANG_UNIFORMITY, "rack"), (FAIL_FAST, "true")]].concat();
    assert_eq!(completed.annotations, map(&wanted));

    let plain = job(&two, &Rules::default());
    assert_eq!(plain.gang, Some(gang("")));
    assert_eq!(plain.annotations[GANG_UNIFORMITY], "");
    assert!(plain.labels.is_empty());

    let own = job(&[two.as_slice(), &[(GANG_UNIFORMITY, "zone")]].concat(), &rules);
    assert_eq!(own.gang, Some(gang("zone")));

    for alone in [&[(GANG_ID, "g"), (GANG_CARDINALITY, "1")][..], &[]] {
        let alone = job(alone, &rules);
        assert_eq!((alone.gang, alone.fail_fast), (None, false));
        assert!(alone.labels.is_empty());
    }
    assert!(job(&[(FAIL_FAST, "true")], &rules).fail_fast);
}
