//! Tried and held: ways out of a pod, each with the control that stops it.
//!
//! Every row of the table is tried twice by this binary, which is also the program in the pods: in a pod with all its controls,
//! where it must be refused, and in the same pod with that one control off, where it must succeed. Without the second try a row
//! would prove nothing: it may be refused for another reason, or be impossible wherever it is tried. Where it doesn't succeed
//! even so, it is vacuous on this kernel and does not count. What the usual pod tries is refused in pods of other kinds, too, and
//! to programs that are started beside a pod's own.
//! `cargo test -p pumice-node --test ways_out -- --nocapture` prints the table.
//!
//! To add a row:
//! 1. Write the attempt into the file of `attempts/` that it is about, as a function that returns `Ok` only if it got out: a
//!    thing that is merely there is not the host's yet. It has a process of its own, at most ten seconds, and nothing of it may
//!    outlive it: write a value that is there already, pass arguments that are refused after the check of rights, or undo it.
//!    It runs with the control off, too, and then it is the machine that it reaches.
//! 2. Give it a row in that file's `ROWS`: a name of its own, the pod that makes it, the control that stops it. If several
//!    controls stop it, choose a pod that has one of them, or it never succeeds.
//! 3. What it has to know of the machine goes into [`facts::Facts`], and into `fixture.rs` what has to be there.
//! 4. A control that is new is a variant of [`table::Control`], and `pods.rs` says how it is switched off.
//! 5. If nothing stops it today, put it into `NOT_HELD_YET` with [`table::Control::Missing`], which names what would. The test
//!    fails when such a row begins to be refused, so that it moves to the others.

#![allow(clippy::unwrap_used, reason = "the harness of a test fails by panicking")]

mod attempts;
mod facts;
mod fixture;
#[path = "../processes/harness.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod harness;
#[path = "../processes/node.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod node;
mod pods;
mod probe;
mod table;

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::{StreamExt, stream};

use pods::{Suite, Trial};
use table::{Control, Outcome, PodKind, Row, not_held_yet, rows};

/// Rows that count at least. Where all of the table was last tried they were 213 of 235; a kernel may lack more.
const COUNTED_MIN: usize = 190;
/// Pods that run at a time.
const PODS_AT_ONCE: usize = 3;
/// Other pods in which what the usual one tries is refused as well.
const ALSO_IN: [PodKind; 5] =
    [PodKind::Exec, PodKind::Tenant, PodKind::RightsDropped, PodKind::Rootless, PodKind::OwnUsers];

#[test]
fn shim_entry() {
    harness::shim_entry();
}

#[test]
fn probe_entry() {
    probe::probe_entry();
}

/// What came of a row, by its name and the pod that it was tried in.
type Outcomes = HashMap<(&'static str, Trial), Outcome>;

#[tokio::test(flavor = "multi_thread")]
async fn each_way_out_is_held_by_its_control() {
    if !harness::is_root() {
        return;
    }
    let names: HashSet<_> = all().map(|row| row.name).collect();
    assert_eq!(names.len(), all().count(), "each row has a name of its own");
    let mut trials: BTreeMap<Trial, Vec<&'static Row>> = BTreeMap::new();
    for row in all() {
        for trial in trials_of(row) {
            trials.entry(trial).or_default().push(row);
        }
    }
    let suite = Suite::start().await;
    let made = stream::iter(&trials).map(|(trial, rows)| suite.make(*trial, rows)).buffer_unordered(PODS_AT_ONCE);
    let outcomes: Outcomes = made.flat_map(stream::iter).collect().await;
    judge(&outcomes);
}

fn all() -> impl Iterator<Item = &'static Row> {
    rows().chain(not_held_yet())
}

/// The pod in which a row is to be refused, and the others.
fn trials_of(row: &Row) -> Vec<Trial> {
    let mut trials = vec![Trial { pod: row.pod, off: None }];
    if !matches!(row.control, Control::Missing(_)) {
        trials.push(Trial { pod: row.pod, off: Some(row.control) });
        trials.extend(others_of(row));
    }
    trials
}

fn others_of(row: &Row) -> impl Iterator<Item = Trial> {
    let is_usual = row.pod == PodKind::Usual;
    // An ordinary user's pods are in the host's network, and so see the host's `/sys`. What that user may write of the host's,
    // they write where something is mounted in a folder, since no overlay goes over it then; they have no control
    // groups, and may open the devices that the user may.
    use Control::{DeviceGroup, NoControlGroups, Overlay, OwnNetwork};
    let is_rootless = !matches!(row.control, OwnNetwork | NoControlGroups | Overlay | DeviceGroup);
    let others = ALSO_IN.into_iter().filter(move |pod| is_usual && (*pod != PodKind::Rootless || is_rootless));
    others.map(|pod| Trial { pod, off: None })
}

/// Prints the table, and fails if a row is not as it must be.
fn judge(outcomes: &Outcomes) {
    let outcome = |row: &Row, trial| &outcomes[&(row.name, trial)];
    let (mut counted, mut others, mut failures) = (0, 0, Vec::new());
    println!("{:76} {:28} {:24} with it off", "way out", "control", "with it");
    for row in rows() {
        let on = outcome(row, Trial { pod: row.pod, off: None });
        let off = outcome(row, Trial { pod: row.pod, off: Some(row.control) });
        let verdict = if *off == Outcome::Out { "out".to_owned() } else { format!("vacuous on this kernel ({off})") };
        println!("{:76} {:28} {:24} {verdict}", row.name, row.control.to_string(), on.to_string());
        if *on == Outcome::Out {
            failures.push(format!("{:?} is not held", row.name));
        } else if *off == Outcome::Out {
            counted += 1;
        }
        for trial in others_of(row) {
            others += 1;
            if *outcome(row, trial) == Outcome::Out {
                failures.push(format!("{:?} is not held in the pod {:?}", row.name, trial.pod));
            }
        }
    }
    for row in not_held_yet() {
        let on = outcome(row, Trial { pod: row.pod, off: None });
        println!("{:76} {:28} not held yet; {}", row.name, "none", row.control);
        if *on != Outcome::Out {
            failures.push(format!("{:?} is held now ({on}): give it a control and move it to the others", row.name));
        }
    }
    println!("{counted} of {} rows count, {} are not held yet", rows().count(), not_held_yet().count());
    println!("{others} more attempts were made in the pods {ALSO_IN:?}");
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(counted >= COUNTED_MIN, "only {counted} rows count, of {COUNTED_MIN}");
}
