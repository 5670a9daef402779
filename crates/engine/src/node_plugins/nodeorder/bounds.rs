//! The most that the scores by use can be for any node of a region: each score at the end of the extremes where it is
//! greatest. Divisions and roots round the same way everywhere, so a bound of the exact value bounds what is computed.

use super::{SCORE_MAX, deviation, least, most};
use crate::cluster::classes::ClassRow;
use crate::ids::DimId;
use crate::plugin::{Extremes, Region};
use crate::resource_dims::{CPU, MEMORY};
use crate::world::tables::Tables;

/// More than what rounding takes from a score of 100.
const ROUNDING: f64 = 1e-6;

/// So many of them.
type Fractions = ([(f64, f64); 3], usize);

/// What the scores read of a region.
pub(super) struct Parts {
    /// cpu and memory: offered, and in use for scoring with the pod.
    means: [(Extremes, Extremes); 2],
    /// Fractions in use with the pod, least and most, of the resources that are offered; none where some nodes offer one
    /// and others don't.
    fractions: Fractions,
}

impl Parts {
    /// Nothing where the region does not tell enough.
    #[inline]
    pub(super) fn new(tables: &Tables, class: &ClassRow, region: &Region<'_>) -> Option<Self> {
        let mean = |which: usize, dim| {
            let scored = region.scored(which);
            let with_pod = |scored: i64| scored.saturating_add(class.scored[which]);
            let wanted = Extremes { least: with_pod(scored.least), most: with_pod(scored.most) };
            if scored.least < 0 {
                return None;
            }
            Some((region.offered(dim)?, wanted))
        };
        let means = [mean(0, CPU)?, mean(1, MEMORY)?];
        Some(Self { means, fractions: fractions(tables, class, region)? })
    }

    #[inline]
    pub(super) fn least(&self) -> i64 {
        self.mean(|offered, wanted| least(wanted.least, offered.most))
    }

    #[inline]
    pub(super) fn most(&self) -> i64 {
        self.mean(|offered, wanted| most(wanted.most, offered.least))
    }

    #[inline]
    fn mean(&self, score: impl Fn(Extremes, Extremes) -> i64) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (offered, wanted) in self.means {
            match offered {
                Extremes { most: ..=0, .. } => {}
                Extremes { least: ..=0, .. } => return SCORE_MAX,
                _ => {
                    sum += score(offered, wanted);
                    weights += 1;
                }
            }
        }
        if weights == 0 { 0 } else { sum / weights }
    }

    /// The least deviation that values between these can have: of the two that lie farthest apart, with the third as
    /// near to their middle as it can be.
    #[inline]
    pub(super) fn balanced(&self) -> i64 {
        let (fractions, count) = &self.fractions;
        if let ([one, two, _], 2) = (fractions, count) {
            // Nearly always: those below, in short.
            let apart = (one.0.max(two.0) - one.1.min(two.1)).max(0.0);
            return ((1.0 - apart / 2.0) * SCORE_MAX as f64 + ROUNDING) as i64;
        }
        let all = 0..*count;
        let above = all.clone().max_by(|one, two| fractions[*one].0.total_cmp(&fractions[*two].0));
        let below = all.clone().min_by(|one, two| fractions[*one].1.total_cmp(&fractions[*two].1));
        let Some((above, below)) = above.zip(below) else { return SCORE_MAX };
        let (low, high) = (fractions[below].1, fractions[above].0);
        if high <= low {
            return SCORE_MAX;
        }
        let middle = f64::midpoint(low, high);
        let third = all.into_iter().find(|which| *which != above && *which != below);
        let deviation = match third.map(|which| fractions[which]) {
            Some((least, most)) => deviation(&[low, high, middle.clamp(least, most)]),
            None => deviation(&[low, high]),
        };
        ((1.0 - deviation) * SCORE_MAX as f64 + ROUNDING) as i64
    }
}

/// Nothing where more has been given back than was taken.
#[inline]
fn fractions(tables: &Tables, class: &ClassRow, region: &Region<'_>) -> Option<Fractions> {
    const UNKNOWN: Fractions = ([(0.0, 0.0); 3], 0);
    let gpu = tables.dims.gpu().filter(|gpu| !tables.nodes.offered(*gpu).is_empty());
    let (mut fractions, mut count) = UNKNOWN;
    for dim in [Some(CPU), Some(MEMORY), gpu].into_iter().flatten() {
        let (Some(offered), Some(used)) = (region.offered(dim), region.used(dim)) else { return Some(UNKNOWN) };
        match offered {
            _ if used.least < 0 => return None,
            Extremes { most: ..=0, .. } => {}
            Extremes { least: ..=0, .. } => return Some(UNKNOWN),
            Extremes { least, most } => {
                fractions[count] = (part(class, dim, used.least, most), part(class, dim, used.most, least));
                count += 1;
            }
        }
    }
    Some((fractions, count))
}

#[inline]
fn part(class: &ClassRow, dim: DimId, used: i64, offered: i64) -> f64 {
    (used.saturating_add(class.demand.get(dim)) as f64 / offered as f64).min(1.0)
}
