//! Volcano's `flow.volcano.sh/v1alpha1`: Jobs that wait for each other.

mod job_flow;
mod job_template;

pub use job_flow::{
    Flow, FlowDependsOn, FlowPhase, FlowState, HttpGet, HttpHeader, JobFlow, JobFlowSpec, JobFlowStatus, JobHistory,
    JobOfFlow, JobRetainPolicy, JobRun, Patch, Probe, TaskStatus, TcpSocket,
};
pub use job_template::{JobTemplate, JobTemplateStatus};
