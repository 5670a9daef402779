//! Each default, where it is given and where the job has its own.

use super::super::rules::{Effect, Operator};
use super::super::spec;
use super::super::tests::{check_one, item, item_of, map, pod_spec};
use super::*;

fn completed(changes: Value) -> Completed {
    check_one(item_of(pod_spec(changes)), &Rules::default()).expect("accepted")
}

fn gpu() -> Value {
    let amounts = json!({"nvidia.com/gpu": 1});
    json!([{"name": "c", "resources": {"requests": amounts, "limits": amounts}}])
}

#[test]
fn a_pod_lacks_nothing() {
    let job = completed(json!({}));
    let amounts = json!({"cpu": "500m", "memory": "64Mi", "ephemeral-storage": "8Gi"});
    let tolerate = |key: &str| json!({"key": key, "operator": "Equal", "value": "true", "effect": "NoSchedule"});
    assert_eq!(
        job.pod_spec,
        json!({
            "containers": [
                {"name": "main", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}},
            ],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": 259_200,
            "terminationGracePeriodSeconds": 1,
            "priorityClassName": "armada-default",
            "tolerations": [tolerate("armadaproject.io/armada"), tolerate("armadaproject.io/pc-armada-default")],
        })
    );
    assert_eq!(json!(job.requests), amounts);
    assert_eq!((job.priority, job.namespace.as_str(), job.priority_class.as_str()), (0, "lab", "armada-default"));
    assert_eq!((job.client_id, job.external_job_uri, job.price_band), (None, None, None));
}

#[test]
fn what_a_job_says_stays() {
    let job = completed(json!({
        "restartPolicy": "Always",
        "activeDeadlineSeconds": 5,
        "terminationGracePeriodSeconds": 30,
        "priorityClassName": "armada-preemptible",
        "tolerations": [{"key": "a"}],
    }));
    let spec = &job.pod_spec;
    assert_eq!((&spec["restartPolicy"], &spec["activeDeadlineSeconds"]), (&json!("Never"), &json!(5)));
    assert_eq!((&spec["terminationGracePeriodSeconds"], &job.priority_class[..]), (&json!(30), "armada-preemptible"));
    let keys: Vec<&str> = spec::list(spec, "tolerations").iter().map(|one| spec::text(one, "key")).collect();
    assert_eq!(keys, ["a", "armadaproject.io/armada", "armadaproject.io/pc-armada-preemptible"]);
}

#[test]
fn tolerations_and_deadlines_follow_what_is_requested() {
    let job = completed(json!({"containers": gpu(), "terminationGracePeriodSeconds": 0}));
    assert_eq!(job.pod_spec["activeDeadlineSeconds"], 336 * 3_600);
    assert_eq!(job.pod_spec["terminationGracePeriodSeconds"], 1);
    assert_eq!(job.pod_spec["tolerations"][2]["key"], "armadaproject.io/gpu");
    let mut none = gpu();
    for of in ["requests", "limits"] {
        none[0]["resources"][of]["nvidia.com/gpu"] = json!("0");
    }
    let job = completed(json!({"containers": none}));
    assert_eq!(job.pod_spec["activeDeadlineSeconds"], 259_200);
    assert_eq!(job.pod_spec["tolerations"][2], Value::Null);
    // A job that was completed once is not changed again.
    let again = completed(job.pod_spec.clone());
    assert_eq!(again.pod_spec, job.pod_spec);
}

#[test]
fn defaults_of_resources_are_for_main_containers_that_set_neither() {
    let amounts = json!({"memory": "64Mi"});
    let container = json!({"name": "c", "resources": {"requests": amounts, "limits": amounts}});
    let job = completed(json!({"containers": [container], "initContainers": [container]}));
    let wanted = json!({"cpu": "1", "memory": "64Mi", "ephemeral-storage": "8Gi"});
    for of in ["requests", "limits"] {
        assert_eq!(job.pod_spec["containers"][0]["resources"][of], wanted);
        assert_eq!(job.pod_spec["initContainers"][0]["resources"][of], amounts);
    }
}

#[test]
fn fields_outside_of_the_pod_spec_are_taken() {
    let rules = Rules::default();
    for (priority, wanted) in [(1.5, 2), (-3.0, 0), (4e9, 4_000_000_000), (5e9, u32::MAX), (f64::NEG_INFINITY, 0)] {
        let job = check_one(Item { priority, ..item() }, &rules).expect("accepted");
        assert_eq!(job.priority, wanted);
    }
    let annotated = Item { annotations: map(&[(EXTERNAL_JOB_URI, "a"), (PRICE_BAND, "c")]), ..item() };
    let job = check_one(annotated.clone(), &rules).expect("accepted");
    assert_eq!((job.external_job_uri.as_deref(), job.price_band), (Some("a"), Some(PriceBand::C)));
    let own = Item { external_job_uri: "b".to_owned(), client_id: "id".to_owned(), ..annotated };
    let job = check_one(own, &rules).expect("accepted");
    assert_eq!((job.external_job_uri.as_deref(), job.client_id.as_deref()), (Some("b"), Some("id")));
    let labelled = Item { required_node_labels: map(&[("zone", "a")]), ..item() };
    let job = check_one(labelled, &rules).expect("accepted");
    assert_eq!(job.pod_spec["nodeSelector"], json!({"zone": "a"}));
}

#[test]
fn rules_are_read_by_armadas_names_and_no_others() {
    assert_eq!(serde_json::from_str::<Rules>("{}").expect("defaults"), Rules::default());
    let text = serde_json::to_string(&Rules::default()).expect("JSON");
    assert_eq!(serde_json::from_str::<Rules>(&text).expect("the same"), Rules::default());
    let rules: Rules = serde_json::from_value(json!({
        "maxOversubscriptionByResourceRequest": {"cpu": 2.0},
        "defaultActiveDeadline": "1h",
        "defaultJobLimits": {"cpu": "250m"},
        "defaultJobTolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
    }))
    .expect("rules");
    let toleration = Toleration {
        key: "a".to_owned(),
        operator: Operator::Exists,
        value: String::new(),
        effect: Some(Effect::NoExecute),
    };
    assert_eq!(rules.default_job_tolerations, [toleration]);
    assert_eq!(rules.default_active_deadline.as_secs(), 3_600);
    for odd in [json!({"maxPodSpecSize": 1}), json!({"defaultJobTolerations": [{"kye": "a"}]})] {
        assert!(serde_json::from_value::<Rules>(odd).is_err());
    }
}
