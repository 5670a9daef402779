//! Rigid jobs after Lublin and Feitelson, "The workload on parallel supercomputers: modeling the characteristics of rigid
//! jobs" (Journal of Parallel and Distributed Computing 63(11), 2003), with the parameters of the authors' program
//! (m_lublin99) for jobs of all kinds, not told apart as batch and interactive ones.
//!
//! Sizes: serial, or a power of two more often than not, uniform in two stages over their logarithm. Run times: the
//! exponential of a hyper-gamma variable whose mix depends on the size, so that large jobs run longer. Arrivals: the
//! exponential of a gamma variable, faster and slower in the course of the day. Limits are those of `estimates`; users
//! are drawn after Zipf's law, as the model has none.

use std::sync::Arc;

use super::estimates::estimate;
use super::random::{Random, zipf};
use super::{Generated, user};
use crate::simulate::trace::{DEFAULT_QUEUE, Job};

/// Parts of all jobs: one processor, and a power of two of them.
const SERIAL: f64 = 0.244;
const POWER_OF_TWO: f64 = 0.576;
/// Of the logarithms of sizes: the least, how far the bend is below the largest, and the part that is below the bend.
const LOG_SIZE_LEAST: f64 = 0.8;
const LOG_SIZE_BEND: f64 = 2.5;
const BELOW_BEND: f64 = 0.86;
/// Shapes and scales of the two gamma distributions of the logarithm of run times, and what the mix depends on.
const SHORT: (f64, f64) = (4.2, 0.94);
const LONG: (f64, f64) = (312.0, 0.03);
const MIX: (f64, f64) = (-0.0054, 0.78);
/// Logarithms of run times above it are drawn again: 45 hours.
const LOG_RUN_MAX: f64 = 12.0;
/// Of the logarithm of times between arrivals: those of the rush hours, and by how much the first of them is larger for a
/// whole day. Those above the last are drawn again: five days.
const BETWEEN: (f64, f64) = (10.2303 * 1.0225, 0.4871);
const LOG_BETWEEN_MAX: f64 = 13.0;
/// Of the time of the day, in half hours since midnight; those before the day begins are of the day before.
const DAY: (f64, f64) = (8.1737, 3.9631);
/// Half hours of a day, and the one with which it begins.
const BUCKETS: usize = 48;
const DAY_BEGINS: usize = 11;
const BUCKET_S: f64 = 1_800.0;
/// Users, and how unevenly they submit.
const USERS: (usize, f64) = (40, 1.0);
/// Passes to bring the load to what was asked for.
const PASSES: usize = 20;

/// So many jobs for so many processors, offering `load` of them.
pub(super) fn generate(jobs: usize, processors: u32, load: f64, seed: u64) -> Generated {
    let mut random = Random::new(seed);
    let users = zipf(USERS.0, USERS.1);
    let requests = Arc::new([("cpu".to_owned(), 1_000)].into());
    let (mut all, mut between, mut work) = (Vec::with_capacity(jobs), Vec::with_capacity(jobs), 0.0);
    for number in 0..jobs {
        let pods = size(&mut random, processors);
        let drawn = run_s(&mut random, pods);
        let (limit_s, run_s) = estimate(&mut random, drawn);
        between.push(between_s(&mut random));
        let job = Job {
            name: format!("j{}", number + 1),
            submit_ms: 0,
            user: user(random.pick(&users)),
            queue: DEFAULT_QUEUE.into(),
            pods,
            min: pods,
            requests: Arc::clone(&requests),
            run_ms: (run_s * 1_000.0) as i64,
            limit_ms: Some((limit_s * 1_000.0) as i64),
            priority: 0,
            preemptable: false,
            profile: "".into(),
            deadline_ms: None,
        };
        work += job.held_ms() as f64 / 1_000.0 * f64::from(pods);
        all.push(job);
    }
    let wanted_s = work / (f64::from(processors) * load);
    for (job, arrival) in all.iter_mut().zip(arrivals(&between, wanted_s)) {
        job.submit_ms = (arrival * 1_000.0) as i64;
    }
    Generated { jobs: all, queues: Vec::new(), nodes: format!("{processors}x1cpu") }
}

