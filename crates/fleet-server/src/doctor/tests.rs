//! What is said of fleets that do well, and of those that do not.

use super::*;
use crate::database::DatabaseHealth;
use crate::health::{Asker, Stuck};

fn executor_named(name: &str) -> ExecutorHealth {
    ExecutorHealth {
        name: name.to_owned(),
        connected: true,
        silent_ms: 2_000,
        release: "0.1.0".to_owned(),
        ahead_ms: Some(12),
        nodes: 3,
        open: 3,
    }
}

fn well() -> FleetHealth {
    FleetHealth {
        release: "0.1.0".to_owned(),
        format: FORMAT,
        now_ms: 1_000_000,
        who: Asker {
            name: "ada".to_owned(),
            groups: ["ops".to_owned()].into(),
            permissions: ["create_queue".to_owned()].into(),
        },
        leads_since_ms: Some(0),
        database: DatabaseHealth {
            kind: "SQLite".to_owned(),
            write_ms: 3,
            position: 900,
            unfolded: 1,
            holder: "h_1".to_owned(),
            leads_for_ms: 1_500,
            ..DatabaseHealth::default()
        },
        database_error: String::new(),
        priority_classes: BTreeSet::new(),
        leader: Some(Known {
            executors: vec![executor_named("east")],
            pools: [("default".to_owned(), 3)].into(),
            waiting: 7,
            ..Known::default()
        }),
    }
}

fn ill() -> FleetHealth {
    let away = ExecutorHealth { connected: false, silent_ms: 400_000, ..executor_named("west") };
    let late = ExecutorHealth { ahead_ms: Some(-61_000), ..executor_named("north") };
    let old = ExecutorHealth { release: "0.0.9".to_owned(), ..executor_named("south") };
    let empty = ExecutorHealth { nodes: 0, open: 0, ..executor_named("up") };
    let stuck = Stuck { cluster: "west".into(), queue: "q".into(), runs: 2 };
    let mut health = well();
    health.database.lag_ms = 60_000;
    health.database.write_ms = 900;
    health.database.ahead_ms = 7_250;
    health.leader = Some(Known {
        executors: vec![away, late, old, empty],
        undefined: [("gone".to_owned(), 4)].into(),
        ownerless: (0..7).map(|number| format!("q{number}")).collect(),
        cordoned: [("shut".to_owned(), 1)].into(),
        pools: [("default".to_owned(), 3), ("gpu".to_owned(), 0)].into(),
        waiting: 12,
        stuck: vec![stuck],
        silent_max_ms: 0,
    });
    health
}

#[test]
fn a_fleet_that_does_well() {
    let diagnosis = Diagnosis::of(server(&well()));
    assert!(diagnosis.ok);
    insta::assert_snapshot!(diagnosis);
}

#[test]
fn a_fleet_that_does_not() {
    let diagnosis = Diagnosis::of(server(&ill()));
    assert!(!diagnosis.ok);
    insta::assert_snapshot!(diagnosis);
}

#[test]
fn what_becomes_of_runs_of_a_silent_cluster() {
    for (most_ms, wanted) in [
        (0, "its runs go on and are counted when it is back, however late: no executorTimeout is set"),
        (3_600_000, "its runs go on and are counted when it is back within 60 min (executorTimeout)"),
        (400_000, "its runs have failed after 6 min (executorTimeout)"),
    ] {
        let mut health = ill();
        health.leader.as_mut().expect("a leader").silent_max_ms = most_ms;
        let text = Diagnosis::of(server(&health)).to_string();
        assert!(text.contains(&format!("executor west    not heard of for 6 min; {wanted}: ")), "{text}");
    }
}

#[test]
fn servers_that_do_not_lead_or_can_not_write() {
    let mut health = FleetHealth { leads_since_ms: None, leader: None, ..well() };
    assert_eq!(leader(&health).level, Level::Warning);
    health.database.leads_for_ms = -1;
    assert_eq!(leader(&health).level, Level::Failed);
    health.database_error = "the disk is full".to_owned();
    let text = Diagnosis::of(server(&health)).to_string();
    assert!(text.contains("FAILED  database         it takes no writes: the disk is full"), "{text}");
    let nobody = FleetHealth { who: Asker::default(), ..well() };
    assert_eq!(who(&nobody).level, Level::Failed);
}

#[test]
fn what_an_executor_is_told() {
    let mut health = well();
    assert_eq!(executor(&health)[0].level, Level::Failed, "ada is none");
    health.who.name = "east".to_owned();
    health.who.permissions = ["execute_jobs".to_owned()].into();
    assert!(executor(&health).iter().all(|check| check.level == Level::Ok), "{:?}", executor(&health));
    health.who.name = "other".to_owned();
    health.format = FORMAT + 1;
    let levels: Vec<Level> = executor(&health).iter().map(|check| check.level).collect();
    assert_eq!(levels, [Level::Ok, Level::Failed, Level::Ok, Level::Warning]);
}

#[test]
fn certificates_and_clocks() {
    for (seconds, level) in [(-5, Level::Failed), (86_400, Level::Warning), (100 * 86_400, Level::Ok)] {
        assert_eq!(certificate("TLS", "the certificate", seconds, "renew it").level, level);
    }
    assert_eq!(clock("c", "it", -5_001).level, Level::Warning);
    assert_eq!(clock("c", "it", 4_250).found, "it is 4.250 s ahead");
}
