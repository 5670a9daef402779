//! A report of `pumice fleet simulate` for people.
//!
//! Invariant: figures that are 0 in any ordinary simulation are left out then.

use std::fmt::Write as _;

use pumice_lab::fleet_simulate::{Part, QueueReport, Report};
use pumice_lab::simulate::{align, time};

use crate::output::count;

/// Queues whose shares are told over time.
const QUEUES_MAX: usize = 6;
/// Reasons that are shown.
const WHYS_MAX: usize = 5;

/// The report as a table for a terminal.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string never fails.
    let _ = head(&mut text, report);
    align(&mut text, &whole(report));
    let _ = rounds(&mut text, report);
    text.push('\n');
    align(&mut text, &use_of(report));
    text.push('\n');
    align(&mut text, &queues(report));
    over_time(&mut text, report);
    why(&mut text, report);
    text
}

fn head(text: &mut String, report: &Report) -> std::fmt::Result {
    let Report { workload, clusters, jobs, seed, nodes, cluster_count, pools, .. } = report;
    let queues = report.queues.len();
    writeln!(text, "workload  {workload}: {}, {}, seed {seed}", count(*jobs, "job"), count(queues, "queue"))?;
    let (cluster_count, pools) = (count(*cluster_count, "cluster"), count(*pools, "pool"));
    writeln!(text, "clusters  {clusters}: {cluster_count}, {}, {pools}", count(*nodes, "node"))?;
    for note in &report.notes {
        writeln!(text, "noted     {note}")?;
    }
    if report.cut_off {
        writeln!(text, "noted     stopped before its end, since it went on and on")?;
    }
    writeln!(text)
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn whole(report: &Report) -> Vec<Vec<String>> {
    let mut rows = vec![row(&["succeeded", &report.succeeded.to_string()])];
    for (name, jobs) in [
        ("failed", report.failed),
        ("rejected", report.rejected),
        ("unfinished", report.unfinished),
        ("never started", report.never_started),
        ("never submitted", report.never_submitted),
    ] {
        if jobs > 0 {
            rows.push(row(&[name, &jobs.to_string()]));
        }
    }
    rows.push(row(&["makespan", &time(report.makespan_s)]));
    rows.push(row(&["makespan at least", &time(report.makespan_at_least_s)]));
    rows.push(row(&["preemptions", &report.preemptions.to_string()]));
    rows.push(row(&["lost core-hours", &format!("{:.1}", report.lost_core_hours)]));
    rows.push(row(&["unfairness, queues", &part(report.unfairness)]));
    rows
}

fn rounds(text: &mut String, report: &Report) -> std::fmt::Result {
    let rounds = &report.rounds;
    let each = &rounds.each_ms;
    writeln!(
        text,
        "{} in {:.2} s: {:.1} ms p50, {:.1} ms p99, {:.1} ms the longest",
        count(rounds.count, "round"),
        rounds.wall_ms / 1_000.0,
        each.p50,
        each.p99,
        each.max
    )
}

fn use_of(report: &Report) -> Vec<Vec<String>> {
    let mut rows = vec![row(&["use", "offered", "mean", "most"])];
    for (name, of) in &report.resources {
        rows.push(row(&[name, &amount(name, of.offered), &part(of.mean), &part(of.most)]));
    }
    rows
}

/// Cores and whole things as they are, bytes in Gi.
fn amount(name: &str, offered: f64) -> String {
    let is_bytes = name == "memory" || name == "ephemeral-storage";
    if is_bytes { format!("{:.0}Gi", offered / f64::from(1 << 30)) } else { format!("{offered:.0}") }
}

fn part(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

fn queues(report: &Report) -> Vec<Vec<String>> {
    let titles =
        ["queue", "weight", "jobs", "succeeded", "wait p50", "p90", "p99", "held", "fair share", "preemptions"];
    let mut rows = vec![row(&titles)];
    for queue in &report.queues {
        let QueueReport { name, weight, jobs, succeeded, wait_s, share, preemptions } = queue;
        rows.push(row(&[
            name,
            &weight.to_string(),
            &jobs.to_string(),
            &succeeded.to_string(),
            &time(wait_s.p50),
            &time(wait_s.p90),
            &time(wait_s.p99),
            &part(share.used),
            &part(share.fair),
            &preemptions.to_string(),
        ]));
    }
    rows
}

fn over_time(text: &mut String, report: &Report) {
    if report.makespan_s == 0.0 {
        return;
    }
    text.push('\n');
    // The queues that held most, in their own order.
    let mut shown: Vec<usize> = (0..report.queues.len()).collect();
    shown.sort_by(|left, right| report.queues[*right].share.used.total_cmp(&report.queues[*left].share.used));
    shown.truncate(QUEUES_MAX);
    shown.sort_unstable();
    let mut titles = vec!["held / fair share".to_owned()];
    titles.extend(shown.iter().map(|queue| report.queues[*queue].name.clone()));
    let mut rows = vec![titles];
    for moment in &report.over_time {
        let share = |queue: &usize| {
            let Part { used, fair } = moment.shares[*queue];
            if used == 0.0 && fair == 0.0 { "-".to_owned() } else { format!("{} / {}", part(used), part(fair)) }
        };
        let mut row = vec![format!("{} to {}", time(moment.from_s), time(moment.to_s))];
        row.extend(shown.iter().map(share));
        rows.push(row);
    }
    align(text, &rows);
    if report.queues.len() > QUEUES_MAX {
        let _ = writeln!(text, "(those that held most; -o json has all)");
    }
}

fn why(text: &mut String, report: &Report) {
    if report.why_never.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nwhy jobs never started");
    let mut all: Vec<(&String, &usize)> = report.why_never.iter().collect();
    all.sort_by_key(|(_, jobs)| std::cmp::Reverse(**jobs));
    for (why, jobs) in all.into_iter().take(WHYS_MAX) {
        let _ = writeln!(text, "  {jobs} x {}", why.trim_end().replace('\n', "\n      "));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pumice_lab::fleet_simulate::{Clusters, Delays, Scheduling, Simulation, Workload};

    use super::*;

    const CLUSTERS: &str = "name: two clusters\nclusters:\n- name: east\n  nodeTemplates:\n  - {number: 2, totalResources: \
                            {resources: {cpu: 8, memory: 64Gi}}}\n- name: west\n  nodeTemplates:\n  - {number: 1, \
                            totalResources: {resources: {cpu: 16, memory: 128Gi, nvidia.com/gpu: 2}}}\n\
                            workflowManagerDelayDistribution: {minimum: 1s}\n";

    fn report(workload: &str) -> Report {
        let simulation = Simulation {
            clusters: Clusters::read(CLUSTERS, "c").unwrap(),
            workload: Workload::read(workload, "w").unwrap(),
            scheduling: Scheduling::default(),
            seed: None,
            delays: Delays::default(),
        };
        let mut clock = Duration::ZERO;
        let mut watch = || {
            clock += Duration::from_millis(1);
            clock
        };
        simulation.run(&mut watch, &mut |_| {}).unwrap().report
    }

    #[test]
    fn the_table_of_a_small_workload() {
        insta::assert_snapshot!(render(&report(
            "name: small\nqueues:\n- name: day\n  weight: 1\n  jobTemplates:\n  - {number: 60, priorityClassName: \
             armada-preemptible, requirements: {resourceRequirements: {requests: {cpu: 2, memory: 4Gi}}}, \
             runtimeDistribution: {minimum: 10m, tailMean: 1m}}\n- name: night\n  weight: 3\n  jobTemplates:\n  - {number: \
             12, earliestSubmitTime: 12m, requirements: {resourceRequirements: {requests: {cpu: 4, memory: 4Gi}}}, \
             runtimeDistribution: {minimum: 5m}}\n"
        )));
    }

    #[test]
    fn the_table_of_jobs_that_never_start() {
        insta::assert_snapshot!(render(&report(
            "queues:\n- name: a\n  weight: 1\n  jobTemplates:\n  - {number: 1, id: big, requirements: \
             {resourceRequirements: {requests: {cpu: 99}}}}\n  - {number: 2, dependencies: [big]}\n  - {number: 1}\n"
        )));
    }
}
