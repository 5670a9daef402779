//! Volcano's plugins, by their names in a configuration: a new plugin gets its line here.

use crate::job_plugins::{
    capacity, cdp, conformance, deadline, drf, gang, overcommit, pdb, priority, proportion, rescheduling,
    resourcequota, sla,
};
use crate::node_plugins::{
    binpack, deviceshare, network_topology_aware, nodegroup, nodeorder, numa_aware, predicates, resource_strategy_fit,
    task_topology, tdm, usage,
};
use crate::plugin::Registry;

/// Annotations of pods that say where they may run or like to: these belong to a pod's template.
pub fn template_annotations() -> impl Iterator<Item = &'static str> {
    let lists = [
        deviceshare::TEMPLATE_ANNOTATIONS,
        resource_strategy_fit::ANNOTATIONS,
        &[numa_aware::POLICY],
        tdm::TEMPLATE_ANNOTATIONS,
    ];
    lists.into_iter().flatten().copied()
}

/// Volcano's plugins that this version lacks: accepted, with a warning.
pub(crate) const NOT_YET: &[&str] = &["extender"];

impl Default for Registry {
    /// All plugins of this crate, Volcano's by the names that its configuration file uses; others are put in with
    /// `add`.
    fn default() -> Self {
        let mut registry = Self::empty();
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
        registry.are_ours();
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
}
