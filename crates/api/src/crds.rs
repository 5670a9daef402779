//! The custom resource definitions generated from this crate's types.
//!
//! The same definitions lie beside the source as YAML, for people and for clusters; `cargo xtask codegen` writes both.
//! Whoever starts an API server installs them.

/// Every definition as one line of JSON.
const ALL: &str = include_str!("../crds/all.json");

/// The definitions of Job, Command, PodGroup, Queue, HyperNode, NodeShard and Numatopology. Parses about 80 KB.
pub fn all() -> Vec<serde_json::Value> {
    serde_json::from_str(ALL).expect("generated JSON; the freshness test compares it with the types")
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_definition_is_there() {
        let names: Vec<String> = super::all().iter().map(|crd| crd["metadata"]["name"].to_string()).collect();
        let wanted = [
            "jobs.batch",
            "commands.bus",
            "podgroups.scheduling",
            "queues.scheduling",
            "hypernodes.topology",
            "nodeshards.shard",
            "numatopologies.nodeinfo",
        ];
        assert_eq!(names, wanted.map(|name| format!("\"{name}.volcano.sh\"")));
    }
}
