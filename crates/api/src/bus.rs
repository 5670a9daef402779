//! Volcano's `bus.volcano.sh/v1alpha1`: events, the actions they cause, and the Command that asks for one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

word_enum! {
    /// What happened to a job or one of its pods.
    closed pub enum Event {
        /// Every event that is not internal.
        Any = "*",
        /// A pod was made, or is Pending again. In a policy it needs a timeout.
        PodPending = "PodPending",
        /// A pod runs; internal.
        PodRunning = "PodRunning",
        /// A pod failed; carries the exit code of its first container.
        PodFailed = "PodFailed",
        /// A pod was deleted by somebody else.
        PodEvicted = "PodEvicted",
        /// The job's group is Unknown: a part runs and the rest cannot be placed.
        Unknown = "Unknown",
        /// All pods of a task succeeded.
        TaskCompleted = "TaskCompleted",
        /// Something changed; internal.
        OutOfSync = "OutOfSync",
        /// A Command came; internal.
        CommandIssued = "CommandIssued",
        /// The job's spec changed.
        JobUpdated = "JobUpdated",
        /// Containers of a task restarted too often.
        TaskFailed = "TaskFailed",
        /// A container was killed for want of memory. Not in Volcano; `*` does not mean it.
        OomKilled = "OOMKilled",
    }
}

word_enum! {
    /// What to do with a job or queue.
    open pub enum Action {
        /// Kill unfinished pods; the job can be resumed.
        AbortJob = "AbortJob",
        /// Kill the pods and start again.
        RestartJob = "RestartJob",
        /// Kill and make again all pods of a task.
        RestartTask = "RestartTask",
        /// Kill and make again one pod.
        RestartPod = "RestartPod",
        /// Kill and make again the pods of one partition.
        RestartPartition = "RestartPartition",
        /// Make one pod again with more memory; not in Volcano.
        ScaleUpMemory = "ScaleUpMemory",
        /// Kill; cannot be resumed.
        TerminateJob = "TerminateJob",
        /// Kill unfinished pods; the job counts as completed.
        CompleteJob = "CompleteJob",
        /// Resume an aborted job.
        ResumeJob = "ResumeJob",
        /// Look again; internal.
        SyncJob = "SyncJob",
        /// Put the job in line; internal.
        EnqueueJob = "EnqueueJob",
        /// Look at a queue again; internal.
        SyncQueue = "SyncQueue",
        /// Let a queue take jobs.
        OpenQueue = "OpenQueue",
        /// Let a queue take no more jobs.
        CloseQueue = "CloseQueue",
    }
}

custom_resource! {
    /// A wish to act on a job or queue. The controller in charge deletes it first and then acts, so at most once.
    pub struct Command {
        /// What to do.
        pub action: Option<Action> = "action",
        /// The object it is meant for.
        pub target: Option<OwnerReference> = "target",
        /// One CamelCase word.
        pub reason: String = "reason",
        /// A sentence for people.
        pub message: String = "message",
    }
    group: "bus.volcano.sh", version: "v1alpha1", plural: "commands", singular: "command",
    short_names: [], scope: NamespaceResourceScope, cluster_scoped: false
}
