//! What the scheduler's flags add to its configuration file; a recording carries them beside the file's text.

use pumice_engine::plugin::Registry;
use pumice_engine::{Argument, Config, ConfigError, Sharding};
use serde::{Deserialize, Serialize};

/// The action whose argument limits the binds under way to a node, and the argument.
const ALLOCATE: &str = "allocate";
const MAX_BINDING_PER_NODE: &str = "maxBindingPerNode";

/// What flags add to the configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Flags {
    /// The queue of groups that name none.
    pub default_queue: String,
    /// Binds under way to one node; 0 = no limit.
    pub max_binding_per_node: u32,
    /// The NodeShard kept to, and whether no other node is used.
    pub shard: Option<(String, bool)>,
    /// Whether nodes are added for pods that wait, where that was said.
    pub autoscaling: Option<bool>,
    /// Nodes meet claims by themselves.
    pub nodes_meet_claims: bool,
}

impl Flags {
    /// The NodeShard kept to.
    pub fn sharding(&self) -> Option<Sharding> {
        self.shard.clone().map(|(name, hard)| Sharding { hard, name })
    }

    /// A text of the file, with what the flags add. Warnings are logged.
    ///
    /// # Errors
    /// When the text is refused.
    pub fn parse(&self, text: &str, plugins: &Registry) -> Result<Config, ConfigError> {
        let (config, warnings) = Config::parse_with(text, plugins)?;
        for warning in warnings {
            // The scheduler's own target: filters of logs name it.
            tracing::warn!(target: "pumice_scheduler::reload", %warning, "scheduler configuration");
        }
        Ok(self.complete(config))
    }

    /// A configuration with what the flags add.
    pub fn complete(&self, mut config: Config) -> Config {
        config.default_queue.clone_from(&self.default_queue);
        config.sharding = self.sharding();
        config.nodes_meet_claims = self.nodes_meet_claims;
        if let Some(adds_nodes) = self.autoscaling {
            config.set_autoscaling(adds_nodes);
        }
        if self.max_binding_per_node > 0 {
            let arguments = config.configurations.entry(ALLOCATE.to_owned()).or_default();
            let limit = Argument::Int(i64::from(self.max_binding_per_node));
            arguments.entry(MAX_BINDING_PER_NODE.to_owned()).or_insert(limit);
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_add_what_the_file_does_not_say() {
        let flags = Flags { default_queue: "mine".into(), max_binding_per_node: 7, ..Flags::default() };
        let limit = |config: &Config| config.configurations["allocate"]["maxBindingPerNode"].clone();
        let config = flags.parse("actions: allocate\n", &Registry::default()).unwrap();
        assert_eq!((config.default_queue.as_str(), limit(&config)), ("mine", Argument::Int(7)));
        let text = "actions: allocate\nconfigurations:\n- name: allocate\n  arguments: {maxBindingPerNode: 3}\n";
        assert_eq!(limit(&flags.parse(text, &Registry::default()).unwrap()), Argument::Int(3));
        let flags = Flags { autoscaling: Some(true), ..Flags::default() };
        let adds_nodes = |config: &Config| config.configurations["autoscaling"]["enable"].clone();
        assert_eq!(adds_nodes(&flags.complete(Config::default())), Argument::Bool(true));
        let text = "actions: allocate\nconfigurations:\n- name: autoscaling\n  arguments: {enable: auto}\n";
        assert_eq!(adds_nodes(&flags.parse(text, &Registry::default()).unwrap()), Argument::Text("auto".into()));
    }
}
