//! `sra`: the fewer of the scarce resources a node has, the better for those who don't need them.

use std::collections::BTreeMap;

use crate::config::{Fault, Field};
use crate::plugin::score::{FULL, ratio};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sra {
    weight: i64,
    resources: BTreeMap<String, i64>,
    sum: i64,
}

impl Sra {
    /// Nothing where it is not enabled.
    pub(super) fn new(field: Field<'_>) -> Result<Option<Self>, Fault> {
        let fields = field.entries()?;
        let enable = fields.get("enable").map_or(Ok(false), |field| field.bool())?;
        let names = fields.get("resources").map_or(Ok(""), |field| field.text())?;
        let weight = fields.get("weight").map_or(Ok(0), |field| field.int())?;
        let given = fields.get("resourceWeight").map_or(Ok(BTreeMap::new()), |field| field.entries())?;
        let mut resources = BTreeMap::new();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let weight = given.get(name).map_or(Ok(1), |field| field.int())?;
            resources.insert(name.to_owned(), if weight < 0 { 1 } else { weight });
        }
        let sum = resources.values().fold(0_i64, |sum, weight| sum.saturating_add(*weight));
        Ok(enable.then_some(Self { weight, resources, sum }))
    }

    /// Of a node that has all that the pod asks for. Without weights nothing is scarce and nothing scores.
    pub(super) fn score(&self, has: impl Fn(&str) -> bool) -> i64 {
        if self.sum == 0 {
            return 0;
        }
        let weights = self.resources.iter().filter(|(name, _)| has(name)).map(|(_, weight)| *weight);
        let there = weights.fold(0_i64, i64::saturating_add);
        ratio(self.sum.saturating_sub(there), self.sum, FULL).saturating_mul(self.weight)
    }
}
