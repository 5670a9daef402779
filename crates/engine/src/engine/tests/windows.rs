//! Reservations by administrators: nothing is in the way when one begins, and everybody is told.

use super::farm::{Farm, SECOND, SETTINGS, Work};
use super::*;

fn job(name: &str, run: i64) -> Work {
    Work::new(name, 1, 4_000, run * SECOND)
}

// INV-20
#[test]
fn only_what_is_sure_to_have_ended_starts_before_a_window() {
    let mut farm = Farm::new(SETTINGS, &[4_000]);
    farm.window("upgrade", &["n0"], 100, Some(200), &[]);
    let begin = farm.now();
    farm.submit(&job("endless", 10));
    farm.submit(&job("long", 101).limited());
    farm.until(begin + 3 * SECOND);
    assert!(!farm.has_started("endless") && !farm.has_started("long"));
    for (name, text) in [
        ("endless", "1 closed by reservation upgrade"),
        (
            "endless",
            "1 node could take it, but reservation upgrade closes it in 1m 37s: with a time limit below 1m 37s",
        ),
        ("long", "with a time limit below 1m 37s it could start there now"),
    ] {
        assert!(farm.lab.why(name).contains(text), "{text}: {}", farm.lab.why(name));
    }
    for name in ["endless", "long"] {
        let why = farm.lab.world.why("ns", name).unwrap();
        assert_eq!(why.could, [Could::Limit { limit_ms: 97 * SECOND }], "{name}");
        assert!(why.to_string().contains("1 closed by reservation upgrade"), "{why}");
    }
    let why = farm.lab.world.node_why(&"n0".into()).unwrap().to_string();
    assert!(why.contains("reservation upgrade, in 1m 37s, for 1m 40s"), "{why}");
    farm.submit(&job("short", 97).limited());
    farm.settle();
    assert!(farm.has_started("short"), "{}", farm.lab.why("short"));
    farm.until(begin + 199 * SECOND);
    assert!(farm.evicted.is_empty() && !farm.has_started("endless"));
    assert!(farm.lab.why("endless").contains("closes it for another 1s"), "{}", farm.lab.why("endless"));
    farm.until(begin + 200 * SECOND);
    assert!(farm.has_started("endless"), "{}", farm.lab.why("endless"));
}

#[test]
fn a_cycle_is_wanted_when_a_window_begins_and_when_it_ends() {
    let mut farm = Farm::new(SETTINGS, &[4_000]);
    let begin = farm.lab.now;
    farm.window("upgrade", &["n0"], 100, Some(200), &[]);
    assert_eq!(farm.cycle().next_wakeup, Some(begin.plus_ms(100 * SECOND)));
    farm.lab.now = begin.plus_ms(100 * SECOND);
    assert_eq!(farm.cycle().next_wakeup, Some(begin.plus_ms(200 * SECOND)));
    farm.lab.now = begin.plus_ms(200 * SECOND);
    assert_eq!(farm.cycle().next_wakeup, None);
    assert!(farm.lab.tables().maintenance_windows.all.is_empty(), "what is over is forgotten");
}

#[test]
fn what_is_still_there_leaves_with_a_receipt() {
    let mut farm = Farm::new(SETTINGS, &[8_000, 8_000]);
    let pinned = |work: Work| Work { pin: Some(0), ..work };
    let begin = farm.now();
    farm.submit(&pinned(job("service", 1_000)));
    farm.settle();
    for (uid, daemon) in [("daemon", true), ("foreign", false)] {
        let node = Some("n0".into());
        let group = daemon.then(|| "daemons".to_owned());
        let template = pod("", 0, 100).template;
        let facts = PodFacts {
            uid: uid.into(),
            name: uid.into(),
            mine: daemon,
            of_daemon_set: daemon,
            group,
            ..pod("x", 0, 100)
        };
        farm.lab.pod(PodFacts { node, phase: PodPhase::Running, template, ..facts });
    }
    farm.window("drain-n0", &["n0"], 50, None, &[]);
    farm.until(begin + 49 * SECOND);
    assert!(farm.evicted.is_empty());
    farm.until(begin + 51 * SECOND);
    let [(at, eviction)] = &farm.evicted[..] else { panic!("{:?}", farm.evicted) };
    assert_eq!(
        (*at, eviction.name.as_str(), eviction.action.as_str()),
        (begin + 50 * SECOND, "service-0", "reservation")
    );
    assert_eq!(eviction.message, "its node is closed by reservation drain-n0");
    farm.submit(&job("next", 10));
    farm.submit(&pinned(job("waits", 10)));
    farm.until(begin + 60 * SECOND);
    assert_eq!(farm.node_of("next"), Some("n1"));
    assert!(farm.lab.why("waits").contains("until that is deleted"), "{}", farm.lab.why("waits"));
    farm.lab.apply(Delta::WindowRemove("drain-n0".into()));
    farm.settle();
    assert_eq!(farm.node_of("waits"), Some("n0"));
}

