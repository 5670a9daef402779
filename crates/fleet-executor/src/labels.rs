//! Labels and annotations of what an executor makes: what it knows after a restart stands in them.

/// The label with the job's id.
pub const JOB_LABEL: &str = "armada_job_id";
/// The label with the run's id.
pub const RUN_LABEL: &str = "armada_job_run_id";
/// The label with the queue.
pub const QUEUE_LABEL: &str = "armada_queue_id";
/// The label with the number of a job's pod, which Armada's tools read.
pub const POD_NUMBER_LABEL: &str = "armada_pod_number";
/// The label with how many pods a job has had, one for each attempt.
pub const POD_COUNT_LABEL: &str = "armada_pod_count";
/// The annotation with the job set, which need not be fit for a label.
pub const JOB_SET_ANNOTATION: &str = "armada_jobset_id";
/// The annotation with the submitter.
pub const OWNER_ANNOTATION: &str = "armada_owner";
/// The annotation with the lease's cut-off, so that it outlives the executor.
pub const CUT_OFF_ANNOTATION: &str = "pumice.sh/cut-off-ms";
