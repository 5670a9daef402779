//! Every name the parts must agree on: labels, annotations, component users, schedulers, queues.
//!
//! Volcano's names are on the wire and never change; ours live under `pumice.sh/`. Nobody spells them out elsewhere.

/// The image of a container that runs the host's own programs. Kubernetes wants an image in every container; this one stands for
/// the host's file system and is never pulled.
pub const HOST_IMAGE: &str = "pumice.sh/host";
/// Index of a pod inside its task; label and annotation.
pub const TASK_INDEX: &str = "volcano.sh/task-index";
/// Task name of a pod; label and annotation.
pub const TASK_SPEC: &str = "volcano.sh/task-spec";
/// What [`TASK_SPEC`] says of a task without a name.
pub const DEFAULT_TASK: &str = "default";
/// Job name of a pod; label and annotation.
pub const JOB_NAME: &str = "volcano.sh/job-name";
/// Job namespace of a pod; label.
pub const JOB_NAMESPACE: &str = "volcano.sh/job-namespace";
/// Queue of a pod's job; label and annotation.
pub const QUEUE_NAME: &str = "volcano.sh/queue-name";
/// The job's `status.version` when the pod was made; annotation.
pub const JOB_VERSION: &str = "volcano.sh/job-version";
/// The job's `status.retryCount` when the pod was made; annotation.
pub const JOB_RETRY_COUNT: &str = "volcano.sh/job-retry-count";
/// `<job>-<task>`: pods of equal value are interchangeable for the scheduler; annotation.
pub const TEMPLATE_UID: &str = "volcano.sh/template-uid";
/// PodGroup a pod belongs to; annotation.
pub const GROUP_NAME: &str = "scheduling.k8s.io/group-name";
/// Declared by Volcano as equal to [`GROUP_NAME`]; binding reads only that one.
pub const VOLCANO_GROUP_NAME: &str = "scheduling.volcano.sh/group-name";
/// Partition of a pod inside its task; label.
pub const PARTITION_ID: &str = "volcano.sh/partition-id";
/// NUMA policy of a pod's task; annotation.
pub const NUMA_TOPOLOGY_POLICY: &str = "volcano.sh/numa-topology-policy";
/// `true` when the job goes to another cluster; label and annotation.
pub const JOB_FORWARDING: &str = "volcano.sh/job-forwarding";
/// `true` just before the controller deletes a pod itself; annotation.
pub const CONTROLLER_OUT_OF_SYNC: &str = "volcano.sh/controller-out-of-sync";
/// Whether a pod may be preempted; label and annotation.
pub const PREEMPTABLE: &str = "volcano.sh/preemptable";
/// How long a pod is safe from preemption after its start, a duration; label and annotation.
pub const COOLDOWN_TIME: &str = "volcano.sh/cooldown-time";
/// Zone a pod may be revoked in; annotation.
pub const REVOCABLE_ZONE: &str = "volcano.sh/revocable-zone";
/// Disruption budget: pods that must stay; annotation.
pub const JDB_MIN_AVAILABLE: &str = "volcano.sh/jdb-min-available";
/// Disruption budget: pods that may go; annotation.
pub const JDB_MAX_UNAVAILABLE: &str = "volcano.sh/jdb-max-unavailable";
/// Queue of a bare pod, or default queue of a namespace; annotation.
pub const SCHEDULING_QUEUE_NAME: &str = "scheduling.volcano.sh/queue-name";
/// Gang size of the group made for a workload of another kind; annotation.
pub const GROUP_MIN_MEMBER: &str = "scheduling.volcano.sh/group-min-member";
/// Longest time a group may be Pending; annotation.
pub const SLA_WAITING_TIME: &str = "volcano.sh/sla-waiting-time";
/// Network topology mode of a bare pod's group; annotation.
pub const NETWORK_TOPOLOGY_MODE: &str = "volcano.sh/network-topology-mode";
/// Highest network tier of a bare pod's group; annotation.
pub const NETWORK_TOPOLOGY_HIGHEST_TIER: &str = "volcano.sh/network-topology-highest-tier";
/// Path of a queue in the old form of the tree, slash separated; annotation.
pub const HIERARCHY: &str = "volcano.sh/hierarchy";
/// Weights along [`HIERARCHY`]; annotation.
pub const HIERARCHY_WEIGHTS: &str = "volcano.sh/hierarchy-weights";
/// `true` when a queue was closed because its parent was; annotation.
pub const CLOSED_BY_PARENT: &str = "volcano.sh/closed-by-parent";
/// `true` on a pod that is to wait for its queue behind a scheduling gate of this name; annotation.
pub const QUEUE_ALLOCATION_GATE: &str = "scheduling.volcano.sh/queue-allocation-gate";
/// Group of admission's configuration that a pod belongs to; annotation.
pub const RESOURCE_GROUP: &str = "volcano.sh/resource-group";
/// Where a HyperNode was discovered, such as `label`; label.
pub const TOPOLOGY_SOURCE: &str = "volcano.sh/network-topology-source";
/// `true` on a node that the warmup policy of shards prefers; label.
pub const WARMUP: &str = "node.volcano.sh/warmup";
/// Node group of a node; label.
pub const NODE_GROUP: &str = "volcano.sh/nodegroup-name";
/// What a list shows as the type of a job; label.
pub const JOB_TYPE: &str = "volcano.sh/job-type";
/// `<namespace>.<template>` of a job that a flow made; label and annotation.
pub const CREATED_BY_JOB_TEMPLATE: &str = "volcano.sh/createdByJobTemplate";
/// `<namespace>.<flow>` of a job that a flow made; label and annotation.
pub const CREATED_BY_JOB_FLOW: &str = "volcano.sh/createdByJobFlow";
/// The time of its schedule that a CronJob made a Job for, RFC 3339; annotation.
pub const CRON_JOB_TIME: &str = "volcano.sh/cronjob-scheduled-timestamp";
/// Prefix of annotations that a PodGroup takes over from its owner.
pub const VOLCANO_PREFIX: &str = "volcano.sh/";

