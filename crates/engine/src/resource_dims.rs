//! Resource dimensions and sparse amounts over them.
//!
//! Invariant: `cpu`, `memory` and `pods` are dimensions 0, 1 and 2; a dimension is never forgotten. Amounts are
//! `i64`: milli-cores for cpu, whole units (bytes, devices, pods) for everything else. Used by the whole engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ids::DimId;

/// Amounts by resource name: milli-cores for `cpu`, whole units for all others.
pub type Resources = BTreeMap<String, i64>;

pub(crate) const CPU: DimId = DimId(0);
pub(crate) const MEMORY: DimId = DimId(1);
pub(crate) const PODS: DimId = DimId(2);

/// Largest amount counted (256 TiB): sums over any node's pods stay far from the end of `i64`.
const AMOUNT_MAX: i64 = 1 << 48;
/// Dimensions kept apart; a hostile stream of new names ends here.
const DIMENSIONS_MAX: usize = 512;
/// Stands for every name beyond the limit. No node offers it, so what asks for it never fits and says so.
const OVERFLOW: &str = "(too many resource names)";

/// The interned resource names.
#[derive(Debug)]
pub(crate) struct Dims {
    names: Vec<Arc<str>>,
    index: FxHashMap<Arc<str>, DimId>,
    /// `nvidia.com/gpu`, which Kubernetes' balanced score reads, once it was named.
    gpu: Option<DimId>,
}

const GPU: &str = "nvidia.com/gpu";

impl Dims {
    pub(crate) fn new() -> Self {
        let mut dims = Self { names: Vec::new(), index: FxHashMap::default(), gpu: None };
        for name in ["cpu", "memory", "pods"] {
            dims.intern(name);
        }
        dims
    }

    pub(crate) fn intern(&mut self, name: &str) -> DimId {
        let name = if self.names.len() < DIMENSIONS_MAX { name } else { OVERFLOW };
        if let Some(id) = self.index.get(name) {
            return *id;
        }
        let id = DimId::from(self.names.len());
        if name == GPU {
            self.gpu = Some(id);
        }
        let name: Arc<str> = name.into();
        self.names.push(name.clone());
        self.index.insert(name, id);
        id
    }

    pub(crate) fn gpu(&self) -> Option<DimId> {
        self.gpu
    }

    pub(crate) fn lookup(&self, name: &str) -> Option<DimId> {
        self.index.get(name).copied()
    }

    pub(crate) fn name(&self, dim: DimId) -> &Arc<str> {
        &self.names[dim.index()]
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The positive amounts of `resources`, sorted by dimension.
    pub(crate) fn demand(&mut self, resources: &Resources) -> Demand {
        let positive = resources.iter().filter(|(_, amount)| **amount > 0);
        let mut parts: SmallVec<[(DimId, i64); 4]> =
            positive.map(|(name, amount)| (self.intern(name), (*amount).min(AMOUNT_MAX))).collect();
        parts.sort_unstable_by_key(|(dim, _)| *dim);
        parts.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = kept.1.saturating_add(next.1).min(AMOUNT_MAX);
            }
            same
        });
        Demand(parts)
    }

    /// Whether `amounts` are these resources.
    pub(crate) fn are(&self, resources: &Resources, amounts: &[i64]) -> bool {
        let mut named = amounts.iter().enumerate().filter(|(_, amount)| **amount != 0);
        let count = named.clone().count();
        count == resources.len() && named.all(|(index, amount)| resources.get(&*self.names[index]) == Some(amount))
    }

    /// Back to names, for plans and reasons.
    pub(crate) fn resources(&self, amounts: &[i64]) -> Resources {
        amounts
            .iter()
            .enumerate()
            .filter(|(_, amount)| **amount != 0)
            .map(|(index, amount)| (self.names[index].to_string(), *amount))
            .collect()
    }
}

/// Positive amounts of a few dimensions, sorted by dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Demand(pub(crate) SmallVec<[(DimId, i64); 4]>);

impl Demand {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DimId, i64)> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn get(&self, dim: DimId) -> i64 {
        self.0.iter().find(|(d, _)| *d == dim).map_or(0, |(_, amount)| *amount)
    }

    /// True where nothing but room for a pod is asked: Volcano's BestEffort.
    pub(crate) fn is_best_effort(&self) -> bool {
        self.0.iter().all(|(dim, _)| *dim == PODS)
    }

    pub(crate) fn add_to(&self, total: &mut Vec<i64>, times: i64) {
        for (dim, amount) in self.iter() {
            if total.len() <= dim.index() {
                total.resize(dim.index() + 1, 0);
            }
            let cell = &mut total[dim.index()];
            *cell = cell.saturating_add(amount.saturating_mul(times));
        }
    }
}

