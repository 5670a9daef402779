//! Chance, from a seed.
//!
//! Invariant: what is drawn for a job, or for one of its runs, depends on the seed and on which it is, and never on what was
//! scheduled before: two configurations are compared on the same work.

use pumice_translate::armada::ShiftedExponential;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// A time that is at least so long, and longer by an exponential one of that mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Distribution {
    pub minimum_ms: i64,
    pub tail_mean_ms: i64,
}

impl From<ShiftedExponential> for Distribution {
    fn from(spec: ShiftedExponential) -> Self {
        Self { minimum_ms: spec.minimum.ms, tail_mean_ms: spec.tail_mean.ms }
    }
}

impl Distribution {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a mean of at most ten years in ms"
    )]
    pub(super) fn draw_ms(self, random: &mut StdRng) -> i64 {
        if self.tail_mean_ms == 0 {
            return self.minimum_ms;
        }
        // 1 - u is never 0, so its logarithm is finite.
        let unit: f64 = 1.0 - random.gen_range(0.0..1.0);
        self.minimum_ms + (-unit.ln() * self.tail_mean_ms as f64) as i64
    }
}

/// What run times are drawn from, job after job in the order of the specification.
pub(super) fn of_workload(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// What is drawn from for one attempt of a job.
pub(super) fn of_run(seed: u64, job: usize, attempt: u32) -> StdRng {
    // An odd factor sets jobs apart, and the rest is mixed from there.
    let key = seed ^ (job as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(attempt) << 48);
    StdRng::seed_from_u64(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_their_least_and_their_mean() {
        let distribution = Distribution { minimum_ms: 1_000, tail_mean_ms: 500 };
        let mut random = of_workload(7);
        let drawn: Vec<i64> = (0..20_000).map(|_| distribution.draw_ms(&mut random)).collect();
        assert!(drawn.iter().all(|ms| *ms >= 1_000));
        let mean = drawn.iter().sum::<i64>() / 20_000;
        assert!((1_485..1_515).contains(&mean), "{mean}");
        let fixed = Distribution { tail_mean_ms: 0, ..distribution };
        assert_eq!(fixed.draw_ms(&mut random), 1_000);
    }

    #[test]
    fn each_run_has_its_own_chance_and_keeps_it() {
        let distribution = Distribution { minimum_ms: 0, tail_mean_ms: 1_000_000_000 };
        let draw = |seed, job, attempt| distribution.draw_ms(&mut of_run(seed, job, attempt));
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        let all: std::collections::BTreeSet<i64> =
            [(1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3)].map(|(seed, job, attempt)| draw(seed, job, attempt)).into();
        assert_eq!(all.len(), 4);
    }
}
