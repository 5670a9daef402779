//! `overcommit`: groups are admitted only while what was promised is less than a multiple of the cluster, less what
//! is in use. Volcano goes on counting what an admitted group holds already; here only what it still needs counts.

use std::sync::OnceLock;

use crate::cluster::classes::ClassRow;
use crate::config::PluginConfig;
use crate::ids::{DimId, GroupId, TimeMs};
use crate::plugin::{Plugin, Vote};
use crate::reasons::Reason;
use crate::resource_dims::PODS;
use crate::share::at;
use crate::world::minimum::Missing;
use crate::world::tables::Tables;

pub(crate) const ARGUMENTS: &[&str] = &["overcommit-factor"];

const FACTOR: f64 = 1.2;
const FACTOR_MAX: f64 = 1e6;
/// The factor is kept in millionths.
const UNIT: i64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Overcommit {
    factor: i64,
    /// What may be in use and promised, less what is in use. Worked out when a group first asks in a cycle.
    budget: OnceLock<Vec<i64>>,
}

impl Overcommit {
    pub(crate) fn new(config: &PluginConfig) -> Self {
        let factor = config.float("overcommit-factor", FACTOR);
        let factor = if factor >= 1.0 { factor.min(FACTOR_MAX) } else { FACTOR };
        Self { factor: (factor * UNIT as f64).round() as i64, budget: OnceLock::new() }
    }

    fn budget(&self, tables: &Tables) -> Vec<i64> {
        let dims = 0..tables.nodes.total.len();
        let budget = dims.map(DimId::from).map(|dim| {
            let all = i128::from(at(&tables.nodes.total, dim)) * i128::from(self.factor) / i128::from(UNIT);
            let used: i128 = tables.nodes.ids().map(|node| i128::from(tables.nodes.used(node, dim))).sum();
            i64::try_from((all - used).max(0)).unwrap_or(i64::MAX)
        });
        budget.collect()
    }
}

impl Plugin for Overcommit {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn open(&mut self, _tables: &Tables, _now: TimeMs) {
        self.budget = OnceLock::new();
    }

    fn job_enqueueable(&self, tables: &Tables, _group: GroupId, missing: &Missing) -> Result<Vote, Reason> {
        let budget = self.budget.get_or_init(|| self.budget(tables));
        let promised = tables.inqueue_demand.ahead_in_all(missing.past);
        let wanted = (0..missing.total.len()).map(DimId::from).filter(|dim| *dim != PODS);
        let over = wanted.into_iter().find(|dim| {
            let requested = at(&missing.total, *dim);
            requested > 0 && requested.saturating_add(at(&promised, *dim)) > at(budget, *dim)
        });
        match over {
            Some(dim) => Err(Reason::Overcommitted {
                resource: tables.dims.name(dim).to_string(),
                budget: at(budget, dim),
                promised: at(&promised, dim),
                requested: at(&missing.total, dim),
            }),
            None => Ok(Vote::Permit),
        }
    }
}

#[cfg(test)]
mod tests;
