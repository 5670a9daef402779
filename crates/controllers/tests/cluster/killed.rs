//! Controllers that are killed again and again in the life of a large job: it ends as it does when nobody kills them.
//!
//! A life has all that happens to jobs: a pod that runs out of memory, one that fails and is restarted, an eviction that a
//! delayed policy answers, fewer replicas and more again, a suspend and a resume in one breath. A kill drops the controllers at
//! the n-th call that they make, before it arrives or before its answer does, with whatever else is under way.

mod fate;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use pumice_api::batch::{Job, JobPhase};
use pumice_api::bus::Command;
use pumice_api::names;
use pumice_api::scheduling::PodGroup;
use serde_json::{Value, json};

use crate::harness::Cluster;
use fate::{Controllers, Fates};
use world::World;

/// Pods of task `a`; there are two more.
const PODS: i32 = 998;
/// Pods of both tasks together.
const ALL: i32 = PODS + 2;
/// Pods that are taken away, and given back.
const FEWER: i32 = 100;
/// Most kills in one life.
const KILLS: usize = 25;
/// Fewest kills in a life, on average: some come together, so it may end before all of them.
const KILLS_MIN: usize = 15;
/// Kills of all lives together, at least.
const ALL_KILLS: usize = 200;
/// Lives of which each has its own seed.
const LIVES: u64 = 12;
/// Lives in a run of all tests.
const LIVES_USUALLY: u64 = 2;

fn job() -> Value {
    let container = json!({"name": "c", "image": "none", "resources": {"limits": {"memory": "1Gi"}}});
    let template = json!({"spec": {"containers": [container]}});
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "long", "annotations": {"pumice.sh/retry-backoff": "0s"}},
        "spec": {
            "minAvailable": 10, "queue": "default", "maxRetry": 9, "schedulerName": "volcano", "plugins": {"svc": []},
            "tasks": [
                {"name": "a", "replicas": PODS, "minAvailable": 8, "template": template, "policies": [
                    {"exitCode": 3, "action": "RestartPod"},
                    {"event": "PodEvicted", "action": "RestartJob"},
                    {"event": "OOMKilled", "action": "ScaleUpMemory", "scaleUp": {"factor": 2}},
                ]},
                {"name": "b", "replicas": 2, "minAvailable": 2, "template": template, "policies": [
                    {"event": "PodEvicted", "action": "RestartTask", "timeout": "1s"},
                ]},
            ],
        },
    })
}

/// All that a life leaves behind, but for times and uids.
#[derive(Debug, PartialEq)]
struct End {
    status: Value,
    pods: BTreeMap<String, Value>,
    /// How often each pod was made.
    made: BTreeMap<String, u32>,
    groups: usize,
    commands: usize,
    config_maps: usize,
}

async fn wait(cluster: &Cluster, what: &str, wanted: impl Fn(&Job) -> bool + Send + Sync) {
    let jobs = cluster.api::<Job>();
    let waiting =
        kube_runtime::wait::await_condition(jobs.clone(), "long", |job: Option<&Job>| job.is_some_and(&wanted));
    if tokio::time::timeout(Duration::from_secs(180), waiting).await.is_err() {
        panic!("{what}: {:#?}", jobs.get("long").await.map(|job| job.status));
    }
}

fn runs(job: &Job, running: i32) -> bool {
    let status = &job.status;
    status.state.phase == Some(JobPhase::Running)
        && [status.running, status.pending, status.terminating] == [running, 0, 0]
}

