//! The history for people: jobs and groups as tables, and one job's whole story.
//!
//! Invariant: times are UTC, to the second; `now` is an argument. Pure. Called by `jobctl history`.

use std::fmt::Write as _;

use jiff::Timestamp;
use pumice_api::history::{AttemptRecord, DELETED, END_UNKNOWN, GroupRecord, JobRecord, TaskRecord, WaitRecord};

use crate::job::list_columns::tint_of_state;
use crate::output::age;
use crate::output::table::{Table, Tint};

const MILLIS: i64 = 1_000;

/// Jobs, a row each.
pub fn jobs(jobs: &[JobRecord], namespaces: bool, wide: bool) -> Table {
    let mut head = vec!["NAME", "USER", "QUEUE", "STATE", "SUBMITTED", "WAITED", "RAN", "OK/FAIL/ALL"];
    if namespaces {
        head.insert(0, "NAMESPACE");
    }
    if wide {
        head.extend(["RETRIES", "CPU", "MEMORY", "PRIORITY", "UID", "REASON"]);
    }
    let mut table = Table::new(head);
    table.tint(if namespaces { 4 } else { 3 }, tint);
    for job in jobs {
        let mut row = vec![
            job.metadata.name.clone(),
            job.user.clone(),
            job.queue.clone(),
            job.phase.clone(),
            time(job.submitted),
            span(job.waited_ms),
            span(job.ran_ms),
            format!("{}/{}/{}", job.succeeded, job.failed, job.replicas),
        ];
        if namespaces {
            row.insert(0, job.metadata.namespace.clone());
        }
        if wide {
            row.extend([
                job.retries.to_string(),
                cores(job.cpu_milli),
                bytes(job.memory_bytes),
                job.priority_class.clone(),
                job.metadata.uid.clone(),
                job.reason.clone(),
            ]);
        }
        table.push(row);
    }
    table
}

/// Sums, a row for each group.
pub fn groups(groups: &[GroupRecord], by: &str) -> Table {
    let by = by.to_uppercase();
    let head = [by.as_str(), "JOBS", "FAILED", "PODS", "CORE-HOURS", "GIB-HOURS", "WAITED-P50", "WAITED-P90"];
    let mut table = Table::new(head);
    for group in groups {
        table.push([
            if group.key.is_empty() { "-".to_owned() } else { group.key.clone() },
            group.jobs.to_string(),
            group.failed.to_string(),
            group.pods.to_string(),
            format!("{:.2}", group.core_hours),
            format!("{:.2}", group.memory_gib_hours),
            span(group.waited_p50_ms),
            span(group.waited_p90_ms),
        ]);
    }
    table
}

/// All that is known of one job.
pub fn story(job: &JobRecord, now: Timestamp, colours: bool) -> String {
    let mut text = String::new();
    let of = if job.user.is_empty() { String::new() } else { format!(" of {}", job.user) };
    let name = &job.metadata.name;
    // Writing to a String can't fail.
    let _ =
        writeln!(text, "job {name}{of} in namespace {}, queue {}: {}", job.metadata.namespace, job.queue, job.phase);
    let mut line = |what: &str, said: String| {
        if !said.is_empty() {
            let _ = writeln!(text, "  {what:<10} {}", said.replace(char::is_control, " "));
        }
    };
    line("reason", sentence(&job.reason, &job.message));
    line("uid", job.metadata.uid.clone());
    line("priority", job.priority_class.clone());
    line("submitted", time(job.submitted));
    line("started", after(job.started, job.waited_ms, "after"));
    line("ended", after(job.ended, job.ran_ms, "ran"));
    if let (Some(from), None) = (job.unseen_from, job.ended) {
        line("ended", format!("nobody saw it: after {}, before {}", time(Some(from)), time(job.gone)));
    }
    line("deleted", time(job.gone));
    let JobRecord { replicas, succeeded, failed, retries, .. } = job;
    line(
        "pods",
        format!("{replicas} asked for, {succeeded} succeeded, {failed} failed, {retries} restarts of the job"),
    );
    line("asks for", format!("cpu {}, memory {}", cores(job.cpu_milli), bytes(job.memory_bytes)));
    for (title, table) in [
        ("waited for", waits(&job.waits, now)),
        ("tasks", tasks(&job.tasks)),
        ("attempts", attempts(&job.attempts, now)),
    ] {
        if !table.is_empty() {
            let _ = write!(text, "\n{title}\n{}", table.render(colours));
        }
    }
    if job.more_attempts {
        text.push_str("and more attempts, which are not shown\n");
    }
    text
}

