//! Volcano's `batch.volcano.sh/v1alpha1`: the Job and the CronJob.

mod cron_job;
mod policy;
mod spec;
mod status;

pub use crate::bus::{Action, Event};
pub use crate::network_topology::{NetworkTopologyMode, NetworkTopologySpec};
pub use cron_job::{ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus, JobTemplateSpec};
pub use policy::{LifecyclePolicy, MemoryScaleUp};
pub use spec::{DependsOn, Iteration, JobSpec, NumaPolicy, PartitionPolicySpec, TaskSpec, VolumeSpec};
pub use status::{JobCondition, JobPhase, JobState, JobStatus, MemoryRaise, PodRetry, TaskState};

custom_resource! {
    /// A batch job: groups of identical pods that start together.
    pub struct Job {
        /// What the user wants.
        pub spec: JobSpec = "spec",
        /// What the job controller observed; only it writes this.
        pub status: JobStatus = "status",
    }
    group: "batch.volcano.sh", version: "v1alpha1", plural: "jobs", singular: "job",
    short_names: ["vcjob", "vj"], scope: NamespaceResourceScope, cluster_scoped: false
}
