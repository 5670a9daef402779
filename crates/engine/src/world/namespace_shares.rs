//! Namespace shares: what each namespace holds in each queue, and, where past use counts, how much it held lately.
//!
//! The past is the mean of the share held, in which a moment counts half as much after each half-life. It is worked out
//! anew only when the share changes, from the share that was held since: O(1) a namespace, whatever time has passed.
//! Charged by `Tables` with every task; settled when a cycle starts and ends; read by `Policy::namespace_order`.

use std::cmp::Ordering;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ids::{NamespaceId, QueueId, QueueNamespace, TimeMs};
use crate::resource_dims::Demand;
use crate::share;
use crate::world::tables::Tables;

/// The past is kept this much finer than shares, so that many small steps add up.
const FINENESS: i128 = 1_000_000;
/// Fractions of a half-life are taken in steps of halves, this many times.
const STEPS: usize = 48;
/// Shares are counted no higher: a thousand clusters.
const SHARE_MAX: i64 = share::WHOLE << 10;
/// One, as factors are kept.
const ONE: u128 = 1 << 62;

/// How past use fades.
#[derive(Debug, Clone)]
pub(crate) struct Decay {
    half_life_ms: i64,
    /// What is left after a half, a quarter, an eighth ... of the half-life.
    roots: [u128; STEPS],
}

impl Decay {
    pub(crate) fn new(half_life_ms: i64) -> Self {
        let mut roots = [0; STEPS];
        let mut left = ONE / 2;
        for root in &mut roots {
            left = (left * ONE).isqrt();
            *root = left;
        }
        Self { half_life_ms: half_life_ms.max(1), roots }
    }

    /// What is left of `amount` after `elapsed_ms`.
    fn left(&self, amount: i128, elapsed_ms: i64) -> i128 {
        let elapsed = elapsed_ms.max(0);
        let halvings = u32::try_from(elapsed / self.half_life_ms).unwrap_or(u32::MAX);
        let mut factor = ONE.checked_shr(halvings).unwrap_or(0);
        let mut rest = u128::try_from(elapsed % self.half_life_ms).unwrap_or(0);
        let whole = u128::try_from(self.half_life_ms).unwrap_or(1);
        for root in &self.roots {
            rest *= 2;
            if rest >= whole {
                rest -= whole;
                factor = factor * root / ONE;
            }
        }
        let factor = i128::try_from(factor).unwrap_or(0);
        let one = i128::try_from(ONE).unwrap_or(1);
        amount.saturating_mul(factor).saturating_add(one / 2) / one
    }
}

/// What counts as a namespace's part of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// What its pods hold: where pods are placed.
    Usage,
    /// And what its groups were promised: where groups are admitted, which takes nothing yet.
    UsageAndPromised,
}

/// A namespace in a queue.
#[derive(Debug, Clone, Default)]
struct NamespaceShare {
    usage: Vec<i64>,
    /// The share it holds and its past, as they were at `at`.
    share: i64,
    past: i128,
    at: TimeMs,
    /// Its past now, in the units of shares.
    lately: i64,
}

impl NamespaceShare {
    fn past(&self, decay: &Decay, now: TimeMs) -> i128 {
        let steady = i128::from(self.share) * FINENESS;
        steady + decay.left(self.past - steady, now.0.saturating_sub(self.at.0))
    }
}

/// Shares of namespaces as they were before a trial charged them; `NamespaceShares::untouch` puts them back.
#[derive(Debug)]
pub(crate) struct Touched {
    before: Vec<(QueueNamespace, Option<NamespaceShare>)>,
    changed: FxHashSet<QueueNamespace>,
}

#[derive(Debug, Default)]
pub(crate) struct NamespaceShares {
    of: FxHashMap<QueueNamespace, NamespaceShare>,
    /// Weights other than 1.
    weights: FxHashMap<NamespaceId, i64>,
    /// Those whose holdings changed since they were settled.
    changed: FxHashSet<QueueNamespace>,
    seen: SettledFor,
}