/// An amount as people write it: `1500m` of cpu, `512Mi` of memory.
pub fn amount_text(resource: &str, amount: i64) -> String {
    const BINARY: [(&str, i64); 5] =
        [("Pi", 1 << 50), ("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    // More digits than these are rounded.
    const EXACT_BELOW: i64 = 100_000;
    if resource == "cpu" {
        return if amount % 1000 == 0 { (amount / 1000).to_string() } else { format!("{amount}m") };
    }
    let bytes = resource == "memory" || resource == "ephemeral-storage" || resource.starts_with("hugepages-");
    if bytes {
        for (suffix, unit) in BINARY {
            if amount != 0 && amount % unit == 0 && (amount / unit).abs() < EXACT_BELOW {
                return format!("{}{suffix}", amount / unit);
            }
        }
        if amount.unsigned_abs() >= 10 << 20 {
            let mebibytes = amount.div_euclid(1 << 20) + i64::from(amount.rem_euclid(1 << 20) != 0);
            if mebibytes.abs() < EXACT_BELOW {
                return format!("{mebibytes}Mi");
            }
            // Of a number that long nobody reads the end: tenths of the largest unit, rounded up.
            if let Some((suffix, unit)) =
                BINARY.into_iter().find(|(_, unit)| amount.unsigned_abs() >= unit.unsigned_abs())
            {
                let tenths = (i128::from(amount) * 10).div_euclid(i128::from(unit));
                let tenths = tenths + i128::from((i128::from(amount) * 10).rem_euclid(i128::from(unit)) != 0);
                let sign = if tenths < 0 { "-" } else { "" };
                let (whole, rest) = (tenths.abs() / 10, tenths.abs() % 10);
                let rest = if rest == 0 { String::new() } else { format!(".{rest}") };
                return format!("{sign}{whole}{rest}{suffix}");
            }
        }
    }
    amount.to_string()
}

crate::save::saved! {
    Dims { names, index, gpu };
}

crate::save::saved_inside!(Demand);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_people_write_them() {
        for (resource, amount, text) in [
            ("cpu", 1500, "1500m"),
            ("cpu", 2000, "2"),
            ("memory", 1 << 30, "1Gi"),
            ("memory", 512 << 20, "512Mi"),
            ("memory", 1_000_000_000, "954Mi"),
            ("memory", 1000, "1000"),
            ("memory", 15_000 << 20, "15000Mi"),
            ("memory", 1_022_843_340 << 10, "975.5Gi"),
            ("memory", -(1_022_843_340 << 10), "-975.4Gi"),
            ("memory", i64::MAX, "8192Pi"),
            ("memory", i64::MIN, "-8192Pi"),
            ("nvidia.com/gpu", 3, "3"),
        ] {
            assert_eq!(amount_text(resource, amount), text);
        }
    }

    #[test]
    fn names_beyond_the_limit_share_one_dimension() {
        let mut dims = Dims::new();
        for number in 0..2 * DIMENSIONS_MAX {
            dims.intern(&format!("vendor/{number}"));
        }
        assert_eq!(dims.len(), DIMENSIONS_MAX + 1);
        assert_eq!(&**dims.name(dims.lookup(OVERFLOW).unwrap()), OVERFLOW);
    }

    #[test]
    fn amounts_are_the_resources_that_they_are_made_of() {
        let mut dims = Dims::new();
        dims.intern("gpu");
        let lists = [vec![], vec![1], vec![1, 2], vec![0, 2], vec![0, 3], vec![0, 2, 0, 1]];
        for one in &lists {
            for other in &lists {
                assert_eq!(dims.are(&dims.resources(one), other), one == other, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_demand_is_sorted_and_positive() {
        let mut dims = Dims::new();
        let demand = dims.demand(&[("pods".into(), 1), ("cpu".into(), 2), ("memory".into(), 0)].into());
        assert_eq!(demand.iter().collect::<Vec<_>>(), [(CPU, 2), (PODS, 1)]);
        assert!(!demand.is_best_effort());
    }
}
