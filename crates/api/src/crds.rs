//! The custom resource definitions generated from this crate's types.
//!
//! The same definitions lie beside the source as YAML, for people and for clusters; `cargo xtask codegen` writes both.
//! Whoever starts an API server installs them.

/// Every definition as one line of JSON.
const ALL: &str = include_str!("../crds/all.json");

/// The definitions of all of Volcano's kinds and of ours: also of one that nothing of ours acts on, since Volcano's controllers
/// begin only once they have listed it. Parses about 300 KB.
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
            "cronjobs.batch",
            "commands.bus",
            "podgroups.scheduling",
            "queues.scheduling",
            "hypernodes.topology",
            "nodeshards.shard",
            "numatopologies.nodeinfo",
            "jobflows.flow",
            "jobtemplates.flow",
            "colocationconfigurations.config",
        ]
        .map(|name| format!("\"{name}.volcano.sh\""));
        let ours =
            ["resourceprofiles", "reservations", "tenants", "directories"].map(|name| format!("\"{name}.pumice.sh\""));
        let wanted: Vec<String> = wanted.into_iter().chain(ours).collect();
        assert_eq!(names, wanted);
    }
}
