//! Faults that simulated nodes make on purpose.
//!
//! Invariant: what happens to a pod follows from the seed and its uid alone, so that a run can be repeated. Pure.

use std::str::FromStr;
use std::time::Duration;

use pumice_units::GoDuration;
use uuid::Uuid;

/// Parts of one, for probabilities.
const ONE: u64 = 1_000_000;

/// What goes wrong on simulated nodes, such as `seed=7,refused=0.01,start=2s`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Another seed lets it happen to other pods.
    pub seed: u64,
    /// Pods of a million that are refused though they fit.
    pub refused_per_million: u32,
    /// The longest time before a pod runs; each waits some part of it.
    pub start: Duration,
}

/// Why a text does not say which faults.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?} is none of seed=NUMBER, refused=0.01 (a share between 0 and 1), start=2s (a duration)")]
pub struct FaultsError {
    entry: String,
}

impl FromStr for Faults {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut faults = Faults::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let wrong = || FaultsError { entry: entry.chars().take(128).collect() };
            let (key, value) = entry.split_once('=').ok_or_else(wrong)?;
            match key {
                "seed" => faults.seed = value.parse().map_err(|_| wrong())?,
                "refused" => {
                    let share: f64 = value.parse().map_err(|_| wrong())?;
                    if !(0.0..=1.0).contains(&share) {
                        return Err(wrong());
                    }
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and a million
                    let parts = (share * 1e6).round() as u32;
                    faults.refused_per_million = parts;
                }
                "start" => {
                    let nanos = value.parse::<GoDuration>().map_err(|_| wrong())?.as_nanos();
                    faults.start = Duration::from_nanos(u64::try_from(nanos).map_err(|_| wrong())?);
                }
                _ => return Err(wrong()),
            }
        }
        Ok(faults)
    }
}

impl Faults {
    /// Whether a pod that fits is refused.
    pub(crate) fn refuses(&self, uid: Uuid) -> bool {
        self.draw(uid, 1) % ONE < u64::from(self.refused_per_million)
    }

    /// Milliseconds before a pod runs.
    pub(crate) fn start_ms(&self, uid: Uuid) -> u64 {
        let longest = u64::try_from(self.start.as_millis()).unwrap_or(u64::MAX);
        if longest == 0 { 0 } else { self.draw(uid, 2) % longest.saturating_add(1) }
    }

    /// A number that looks like chance (splitmix64).
    fn draw(&self, uid: Uuid, purpose: u64) -> u64 {
        let (high, low) = uid.as_u64_pair();
        [high, low, purpose].into_iter().fold(self.seed, |state, word| {
            let mut mixed = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uids() -> impl Iterator<Item = Uuid> {
        (0..10_000_u128).map(|index| Uuid::from_u128((0x7000_u128 << 64) | index))
    }

    #[test]
    fn faults_are_read_from_a_text() {
        let read = "seed=7,refused=0.25,start=1500ms".parse::<Faults>().unwrap();
        assert_eq!(read, Faults { seed: 7, refused_per_million: 250_000, start: Duration::from_millis(1500) });
        for wrong in ["seed", "seed=x", "refused=2", "refused=NaN", "start=-1s", "loss=1"] {
            assert!(wrong.parse::<Faults>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn as_many_are_refused_as_asked_for_and_the_seed_says_which() {
        let refused = |seed| {
            let faults = Faults { seed, refused_per_million: 100_000, ..Faults::default() };
            uids().filter(|uid| faults.refuses(*uid)).collect::<Vec<_>>()
        };
        assert!((800..1200).contains(&refused(1).len()), "{}", refused(1).len());
        assert_eq!(refused(1), refused(1));
        assert_ne!(refused(1), refused(2));
        assert!(uids().all(|uid| !Faults::default().refuses(uid)));
    }

    #[test]
    fn starts_are_spread_over_the_time_given() {
        let faults = Faults { start: Duration::from_millis(100), ..Faults::default() };
        let waits: Vec<u64> = uids().map(|uid| faults.start_ms(uid)).collect();
        assert_eq!((waits.iter().min(), waits.iter().max()), (Some(&0), Some(&100)));
        assert_eq!(uids().map(|uid| Faults::default().start_ms(uid)).max(), Some(0));
    }
}
