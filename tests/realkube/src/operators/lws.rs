//! LeaderWorkerSet with `gangSchedulingManagement.schedulerProvider: volcano`.
//!
//! Source: kubernetes-sigs/lws 060ab4da17ee
//! - pkg/webhooks/pod_webhook.go: pods of the set get the annotation while they are created, so the leader names a group that
//!   is not there yet
//! - pkg/schedulerprovider/{interface,volcano_provider}.go: name and content of the group, whose controller is the leader
//! - pkg/controllers/{leaderworkerset_controller,pod_controller}.go: a StatefulSet of leaders, one of workers for each leader
//! - config/components/volcano/manager_role_patch.yaml: the rights: it never changes a group, nor deletes one

use pumice_testkit::Clients;
use serde_json::{Value, json};

use super::operator::{GROUP, GROUP_VERSION, Operator, Server, container, pod, reference};

const REVISION: &str = "dd6699c7c";

/// A set of one replica: a leader and two workers.
struct Set<'a> {
    operator: &'a Operator<'a>,
    name: &'static str,
    members: i64,
}

impl Set<'_> {
    fn group(&self) -> String {
        format!("{}-0-{REVISION}", self.name)
    }

    fn pods(&self) -> String {
        format!("leaderworkerset.sigs.k8s.io/name={}", self.name)
    }

    fn template(&self, index: Option<usize>) -> (Value, Value) {
        let mut labels = json!({"leaderworkerset.sigs.k8s.io/name": self.name,
            "leaderworkerset.sigs.k8s.io/group-index": "0", "leaderworkerset.sigs.k8s.io/template-revision-hash": REVISION});
        let mut annotations =
            json!({"leaderworkerset.sigs.k8s.io/size": "3", "scheduling.k8s.io/group-name": self.group()});
        match index {
            Some(0) => labels["leaderworkerset.sigs.k8s.io/worker-index"] = "0".into(),
            _ => annotations["leaderworkerset.sigs.k8s.io/leader-name"] = format!("{}-0", self.name).into(),
        }
        let spec = json!({"schedulerName": "volcano", "subdomain": self.name, "containers": [container("nginx", "1")]});
        (json!({"labels": labels, "annotations": annotations}), spec)
    }

    /// Pods of a StatefulSet that counts from `first`.
    fn stateful_set(&self, name: &str, first: usize, count: usize) {
        let (metadata, spec) = self.template((first == 0).then_some(0));
        if self.operator.server == Server::Kubernetes {
            let selector = if first == 0 {
                "leaderworkerset.sigs.k8s.io/worker-index"
            } else {
                "leaderworkerset.sigs.k8s.io/group-index"
            };
            self.operator.create(&json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
                "spec": {"serviceName": self.name, "replicas": count, "podManagementPolicy": "Parallel",
                    "ordinals": {"start": first}, "selector": {"matchLabels": {
                        "leaderworkerset.sigs.k8s.io/name": self.name, selector: metadata["labels"][selector]}},
                    "template": {"metadata": metadata, "spec": spec}}}));
            return;
        }
        for index in first..first + count {
            let mut metadata = metadata.clone();
            metadata["name"] = format!("{name}-{index}").into();
            self.operator.create(&pod(metadata, spec.clone()));
        }
    }

    /// The leader, then its group, then its workers.
    fn start(&self) -> Value {
        self.stateful_set(self.name, 0, 1);
        let leader = self.operator.wait_for_pods(&self.pods(), "Pending", 1).remove(0);
        assert!(leader["spec"]["nodeName"].is_null(), "it waits for its group: {leader}");
        let leader = json!({"apiVersion": "v1", "kind": "Pod", "metadata": leader["metadata"]});
        let mut owner = reference(&leader);
        owner["blockOwnerDeletion"] = true.into();
        let group = json!({
            "apiVersion": GROUP_VERSION, "kind": "PodGroup",
            "metadata": {"name": self.group(), "creationTimestamp": null, "ownerReferences": [owner],
                "labels": {"leaderworkerset.sigs.k8s.io/name": self.name, "leaderworkerset.sigs.k8s.io/group-index": "0",
                    "leaderworkerset.sigs.k8s.io/template-revision-hash": REVISION},
                "annotations": {"volcano.sh/sla-waiting-time": "5m"}},
            "spec": {"minMember": self.members, "minResources": {"cpu": "3", "memory": "192Mi"}}, "status": {},
        });
        self.operator.create(&group);
        group
    }

    fn start_workers(&self) {
        self.stateful_set(&format!("{}-0", self.name), 1, 2);
    }
}

/// `LeaderCreated`: all start together. `LeaderReady`: the leader first, with room for all.
pub fn lws(clients: &Clients, server: Server) {
    let operator = Operator::new(clients, server, &["create", "get", "list", "watch"]);
    let together = Set { operator: &operator, name: "together", members: 3 };
    let group = together.start();
    operator.wait_for_group(&together.group(), "Inqueue");
    operator.wait_for_pods(&together.pods(), "Pending", 1);
    together.start_workers();
    operator.wait_for_pods(&together.pods(), "Running", 3);
    operator.assert_kept(&group);

    let ready = Set { operator: &operator, name: "ready", members: 1 };
    let group = ready.start();
    operator.wait_for_pods(&ready.pods(), "Running", 1);
    ready.start_workers();
    operator.wait_for_pods(&ready.pods(), "Running", 3);
    operator.assert_kept(&group);

    // The group goes with its leader.
    if server == Server::Kubernetes {
        operator.delete("statefulset", "ready");
    }
    operator.delete("pod", "ready-0");
    operator.wait_until_gone(GROUP, &ready.group());
}
