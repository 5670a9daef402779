//! The custom resource definitions generated from this crate's types.
//!
//! The same definitions lie beside the source as YAML, for people and for clusters; `cargo xtask codegen` writes both.
//! Whoever starts an API server installs them.

/// Every definition as one line of JSON.
const ALL: &str = include_str!("../crds/all.json");

/// Definitions that nothing of ours acts on yet: an object of theirs would be a promise that nobody keeps.
const IDLE: &[&str] = &["colocationconfigurations.config.volcano.sh"];

/// The definitions of all of Volcano's kinds and of ours. Parses about 300 KB.
pub fn all() -> Vec<serde_json::Value> {
    serde_json::from_str(ALL).expect("generated JSON; the freshness test compares it with the types")
}

/// The definitions of the kinds that a component of ours acts on.
pub fn at_work() -> Vec<serde_json::Value> {
    let mut definitions = all();
    definitions.retain(|crd| !IDLE.iter().any(|idle| crd["metadata"]["name"] == *idle));
    definitions
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
        let ours = ["resourceprofiles", "reservations"].map(|name| format!("\"{name}.pumice.sh\""));
        let wanted: Vec<String> = wanted.into_iter().chain(ours).collect();
        assert_eq!(names, wanted);
        assert_eq!(super::at_work().len() + super::IDLE.len(), wanted.len());
    }
}
