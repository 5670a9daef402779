//! Scores as integers: thousandths of Kubernetes' points, so that what a mean cuts off seldom decides.
//! Used by the plugins that score by ratios.

/// One of Kubernetes' points.
pub(crate) const POINT: i64 = 1_000;
/// The best score a node can get before weights: 100 points.
pub(crate) const FULL: i64 = 100 * POINT;

/// `part / whole * times`, rounded towards zero, saturating; 0 where `whole` is 0.
pub(crate) fn ratio(part: i64, whole: i64, times: i64) -> i64 {
    if whole == 0 {
        return 0;
    }
    let exact = i128::from(part) * i128::from(times) / i128::from(whole);
    i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX })
}

/// The mean of weighted scores; `add` what each part scored out of [`FULL`].
#[derive(Debug, Default)]
pub(crate) struct Mean {
    sum: i128,
    weights: i64,
}

impl Mean {
    pub(crate) fn add(&mut self, score: i64, weight: i64) {
        self.sum += i128::from(score) * i128::from(weight);
        self.weights = self.weights.saturating_add(weight);
    }

    /// Times `weight`; 0 of nothing.
    pub(crate) fn times(&self, weight: i64) -> i64 {
        if self.weights == 0 {
            return 0;
        }
        let exact = self.sum.saturating_mul(i128::from(weight)) / i128::from(self.weights);
        i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_and_means_are_total() {
        for (part, whole, times, want) in [
            (1, 3, FULL, 33_333),
            (5, 0, FULL, 0),
            (i64::MAX, 1, FULL, i64::MAX),
            (i64::MIN, 1, FULL, i64::MIN),
            (-1, 2, 10, -5),
        ] {
            assert_eq!(ratio(part, whole, times), want, "{part}/{whole}*{times}");
        }
        let mut mean = Mean::default();
        assert_eq!(mean.times(5), 0);
        mean.add(FULL, 1);
        mean.add(0, 3);
        assert_eq!(mean.times(2), FULL / 2);
        mean.add(i64::MAX, i64::MAX);
        assert!(mean.times(i64::MAX) > 0);
    }
}
