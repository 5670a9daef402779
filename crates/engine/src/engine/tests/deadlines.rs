//! What is told of starts and of deadlines, compared with what comes.

use super::farm::{Farm, SECOND, SETTINGS, Work};
use super::*;

const LINES: u64 = 20;
const JOBS: u64 = 10;
/// Kinds of jobs: their name, and how long they run.
const KINDS: [(&str, i64); 3] = [("brief", 5), ("middling", 12), ("long", 30)];

/// Numbers that are the same in every run.
fn random(line: u64, what: u64) -> u64 {
    pumice_units::stable_hash([line.to_le_bytes(), what.to_le_bytes()].concat()) >> 16
}

fn of_kind(line: u64, job: u64, name: &str) -> Work {
    let (profile, seconds) = KINDS[(random(line, 10 * job) % 3) as usize];
    let work = Work { profile, ..Work::new(name, 1, 4_000, seconds * SECOND) };
    let limit_ms = random(line, 10 * job + 1).is_multiple_of(2).then_some(seconds * SECOND * 3 / 2);
    Work { limit_ms, ..work }
}

/// A cluster of one to three nodes, each of which one job fills, that has seen some of each kind, and now a line of jobs.
fn line(line: u64) -> (Farm, Vec<Work>) {
    let nodes = vec![4_000; 1 + (line % 3) as usize];
    let mut farm = Farm::new(SETTINGS, &nodes);
    for round in 0..6 {
        for (profile, seconds) in KINDS {
            farm.submit(&Work { profile, ..Work::new(&format!("{profile}-{round}"), 1, 4_000, seconds * SECOND) });
        }
    }
    farm.until(farm.now() + 400 * SECOND);
    let mut works = Vec::new();
    for job in 0..JOBS {
        let due = 10 + (random(line, 10 * job + 2) % 150) as i64;
        let deadline = Some(farm.lab.now.plus_ms(due * SECOND));
        let work = Work { deadline, ..of_kind(line, job, &format!("j{job}")) };
        farm.submit(&work);
        works.push(work);
        farm.until(farm.now() + SECOND / 2);
    }
    (farm, works)
}

#[test]
fn who_is_in_time_is_not_told_to_be_late_and_who_is_late_is_told() {
    let (mut late, mut told, mut falsely) = (0, 0, Vec::new());
    for number in 0..LINES {
        let (mut farm, works) = line(number);
        farm.until(farm.now() + 600 * SECOND);
        for work in works {
            let end = farm.started[&work.name] + work.ends_after();
            let is_late = end > work.deadline.unwrap().0;
            let was_told = farm.late.contains(&work.name);
            late += u32::from(is_late);
            told += u32::from(is_late && was_told);
            if was_told && !is_late {
                falsely.push(format!("{} of line {number}", work.name));
            }
        }
    }
    assert_eq!(falsely, [""; 0], "of {} jobs", LINES * JOBS);
    assert!(late > 40 && told * 10 >= late * 9, "{told} of {late} that were late were told so");
}

#[test]
fn expected_starts_know_the_place_in_the_line_and_come_about() {
    let (mut compared, mut near) = (0, 0);
    for number in 0..LINES {
        let (mut farm, works) = line(number);
        let asked = farm.now();
        let expected =
            |farm: &Farm, name: &str| farm.lab.world.reasons("ns", name).and_then(|reasons| reasons.expected);
        let waiting = works.iter().filter(|work| !farm.has_started(&work.name));
        let told: Vec<(String, Expected)> =
            waiting.filter_map(|work| Some((work.name.clone(), expected(&farm, &work.name)?))).collect();
        for (before, after) in told.iter().zip(told.iter().skip(1)) {
            assert!(before.1.at <= after.1.at, "{} is told an earlier start than {}", after.0, before.0);
        }
        let starts: std::collections::BTreeSet<i64> = told.iter().map(|(_, expected)| expected.at.0).collect();
        assert!(starts.len() * 3 >= told.len() * 2, "line {number}: many are told the same: {told:?}");
        farm.until(farm.now() + 600 * SECOND);
        for (name, expected) in told {
            let (wait, guess) = (farm.started[&name] - asked, expected.at.0 - asked);
            compared += 1;
            near += u32::from((wait - guess).abs() <= 10 * SECOND.max(wait / 30));
        }
    }
    assert!(compared > 100 && near * 10 >= compared * 7, "{near} of {compared} are near");
}