/// Domain of our own keys; users can't write keys of [`RESERVED_KEYS`].
pub const PUMICE_PREFIX: &str = "pumice.sh/";
/// The user who created a Job, written by admission from the request; annotation.
pub const USER: &str = "pumice.sh/user";
/// When a job is to have ended, as RFC 3339: it goes before others, and is warned of when it will be late. Annotation.
pub const DEADLINE: &str = "pumice.sh/deadline";
/// The restart that wants a pod gone, as `<number>/<action>`, beside [`CONTROLLER_OUT_OF_SYNC`]; annotation.
pub const RESTART: &str = "pumice.sh/restart";
/// When a pod's predecessor was evicted; a delayed PodEvicted policy counts from it; annotation.
pub const EVICTED_AT: &str = "pumice.sh/evicted-at";
/// What pods of a Job start with because it was learned, `{"uid": .., "tasks": {TASK: {CONTAINER: AMOUNT}}}`; annotation.
pub const MEMORY_START: &str = "pumice.sh/memory-start";
/// What pods that run out of memory get, such as `factor=1.5,ceiling=64Gi,tries=3`, or `off`; annotation of a Job or of a pod
/// template. For clusters whose definitions are Volcano's, as the other twins of our fields are.
pub const ON_OOM: &str = "pumice.sh/on-oom";
/// Pods of a task that must succeed, where there is no field `minSuccess`; annotation of its pod template.
pub const MIN_SUCCESS: &str = "pumice.sh/min-success";
/// Pods of a task that may be unfinished at once, where there is no field `maxParallel`; annotation of its pod template.
pub const MAX_PARALLEL: &str = "pumice.sh/max-parallel";
/// How often Jobs of a JobFlow are made again when they have failed, `NAME=COUNT,..`, where there is no field `retries`; annotation
/// of a JobFlow.
pub const FLOW_RETRIES: &str = "pumice.sh/flow-retries";
/// Jobs that a Queue runs at a time, where there is no field `maxRunningJobs`; annotation of a Queue.
pub const MAX_RUNNING_JOBS: &str = "pumice.sh/max-running-jobs";
/// `true`: a Job has no pods, where there is no field `suspend`; annotation of a Job.
pub const SUSPEND: &str = "pumice.sh/suspend";
/// Seconds that a Job may run, where there is no field `activeDeadlineSeconds`; annotation of a Job.
pub const ACTIVE_DEADLINE_SECONDS: &str = "pumice.sh/active-deadline-seconds";
/// Who leaves when a task shrinks: `pending-first`, else the highest indices; annotation of a Job or of a task's pod template.
pub const SCALE_DOWN: &str = "pumice.sh/scale-down";
/// How often a failed pod of one index is made again, where there is no field `retries`; annotation of the pod template.
pub const RETRIES: &str = "pumice.sh/retries";
/// Most of those retries.
pub const RETRIES_MAX: i32 = 1000;
/// The jobs that a Job waits for, `ok:JOB,any:JOB,failed:JOB`; annotation of a Job.
pub const AFTER: &str = "pumice.sh/after";
/// Those of them that have ended as wanted; annotation of a Job.
pub const AFTER_MET: &str = "pumice.sh/after-met";
/// Evictions that a delayed policy will act on, of pods without a successor that says so itself; annotation of a Job.
pub const EVICTED: &str = "pumice.sh/evicted";
/// Indices of a Job's tasks whose pods ended and are gone, with their results; annotation of a Job.
pub const ENDED_INDICES: &str = "pumice.sh/ended-indices";
/// Indices of a Job's tasks whose pods were refused by nodes, and how often; annotation of a Job.
pub const REFUSED_INDICES: &str = "pumice.sh/refused-indices";
/// The raises of memory that the status would tell, where Volcano's definitions drop them; annotation of a Job.
pub const MEMORY_RAISES: &str = "pumice.sh/memory-raises";
/// The retries that the status would tell, where Volcano's definitions drop them; annotation of a Job.
pub const POD_RETRIES: &str = "pumice.sh/pod-retries";
/// What controllers note on a Job about itself. It does not go along when something else is made of the Job.
pub const NOTES_ON_JOBS: &[&str] =
    &[AFTER_MET, EVICTED, ENDED_INDICES, REFUSED_INDICES, MEMORY_RAISES, POD_RETRIES, MEMORY_START];
