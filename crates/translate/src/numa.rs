//! Numatopologies.

use std::collections::{BTreeMap, BTreeSet};

use pumice_api::nodeinfo::{CpuInfo, Numatopology};
use pumice_engine::{CpuPlace, NumaFacts};

use super::text;

/// The resource whose amounts are lists.
const CPU: &str = "cpu";
/// Most cpus of a node; an id beyond it is none.
const CPUS_MAX: u32 = 8192;

/// What the engine reads of a Numatopology.
pub fn numa_facts(topology: &Numatopology) -> NumaFacts {
    let spec = &topology.spec;
    let policy = |name: &str| spec.policies.get(name).cloned().unwrap_or_default();
    let mut free = spec.numares.get(CPU).map(|resource| cpus(&resource.allocatable)).unwrap_or_default();
    let containers = || spec.pod_allocations.iter().flat_map(|pod| &pod.container_allocations);
    for taken in containers().filter_map(|container| container.allocations.get(CPU)) {
        let taken = cpus(taken);
        free.retain(|cpu| !taken.contains(cpu));
    }
    let place = |(id, info): (&String, &CpuInfo)| {
        let number = |number: i64| u32::try_from(number).ok();
        let place = CpuPlace { numa: number(info.numa)?, socket: number(info.socket)?, core: number(info.core)? };
        Some((id.parse().ok().filter(|id| *id < CPUS_MAX)?, place))
    };
    let places: BTreeMap<u32, CpuPlace> = spec.cpu_detail.iter().filter_map(place).collect();
    NumaFacts {
        name: text(topology.metadata.name.as_ref()).into(),
        cpu_manager: policy("CPUManagerPolicy"),
        topology_manager: policy("TopologyManagerPolicy"),
        free_cpus: free.into_iter().collect(),
        cpus: places,
        shown_pods: spec.pod_allocations.iter().map(|pod| pod.uid.as_str().into()).collect(),
    }
}

/// A list as the kernel writes them: `0,2-4`. What can't be read is left out.
fn cpus(list: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(first..=last.min(CPUS_MAX - 1))
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_of_cpus() {
        for (list, wanted) in [
            ("", vec![]),
            ("3", vec![3]),
            ("0,2-4", vec![0, 2, 3, 4]),
            (" 1 , 0-1", vec![0, 1]),
            ("4-2,x,-,7-", vec![]),
            ("8190-4294967295", vec![8190, 8191]),
        ] {
            assert_eq!(cpus(list).into_iter().collect::<Vec<_>>(), wanted, "{list:?}");
        }
    }

    #[test]
    fn free_are_those_that_no_pod_has() {
        let topology: Numatopology = serde_json::from_value(json!({
            "apiVersion": "nodeinfo.volcano.sh/v1alpha1", "kind": "Numatopology", "metadata": {"name": "n1"},
            "spec": {
                "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "best-effort"},
                "numares": {"cpu": {"allocatable": "0-3", "capacity": 4}},
                "cpuDetail": {"0": {}, "3": {"numa": 1, "socket": 1, "core": 2}, "x": {}, "9000": {}},
                "podAllocations": [{"uid": "u", "containerAllocations": [{"allocations": {"cpu": "1-2", "memory": "1Gi"}}]}],
            },
        }))
        .unwrap();
        let facts = numa_facts(&topology);
        assert_eq!((facts.name.as_str(), facts.cpu_manager.as_str()), ("n1", "static"));
        assert_eq!((facts.topology_manager.as_str(), &facts.free_cpus[..]), ("best-effort", &[0, 3][..]));
        assert_eq!(facts.cpus.len(), 2);
        assert_eq!(facts.cpus[&3], CpuPlace { numa: 1, socket: 1, core: 2 });
        assert_eq!(facts.shown_pods, ["u"]);
    }
}
