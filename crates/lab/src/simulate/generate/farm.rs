//! A research farm: sweeps of minute-long pods by the thousand beside simulations that run for a week.
//!
//! Invariant: about as many pods a day as asked for, on as many nodes as they load as much as asked for. The mix is ours, after what research groups told: most pods are
//! short and belong to sweeps that take what room there is, most core-hours belong to few long jobs, work begins in the
//! morning. Each user has a few kinds of jobs that run about as long each time. One user in five is in the other queue.

use std::sync::Arc;

use super::random::{Random, zipf};
use super::{Generated, Kinds, user};
use crate::simulate::trace::Job;

const USERS: usize = 60;
const DAY_S: f64 = 86_400.0;
/// Pods of the long and the middle jobs are so few that sweeps make up the number.
const LONG_A_DAY: usize = 12;
const MIDDLE_A_DAY: usize = 150;

/// Cores of a node, and the fewest nodes on which the largest job fits.
const NODE_CORES: i64 = 64;
const NODES_LEAST: f64 = 4.0;
const NODES_MOST: f64 = 50_000.0;

/// So many days with so many pods a day, which ask for `load` of what the nodes offer in these days.
pub(super) fn generate(days: u32, pods_a_day: u32, load: f64, seed: u64) -> Generated {
    let mut random = Random::new(seed);
    let users = zipf(USERS, 0.9);
    let mut kinds = Kinds::default();
    let mut jobs: Vec<Job> = Vec::new();
    for day in 0..days {
        let mut left = i64::from(pods_a_day);
        for _ in 0..LONG_A_DAY {
            let size = [1, 2, 4, 8][random.pick(&[4.0, 2.0, 2.0, 1.0])];
            jobs.push(job(&mut random, &mut kinds, &users, day, Shape::Long(size)));
            left -= i64::from(size);
        }
        for _ in 0..MIDDLE_A_DAY {
            let size = [1, 2, 4, 16][random.pick(&[6.0, 2.0, 2.0, 1.0])];
            jobs.push(job(&mut random, &mut kinds, &users, day, Shape::Middle(size)));
            left -= i64::from(size);
        }
        while left > 0 {
            let size = random.log_normal(150.0, 1.2).clamp(1.0, 5_000.0) as u32;
            jobs.push(job(&mut random, &mut kinds, &users, day, Shape::Sweep(size.max(1))));
            left -= i64::from(size.max(1));
        }
    }
    // What runs on after the last day is no load of these days.
    let ends_ms = (f64::from(days) * DAY_S * 1_000.0) as i64;
    let within = |job: &Job| job.held_ms().min((ends_ms - job.submit_ms).max(0)) as f64;
    let work: f64 = jobs.iter().map(|job| within(job) * job.cpu_milli_all() as f64 / 1e6).sum();
    let nodes = work / (load * f64::from(days) * DAY_S * NODE_CORES as f64);
    let nodes = nodes.ceil().clamp(NODES_LEAST, NODES_MOST);
    let mut jobs = in_parts(jobs, nodes as u32 * NODE_CORES as u32);
    for (number, job) in jobs.iter_mut().enumerate() {
        job.name = format!("j{}", number + 1);
    }
    let queues = vec![("research".into(), 3), ("students".into(), 1)];
    Generated { jobs, queues, nodes: format!("{nodes}x{NODE_CORES}cpu,256Gi") }
}

/// A sweep that is larger than the cluster is submitted in parts that are not.
fn in_parts(jobs: Vec<Job>, cores: u32) -> Vec<Job> {
    let parts = |job: Job| {
        let all = job.pods;
        let pods = move |part: u32| (all - part * cores).min(cores);
        (0..all.div_ceil(cores)).map(move |part| Job { pods: pods(part), min: job.min.min(pods(part)), ..job.clone() })
    };
    jobs.into_iter().flat_map(parts).collect()
}

#[derive(Clone, Copy)]
enum Shape {
    Long(u32),
    Middle(u32),
    Sweep(u32),
}

fn job(random: &mut Random, kinds: &mut Kinds, users: &[f64], day: u32, shape: Shape) -> Job {
    let who = random.pick(users);
    // (pods, those that start together, cores, GiB a core, median of the kinds' runs, kinds of a user)
    let (pods, min, cores, letter, median_s) = match shape {
        Shape::Long(pods) => (pods, pods, 16, "week", 4.0 * DAY_S),
        Shape::Middle(pods) => (pods, pods, [1, 4, 8][random.pick(&[2.0, 2.0, 1.0])], "hours", 2.0 * 3_600.0),
        Shape::Sweep(pods) => (pods, 1, 1, "sweep", 240.0),
    };
    let kind = random.pick(&[5.0, 2.0, 1.0]);
    let profile: Arc<str> = format!("{letter}{kind}").into();
    let typical_s = kinds.typical(random, who, &profile, median_s);
    let run_s = random.log_normal(typical_s, 0.25).clamp(5.0, 7.0 * DAY_S);
    // Users ask for two to five times what such jobs take, in whole ten minutes.
    let limit_s = (typical_s * random.between(2.0, 5.0) / 600.0).ceil() * 600.0;
    // Between eight and eight, noon the busiest.
    let hour = 8.0 + 6.0 * (random.unit() + random.unit());
    let at_s = f64::from(day) * DAY_S + hour * 3_600.0;
    Job {
        name: String::new(),
        submit_ms: (at_s * 1_000.0) as i64,
        user: user(who),
        queue: if who % 5 == 4 { "students".into() } else { "research".into() },
        pods,
        min,
        requests: Arc::new([("cpu".to_owned(), cores * 1_000), ("memory".to_owned(), cores * (2 << 30))].into()),
        run_ms: (run_s * 1_000.0) as i64,
        limit_ms: Some((limit_s * 1_000.0) as i64),
        priority: 0,
        preemptable: matches!(shape, Shape::Sweep(_)),
        profile,
        deadline_ms: None,
    }
}
