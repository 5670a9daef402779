//! How a pool's nodes are filled: the fullest node that fits goes first, so that what is large finds whole nodes; or, where that
//! is said, the emptiest.

use std::collections::BTreeMap;

use pumice_api::names::ACCELERATORS;
use pumice_engine::{Argument, Config, PluginConfig, Switches};
use serde::Deserialize;

/// The engine's plugins that say which node is best, and who uses them.
const SPREADS: &str = "nodeorder";
const PACKS: &str = "binpack";
/// Scores of the former that spread.
const SPREADING: [&str; 2] = ["leastrequested.weight", "balancedresource.weight"];
/// How much those count beside cpu and memory.
const ACCELERATOR_WEIGHT: i64 = 10;

/// Which node of those that fit is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Strategy {
    /// The fullest. Nodes with accelerators come last for whoever asks for none.
    #[default]
    Pack,
    Spread,
}

/// How nodes of a pool are filled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Placement {
    /// Which node goes first.
    pub strategy: Strategy,
    /// How much a resource counts where nodes are packed: cpu and memory 1 and accelerators 10 where nothing is said. 0 or more.
    pub weights: BTreeMap<String, u32>,
}

/// How nodes are filled, by pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placements {
    pub all: Placement,
    /// In a pool; goes before the other.
    pub by_pool: BTreeMap<String, Placement>,
}

impl Placements {
    /// How nodes of a pool are filled: as the pool says, or as all pools do.
    pub fn of(&self, pool: &str) -> &Placement {
        self.by_pool.get(pool).unwrap_or(&self.all)
    }
}

impl Placement {
    /// Puts it into the configuration of a pool's engine.
    pub(crate) fn put(&self, config: &mut Config) {
        if self.strategy == Strategy::Spread {
            return;
        }
        let tier = config.tiers.iter_mut().find(|tier| tier.iter().any(|plugin| plugin.name == SPREADS));
        let Some(tier) = tier else { return };
        for plugin in tier.iter_mut().filter(|plugin| plugin.name == SPREADS) {
            plugin.arguments.extend(SPREADING.map(|name| (name.to_owned(), Argument::Int(0))));
        }
        tier.push(PluginConfig { name: PACKS.to_owned(), switches: Switches::default(), arguments: self.arguments() });
    }

    fn arguments(&self) -> BTreeMap<String, Argument> {
        let accelerators = ACCELERATORS.map(|name| (name, ACCELERATOR_WEIGHT));
        let mut weights: BTreeMap<&str, i64> = [("cpu", 1), ("memory", 1)].into_iter().chain(accelerators).collect();
        weights.extend(self.weights.iter().map(|(name, weight)| (name.as_str(), i64::from(*weight))));
        let others: Vec<&str> = weights.keys().copied().filter(|name| !matches!(*name, "cpu" | "memory")).collect();
        let mut arguments: BTreeMap<String, Argument> = [
            ("binpack.resources".to_owned(), Argument::Text(others.join(","))),
            ("binpack.spared".to_owned(), Argument::Text(ACCELERATORS.join(","))),
        ]
        .into();
        arguments.extend(weights.into_iter().map(|(name, weight)| {
            let argument = match name {
                "cpu" | "memory" => format!("binpack.{name}"),
                _ => format!("binpack.resources.{name}"),
            };
            (argument, Argument::Int(weight))
        }));
        arguments
    }
}
