//! The scheduling engine: cluster facts in, decisions and reasons out.
//!
//! [`World`] takes [`Delta`]s and, when asked, runs a cycle of the configured [`Action`]s and returns a [`Plan`].
//! Pure: no I/O, no clock, no randomness, no global state. What has been decided counts at once; the shell reports
//! how carrying it out went. Every waiting group can say why, in [`Reasons`].

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod actions;
mod backlog;
mod close;
mod config;
mod cycle;
mod deadlines;
mod dims;
mod explain;
mod facts;
mod finder;
mod forecast;
mod ids;
mod matching;
mod minimum;
mod outlook;
mod plan;
mod plan_lint;
mod plugins;
mod policy;
mod queue_limit;
mod reasons;
mod runs;
mod save;
mod share;
mod world;

pub use config::{
    Action, Argument, Config, ConfigError, MetricsKind, MetricsSource, PluginConfig, Sharding, Switch, Switches,
    Warning, WarningKind,
};
pub use dims::{Resources, amount_text};
pub use explain::{Could, Held, Holder, Line, NodeWhy, QueueWhy, Spared, Why};
pub use facts::{
    Attribute, BudgetFacts, ContainerFacts, CpuPlace, CsiNodeFacts, Delta, DependsOn, DeviceClaimFacts,
    DeviceClassFacts, DeviceFacts, DeviceName, DeviceRequest, DeviceSliceFacts, GroupCondition, GroupFacts, GroupPhase,
    GroupStatus, HostPort, HyperNodeFacts, HyperNodeMember, LabelSelector, MemberKind, NodeFacts, NodeGroupAffinity,
    NodeTerm, NodeUsage, NumaFacts, Operator, OwnerFacts, PodClaims, PodCouplings, PodFacts, PodPhase, PodSelector,
    PodTemplate, PodTerm, PreferredPodTerm, PreferredTerm, QueueFacts, QueueState, QuotaFacts, Requirement, ShapeTask,
    ShardFacts, Shared, SpreadConstraint, StorageClassFacts, SubGroupPolicy, Taint, TaintEffect, Toleration,
    TopologySpec, VolumeClaimFacts, VolumeFacts, WindowFacts,
};
pub use ids::TimeMs;
pub use plan::{
    Bind, Eviction, FreedRoom, GroupUpdate, Late, Pipelined, Plan, PodNotice, Prebind, QueueUpdate, Ungate,
};
pub use plugins::predicates::CLOSED_ANNOTATION as NODE_CLOSED;
pub use plugins::template_annotations;
pub use reasons::{
    Check, CheckCount, Expected, Minimum, NoDomain, NodesUnfit, Reason, Reasons, RoleMinimum, Shortage, Stage,
};
pub use save::{LoadError, Texts};
pub use world::{Ending, ExpectedRun, GroupView, HyperNodeProblem, QueueView, Receipt, World};

/// What a plugin is made of: the extension points, and the facts that they are asked about.
pub mod plugin {
    pub use crate::dims::Demand;
    pub use crate::ids::{ClassId, DimId, GroupId, HyperId, NodeId, QueueId, TaskId, TimeMs};
    pub use crate::minimum::Missing;
    pub use crate::plugins::{
        Alike, ArgumentError, Counting, Extremes, Factory, GangEviction, HyperSearch, Plugin, Preference, Region,
        Registry, Vote,
    };
    pub use crate::world::classes::ClassRow;
    pub use crate::world::groups::GroupRow;
    pub use crate::world::nodes::NodeRow;
    pub use crate::world::queues::QueueRow;
    pub use crate::world::tables::{Move, Tables};
    pub use crate::world::tasks::{TaskRow, TaskState};
}
