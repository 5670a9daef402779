//! Volcano jobs, case by case. What Volcano itself refuses is judged by admission, whose tests are elsewhere.

use serde_json::json;

use super::super::tests::{check_one, map};
use super::super::{IngressConfig, ServiceConfig, annotations};
use super::*;

fn pod(cpu: &str) -> Value {
    let amounts = json!({"cpu": cpu, "memory": "64Mi"});
    json!({"containers": [{"name": "main", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}]})
}

fn job(change: impl FnOnce(&mut Value)) -> Value {
    let task = |name: &str, replicas: i64, least: i64, cpu: &str| json!({"name": name, "replicas": replicas, "minAvailable": least, "template": {"spec": pod(cpu)}});
    let mut job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"minAvailable": 3, "tasks": [task("master", 1, 1, "500m"), task("worker", 4, 2, "1")]},
    });
    change(&mut job);
    job
}

fn item(job: &Value) -> Item {
    let annotations = map(&[(annotations::VOLCANO_JOB, &job.to_string())]);
    Item { namespace: "lab".to_owned(), annotations, ..Item::default() }
}

/// A server whose judge refuses jobs of that name.
fn rules() -> Rules {
    let judge = |job: &mut Value, _: &str| match text(&job["metadata"], "name") {
        "bad" => Err("unable to find job plugin: nonsense;".to_owned()),
        _ => {
            job["spec"]["judged"] = json!(true);
            Ok(())
        }
    };
    Rules { volcano_jobs: VolcanoJobs::judged_by(judge), ..Rules::default() }
}

#[test]
fn it_is_completed_and_its_pods_are_counted_the_needed_ones_first() {
    let done = check_one(item(&job(|_| {})), &rules()).expect("it is good");
    let whole = done.volcano_job.expect("it is whole");
    assert_eq!(whole.least, 3);
    let parts: Vec<String> =
        whole.parts.iter().map(|part| format!("{} of {}", part.pods, part.requests["cpu"])).collect();
    assert_eq!(parts, ["1 of 500m", "2 of 1", "2 of 1"]);
    let kept: Value = serde_json::from_str(&done.annotations[annotations::VOLCANO_JOB]).expect("JSON");
    assert_eq!(kept["spec"]["judged"], json!(true));
    let pod = &kept["spec"]["tasks"][1]["template"]["spec"];
    assert_eq!((&pod["activeDeadlineSeconds"], &pod["restartPolicy"]), (&json!(72 * 3_600), &Value::Null));
    assert_eq!(pod["containers"][0]["resources"]["requests"]["ephemeral-storage"], json!("8Gi"));
    assert_eq!((done.pod_spec, done.priority_class.as_str()), (json!({}), "armada-default"));
}

