//! A plugin of one's own: nodes with the label `example.org/reserved-for` take pods of that namespace only.
//!
//! It comes into the scheduler through the registry, and into the configuration by its name:
//!
//! ```yaml
//! tiers:
//! - plugins:
//!   - name: reserved-nodes
//!     arguments: {label: example.org/reserved-for}
//! ```

use pumice_engine::plugin::{ArgumentError, NodeId, Plugin, Registry, Tables, TaskId};
use pumice_engine::{Argument, Check, PluginConfig};

/// Its name in the configuration.
pub const NAME: &str = "reserved-nodes";
/// The label that it reads, unless the configuration names another.
const LABEL: &str = "example.org/reserved-for";

/// Makes the plugin known to the scheduler under [`NAME`].
pub fn register(plugins: &mut Registry) {
    plugins.add(NAME, &["label"], |config| Ok(Box::new(ReservedNodes { label: label(config)? })));
}

fn label(config: &PluginConfig) -> Result<String, ArgumentError> {
    match config.arguments.get("label") {
        None => Ok(LABEL.to_owned()),
        Some(Argument::Text(label)) if !label.is_empty() => Ok(label.clone()),
        Some(_) => Err(ArgumentError { argument: "label".to_owned(), wanted: "must be the key of a label".to_owned() }),
    }
}

#[derive(Debug)]
struct ReservedNodes {
    label: String,
}

impl Plugin for ReservedNodes {
    /// Namespaces are no part of what pods of a class share, so every pod is looked at by itself.
    fn is_specific(&self, _tables: &Tables, _task: TaskId) -> bool {
        true
    }

    fn check_task(&self, tables: &Tables, task: TaskId, node: NodeId) -> Option<Check> {
        let owner = tables.node(node).labels().get(&self.label)?;
        (owner != tables.task(task).namespace()).then_some(Check::Refused)
    }
}
