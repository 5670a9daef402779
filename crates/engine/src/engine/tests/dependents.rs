//! Tasks that depend on others (`dependsOn`): what can be there starts, and all of the Job is promised.

use super::*;

/// A task whose pods ask for one core each.
#[derive(Clone, Copy)]
struct Task<'a> {
    role: &'a str,
    count: u32,
    min: u32,
    depends_on: &'a [&'a str],
}

fn task<'a>(role: &'a str, count: u32, min: u32, depends_on: &'a [&'a str]) -> Task<'a> {
    Task { role, count, min, depends_on }
}

impl Lab {
    /// A Job that is not admitted yet: its tasks, and its PodGroup.
    fn job(&mut self, name: &str, min_available: u32, tasks: &[Task<'_>]) {
        let shape = |task: &Task<'_>| ShapeTask {
            role: task.role.to_owned(),
            count: task.count,
            template: PodTemplate { requests: resources(1_000), ..PodTemplate::default() }.into(),
            depends_on: match task.depends_on {
                [] => None,
                tasks => Some(DependsOn { tasks: tasks.iter().map(|task| (*task).to_owned()).collect(), any: false }),
            },
        };
        let owner = OwnerFacts { kind: "Job".to_owned(), name: name.to_owned(), uid: format!("job-{name}") };
        let tasks_of = tasks.iter().map(shape).collect();
        self.apply(Delta::ShapeUpsert { owner_uid: owner.uid.clone(), tasks: tasks_of, ended: false });
        let all: i64 = tasks.iter().map(|task| i64::from(task.count)).sum();
        self.apply(Delta::GroupUpsert(Box::new(GroupFacts {
            created: TimeMs(self.world.groups().count() as i64),
            min_task_member: tasks.iter().map(|task| (task.role.to_owned(), task.min)).collect(),
            min_resources: Some(resources(1_000 * all.min(i64::from(min_available)))),
            owner: Some(owner),
            status: GroupStatus::default(),
            ..group(name, min_available)
        })));
    }

    fn task_pod(&self, job: &str, role: &str, index: u32) -> PodFacts {
        let of_task = format!("{job}-{role}");
        let mut facts = PodFacts { created: self.now, role: role.to_owned(), ..pod(&of_task, index, 1_000) };
        facts.group = Some(job.to_owned());
        facts
    }

    /// As the controllers make them.
    fn make(&mut self, job: &str, role: &str, count: u32) {
        for index in 0..count {
            self.pod(self.task_pod(job, role, index));
        }
    }

    /// Cycles, and what is bound runs. Gives what was bound, sorted.
    fn start(&mut self, job: &str) -> Vec<String> {
        let mut started = Vec::new();
        for _ in 0..4 {
            for bind in self.cycle().binds {
                self.world.bind_result(&bind.uid, Ok(()), self.now);
                if let Some((role, index)) =
                    bind.name.strip_prefix(&format!("{job}-")).and_then(|it| it.rsplit_once('-'))
                {
                    let facts = self.task_pod(job, role, index.parse().unwrap());
                    self.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Running, ..facts });
                }
                started.push(bind.name);
            }
        }
        started.sort();
        started
    }
}

/// All ways to write the minima of a job whose two masters depend on two workers.
const MINIMA: [(u32, u32, u32); 5] = [(4, 2, 2), (4, 1, 1), (3, 2, 2), (3, 1, 1), (2, 2, 2)];

#[test]
fn a_job_whose_task_depends_on_another_starts_with_what_can_be_there() {
    for (min_available, master, work) in MINIMA {
        let case = format!("minAvailable {min_available}, of tasks {master} and {work}");
        let mut lab = Lab::new(&[4_000]);
        lab.job("d", min_available, &[task("master", 2, master, &["work"]), task("work", 2, work, &[])]);
        lab.cycle();
        assert_eq!(lab.phase("d"), GroupPhase::Inqueue, "{case}");
        lab.make("d", "work", 2);
        assert_eq!(lab.start("d"), ["d-work-0", "d-work-1"], "{case}: {}", lab.why("d"));
        assert_eq!(lab.phase("d"), GroupPhase::Running, "{case}");
        lab.make("d", "master", 2);
        assert_eq!(lab.start("d"), ["d-master-0", "d-master-1"], "{case}: {}", lab.why("d"));
        assert_eq!(lab.phase("d"), GroupPhase::Running, "{case}");
    }
}

#[test]
fn what_can_be_there_starts_together_or_not_at_all() {
    let mut lab = Lab::new(&[3_000]);
    lab.job("d", 3, &[task("master", 1, 1, &["work"]), task("work", 2, 2, &[])]);
    lab.cycle();
    let taken = PodFacts { mine: false, node: Some("n0".into()), phase: PodPhase::Running, ..pod("o", 0, 2_000) };
    lab.pod(taken);
    lab.make("d", "work", 2);
    assert_eq!(lab.start("d"), [""; 0]);
    lab.apply(Delta::TaskRemove("uid-o-0".into()));
    assert_eq!(lab.start("d"), ["d-work-0", "d-work-1"]);
}