/// What weights and shares were settled for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SettledFor {
    namespaces_version: u64,
    queues_version: u64,
    /// How many namespaces there were.
    namespaces: usize,
}

/// What a share remembers beside its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RememberedShare {
    queue: QueueId,
    namespace: NamespaceId,
    share: i64,
    past: i128,
    at: TimeMs,
}

impl NamespaceShares {
    /// Adds (`sign` 1) or takes back (-1) what a task holds.
    pub(crate) fn charge(&mut self, queue: QueueId, namespace: NamespaceId, demand: &Demand, sign: i64) {
        demand.add_to(&mut self.of.entry((queue, namespace)).or_default().usage, sign);
        self.changed.insert((queue, namespace));
    }

    /// What is known of some before a trial charges them.
    pub(crate) fn touched(&self, shares: &[QueueNamespace]) -> Touched {
        let before = shares.iter().map(|share_of| (*share_of, self.of.get(share_of).cloned())).collect();
        Touched { before, changed: self.changed.clone() }
    }

    /// All is as it was then.
    pub(crate) fn untouch(&mut self, touched: Touched) {
        for (key, share_of) in touched.before {
            match share_of {
                Some(share_of) => drop(self.of.insert(key, share_of)),
                None => drop(self.of.remove(&key)),
            }
        }
        self.changed = touched.changed;
    }

    /// What the namespace holds of the cluster and held lately, and its weight.
    pub(crate) fn usage_and_weight(&self, total: &[i64], queue: QueueId, namespace: NamespaceId) -> (i64, i64) {
        self.usage_and_weight_with(total, queue, namespace, &[])
    }

    /// The same as if it held `more`, too.
    fn usage_and_weight_with(&self, total: &[i64], queue: QueueId, namespace: NamespaceId, more: &[i64]) -> (i64, i64) {
        let known = self.of.get(&(queue, namespace));
        let usage = known.map_or(&[][..], |known| known.usage.as_slice());
        let share = share::dominant_sum(usage, more, total);
        let lately = known.map_or(0, |known| known.lately);
        (share.saturating_add(lately), self.weights.get(&namespace).copied().unwrap_or(1))
    }

    /// For the digest: all that is not a sum over tasks.
    pub(crate) fn memory(&self) -> Vec<RememberedShare> {
        let remembered = self.of.iter().filter(|(_, share_of)| share_of.past != 0);
        let remembered = remembered.map(|(&(queue, namespace), &NamespaceShare { share, past, at, .. })| {
            RememberedShare { queue, namespace, share, past, at }
        });
        let mut memory: Vec<RememberedShare> = remembered.collect();
        memory.sort_unstable();
        memory
    }
}

impl Tables {
    /// Brings shares, weights and the past up to date. O(shares that changed), or O(shares) where the past counts.
    pub(crate) fn settle_namespace_shares(&mut self, decay: Option<&Decay>, now: TimeMs) {
        let Self { namespace_shares: shares, queues, objects, namespaces, nodes, .. } = self;
        let seen = SettledFor {
            namespaces_version: objects.namespaces.version,
            queues_version: queues.version,
            namespaces: namespaces.span(),
        };
        if shares.seen != seen {
            shares.seen = seen;
            let named = objects.namespaces.all.iter().filter(|(_, facts)| facts.weight > 1);
            shares.weights = named.filter_map(|(name, facts)| Some((namespaces.find(name)?, facts.weight))).collect();
            shares.of.retain(|(queue, _), _| queues.table.get(queue.index()).is_some());
            shares.changed.extend(shares.of.keys());
        }
        for key in std::mem::take(&mut shares.changed) {
            let Some(share_of) = shares.of.get_mut(&key) else { continue };
            if let Some(decay) = decay {
                share_of.past = share_of.past(decay, now);
                share_of.at = now;
                share_of.share = share::dominant(&share_of.usage, &nodes.total).min(SHARE_MAX);
            }
            if share_of.past == 0 && share_of.usage.iter().all(|usage| *usage == 0) {
                shares.of.remove(&key);
            }
        }
        let Some(decay) = decay else { return };
        for share_of in shares.of.values_mut() {
            share_of.lately = i64::try_from(share_of.past(decay, now) / FINENESS).unwrap_or(i64::MAX);
        }
    }