fn size(random: &mut Random, processors: u32) -> u32 {
    if processors < 2 || random.chance(SERIAL) {
        return 1;
    }
    let most = f64::from(processors).log2();
    let bend = (most - LOG_SIZE_BEND).max(LOG_SIZE_LEAST);
    let below = random.chance(BELOW_BEND);
    let mut log = if below { random.between(LOG_SIZE_LEAST, bend) } else { random.between(bend, most) };
    if random.chance(POWER_OF_TWO / (1.0 - SERIAL)) {
        log = log.round();
    }
    (log.exp2().round() as u32).clamp(1, processors)
}

fn run_s(random: &mut Random, size: u32) -> f64 {
    let short = (MIX.0 * f64::from(size) + MIX.1).clamp(0.0, 1.0);
    loop {
        let (shape, scale) = if random.chance(short) { SHORT } else { LONG };
        let log = random.gamma(shape, scale);
        if log <= LOG_RUN_MAX {
            return log.exp().max(1.0);
        }
    }
}

fn between_s(random: &mut Random) -> f64 {
    loop {
        let log = random.gamma(BETWEEN.0, BETWEEN.1);
        if log <= LOG_BETWEEN_MAX {
            return log.exp();
        }
    }
}

/// Times of arrival within about `wanted_s` seconds: the times between them are stretched until it fits.
fn arrivals(between: &[f64], wanted_s: f64) -> Vec<f64> {
    let weights = day();
    let mut stretch = 1.0;
    let mut times = Vec::new();
    for _ in 0..PASSES {
        times = walk(between, &weights, stretch);
        let last = times.last().copied().unwrap_or(0.0);
        if last <= 0.0 || (last / wanted_s - 1.0).abs() < 0.001 {
            break;
        }
        stretch *= wanted_s / last;
    }
    times
}

/// Time goes as fast as the weight of its half hour.
fn walk(between: &[f64], weights: &[f64; BUCKETS], stretch: f64) -> Vec<f64> {
    let (mut bucket, mut within) = (0_usize, 0.0);
    let mut times = Vec::with_capacity(between.len());
    for step in between {
        let mut left = step * stretch / BUCKET_S;
        loop {
            let weight = weights[bucket % BUCKETS];
            let rest = (1.0 - within) * weight;
            if left < rest {
                within += left / weight;
                break;
            }
            left -= rest;
            (bucket, within) = (bucket + 1, 0.0);
        }
        times.push((bucket as f64 + within) * BUCKET_S);
    }
    let first = times.first().copied().unwrap_or(0.0);
    times.iter_mut().for_each(|time| *time -= first);
    times
}

/// How busy each half hour of a day is, from midnight; 1 on average. The gamma density is taken at its middle.
fn day() -> [f64; BUCKETS] {
    let (shape, scale) = DAY;
    let mut weights = [0.0; BUCKETS];
    for half_hour in DAY_BEGINS..BUCKETS + DAY_BEGINS {
        let x = half_hour as f64;
        weights[(half_hour - 1) % BUCKETS] = ((shape - 1.0) * x.ln() - x / scale).exp();
    }
    let mean = weights.iter().sum::<f64>() / BUCKETS as f64;
    weights.map(|weight| weight / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_busiest_in_the_early_afternoon_and_quietest_before_dawn() {
        let weights = day();
        let most = (0..BUCKETS).max_by(|left, right| weights[*left].total_cmp(&weights[*right])).unwrap();
        let least = (0..BUCKETS).min_by(|left, right| weights[*left].total_cmp(&weights[*right])).unwrap();
        assert_eq!((most / 2, least / 2), (13, 5), "hours; {weights:?}");
        assert!((weights.iter().sum::<f64>() - BUCKETS as f64).abs() < 1e-9);
    }
}