fn waits(waits: &[WaitRecord], now: Timestamp) -> Table {
    let mut table = Table::new(["FROM", "TO", "LASTED", "CLASS", "WHY"]);
    for wait in waits {
        let lasted = wait.from.map(|from| wait.to.unwrap_or(now).as_millisecond() - from.as_millisecond());
        table.push([time(wait.from), time(wait.to), span(lasted), wait.class.clone(), wait.summary.clone()]);
    }
    table
}

fn tasks(tasks: &[TaskRecord]) -> Table {
    let mut table = Table::new(["NAME", "PODS", "OK", "FAIL", "CPU", "MEMORY"]);
    for task in tasks {
        table.push([
            task.name.clone(),
            task.replicas.to_string(),
            task.succeeded.to_string(),
            task.failed.to_string(),
            cores(task.cpu_milli),
            bytes(task.memory_bytes),
        ]);
    }
    table
}

fn attempts(attempts: &[AttemptRecord], now: Timestamp) -> Table {
    let head = ["POD", "TRY", "STATE", "CODE", "NODE", "STARTED", "RAN", "CPU-USED", "MEMORY-MOST", "WHY"];
    let mut table = Table::new(head);
    table.tint(2, tint);
    for attempt in attempts {
        let until = attempt.ended.or(attempt.unseen_from).or(attempt.gone).unwrap_or(now);
        let ran = attempt.started.map(|from| until.as_millisecond() - from.as_millisecond());
        let used = attempt.used.as_ref();
        let why = if attempt.evicted.is_empty() {
            sentence(&attempt.reason, &attempt.message)
        } else {
            format!("evicted: {}", attempt.evicted)
        };
        table.push([
            attempt.pod.clone(),
            attempt.attempt.to_string(),
            attempt.phase.clone(),
            attempt.exit_code.map(|code| code.to_string()).unwrap_or_default(),
            attempt.node.clone(),
            time(attempt.started),
            span(ran),
            used.map(|used| cores(used.cpu_mean_milli)).unwrap_or_default(),
            used.map(|used| bytes(used.memory_max_bytes)).unwrap_or_default(),
            why,
        ]);
    }
    table
}

