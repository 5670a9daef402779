//! JobFlows against an API server: made, carried on over a restart of the controllers, and ended.

use kube::Api;
use kube::api::DeleteParams;
use pumice_api::batch::{Job, JobPhase};
use pumice_api::flow::{FlowPhase, JobFlow, JobTemplate};
use pumice_api::names;
use serde_json::{Value, json};

use crate::harness::Cluster;

async fn template(cluster: &Cluster, name: &str) {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "none"}]}});
    let tasks = json!([{"name": "w", "replicas": 1, "minAvailable": 1, "template": pod}]);
    let spec =
        json!({"minAvailable": 1, "queue": "default", "maxRetry": 3, "schedulerName": "volcano", "tasks": tasks});
    let template = json!({"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobTemplate",
        "metadata": {"name": name}, "spec": spec});
    cluster.create::<JobTemplate>(&cluster.api(), template).await;
}

async fn flow(cluster: &Cluster, flows: Value, policy: &str) {
    let flow = json!({"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow", "metadata": {"name": "f"},
        "spec": {"flows": flows, "jobRetainPolicy": policy}});
    cluster.create::<JobFlow>(&cluster.api(), flow).await;
}

async fn wait_flow(cluster: &Cluster, phase: FlowPhase) -> JobFlow {
    let flows = cluster.api::<JobFlow>();
    let is = move |flow: Option<&JobFlow>| flow.is_some_and(|flow| flow.status.state.phase.as_ref() == Some(&phase));
    cluster.wait(&flows, "f", is).await.unwrap()
}

/// Plays scheduler and node for a Job of one pod.
async fn run(cluster: &Cluster, name: &str) {
    let jobs = cluster.api::<Job>();
    let job = cluster.wait(&jobs, name, |job| job.is_some()).await.unwrap();
    cluster.admit(&job, 0).await;
    cluster.set_pod(&format!("{name}-w-0"), "Succeeded").await;
}

fn chain() -> Value {
    json!([{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}])
}

#[tokio::test]
async fn a_chain_runs_to_its_end_and_its_templates_say_what_was_made() {
    let cluster = Cluster::start().await;
    flow(&cluster, chain(), "retain").await;
    template(&cluster, "a").await;
    template(&cluster, "b").await;
    run(&cluster, "f-a").await;
    wait_flow(&cluster, FlowPhase::Running).await;
    run(&cluster, "f-b").await;
    let ended = wait_flow(&cluster, FlowPhase::Succeed).await;
    assert_eq!(ended.status.completed_jobs, ["f-a", "f-b"]);
    let made = |template: Option<&JobTemplate>| template.is_some_and(|t| t.status.job_depends_on_list == ["f-b"]);
    cluster.wait(&cluster.api::<JobTemplate>(), "b", made).await;
    let job = cluster.api::<Job>().get("f-a").await.unwrap();
    assert_eq!(job.metadata.labels.unwrap()[names::CREATED_BY_JOB_FLOW], "default.f");
}

#[tokio::test]
async fn jobs_that_shall_go_after_success_go() {
    let cluster = Cluster::start().await;
    template(&cluster, "a").await;
    flow(&cluster, json!([{"name": "a"}]), "delete").await;
    run(&cluster, "f-a").await;
    wait_flow(&cluster, FlowPhase::Succeed).await;
    cluster.wait(&cluster.api::<Job>(), "f-a", |job| job.is_none()).await;
    let flow = wait_flow(&cluster, FlowPhase::Succeed).await;
    assert_eq!(flow.status.completed_jobs, ["f-a"], "the status remembers them");
}

#[tokio::test]
async fn what_happened_while_the_controllers_were_away_counts() {
    let mut cluster = Cluster::start().await;
    template(&cluster, "a").await;
    template(&cluster, "b").await;
    flow(&cluster, chain(), "retain").await;
    run(&cluster, "f-a").await;
    cluster.wait_phase("f-a", JobPhase::Completed).await;
    wait_flow(&cluster, FlowPhase::Running).await;
    let done = |flow: Option<&JobFlow>| flow.is_some_and(|flow| flow.status.completed_jobs == ["f-a"]);
    cluster.wait(&cluster.api::<JobFlow>(), "f", done).await;
    cluster.stop_controllers().await;
    let jobs: Api<Job> = cluster.api();
    jobs.delete("f-a", &DeleteParams::background()).await.unwrap();
    cluster.start_controllers();
    run(&cluster, "f-b").await;
    wait_flow(&cluster, FlowPhase::Succeed).await;
    assert!(jobs.get_opt("f-a").await.unwrap().is_none(), "a Job that completed is not made again");
}