/// Reason of the state of a Job whose pods were given more memory than any node has.
pub const MEMORY_EXCEEDS_NODES: &str = "MemoryExceedsNodes";
/// How long finished work stays in a namespace, such as `7d`, `12h` or `off`; annotation of a Namespace.
pub const FINISHED_TTL: &str = "pumice.sh/finished-ttl";
/// Most finished Jobs of each kind that stay in a namespace, or `off`; annotation of a Namespace.
pub const FINISHED_JOBS_MAX: &str = "pumice.sh/finished-jobs-max";
/// Most finished pods that stay in a namespace, or `off`; annotation of a Namespace.
pub const FINISHED_PODS_MAX: &str = "pumice.sh/finished-pods-max";
/// Name of the CronJob that made a Job; label.
pub const CRON_JOB: &str = "pumice.sh/cron-job";
/// What a PodGroup that the controllers made for pods without one was made of; label.
pub const MADE_OF: &str = "pumice.sh/made-of";
/// Where a shard finds its bundle and records its results; variable of its container's environment.
pub const BUNDLE_VARIABLE: &str = "PUMICE_BUNDLE";
/// The bundle that a ConfigMap is a part of; label.
pub const BUNDLE: &str = "pumice.sh/bundle";
/// Condition of a pod that wrote files which are gone with it, since nothing keeps what is written there.
pub const FILES_DISCARDED: &str = "pumice.sh/FilesDiscarded";
/// The Tenant whose a namespace is; label of the namespace, and of what the controller made for the tenant.
pub const TENANT: &str = "pumice.sh/tenant";
/// User id of all pods of a tenant's namespace; annotation of the namespace, for policies of clusters.
pub const TENANT_UID: &str = "pumice.sh/tenant-uid";
/// Group id of all pods of a tenant's namespace; annotation of the namespace, for policies of clusters.
pub const TENANT_GID: &str = "pumice.sh/tenant-gid";
/// Other groups of all pods of a tenant's namespace, between commas; annotation of the namespace, for policies of clusters.
pub const TENANT_GROUPS: &str = "pumice.sh/tenant-groups";
/// Group of everybody who logged in as a tenant's user, however.
pub const GROUP_TENANTS: &str = "pumice:tenants";
/// Annotations only the platform writes.
pub const RESERVED_KEYS: &[&str] = &[USER];

