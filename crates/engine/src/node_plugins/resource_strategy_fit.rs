//! `resource-strategy-fit`: each resource spread or packed as its strategy says; nodes with scarce resources are kept
//! for those who ask for them (`sra`), and so is cpu and memory beside them (`proportional`).

use crate::cluster::classes::ClassRow;
use crate::config::{Fault, PluginConfig};
use crate::ids::NodeId;
use crate::reasons::Check;
use crate::resource_dims::{CPU, MEMORY};
use crate::world::tables::Tables;

use crate::plugin::Plugin;
use crate::plugin::score::{FULL, Mean, ratio};

mod proportional;
mod sra;
mod strategies;

use proportional::Proportional;
use sra::Sra;
use strategies::{Strategies, Strategy};

pub(crate) const ARGUMENTS: &[&str] = &["resourceStrategyFitWeight", "resources", "sra", "proportional"];
/// Annotations of pods that this plugin reads.
pub(crate) const ANNOTATIONS: &[&str] = &[strategies::TYPE, strategies::WEIGHT];

const WEIGHT: i64 = 10;

#[derive(Debug)]
pub(crate) struct ResourceStrategyFit {
    weight: i64,
    strategies: Strategies,
    sra: Option<Sra>,
    proportional: Option<Proportional>,
}

impl ResourceStrategyFit {
    /// # Errors
    /// Where `resources`, `sra` or `proportional` don't have the shape that Volcano decodes.
    pub(crate) fn new(config: &PluginConfig) -> Result<Self, Fault> {
        let weight = config.field("resourceStrategyFitWeight").map_or(Ok(WEIGHT), |field| field.int())?;
        Ok(Self {
            weight: if weight > 0 { weight } else { WEIGHT },
            strategies: Strategies::new(config.field("resources"))?,
            sra: config.field("sra").map(Sra::new).transpose()?.flatten(),
            proportional: config.field("proportional").map(Proportional::new).transpose()?.flatten(),
        })
    }

    fn fit(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> i64 {
        let own = strategies::of_pod(&self.strategies, &class.template.annotations);
        let strategies = own.as_ref().unwrap_or(&self.strategies);
        let mut mean = Mean::default();
        for (dim, amount) in class.demand.iter() {
            let Some((strategy, weight)) = strategies.of(tables.dims.name(dim)) else { continue };
            let offered = tables.nodes.allocatable(node, dim);
            let wanted = tables.nodes.used(node, dim).saturating_add(amount);
            if offered == 0 {
                mean.add(0, weight);
                continue;
            }
            if wanted > offered {
                return 0;
            }
            let part = match strategy {
                Strategy::Most => wanted,
                Strategy::Least => offered.saturating_sub(wanted),
            };
            mean.add(ratio(part, offered, FULL), weight);
        }
        mean.times(self.weight)
    }
}

impl Plugin for ResourceStrategyFit {
    fn in_thousandths(&self) -> bool {
        true
    }

    fn check_use(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> Option<Check> {
        let proportional = self.proportional.as_ref()?;
        let idle = |dim| tables.nodes.idle(node, dim);
        let names = || class.demand.iter().map(|(dim, _)| &**tables.dims.name(dim));
        let left = |dim| idle(dim).saturating_sub(class.demand.get(dim));
        let scarce = |name: &str| tables.dims.lookup(name).map_or(0, idle);
        (!proportional.keeps(names(), left(CPU), left(MEMORY), scarce)).then_some(Check::Proportional)
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        self.proportional.is_some()
    }

    fn score(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> i64 {
        let fit = self.fit(tables, class, node);
        let Some(sra) = &self.sra else { return fit };
        let offers = |dim| tables.nodes.allocatable(node, dim) > 0;
        if !class.demand.iter().all(|(dim, _)| offers(dim)) {
            return fit;
        }
        fit.saturating_add(sra.score(|name| tables.dims.lookup(name).is_some_and(offers)))
    }
}

#[cfg(test)]
mod tests;