#[test]
fn a_window_for_a_queue_is_for_its_groups() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000]);
    farm.lab.queue("course", &[]);
    let begin = farm.now();
    farm.submit(&Work { pin: Some(0), ..job("leaves", 1_000) });
    farm.submit(&Work { pin: Some(1), stays: true, ..job("stays", 100) });
    farm.settle();
    farm.window("lesson", &["n0", "n1"], 50, Some(500), &["course"]);
    for index in 0..2 {
        farm.submit(&Work { queue: "course", ..job(&format!("pupil-{index}"), 30) });
    }
    farm.submit(&job("other", 10).limited());
    farm.until(begin + 60 * SECOND);
    let evicted: Vec<&str> = farm.evicted.iter().map(|(_, eviction)| eviction.name.as_str()).collect();
    assert_eq!(evicted, ["leaves-0"], "what may not be evicted is waited for");
    assert_eq!(farm.evicted[0].1.message, "its node is kept by reservation lesson for queue course");
    assert!(farm.has_started("pupil-0") && !farm.has_started("pupil-1") && !farm.has_started("other"));
    farm.until(begin + 110 * SECOND);
    assert!(farm.has_started("pupil-1"), "{}", farm.lab.why("pupil-1"));
    farm.until(begin + 200 * SECOND);
    let why = farm.lab.why("other");
    assert!(
        why.contains("2 nodes could take it, but reservation lesson keeps them for queue course for another 5m"),
        "{why}"
    );
}

#[test]
fn nodes_with_its_labels_count_as_soon_as_they_join() {
    let mut farm = Farm::new(SETTINGS, &[]);
    let named = |name: &str| Requirement { key: "name".into(), operator: Operator::In, values: vec![name.into()] };
    let facts = WindowFacts { name: "new".into(), selector: vec![named("n0")], ..WindowFacts::default() };
    farm.lab.apply(Delta::WindowUpsert(facts));
    farm.window("named", &["n1"], 0, None, &[]);
    farm.submit(&job("a", 10));
    farm.cycle();
    for (index, expected) in [(0, None), (1, None), (2, Some("n2"))] {
        farm.node(index, 4_000);
        farm.settle();
        assert_eq!(farm.node_of("a"), expected);
    }
}

#[test]
fn a_kind_that_is_short_may_start_before_a_window_if_it_may_be_evicted() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000]);
    for round in 0..5 {
        farm.submit(&Work { profile: "train", ..job(&format!("train-{round}"), 40) });
        farm.until(farm.now() + 41 * SECOND);
    }
    farm.window("upgrade", &["n0", "n1"], 60, Some(100), &[]);
    farm.submit(&Work { profile: "train", stays: true, ..job("stays", 40) });
    farm.submit(&Work { profile: "train", ..job("leaves", 40) });
    farm.settle();
    assert!(!farm.has_started("stays") && farm.has_started("leaves"), "{}", farm.lab.why("leaves"));
}

#[test]
fn few_runs_of_a_kind_or_runs_of_another_are_nothing_to_rely_on() {
    for (before, profile, rounds) in [("train", "train", 4), ("clean", "train", 9)] {
        let mut farm = Farm::new(SETTINGS, &[4_000, 4_000]);
        for round in 0..rounds {
            farm.submit(&Work { profile: before, ..job(&format!("before-{round}"), 2) });
            farm.until(farm.now() + 3 * SECOND);
        }
        farm.window("upgrade", &["n0", "n1"], 60, Some(100), &[]);
        farm.submit(&Work { profile, ..job("next", 500) });
        farm.settle();
        assert!(!farm.has_started("next"), "{rounds} of {before}: it would be evicted in a minute");
    }
}