async fn scale(cluster: &Cluster, replicas: i32) {
    let mut tasks = job()["spec"]["tasks"].clone();
    tasks[0]["replicas"] = replicas.into();
    let patch = json!({"spec": {"tasks": tasks}});
    cluster.api::<Job>().patch("long", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// One life, with a kill at each of these points.
async fn live(kills: Fates) -> (End, usize) {
    let cluster = Cluster::without_controllers(std::sync::Arc::new(pumice_apiserver::AdmitAll)).await;
    let world = World::start(cluster.admin.clone());
    let controllers = Controllers::start(cluster.controllers_service(), kills);
    cluster.create(&cluster.api::<Job>(), job()).await;
    wait(&cluster, "all run", |job| runs(job, ALL)).await;

    world.out_of_memory("long-a-7").await;
    wait(&cluster, "one has more memory", |job| !job.status.memory_raises.is_empty() && runs(job, ALL)).await;

    world.fail("long-a-11", 3).await;
    wait(&cluster, "one was restarted", |job| job.status.retry_count == 1 && runs(job, ALL)).await;

    world.hold_back("b");
    cluster.delete_pod("long-b-0").await;
    wait(&cluster, "an eviction has restarted its task", |job| job.status.retry_count == 2).await;
    world.let_go();
    wait(&cluster, "the task runs again", |job| job.status.retry_count == 2 && runs(job, ALL)).await;

    for replicas in [PODS - FEWER, PODS] {
        scale(&cluster, replicas).await;
        wait(&cluster, "it was scaled", |job| runs(job, replicas + 2)).await;
    }

    cluster.give_job_command("AbortJob", "long").await;
    cluster.give_job_command("ResumeJob", "long").await;
    wait(&cluster, "it was suspended and resumed", |job| job.status.version == 2 && runs(job, ALL)).await;

    world.succeed_all().await;
    wait(&cluster, "it has completed", |job| {
        job.status.state.phase == Some(JobPhase::Completed) && job.status.controlled_resources.is_empty()
    })
    .await;
    let killed = controllers.stop().await;
    // Whatever is left to do is done by controllers that nobody kills.
    let last = Controllers::start(cluster.controllers_service(), Fates::none());
    let end = eventually_still(&cluster, &world).await;
    last.stop().await;
    (end, killed)
}

/// The end, once it does not change any more.
async fn eventually_still(cluster: &Cluster, world: &World) -> End {
    let mut before = look(cluster, world).await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = look(cluster, world).await;
        if now == before && now.groups == 0 && now.commands == 0 {
            return now;
        }
        before = now;
    }
    panic!("no end is seen: {before:?}");
}

async fn look(cluster: &Cluster, world: &World) -> End {
    let all = ListParams::default();
    let job = cluster.api::<Job>().get("long").await.unwrap();
    let mut status = serde_json::to_value(&job.status).unwrap();
    status["state"].as_object_mut().unwrap().remove("lastTransitionTime");
    status.as_object_mut().unwrap().remove("runningDuration");
    for condition in status["conditions"].as_array_mut().unwrap() {
        condition.as_object_mut().unwrap().remove("lastTransitionTime");
    }
    let pods = cluster.api::<Pod>().list(&all).await.unwrap();
    let told = |pod: Pod| {
        let mut annotations = pod.metadata.annotations.unwrap_or_default();
        annotations.remove(names::EVICTED_AT);
        annotations.remove(names::GROUP_NAME);
        let limits = pod.spec.unwrap().containers.remove(0).resources.unwrap().limits.unwrap();
        let phase = pod.status.and_then(|status| status.phase);
        (pod.metadata.name.unwrap(), json!([phase, annotations, limits]))
    };
    // How often one of task b is made is a matter of time: its eviction may be noticed only when it is answered.
    let mut made = world.made();
    made.retain(|name, _| !name.starts_with("long-b-"));
    End {
        status,
        pods: pods.into_iter().map(told).collect(),
        made,
        groups: cluster.api::<PodGroup>().list(&all).await.unwrap().items.len(),
        commands: cluster.api::<Command>().list(&all).await.unwrap().items.len(),
        config_maps: cluster.api::<ConfigMap>().list(&all).await.unwrap().items.len(),
    }
}

fn differences(end: &End, wanted: &End) -> String {
    let mut text = String::new();
    if end.status != wanted.status {
        text += &format!("status {}\n   not {}\n", end.status, wanted.status);
    }
    for (name, pod) in &end.pods {
        if wanted.pods.get(name) != Some(pod) {
            text += &format!("{name} {pod} not {:?}\n", wanted.pods.get(name));
        }
    }
    for (name, made) in &end.made {
        if wanted.made.get(name) != Some(made) {
            text += &format!("{name} was made {made} times, not {:?}\n", wanted.made.get(name));
        }
    }
    text + &format!("{} {} {}", end.groups, end.commands, end.config_maps)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_often_the_controllers_are_killed_the_job_ends_alike() {
    #[allow(clippy::disallowed_methods, reason = "how long the test may take is up to whoever runs it")]
    let all = std::env::var_os("PUMICE_KILL_ALL").is_some();
    let (lives, kills) = if all { (LIVES, ALL_KILLS) } else { (LIVES_USUALLY, 2 * KILLS_MIN) };
    // They wait as much as they compute, so two go beside each other.
    let fates = std::iter::once(Fates::none()).chain((1..=lives).map(|seed| Fates::of(seed, KILLS)));
    let mut ends = stream::iter(fates).map(live).buffered(2);

    let (wanted, none) = ends.next().await.unwrap();
    assert_eq!((none, wanted.pods.len()), (0, 1000));
    assert_eq!(wanted.status["succeeded"], ALL);
    assert_eq!(wanted.pods["long-a-7"][2]["memory"], "2Gi");
    assert_eq!(["long-a-0", "long-a-7", "long-a-11", "long-a-997"].map(|name| wanted.made[name]), [2, 3, 3, 3]);
    let mut kills_made = 0;
    for seed in 1..=lives {
        let (end, killed) = ends.next().await.unwrap();
        assert!(end == wanted, "seed {seed}: {}", differences(&end, &wanted));
        println!("seed {seed}: {killed} kills");
        kills_made += killed;
    }
    assert!(kills_made >= kills, "the lives were too short for their kills: {kills_made}");
}
