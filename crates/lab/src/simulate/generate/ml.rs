//! Training on machines with eight accelerators, after published statistics.
//!
//! Half the jobs or more use one accelerator, few use whole machines and hold most of the time; half run for less than
//! four minutes, and the mean is thirty times that (Hu et al., "Characterization and prediction of deep learning workloads
//! in large-scale GPU datacenters", SC 2021: median 206 s, mean 6,652 s). All pods of a job start together; few users
//! submit most (Weng et al., "MLaaS in the wild", NSDI 2022; Jeon et al., "Analysis of large-scale multi-tenant GPU
//! clusters for DNN training workloads", ATC 2019). What the papers don't say is chosen: limits, kinds, the mix of sizes.

use std::sync::Arc;

use super::random::{Random, zipf};
use super::{Generated, Kinds, user};
use crate::simulate::trace::{DEFAULT_QUEUE, Job};

/// Accelerators and how often jobs have so many.
const SIZES: [(u32, f64); 8] =
    [(1, 0.58), (2, 0.1), (4, 0.12), (8, 0.13), (16, 0.04), (32, 0.02), (64, 0.008), (128, 0.002)];
/// Accelerators of a machine.
const MACHINE: u32 = 8;
const MEDIAN_S: f64 = 206.0;
/// So that the mean is 32 times the median.
const SIGMA: f64 = 2.64;
/// Of that, what is between kinds and what is between the runs of a kind, as parts of the variance.
const BETWEEN_KINDS: f64 = 0.7;
const RUN_MAX_S: f64 = 14.0 * 86_400.0;
const USERS: usize = 120;

/// So many jobs for so many machines, offering `load` of their accelerators.
pub(super) fn generate(jobs: usize, machines: u32, load: f64, seed: u64) -> Generated {
    let mut random = Random::new(seed);
    let (users, mut kinds) = (zipf(USERS, 1.2), Kinds::default());
    let sizes = SIZES.map(|(size, often)| if size <= machines.saturating_mul(MACHINE) { often } else { 0.0 });
    let (within, between) = (SIGMA * (1.0 - BETWEEN_KINDS).sqrt(), SIGMA * BETWEEN_KINDS.sqrt());
    let (mut all, mut gaps, mut work) = (Vec::with_capacity(jobs), Vec::with_capacity(jobs), 0.0);
    for number in 0..jobs {
        let who = random.pick(&users);
        let gpus = SIZES[random.pick(&sizes)].0;
        let (pods, each) = (gpus.div_ceil(MACHINE), gpus.min(MACHINE));
        let profile: Arc<str> = format!("train{gpus}-{}", random.pick(&[4.0, 2.0, 1.0, 1.0])).into();
        let spread = random.log_normal(MEDIAN_S, between);
        let typical_s = kinds.typical_as(who, &profile, spread);
        let run_s = random.log_normal(typical_s, within).clamp(1.0, RUN_MAX_S);
        let amounts =
            [("cpu", i64::from(each) * 8_000), ("memory", i64::from(each) << 35), ("nvidia.com/gpu", i64::from(each))];
        gaps.push(-random.unit().ln());
        work += run_s * f64::from(gpus);
        all.push(Job {
            name: format!("j{}", number + 1),
            submit_ms: 0,
            user: user(who),
            queue: DEFAULT_QUEUE.into(),
            pods,
            min: pods,
            requests: Arc::new(amounts.map(|(name, amount)| (name.to_owned(), amount)).into()),
            run_ms: (run_s * 1_000.0) as i64,
            // Most say nothing; those who do take days.
            limit_ms: if random.chance(0.3) { Some(((run_s / 86_400.0).ceil() * 86_400_000.0) as i64) } else { None },
            priority: 0,
            preemptable: gpus == 1,
            profile,
            deadline_ms: None,
        });
    }
    let wanted_s = work / (f64::from(machines.saturating_mul(MACHINE)) * load);
    let stretch = wanted_s / gaps.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let mut at = 0.0;
    for (job, gap) in all.iter_mut().zip(gaps) {
        job.submit_ms = (at * 1_000.0) as i64;
        at += gap * stretch;
    }
    Generated { jobs: all, queues: Vec::new(), nodes: format!("{machines}x96cpu,768Gi,8gpu") }
}
