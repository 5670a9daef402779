//! The scheduling engine: cluster facts in, decisions and reasons out.
//!
//! [`World`] takes [`Delta`]s and, when asked, runs a cycle of the configured [`Action`]s and returns a [`Plan`].
//! Pure: no I/O, no clock, no randomness, no global state. What has been decided counts at once; the shell reports
//! how carrying it out went. Every waiting group can say why, in [`Reasons`].
//!
//! ```text
//! Delta ─► world::apply ─► Tables (world over cluster)
//!                             │
//!            cycle: session ──┤ enqueue   who is admitted          search::pending        whose turn it is
//!                             │ allocate  who starts, and where  ◄─ search::finder         the best node
//!                             │ preempt,  who leaves for whom      eviction::candidates   where victims make room
//!                             │ reclaim
//!                             │ reserve   room for who is next   ◄─ search::reservation_forecast
//!                             ▼
//!                         cycle_end ─► Plan and Reasons;  explain: all there is to say of one, when asked
//! ```
//!
//! Modules stand in layers; each uses only those above it in this list (`cargo xtask tidy modules` checks that):
//!
//! | Layer | Modules |
//! |---|---|
//! | values | `ids`, `facts` (what deltas say), `resource_dims`, `share` (arithmetic of shares), `run_times`, `save` |
//! | results | `reasons`, `plan` |
//! | configuration | `config` (its types) |
//! | tables | `cluster` (nodes, network, volumes, devices, constraints between pods), `world` (tasks, groups, queues over them) |
//! | plugins | `plugin` (the extension points), `job_plugins`, `node_plugins`, `builtin_plugins`; then `config_file` |
//! | decisions | `policy` (how plugins' answers combine), `queue_limit`, `search`, `session`, `actions`, `deadlines`, `eviction` |
//! | a cycle | `cycle_end`, `cycle`, `plan_lint` |
//! | answers | `explain` |
//! | facade | `engine` |

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod actions;
mod builtin_plugins;
mod cluster;
mod config;
mod config_file;
mod cycle;
mod cycle_end;
mod deadlines;
mod engine;
mod eviction;
mod explain;
mod facts;
mod ids;
mod job_plugins;
mod node_plugins;
mod plan;
mod plan_lint;
pub mod plugin;
mod policy;
mod queue_limit;
mod reasons;
mod resource_dims;
mod run_times;
mod save;
mod search;
mod session;
mod share;
mod world;

pub use builtin_plugins::template_annotations;
pub use cluster::hypernodes::HyperNodeProblem;
pub use config::{
    Action, Argument, Config, ConfigError, MetricsKind, MetricsSource, PluginConfig, Sharding, Switch, Switches,
    Warning, WarningKind,
};
pub use engine::{GroupView, World};
pub use explain::{Could, Holder, Line, NodeWhy, QueueView, QueueWhy, ResourceHolders, Spared, Why};
pub use facts::{
    Attribute, BudgetFacts, ContainerFacts, CpuPlace, CsiNodeFacts, Delta, DependsOn, DeviceClaimFacts,
    DeviceClassFacts, DeviceFacts, DeviceName, DeviceRequest, DeviceSliceFacts, GroupCondition, GroupFacts, GroupPhase,
    GroupStatus, GroupUid, HostPort, HyperNodeFacts, HyperNodeMember, InterPodConstraints, LabelSelector, MemberKind,
    NodeFacts, NodeGroupAffinity, NodeName, NodeTerm, NodeUsage, NumaFacts, ObjectName, Operator, OwnerFacts,
    PodClaims, PodFacts, PodPhase, PodSelector, PodTemplate, PodTerm, PodUid, PreferredPodTerm, PreferredTerm,
    QueueFacts, QueueState, QuotaFacts, Requirement, ShapeTask, ShardFacts, Shared, SpreadConstraint,
    StorageClassFacts, SubGroupPolicy, Taint, TaintEffect, Toleration, TopologySpec, VolumeClaimFacts, VolumeFacts,
    WindowFacts,
};
/// The old name of [`InterPodConstraints`], for a release.
#[deprecated(note = "it is called InterPodConstraints")]
pub type PodCouplings = InterPodConstraints;
pub use ids::TimeMs;
pub use node_plugins::predicates::CLOSED_ANNOTATION as NODE_CLOSED;
pub use plan::{
    Bind, Ending, Eviction, FreedRoom, GroupUpdate, Late, Pipelined, Plan, PodNotice, Prebind, QueueUpdate, Ungate,
};
pub use reasons::{
    Check, CheckCount, Expected, Minimum, NoDomain, NodesUnfit, Reason, Reasons, RoleMinimum, Shortage, Stage,
};
pub use resource_dims::{Resources, amount_text};
pub use save::{LoadError, Texts};
pub use world::end_times::ExpectedRun;
pub use world::eviction_records::EvictionRecord;
