//! What users say of the time their jobs take, after Tsafrir, Etsion and Feitelson, "Modeling user runtime estimates"
//! (JSSPP 2005): nearly all jobs use one of about twenty round values, the most popular of which is often the largest,
//! so that estimates say little of run times.
//!
//! Invariant: an estimate is at least what the job runs, but for the jobs that are ended at their limit. Used by the
//! generators of workloads that have no estimates of their own.

use super::random::{Random, zipf};

/// The round values, in minutes.
const ROUND_MINUTES: [u32; 20] =
    [5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 480, 600, 720, 1_080, 1_440, 2_160, 2_880];
/// Their places by popularity, the most popular first.
const BY_POPULARITY: [usize; 20] = [19, 6, 8, 4, 10, 15, 17, 12, 1, 0, 9, 13, 2, 18, 11, 14, 7, 3, 16, 5];
/// Jobs that would run on when their limit comes.
const AT_LIMIT: f64 = 0.1;
/// Jobs whose users give a value of their own.
const OWN_VALUE: f64 = 0.1;

/// What a user says of a job of `run_s` seconds: its limit, and how long it would run.
pub(super) fn estimate(random: &mut Random, run_s: f64) -> (f64, f64) {
    if random.chance(OWN_VALUE) {
        return ((run_s * random.between(1.0, 3.0) / 60.0).ceil() * 60.0, run_s);
    }
    let mut weights = [0.0; ROUND_MINUTES.len()];
    for (place, weight) in BY_POPULARITY.iter().zip(zipf(ROUND_MINUTES.len(), 0.8)) {
        let fits = f64::from(ROUND_MINUTES[*place]) * 60.0 >= run_s;
        weights[*place] = if fits { weight } else { 0.0 };
    }
    if weights.iter().sum::<f64>() == 0.0 {
        return ((run_s / 86_400.0).ceil() * 86_400.0, run_s);
    }
    let limit = f64::from(ROUND_MINUTES[random.pick(&weights)]) * 60.0;
    // Whoever is ended at the limit would have run on for as long again at most.
    if random.chance(AT_LIMIT) && run_s > limit / 4.0 {
        (limit, limit * random.between(1.0, 2.0))
    } else {
        (limit, run_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_few_round_and_mostly_too_long() {
        let mut random = Random::new(3);
        let mut round = 0;
        let (mut said, mut ran) = (0.0, 0.0);
        for _ in 0..10_000 {
            let drawn = random.log_normal(1_800.0, 1.5);
            let (limit, run) = estimate(&mut random, drawn);
            assert!(limit >= run || run <= 2.0 * limit, "{limit} for {run}");
            round += u32::from(ROUND_MINUTES.iter().any(|minutes| f64::from(*minutes) * 60.0 == limit));
            said += limit;
            ran += run.min(limit);
        }
        assert!(round > 8_500, "{round} of 10,000 are round");
        assert!(said > 2.0 * ran, "{said} said, {ran} run");
        let mut ends_at_least = |run: f64| estimate(&mut random, run).0 >= run;
        assert!(ends_at_least(10.0 * 86_400.0));
    }
}
