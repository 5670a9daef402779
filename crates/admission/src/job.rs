//! Jobs: what is filled in on create, and what is refused on create and update.
//!
//! The rules and their words are Volcano's. Differences, each because a manifest people have would else not run:
//! a volume with neither claim nor name becomes an emptyDir; a volume with both makes the claim of that name; a queue that no
//! controller has looked at yet counts as Open. Refused beyond Volcano's rules, because it would be admitted and then never
//! start: a job whose plugins ask for what is not there or for too much, names that can't name what plugins make.

use pumice_api::batch::{Job, TaskSpec};

mod annotations;
mod create;
mod dependencies;
mod elsewhere;
pub(crate) mod later;
mod mutate;
mod parallel;
mod partition;
mod plugins;
mod pod_template;
pub(crate) mod policies;
mod queue_rule;
mod status;
mod update;
mod volumes;

pub use create::validate_create;
pub use elsewhere::Elsewhere;
pub use mutate::{mutate, mutate_again};
pub use queue_rule::inherit_queue_rule;
pub use status::first_status;
pub use update::validate_update;

fn name_of(job: &Job) -> &str {
    job.metadata.name.as_deref().unwrap_or_default()
}

fn replicas(tasks: &[TaskSpec]) -> i64 {
    tasks.iter().map(|task| i64::from(task.replicas)).sum()
}

/// Said of a topology constraint that names its tier twice.
const BOTH_TIERS: &str =
    "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously";

/// Whether a topology constraint names its tier by number and by name.
pub(crate) fn names_tier_twice(topology: Option<&pumice_api::batch::NetworkTopologySpec>) -> bool {
    topology.is_some_and(|topology| topology.highest_tier_allowed.is_some() && !topology.highest_tier_name.is_empty())
}
