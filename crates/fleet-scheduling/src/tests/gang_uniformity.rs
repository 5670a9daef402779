//! Gangs whose nodes share the value of a label.

use super::*;

/// Adds nodes of one core: name, and value of each label.
fn nodes(scene: &mut Fixture, nodes: &[(&str, &[(&str, &str)])]) {
    for (name, labels) in nodes {
        let facts = NodeFacts {
            name: (*name).into(),
            allocatable: [("cpu".to_owned(), 1000), ("pods".to_owned(), 110)].into(),
            labels: labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect(),
            ..NodeFacts::default()
        };
        scene.pool.apply(&[node_delta("one", facts)]);
    }
}

fn gang(scene: &mut Fixture, id: &str, label: &str, cardinality: u32) -> Vec<JobId> {
    let gang = Gang { id: id.to_owned(), cardinality, uniformity: label.to_owned() };
    (0..cardinality).map(|_| scene.submit("q", "default", 1, 0, Some(gang.clone()))).collect()
}

fn places(leased: &BTreeMap<JobId, String>) -> Vec<&str> {
    let mut places: Vec<&str> = leased.values().map(String::as_str).collect();
    places.sort_unstable();
    places
}

#[test]
fn all_of_a_gang_lie_where_the_label_has_one_value() {
    let mut scene = Fixture::new(&[], &[("q", 1.0)]);
    nodes(&mut scene, &[("a", &[("rack", "1")]), ("b", &[("rack", "2")]), ("bare", &[]), ("c", &[("rack", "2")])]);
    gang(&mut scene, "g", "rack", 2);
    assert_eq!(places(&scene.round()), ["one/b", "one/c"]);
}

#[test]
fn a_gang_waits_until_one_value_has_room_for_all_and_says_so() {
    let mut scene = Fixture::new(&[], &[("q", 1.0)]);
    nodes(&mut scene, &[("a", &[("rack", "1")]), ("b", &[("rack", "2")])]);
    let jobs = gang(&mut scene, "g", "rack", 2);
    assert_eq!(scene.round(), BTreeMap::new());
    let why = scene.why(jobs[0]);
    assert!(why.contains("rack=") && !why.contains("limits"), "{why}");
    // Another label, of another gang, makes no difference.
    let other = gang(&mut scene, "other", "zone", 2);
    assert_eq!(scene.round(), BTreeMap::new());
    let why = scene.why(other[0]);
    assert!(why.starts_with("uniformity: no node has the label zone, of which all nodes of the gang"), "{why}");
    nodes(&mut scene, &[("c", &[("rack", "1"), ("zone", "x")]), ("d", &[("zone", "x")]), ("e", &[("zone", "y")])]);
    let leased = scene.round();
    assert_eq!(leased.len(), 2, "{leased:?}");
    assert_eq!(places(&leased), ["one/a", "one/c"]);
    nodes(&mut scene, &[("f", &[("zone", "y")])]);
    assert_eq!(places(&scene.round()), ["one/e", "one/f"]);
}

#[test]
fn who_is_tried_again_goes_where_the_others_are() {
    let mut scene = Fixture::new(&[], &[("q", 1.0)]);
    nodes(&mut scene, &[("a", &[("rack", "2")]), ("b", &[("rack", "2")])]);
    let jobs = gang(&mut scene, "g", "rack", 2);
    let first = scene.round();
    assert_eq!(first.len(), 2);
    // There is room in the other rack, but not in this one.
    nodes(&mut scene, &[("x", &[("rack", "1")]), ("y", &[("rack", "1")])]);
    scene.report(jobs[0], ReportKind::Returned("no image".to_owned(), true));
    assert_eq!(scene.round(), BTreeMap::new());
    nodes(&mut scene, &[("z", &[("rack", "2")])]);
    assert_eq!(places(&scene.round()), ["one/z"]);
}
