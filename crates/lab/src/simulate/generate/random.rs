//! Numbers that only look random: the same seed gives the same ones on every machine.
//!
//! SplitMix64 (Steele, Lea and Flood 2014), and the distributions that the models of workloads are made of. Not for
//! secrets. Used by the generators, and by readers of specs that draw.

/// A stream of numbers.
#[derive(Debug, Clone)]
pub(in crate::simulate) struct Random {
    state: u64,
}

impl Random {
    pub(in crate::simulate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Above 0 and below 1.
    pub(in crate::simulate) fn unit(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// The place of one of the weights, each as likely as it is large; the last if all are 0.
    pub(super) fn pick(&mut self, weights: &[f64]) -> usize {
        let mut left = self.unit() * weights.iter().sum::<f64>();
        for (place, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return place;
            }
        }
        weights.len().saturating_sub(1)
    }

    /// Mean 0, deviation 1 (Box and Muller).
    pub(super) fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Half of them are below `median`; `sigma` is the deviation of the logarithm.
    pub(super) fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }

    /// Mean `shape x scale` (Marsaglia and Tsang 2000).
    pub(super) fn gamma(&mut self, shape: f64, scale: f64) -> f64 {
        if shape < 1.0 {
            let lift = self.unit().powf(1.0 / shape);
            return self.gamma(shape + 1.0, scale) * lift;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * scale;
            }
        }
    }
}

/// Weights of places 1 to `count` after Zipf's law.
pub(super) fn zipf(count: usize, exponent: f64) -> Vec<f64> {
    (1..=count).map(|rank| (rank as f64).powf(-exponent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(count: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
    }

    #[test]
    fn the_stream_is_that_of_splitmix64() {
        // The generator's published test vector for seed 1234567.
        let mut random = Random::new(1_234_567);
        let drawn = [random.bits(), random.bits(), random.bits()];
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(7);
        let near =
            |value: f64, expected: f64| assert!((value - expected).abs() < 0.03 * expected, "{value}, {expected}");
        near(mean(50_000, || random.unit()), 0.5);
        near(mean(50_000, || random.gamma(4.2, 0.94)), 4.2 * 0.94);
        near(mean(50_000, || random.gamma(0.5, 2.0)), 1.0);
        near(mean(50_000, || random.log_normal(3.0, 0.5)), 3.0 * 0.125_f64.exp());
        near(mean(50_000, || f64::from(u8::from(random.chance(0.3)))), 0.3);
        near(mean(50_000, || random.pick(&[1.0, 0.0, 3.0]) as f64), 1.5);
        assert_eq!(random.pick(&[0.0, 0.0]), 1);
    }
}