fn sentence(reason: &str, message: &str) -> String {
    match (reason, message) {
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

fn after(at: Option<Timestamp>, span_ms: Option<i64>, word: &str) -> String {
    match (at, span_ms) {
        (Some(_), Some(_)) => format!("{}, {word} {}", time(at), span(span_ms)),
        _ => time(at),
    }
}

fn time(at: Option<Timestamp>) -> String {
    at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default()
}

fn span(millis: Option<i64>) -> String {
    millis.map(|millis| age::short(millis / MILLIS)).unwrap_or_default()
}

/// Whole cores as `2`, others in thousandths as `1500m`.
fn cores(milli: i64) -> String {
    if milli % 1_000 == 0 { (milli / 1_000).to_string() } else { format!("{milli}m") }
}

/// Bytes in the largest unit that leaves at least one of it.
fn bytes(bytes: i64) -> String {
    let units = [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let unit = units.into_iter().find(|(_, bits)| bytes >= 1_i64 << bits);
    match unit {
        Some((unit, bits)) => {
            let tenths = bytes / ((1_i64 << bits) / 10).max(1);
            if tenths % 10 == 0 {
                format!("{}{unit}", tenths / 10)
            } else {
                format!("{}.{}{unit}", tenths / 10, tenths % 10)
            }
        }
        None => bytes.to_string(),
    }
}

/// What tells phases apart at a glance.
fn tint(phase: &str) -> Tint {
    match phase {
        "Succeeded" => Tint::Good,
        DELETED | END_UNKNOWN => Tint::Faint,
        other => tint_of_state(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_api::history::{Identity, Used};

    fn job() -> JobRecord {
        let time = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        JobRecord {
            metadata: Identity { name: "train-7".into(), namespace: "ns".into(), uid: "u-1".into() },
            api: "batch.volcano.sh".into(),
            user: "ann".into(),
            queue: "q".into(),
            phase: "Failed".into(),
            reason: "PodFailed".into(),
            message: "a pod failed\nbadly".into(),
            submitted: time("2026-01-02T03:04:05Z"),
            started: time("2026-01-02T03:09:35Z"),
            ended: time("2026-01-02T06:09:35.5Z"),
            waited_ms: Some(330_000),
            ran_ms: Some(10_800_500),
            replicas: 2,
            succeeded: 1,
            failed: 1,
            cpu_milli: 2_500,
            memory_bytes: 3 << 29,
            tasks: vec![TaskRecord {
                name: "w".into(),
                replicas: 2,
                succeeded: 1,
                failed: 1,
                cpu_milli: 1_250,
                memory_bytes: 768 << 20,
            }],
            attempts: vec![
                AttemptRecord {
                    pod: "train-7-w-0".into(),
                    attempt: 1,
                    node: "n1".into(),
                    phase: "Failed".into(),
                    reason: "OOMKilled".into(),
                    exit_code: Some(137),
                    started: time("2026-01-02T03:09:35Z"),
                    ended: time("2026-01-02T03:10:35Z"),
                    used: Some(Used {
                        samples: 2,
                        cpu_mean_milli: 1_100,
                        memory_max_bytes: 767 << 20,
                        ..Used::default()
                    }),
                    ..AttemptRecord::default()
                },
                AttemptRecord {
                    pod: "train-7-w-1".into(),
                    attempt: 1,
                    phase: "Running".into(),
                    started: time("2026-01-02T03:09:35Z"),
                    ..AttemptRecord::default()
                },
            ],
            waits: vec![WaitRecord {
                class: "NotEnoughResources".into(),
                summary: "2 more cpu".into(),
                from: time("2026-01-02T03:04:06Z"),
                to: time("2026-01-02T03:09:35Z"),
            }],
            ..JobRecord::default()
        }
    }

    #[test]
    fn a_job_is_told_in_rows_and_as_a_story() {
        let now = "2026-01-02T07:00:00Z".parse().unwrap();
        let unseen = JobRecord {
            phase: END_UNKNOWN.into(),
            ended: None,
            unseen_from: job().started,
            gone: job().ended,
            attempts: vec![],
            tasks: vec![],
            waits: vec![],
            ..job()
        };
        let sums = GroupRecord {
            key: "ann".into(),
            jobs: 2,
            failed: 1,
            pods: 3,
            core_hours: 12.345,
            waited_p50_ms: Some(60_000),
            ..GroupRecord::default()
        };
        let parts = [
            jobs(&[job()], false, false).render(false),
            jobs(&[job(), unseen.clone()], true, true).render(false),
            groups(&[sums, GroupRecord::default()], "user").render(false),
            story(&job(), now, false),
            story(&unseen, now, false),
        ];
        insta::assert_snapshot!(parts.join("\n"));
    }

    #[test]
    fn amounts_are_short() {
        for (amount, text) in [(0, "0"), (1023, "1023"), (1 << 10, "1Ki"), (3 << 29, "1.5Gi"), (5 << 40, "5Ti")] {
            assert_eq!(bytes(amount), text);
        }
        assert_eq!((cores(2_000), cores(250)), ("2".to_owned(), "250m".to_owned()));
    }
}