#[test]
fn it_may_be_yaml() {
    let yaml = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a, namespace: lab}\nspec:\n  \
                tasks:\n  - name: only\n    replicas: 2\n    template:\n      spec:\n        containers:\n        - name: c\n          \
                image: busybox\n          resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}\n";
    let annotations = map(&[(annotations::VOLCANO_JOB, yaml)]);
    let done = check_one(Item { annotations, ..Item::default() }, &rules()).expect("it is good");
    assert_eq!((done.namespace.as_str(), done.volcano_job.expect("whole").parts[0].pods), ("lab", 2));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let of_worker = |change: fn(&mut Value)| job(|job| change(&mut job["spec"]["tasks"][1]));
    let deep = format!("{}{}", "[".repeat(60), "]".repeat(60));
    let deep: Value = serde_json::from_str(&deep).expect("JSON");
    for (job, said) in [
        (job(|job| job["metadata"]["name"] = json!("bad")), "unable to find job plugin: nonsense"),
        (
            job(|job| job["kind"] = json!("Pod")),
            "it is batch.volcano.sh/v1alpha1 Pod, and batch.volcano.sh/v1alpha1 Job",
        ),
        (json!({}), "it is no object with apiVersion and kind"),
        (job(|job| job["spec"]["tasks"] = json!([])), "it has 0 pods"),
        (job(|job| job["spec"]["tasks"] = json!(null)), "it has 0 pods"),
        (of_worker(|task| task["replicas"] = json!(10_000)), "it has 10001 pods: a Job has 1 to 10000"),
        (of_worker(|task| task["replicas"] = json!(i64::MAX)), "a Job has 1 to 10000"),
        (job(|job| job["metadata"]["namespace"] = json!("else")), "metadata.namespace: \"else\", but \"lab\""),
        (job(|job| job["spec"]["priorityClassName"] = json!("x")), "spec.priorityClassName: \"x\" is not to be had"),
        (
            of_worker(|task| task["template"]["spec"]["priorityClassName"] = json!("armada-preemptible")),
            "task worker: podSpec.priorityClassName: \"armada-preemptible\", but \"armada-default\" of the job",
        ),
        (
            of_worker(|task| task["template"]["spec"]["containers"][0]["resources"] = json!({})),
            "task worker: podSpec.containers[0].resources: it names none",
        ),
        (
            of_worker(|task| task["template"]["spec"]["containers"][0]["comand"] = json!(["x"])),
            "task worker: podSpec: containers[0].comand: there is no such field",
        ),
        (of_worker(|task| task["template"] = json!(null)), "task worker: podSpec.containers: there is none"),
        (of_worker(|task| task["template"]["spec"]["volumes"] = deep_value()), "task worker: podSpec"),
        (job(|job| job["spec"]["x"] = deep.clone()), "it is nested deeper than 32 levels"),
        (job(|job| job["metadata"]["name"] = json!("x".repeat(300_000))), "it has more than 262144 bytes"),
    ] {
        let refusal = check_one(item(&job), &rules()).expect_err(said);
        assert!(refusal.starts_with("jobRequestItems[0].annotations[pumice.sh/volcano-job]: "), "{refusal}");
        assert!(refusal.contains(said), "{refusal} is not {said}");
    }
}

fn deep_value() -> Value {
    json!([[[["no volume"]]]])
}

#[test]
fn text_that_is_no_job_is_refused_and_nothing_hangs() {
    let bomb = format!("a: &a [x]\n{}", (0..30).map(|_| "b: [*a, *a]\n").collect::<String>());
    let nested = "[".repeat(100_000);
    for said in ["", "{", "a: b: c", "- x\n- y", bomb.as_str(), nested.as_str(), "x: 1\n---\ny: 2\n", "null"] {
        let annotations = map(&[(annotations::VOLCANO_JOB, said)]);
        let item = Item { namespace: "lab".to_owned(), annotations, ..Item::default() };
        check_one(item, &rules()).expect_err("it is no job");
    }
}

#[test]
fn what_goes_with_single_pods_is_refused_beside_it() {
    let whole = || item(&job(|_| {}));
    let with = |key: &str, text: &str| {
        let mut item = whole();
        item.annotations.insert(key.to_owned(), text.to_owned());
        item
    };
    let gang =
        Item { annotations: with(annotations::GANG_CARDINALITY, "2").annotations, ..with(annotations::GANG_ID, "g") };
    let mut gang = gang;
    gang.annotations.insert(annotations::GANG_ID.to_owned(), "g".to_owned());
    for (item, field) in [
        (Item { pod_specs: vec![pod("1")], ..whole() }, "podSpecs"),
        (Item { pod_spec: Some(pod("1")), ..whole() }, "podSpec"),
        (Item { services: vec![ServiceConfig { ports: vec![80], ..ServiceConfig::default() }], ..whole() }, "services"),
        (Item { ingress: vec![IngressConfig { ports: vec![80], ..IngressConfig::default() }], ..whole() }, "ingress"),
        (Item { required_node_labels: map(&[("a", "b")]), ..whole() }, "requiredNodeLabels"),
        (gang, "gangId"),
    ] {
        let refusal = check_one(item, &rules()).expect_err(field);
        assert!(refusal.contains(field) && refusal.contains("leave it out"), "{refusal}");
    }
    let refusal = check_one(Item { client_id: "x".repeat(101), ..whole() }, &rules()).expect_err("too long");
    assert!(refusal.contains("clientId"), "{refusal}");
    let refusal = check_one(whole(), &Rules::default()).expect_err("nobody judges it");
    assert!(refusal.contains("this server takes no Volcano Jobs"), "{refusal}");
}