#[test]
fn all_of_a_job_is_admitted_as_one() {
    // Three tasks, one after the other, and room for two of them.
    let mut lab = Lab::new(&[2_000]);
    let chain: [Task<'_>; 3] = [task("a", 1, 1, &[]), task("b", 1, 1, &["a"]), task("c", 1, 1, &["b"])];
    lab.job("d", 3, &chain);
    lab.cycle();
    assert_eq!(lab.phase("d"), GroupPhase::Pending, "{}", lab.why("d"));
    lab.apply(Delta::NodeUpsert(node("n1", 1_000)));
    lab.cycle();
    assert_eq!(lab.phase("d"), GroupPhase::Inqueue, "{}", lab.why("d"));
}

#[test]
fn room_for_tasks_that_come_later_is_kept_from_other_groups() {
    for late in [false, true] {
        let mut lab = Lab::new(&[3_000]);
        lab.queue("default", &[("cpu", 3_000)]);
        lab.job("d", 3, &[task("master", 1, 1, &["work"]), task("work", 2, 2, &[])]);
        lab.cycle();
        lab.make("d", "work", 2);
        assert_eq!(lab.start("d").len(), 2);
        lab.job("other", 1, &[task("only", 1, 1, &[])]);
        lab.make("other", "only", 1);
        assert_eq!(lab.start("other"), [""; 0], "the last core is the master's");
        if late {
            // Whatever it waits for does not come: after ten minutes the room is for all.
            lab.now = lab.now.plus_ms(600_000);
            assert_eq!(lab.start("other"), ["other-only-0"]);
            continue;
        }
        lab.make("d", "master", 1);
        assert_eq!(lab.start("d"), ["d-master-0"]);
        lab.apply(Delta::TaskRemove("uid-d-work-1".into()));
        assert_eq!(lab.start("other"), ["other-only-0"], "all of the job has run once: what it gives back is free");
    }
}

#[test]
fn why_says_which_task_waits_for_which() {
    let mut lab = Lab::new(&[4_000]);
    lab.job("d", 3, &[task("a", 1, 1, &[]), task("b", 1, 1, &["a"]), task("c", 1, 1, &["a", "b"])]);
    lab.cycle();
    lab.make("d", "a", 1);
    lab.start("d");
    let why = lab.world.why("ns", "d").unwrap();
    let lines = why.to_string();
    assert!(lines.contains("task b has no pods yet: it waits for task a to run (dependsOn)"), "{lines}");
    assert!(lines.contains("task c has no pods yet: it waits for the tasks a, b to run (dependsOn)"), "{lines}");
    lab.make("d", "b", 1);
    lab.make("d", "c", 1);
    lab.start("d");
    assert_eq!(lab.world.why("ns", "d"), None, "all of it is there");
}

#[test]
fn a_job_that_starts_over_waits_for_its_tasks_in_their_order_again() {
    let mut lab = Lab::new(&[4_000]);
    lab.job("d", 4, &[task("master", 2, 2, &["work"]), task("work", 2, 2, &[])]);
    for _ in 0..2 {
        lab.cycle();
        lab.make("d", "work", 2);
        assert_eq!(lab.start("d"), ["d-work-0", "d-work-1"], "{}", lab.why("d"));
        lab.make("d", "master", 2);
        assert_eq!(lab.start("d"), ["d-master-0", "d-master-1"], "{}", lab.why("d"));
        for pod in ["work-0", "work-1", "master-0", "master-1"] {
            lab.apply(Delta::TaskRemove(format!("uid-d-{pod}").into()));
        }
    }
}

#[test]
fn tasks_are_known_in_any_order_of_what_is_told() {
    // The PodGroup first, then its pods, then the Job: as after a restart of the scheduler.
    let mut lab = Lab::new(&[4_000]);
    lab.make("d", "work", 2);
    let tasks: [Task<'_>; 2] = [task("master", 2, 2, &["work"]), task("work", 2, 2, &[])];
    lab.job("d", 4, &tasks);
    lab.apply(Delta::ShapeRemove { owner_uid: "job-d".to_owned() });
    lab.job("d", 4, &tasks);
    assert_eq!(lab.start("d"), ["d-work-0", "d-work-1"], "{}", lab.why("d"));
    // Its master depends on nothing any more.
    lab.job("d", 4, &[task("master", 2, 2, &[]), task("work", 2, 2, &[])]);
    lab.cycle();
    assert_eq!(lab.tables().groups.row(lab.group_id("d")).min_member, 4);
}
