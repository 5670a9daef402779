//! Windows, budgets and victims.

use super::*;
use crate::plugin::tests::small_cluster;
use crate::plugin::tests::victim_bench::Bench;

fn plugin(window: &str) -> Tdm {
    Tdm::new(&small_cluster::config(
        "tdm",
        &format!("{{tdm.revocable-zone.night: \"{window}\", tdm.evict.period: 2m}}"),
    ))
}

fn at(clock: &str) -> TimeMs {
    let minute = window(&format!("{clock}-{clock}")).unwrap().start;
    TimeMs((20_000 * DAY_MINUTES + minute) * 60_000)
}

#[test]
fn a_window_holds_from_its_start_to_before_its_end() {
    for (text, clock, holds) in [
        ("10:00-21:00", "10:00", true),
        ("10:00-21:00", "20:59", true),
        ("10:00-21:00", "21:00", false),
        ("10:00-21:00", "09:59", false),
        ("23:00-01:00", "23:30", true),
        ("23:00-01:00", "00:30", true),
        ("23:00-01:00", "01:00", false),
        ("04:00-04:00", "03:00", true),
    ] {
        assert_eq!(window(text).unwrap().holds(at(clock)), holds, "{text} at {clock}");
    }
    for text in ["", "10:00", "10-12", "24:00-01:00", "10:60-11:00"] {
        assert!(window(text).is_none(), "{text}");
    }
}

#[test]
fn only_pods_made_for_it_use_a_zone_and_only_in_its_time() {
    for (annotations, clock, passes) in [
        (&[(ZONE, "*")][..], "12:00", true),
        (&[(ZONE, "*")], "22:00", false),
        (&[(ZONE, "night")], "12:00", false),
        (&[(PREEMPTABLE, "true")], "12:00", true),
        (&[(PREEMPTABLE, "false")], "12:00", false),
        (&[], "12:00", false),
    ] {
        let mut bench = Bench::new();
        bench.node("zone", |node| drop(node.labels.insert(ZONE.to_owned(), "night".to_owned())));
        let task = bench.pending("g", 0, |pod| pod.template.annotations = small_cluster::texts(annotations));
        let mut plugin = plugin("10:00-21:00");
        plugin.open(&bench.tables, at(clock));
        let class = bench.tables.classes.row(bench.tables.task(task).class);
        let check = |name: &str| {
            let node = bench.tables.nodes.table.find(name).unwrap();
            (plugin.check_facts(&bench.tables, class, node).is_none(), plugin.score(&bench.tables, class, node))
        };
        assert_eq!(check("zone").0, passes, "{annotations:?} at {clock}");
        assert_eq!(check("n0"), (true, 0));
    }
}

#[test]
fn a_new_time_is_a_new_epoch() {
    let bench = Bench::new();
    let mut plugin = plugin("10:00-21:00");
    plugin.open(&bench.tables, at("09:00"));
    let before = plugin.epoch();
    plugin.open(&bench.tables, at("09:30"));
    assert_eq!(plugin.epoch(), before);
    plugin.open(&bench.tables, at("10:00"));
    assert_ne!(plugin.epoch(), before);
}

/// Victims that three running pods give, by the group's annotations.
#[test]
fn budgets_bound_what_leaves() {
    for (annotations, expected) in [
        (&[][..], 1),
        (&[(MAX_UNAVAILABLE, "2")][..], 2),
        (&[(MAX_UNAVAILABLE, "50%")], 2),
        (&[(MAX_UNAVAILABLE, "0")], 0),
        (&[(MIN_AVAILABLE, "1")], 2),
        (&[(MIN_AVAILABLE, "34%")], 1),
        (&[(MIN_AVAILABLE, "5")], 0),
    ] {
        let mut bench = Bench::new();
        bench.group("victims", 1, |group| group.annotations = small_cluster::texts(annotations));
        let tasks: Vec<TaskId> = (0..3).map(|index| bench.running("victims", index, |_| {})).collect();
        let preemptor = bench.pending("wants", 0, |pod| pod.preemptable = Some(false));
        let plugin = plugin("10:00-21:00");
        let victims = plugin.preemptable(&bench.tables, preemptor, &tasks).unwrap();
        assert_eq!(victims.len(), expected, "{annotations:?}");
        let other = bench.pending("other", 0, |_| {});
        assert_eq!(plugin.preemptable(&bench.tables, other, &tasks), Some(Vec::new()), "a victim itself takes nothing");
    }
}

#[test]
fn those_whose_time_is_over_leave_once_a_period() {
    let mut bench = Bench::new();
    bench.node("n0", |node| drop(node.labels.insert(ZONE.to_owned(), "night".to_owned())));
    bench.group("victims", 1, |_| {});
    let task = bench.running("victims", 0, |_| {});
    let mut plugin = plugin("10:00-21:00");
    let mut victims = |now: TimeMs| {
        plugin.open(&bench.tables, now);
        plugin.victim_tasks(&bench.tables)
    };
    assert_eq!(victims(at("20:00")), []);
    assert_eq!(victims(at("21:00")), [task]);
    assert_eq!(victims(at("21:01")), []);
    assert_eq!(victims(at("21:02")), [task]);
}
