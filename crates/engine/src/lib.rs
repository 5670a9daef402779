//! The scheduling engine: cluster facts in, decisions and reasons out.
//!
//! [`World`] takes [`Delta`]s and, when asked, runs a cycle of the configured [`Action`]s and returns a [`Plan`].
//! Pure: no I/O, no clock, no randomness, no global state. What has been decided counts at once; the shell reports
//! how carrying it out went. Every waiting group can say why, in [`Reasons`].

mod actions;
mod close;
mod config;
mod cycle;
mod dims;
mod facts;
mod finder;
mod ids;
mod minimum;
mod plan;
mod plan_lint;
mod plugins;
mod policy;
mod queue_limit;
mod reasons;
mod world;

pub use config::{Action, Argument, Config, ConfigError, PluginConfig, Switch, Switches, Warning, WarningKind};
pub use dims::Resources;
pub use facts::{
    Delta, GroupCondition, GroupFacts, GroupPhase, GroupStatus, HostPort, NodeFacts, NodeTerm, Operator, OwnerFacts,
    PodFacts, PodPhase, PodTemplate, PreferredTerm, QueueFacts, QueueState, Requirement, ShapeTask, Taint, TaintEffect,
    Toleration,
};
pub use ids::TimeMs;
pub use plan::{Bind, GroupUpdate, Plan, PodNotice, QueueUpdate};
pub use reasons::{Check, CheckCount, Minimum, NodesUnfit, Reason, Reasons, RoleMinimum, Shortage, Stage};
pub use world::{GroupView, World};