    /// Which of two namespaces of a queue holds less of the cluster, per weight.
    pub(crate) fn compare_namespaces(
        &self,
        queue: QueueId,
        left: NamespaceId,
        right: NamespaceId,
        counted: Counted,
    ) -> Ordering {
        let standing = |namespace| {
            let promised = match counted {
                Counted::Usage => &[][..],
                Counted::UsageAndPromised => self.inqueue_demand.of_namespace(queue, namespace),
            };
            self.namespace_shares.usage_and_weight_with(&self.nodes.total, queue, namespace, promised)
        };
        let ((left, left_weight), (right, right_weight)) = (standing(left), standing(right));
        let per_weight = |share: i64, other: i64| i128::from(share) * i128::from(other);
        per_weight(left, right_weight).cmp(&per_weight(right, left_weight))
    }
}

crate::save::saved! {
    NamespaceShare as "Tenant" { usage as "held", share, past, at, lately };
    NamespaceShares as "Tenants" { of, weights, changed, seen };
}

crate::save::saved_unmarked!(SettledFor { namespaces_version, queues_version, namespaces });

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::share::WHOLE;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn half_is_left_after_each_half_life() {
        let decay = Decay::new(HOUR);
        for (elapsed, left) in [
            (0, 1_000_000_000),
            (HOUR, 500_000_000),
            (2 * HOUR, 250_000_000),
            (HOUR / 2, 707_106_781),
            (HOUR + HOUR / 4, 420_448_208),
            (100 * HOUR, 0),
            (i64::MAX, 0),
            (-HOUR, 1_000_000_000),
        ] {
            assert_eq!(decay.left(1_000_000_000, elapsed), left, "after {elapsed}");
        }
    }

    #[test]
    fn a_share_held_is_approached_and_then_forgotten() {
        let decay = Decay::new(HOUR);
        let mut share_of = NamespaceShare { share: WHOLE / 2, ..NamespaceShare::default() };
        let after = |share_of: &NamespaceShare, hours: i64| share_of.past(&decay, TimeMs(hours * HOUR)) / FINENESS;
        assert_eq!([0, 1, 2, 40].map(|hours| after(&share_of, hours)), [0, 250_000_000, 375_000_000, 499_999_999]);
        share_of = NamespaceShare {
            share: 0,
            past: share_of.past(&decay, TimeMs(2 * HOUR)),
            at: TimeMs(2 * HOUR),
            ..share_of
        };
        assert_eq!([2, 3, 4].map(|hours| after(&share_of, hours)), [375_000_000, 187_500_000, 93_750_000]);
    }

    proptest! {
        /// How often the past is looked at changes nothing that matters.
        #[test]
        fn steps_add_up(steps in proptest::collection::vec(1_i64..5_000, 1..200), share in 0..WHOLE) {
            let decay = Decay::new(168 * HOUR);
            let whole: i64 = steps.iter().sum();
            let fresh = NamespaceShare { share, past: i128::from(WHOLE) * FINENESS / 3, ..NamespaceShare::default() };
            let mut stepped = fresh.clone();
            for step in steps {
                let now = stepped.at.plus_ms(step);
                stepped = NamespaceShare { past: stepped.past(&decay, now), at: now, ..stepped };
            }
            let difference = stepped.past(&decay, TimeMs(whole)) - fresh.past(&decay, TimeMs(whole));
            prop_assert!(difference.abs() < FINENESS, "{}", difference);
        }

        #[test]
        fn nothing_overflows(amount in any::<i64>(), elapsed in any::<i64>(), half_life in any::<i64>()) {
            let left = Decay::new(half_life).left(i128::from(amount) * FINENESS, elapsed);
            prop_assert!(left.abs() <= i128::from(amount).abs() * FINENESS + 1);
        }
    }
}
