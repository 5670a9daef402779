//! Queues and the Commands for them.

use kube::Api;
use pumice_api::scheduling::{PodGroup, Queue, QueueState};
use serde_json::json;

use crate::harness::Cluster;

fn queue(name: &str, parent: Option<&str>) -> serde_json::Value {
    let mut queue = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
        "metadata": {"name": name}, "spec": {"weight": 1}});
    if let Some(parent) = parent {
        queue["spec"]["parent"] = parent.into();
    }
    queue
}

fn state(wanted: QueueState) -> impl Fn(Option<&Queue>) -> bool + Send {
    move |queue| queue.is_some_and(|queue| queue.status.state.as_ref() == Some(&wanted))
}

#[tokio::test]
async fn a_queue_opens_closes_and_takes_its_children_along() {
    let cluster = Cluster::start().await;
    let queues: Api<Queue> = Api::all(cluster.admin.clone());
    cluster.create(&queues, queue("dept", None)).await;
    cluster.create(&queues, queue("team", Some("dept"))).await;
    let dept = cluster.wait(&queues, "dept", state(QueueState::Open)).await.unwrap();
    assert_eq!(dept.spec.parent, "root");
    cluster.wait(&queues, "team", state(QueueState::Open)).await;

    let groups = cluster.api::<PodGroup>();
    cluster
        .create(
            &groups,
            json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "work"}, "spec": {"minMember": 1, "queue": "team"}}),
        )
        .await;
    let command = |action: &'static str| cluster.command(action, "scheduling.volcano.sh/v1beta1", "Queue", "dept");
    command("CloseQueue").await;
    cluster.wait(&queues, "dept", state(QueueState::Closed)).await;
    cluster.wait(&queues, "team", state(QueueState::Closing)).await;
    groups.delete("work", &kube::api::DeleteParams::default()).await.unwrap();
    cluster.wait(&queues, "team", state(QueueState::Closed)).await;
    command("OpenQueue").await;
    cluster.wait(&queues, "dept", state(QueueState::Open)).await;
    cluster.wait(&queues, "team", state(QueueState::Open)).await;
}

#[tokio::test]
async fn a_queue_counts_its_groups_and_closes_when_all_have_ended() {
    let cluster = Cluster::start().await;
    let queues: Api<Queue> = Api::all(cluster.admin.clone());
    let groups = cluster.api::<PodGroup>();
    for name in ["one", "two"] {
        let group = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name},
            "spec": {"minMember": 1, "queue": "default"}});
        cluster.create(&groups, group).await;
    }
    let told = |pending: i32, completed: i32| {
        move |queue: Option<&Queue>| {
            queue.is_some_and(|queue| (queue.status.pending, queue.status.completed) == (pending, completed))
        }
    };
    cluster.wait(&queues, "default", told(2, 0)).await;
    cluster.command("CloseQueue", "scheduling.volcano.sh/v1beta1", "Queue", "default").await;
    cluster.wait(&queues, "default", state(QueueState::Closing)).await;
    let ended = kube::api::Patch::Merge(json!({"status": {"phase": "Completed"}}));
    for name in ["one", "two"] {
        groups.patch(name, &kube::api::PatchParams::default(), &ended).await.unwrap();
    }
    cluster.wait(&queues, "default", state(QueueState::Closed)).await;
    cluster.wait(&queues, "default", told(0, 2)).await;
}
