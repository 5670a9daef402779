//! Which plugins there are, by name. `Config::parse` asks it what is known, `Policy` builds from it.
//! A third party adds its own beside Volcano's.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::{
    Plugin, binpack, capacity, cdp, conformance, deadline, deviceshare, drf, gang, network_topology_aware, nodegroup,
    nodeorder, numa_aware, overcommit, pdb, predicates, priority, proportion, rescheduling, resource_strategy_fit,
    resourcequota, sla, task_topology, tdm, usage,
};
use crate::config::PluginConfig;

/// Makes a plugin from its arguments.
pub type Factory = Arc<dyn Fn(&PluginConfig) -> Result<Box<dyn Plugin>, ArgumentError> + Send + Sync>;

/// Arguments that a plugin can't work with.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("argument {argument} {wanted}")]
pub struct ArgumentError {
    /// Which.
    pub argument: String,
    /// What it must be: `must be a duration such as 10m`.
    pub wanted: String,
}

/// One plugin that can be named.
#[derive(Clone)]
struct Entry {
    arguments: Vec<String>,
    /// Its arguments begin with names of the user's own.
    prefixes: Vec<String>,
    factory: Factory,
    /// It is of this crate.
    ours: bool,
}

/// The plugins that a configuration may name.
#[derive(Clone)]
pub struct Registry(BTreeMap<String, Entry>);

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Volcano's plugins that this version lacks: accepted, with a warning.
pub(crate) const NOT_YET: &[&str] = &["extender"];

impl Default for Registry {
    /// Volcano's plugins.
    fn default() -> Self {
        let mut registry = Self(BTreeMap::new());
        registry.add("cdp", &[], |_| Ok(Box::new(cdp::Cdp::default())));
        registry.add("conformance", &[], |_| Ok(Box::new(conformance::Conformance)));
        registry.add("gang", &[], |_| Ok(Box::new(gang::Gang)));
        registry.add("pdb", &[], |_| Ok(Box::new(pdb::Pdb::default())));
        registry.add("rescheduling", rescheduling::ARGUMENTS, |config| {
            Ok(Box::new(rescheduling::Rescheduling::new(config)?))
        });
        registry.add("tdm", tdm::ARGUMENTS, |config| Ok(Box::new(tdm::Tdm::new(config))));
        registry.add("priority", &[], |_| Ok(Box::new(priority::Priority)));
        registry.add("deadline", &[], |_| Ok(Box::new(deadline::Deadline)));
        registry.add("predicates", predicates::ARGUMENTS, |config| Ok(Box::new(predicates::Predicates::new(config))));
        registry.add("nodeorder", nodeorder::ARGUMENTS, |config| Ok(Box::new(nodeorder::NodeOrder::new(config))));
        registry.add("proportion", proportion::ARGUMENTS, |config| Ok(Box::new(proportion::Proportion::new(config))));
        registry.add("capacity", capacity::ARGUMENTS, |config| Ok(Box::new(capacity::Capacity::new(config))));
        registry.add("drf", &[], |config| Ok(Box::new(drf::Drf::new(config))));
        registry.add("overcommit", overcommit::ARGUMENTS, |config| Ok(Box::new(overcommit::Overcommit::new(config))));
        registry.add("resourcequota", &[], |_| Ok(Box::new(resourcequota::ResourceQuota::default())));
        registry.add("sla", sla::ARGUMENTS, |config| Ok(Box::new(sla::Sla::new(config)?)));
        registry.add("network-topology-aware", network_topology_aware::ARGUMENTS, |config| {
            Ok(Box::new(network_topology_aware::NetworkTopologyAware::new(config)))
        });
        registry.add("task-topology", task_topology::ARGUMENTS, |config| {
            Ok(Box::new(task_topology::TaskTopology::new(config)))
        });
        registry.add_placing();
        registry.0.values_mut().for_each(|entry| entry.ours = true);
        registry
    }
}

impl Registry {
    /// Plugins about what nodes offer and how it is used.
    fn add_placing(&mut self) {
        self.add("binpack", binpack::ARGUMENTS, |config| Ok(Box::new(binpack::BinPack::new(config))));
        self.add("nodegroup", nodegroup::ARGUMENTS, |config| Ok(Box::new(nodegroup::NodeGroup::new(config))));
        self.add("numa-aware", numa_aware::ARGUMENTS, |config| Ok(Box::new(numa_aware::NumaAware::new(config))));
        self.add("usage", usage::ARGUMENTS, |config| Ok(Box::new(usage::Usage::new(config)?)));
        self.add("deviceshare", deviceshare::ARGUMENTS, |config| Ok(Box::new(deviceshare::DeviceShare::new(config)?)));
        self.add("resource-strategy-fit", resource_strategy_fit::ARGUMENTS, |config| {
            Ok(Box::new(resource_strategy_fit::ResourceStrategyFit::new(config)?))
        });
    }

    /// Adds a plugin, or replaces the one of that name. An argument that ends in `*` stands for all that begin so.
    pub fn add(
        &mut self,
        name: &str,
        arguments: &[&str],
        factory: impl Fn(&PluginConfig) -> Result<Box<dyn Plugin>, ArgumentError> + Send + Sync + 'static,
    ) {
        let (prefixes, exact): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|name| name.ends_with('*'));
        let entry = Entry {
            arguments: exact.into_iter().map(str::to_owned).collect(),
            prefixes: prefixes.into_iter().map(|name| name.trim_end_matches('*').to_owned()).collect(),
            factory: Arc::new(factory),
            ours: false,
        };
        self.0.insert(name.to_owned(), entry);
    }

    /// The names of all plugins, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether a plugin has that name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether the plugin of that name is one of this crate, not of a third party.
    pub(crate) fn is_ours(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|entry| entry.ours)
    }

    /// Whether the plugin reads the argument.
    pub fn reads(&self, plugin: &str, argument: &str) -> bool {
        self.0.get(plugin).is_some_and(|entry| {
            entry.arguments.iter().any(|name| name == argument)
                || entry.prefixes.iter().any(|prefix| argument.starts_with(prefix.as_str()))
        })
    }

    /// The plugin of that name; nothing if there is none.
    ///
    /// # Errors
    /// When its arguments are of no use.
    pub fn build(&self, config: &PluginConfig) -> Result<Option<Box<dyn Plugin>>, ArgumentError> {
        self.0.get(&config.name).map(|entry| (entry.factory)(config)).transpose()
    }
}