#[test]
fn a_gang_is_not_promised_nodes_that_are_closed_then() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000]);
    let begin = farm.now();
    farm.submit(&job("first", 100).limited());
    farm.settle();
    farm.window("upgrade", &["n1"], 120, Some(300), &[]);
    farm.submit(&Work::new("gang", 2, 4_000, 50 * SECOND).limited());
    farm.until(begin + 3 * SECOND);
    let expected = farm.lab.world.reasons("ns", "gang").unwrap().expected.unwrap();
    assert_eq!(expected.at, TimeMs(begin + 300 * SECOND), "{}", farm.lab.why("gang"));
    // It keeps nobody from using the nodes until then.
    farm.submit(&job("short", 100).limited());
    farm.settle();
    assert_eq!(farm.node_of("short"), Some("n1"));
    farm.until(begin + 301 * SECOND);
    assert_eq!(farm.started.get("gang"), Some(&(begin + 300 * SECOND)));
    // Where it fits before the window it does not wait for its end.
    farm.window("next", &["n0"], 200, Some(300), &[]);
    let begin = farm.now();
    farm.submit(&Work { pin: Some(0), ..job("pinned", 90).limited() });
    farm.until(begin + 60 * SECOND);
    assert!(farm.has_started("pinned"), "{}", farm.lab.why("pinned"));
}

#[test]
fn a_reservation_whose_nodes_are_closed_finds_others() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000]);
    let begin = farm.now();
    farm.submit(&Work { pin: Some(0), ..job("first", 100).limited() });
    farm.submit(&Work { pin: Some(1), ..job("second", 150).limited() });
    farm.settle();
    farm.submit(&job("next", 50).limited());
    farm.until(begin + 70 * SECOND);
    let places = |farm: &Farm| {
        let of = farm.lab.tables().reservations.of(farm.lab.group_id("next")).unwrap();
        assert!(of.hard);
        of.forecast.as_ref().unwrap().places[0].name.to_string()
    };
    assert_eq!(places(&farm), "n0");
    farm.window("drain-n0", &["n0"], 10, None, &[]);
    farm.until(begin + 72 * SECOND);
    assert_eq!(places(&farm), "n1");
    farm.until(begin + 151 * SECOND);
    assert_eq!((farm.started.get("next"), farm.node_of("next")), (Some(&(begin + 150 * SECOND)), Some("n1")));
}

#[test]
fn nobody_leaves_beyond_a_budget() {
    let settings = SETTINGS.replace("  - name: nodeorder\n", "  - name: nodeorder\n  - name: pdb\n");
    let mut farm = Farm::new(&settings, &[8_000, 8_000]);
    let begin = farm.now();
    farm.lab.apply(Delta::BudgetUpsert(BudgetFacts {
        namespace: "ns".into(),
        name: "all".into(),
        selector: Some(Vec::new()),
        allowed: 1,
    }));
    for index in 0..2 {
        farm.submit(&Work { pin: Some(0), ..job(&format!("one-{index}"), 1_000) });
    }
    farm.settle();
    farm.window("drain-n0", &["n0"], 10, None, &[]);
    farm.until(begin + 10 * SECOND);
    assert_eq!(farm.evicted.len(), 1);
    farm.until(begin + 20 * SECOND);
    assert_eq!(farm.evicted.len(), 2, "the next one leaves once the first is gone");
}

#[test]
fn a_passer_that_overruns_leaves_for_the_one_that_it_passed() {
    let mut farm = Farm::new(SETTINGS, &[4_000, 4_000]);
    for round in 0..3 {
        farm.submit(&Work { profile: "train", ..job(&format!("train-{round}"), 20) });
        farm.until(farm.now() + 21 * SECOND);
    }
    let begin = farm.now();
    // Of a namespace of which nothing is known but limits.
    farm.submit(&Work { namespace: "other", ..job("first", 100).limited() });
    farm.settle();
    farm.submit(&Work::new("gang", 2, 4_000, 50 * SECOND).limited());
    farm.until(begin + 3 * SECOND);
    farm.submit(&Work { profile: "train", ..job("passer", 10_000) });
    farm.settle();
    assert!(farm.has_started("passer"), "{}", farm.lab.why("passer"));
    farm.until(begin + 99 * SECOND);
    assert!(farm.evicted.is_empty(), "nobody gains by it yet");
    farm.until(begin + 102 * SECOND);
    let [(at, eviction)] = &farm.evicted[..] else { panic!("{:?}", farm.evicted) };
    assert_eq!((*at, eviction.name.as_str(), eviction.action.as_str()), (begin + 100 * SECOND, "passer-0", "overrun"));
    assert_eq!(eviction.beneficiary.as_deref(), Some("ns/gang"));
    assert_eq!(farm.started.get("gang"), Some(&(begin + 101 * SECOND)), "{}", farm.lab.why("gang"));
}