/// The queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";
/// The top of the queue tree; takes no jobs.
pub const ROOT_QUEUE: &str = "root";

/// Volcano's scheduler name, which we answer to.
pub const SCHEDULER_VOLCANO: &str = "volcano";
/// The scheduler name that only Pumice answers to, for pods on a cluster that has a Volcano, too.
pub const SCHEDULER_PUMICE: &str = "pumice";
/// Kubernetes' scheduler name; we answer to it only where no other scheduler is, in `pumice up`.
pub const SCHEDULER_DEFAULT: &str = "default-scheduler";
/// The names answered to in `pumice up`.
pub const SCHEDULERS_UP: &[&str] = &[SCHEDULER_VOLCANO, SCHEDULER_PUMICE, SCHEDULER_DEFAULT];
/// The names answered to on a cluster that has its own scheduler.
pub const SCHEDULERS_CLUSTER: &[&str] = &[SCHEDULER_VOLCANO, SCHEDULER_PUMICE];

/// User as whom the API server asks the agents of nodes.
pub const USER_APISERVER: &str = "system:pumice:apiserver";
/// User of the scheduler.
pub const USER_SCHEDULER: &str = "system:pumice:scheduler";
/// User of the controllers.
pub const USER_CONTROLLERS: &str = "system:pumice:controllers";
/// User as whom admission, in a process of its own, reads what it judges by and tells the API server where it is.
pub const USER_ADMISSION: &str = "system:pumice:admission";
/// User of the history.
pub const USER_HISTORY: &str = "system:pumice:history";
/// Service account of the history on a cluster.
pub const SERVICE_ACCOUNT_HISTORY: &str = "pumice-history";
/// The Lease of the history on a cluster, in [`NAMESPACE_SYSTEM`].
pub const HISTORY_LEASE: &str = "pumice-history";
/// Service account of the scheduler on a cluster.
pub const SERVICE_ACCOUNT_SCHEDULER: &str = "pumice-scheduler";
/// Service account of the controllers on a cluster.
pub const SERVICE_ACCOUNT_CONTROLLERS: &str = "pumice-controllers";
/// Service account of admission on a cluster.
pub const SERVICE_ACCOUNT_ADMISSION: &str = "pumice-admission";
/// User of the fleet's executor.
pub const USER_EXECUTOR: &str = "system:pumice:executor";
/// Service account of the fleet's executor on a cluster.
pub const SERVICE_ACCOUNT_EXECUTOR: &str = "pumice-executor";
/// User of the node agent.
pub const USER_NODE: &str = "system:pumice:node";
/// User of the garbage collector.
pub const USER_GC: &str = "system:pumice:gc";
/// Namespace of the components on a cluster.
pub const NAMESPACE_SYSTEM: &str = "volcano-system";
/// Secret of admission's certificate, in [`NAMESPACE_SYSTEM`].
pub const ADMISSION_SECRET: &str = "pumice-admission";
/// What admission's webhook configurations are called.
pub const ADMISSION_CONFIGURATION: &str = "pumice-admission";
/// Resources of nodes that are counted in whole devices, and worth keeping for pods that ask for them.
pub const ACCELERATORS: [&str; 4] = ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "google.com/tpu"];
/// The group that may do everything.
pub const GROUP_MASTERS: &str = "system:masters";

/// Name of the task at `index` of a job that does not name it.
pub fn unnamed_task(index: usize) -> String {
    format!("default{index}")
}

/// Name of a job's pod.
pub fn pod_name(job: &str, task: &str, index: i32) -> String {
    format!("{job}-{task}-{index}")
}

/// The user that the pods of a service account are.
pub fn service_account_user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Name of a job's PodGroup.
pub fn pod_group_name(job: &str, job_uid: &str) -> String {
    format!("{job}-{job_uid}")
}

/// Name of the PodGroup made for pods that name none, by the uid of their controller, or of the one pod.
pub fn made_group_name(uid: &str) -> String {
    format!("podgroup-{uid}")
}
