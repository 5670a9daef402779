//! Whole submissions: order, duplicates, and whatever people may send.

use proptest::collection::vec;
use proptest::prelude::*;
use pumice_objects::protobuf;
use serde_json::json;

use super::*;

/// A pod spec that breaks no rule, with fields that are changed.
pub(super) fn pod_spec(changes: Value) -> Value {
    let amounts = json!({"cpu": "500m", "memory": "64Mi"});
    let mut spec = json!({
        "containers": [{"name": "main", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}],
    });
    for (name, value) in changes.as_object().expect("object") {
        spec[name] = value.clone();
    }
    spec
}

pub(super) fn item_of(pod_spec: Value) -> Item {
    Item { namespace: "lab".to_owned(), pod_specs: vec![pod_spec], ..Item::default() }
}

pub(super) fn item() -> Item {
    item_of(pod_spec(json!({})))
}

pub(super) fn submission(items: Vec<Item>) -> Submission {
    Submission { queue: "q".to_owned(), job_set: "set".to_owned(), items: asked(items) }
}

fn asked(items: Vec<Item>) -> Vec<RequestedJob> {
    items.into_iter().map(|item| RequestedJob::Item(Box::new(item))).collect()
}

pub(super) fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The job of an item, or the text of the refusal.
pub(super) fn check_one(item: Item, rules: &Rules) -> Result<Completed, String> {
    let mut jobs = check(&submission(vec![item]), rules).map_err(|error| error.to_string())?;
    match jobs.remove(0) {
        Checked::Item(completed) => Ok(*completed),
        again @ Checked::Again { .. } => panic!("{again:?} was not asked for"),
    }
}

#[test]
fn a_queue_gets_what_was_granted_and_no_more() {
    let access = json!({"q": {"namespaces": ["lab"], "serviceAccounts": ["trainer"], "pods": "privileged"}});
    let granted = Rules { queue_access: serde_json::from_value(access).expect("grants"), ..Rules::default() };
    let trainer = json!({"serviceAccountName": "trainer", "hostPID": true});
    let system = Item { namespace: "kube-system".to_owned(), ..item() };
    for (item, rules, problem) in [
        (item_of(pod_spec(trainer.clone())), &granted, None),
        (
            item_of(pod_spec(trainer)),
            &Rules::default(),
            Some("podSpec.serviceAccountName: queue q may not use \"trainer\""),
        ),
        (
            item_of(pod_spec(json!({"hostIPC": true}))),
            &Rules::default(),
            Some("podSpec.hostIPC: it reaches beyond the pod"),
        ),
        (item(), &granted, Some("podSpec.serviceAccountName: queue q may not use \"default\": use trainer")),
        (system.clone(), &granted, Some("namespace: queue q may not use \"kube-system\": use lab")),
        (system, &Rules::default(), Some("namespace: queue q may not use \"kube-system\": use one of your own")),
    ] {
        match (check_one(item, rules), problem) {
            (Ok(_), None) => {}
            (Err(said), Some(problem)) => assert!(said.contains(problem), "{said}"),
            (found, problem) => panic!("{found:?} and not {problem:?}"),
        }
    }
}

#[test]
fn the_first_broken_rule_refuses_the_whole_request() {
    let rules = Rules::default();
    let bad = item_of(pod_spec(json!({"terminationGracePeriodSeconds": 3_600, "priorityClassName": "none"})));
    let gang = Item { annotations: map(&[(annotations::GANG_ID, "")]), ..Item::default() };
    let items = asked(vec![item(), Item::default(), bad.clone(), gang]);
    let mut request = Submission { items, ..Submission::default() };
    let mut refusals = Vec::new();
    let mut refusal = |request: &Submission| match check(request, &rules) {
        Err(error) => refusals.push(error.to_string().split(": ").next().unwrap_or_default().to_owned()),
        Ok(jobs) => refusals.push(format!("{} jobs", jobs.len())),
    };
    refusal(&request);
    request.queue = "q".to_owned();
    refusal(&request);
    request.items.pop();
    refusal(&request);
    request.job_set = "x".repeat(1_024);
    refusal(&request);
    request.job_set.pop();
    refusal(&request);
    request.items[1] = asked(vec![item()]).remove(0);
    refusal(&request);
    let mut bad = bad;
    bad.pod_specs[0]["priorityClassName"] = json!("armada-resilient");
    request.items[2] = asked(vec![bad]).remove(0);
    refusal(&request);
    request.items.pop();
    refusal(&request);
    assert_eq!(
        refusals,
        [
            "queue",
            "jobRequestItems[3].annotations[armadaproject.io/gangId]",
            "jobSetId",
            "jobSetId",
            "jobRequestItems[1].namespace",
            "jobRequestItems[2].podSpec.priorityClassName",
            "jobRequestItems[2].podSpec.terminationGracePeriodSeconds",
            "2 jobs",
        ]
    );
}

#[test]
fn what_is_asked_for_again_has_rules_of_its_own_in_their_order() {
    let annotated = Item { annotations: map(&[(annotations::EXTERNAL_JOB_URI, "at://first")]), ..item() };
    let again = |priority: f64, client_id: &str, uri: &str| {
        let (client_id, external_job_uri) = (client_id.to_owned(), uri.to_owned());
        RequestedJob::Again(Again { of: 0, priority, client_id, external_job_uri })
    };
    let mut request = submission(vec![annotated]);
    request.items.extend([again(2.4, "", ""), again(9.0, "mine", "at://mine")]);
    let checked = check(&request, &Rules::default()).expect("accepted");
    let own = |priority, client_id: Option<&str>, uri: &str| {
        let (client_id, external_job_uri) = (client_id.map(str::to_owned), Some(uri.to_owned()));
        Checked::Again { of: 0, priority, client_id, external_job_uri }
    };
    assert_eq!(checked[1..], [own(2, None, "at://first"), own(9, Some("mine"), "at://mine")]);
    for (asked, refusal) in [
        (again(f64::NAN, &"x".repeat(101), ""), "jobRequestItems[2].clientId:"),
        (again(f64::NAN, "", ""), "jobRequestItems[2].priority:"),
    ] {
        request.items[2] = asked;
        let error = check(&request, &Rules::default()).expect_err("refused").to_string();
        assert!(error.starts_with(refusal), "{error}");
    }
}

#[test]
fn a_completed_job_is_kept_as_json() {
    let job = check_one(Item { client_id: "a".to_owned(), ..item() }, &Rules::default()).expect("accepted");
    let text = serde_json::to_string(&job).expect("JSON");
    assert_eq!(serde_json::from_str::<Completed>(&text).expect("the same"), job);
}

#[test]
fn a_spec_that_is_nested_deep_is_refused_before_it_is_walked() {
    let mut deep = json!({});
    for _ in 0..2_000 {
        deep = Value::Array(vec![deep]);
    }
    let refusal = check_one(item_of(deep), &Rules::default()).expect_err("deep");
    assert!(refusal.contains("deeper than 32 levels"), "{refusal}");
    let wide = Value::Array(vec![Value::Null; 70_000]);
    let refusal = check_one(item_of(wide), &Rules::default()).expect_err("wide");
    assert!(refusal.contains("more than 65535 bytes"), "{refusal}");
}

/// JSON with the names of a pod spec in any place.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(vec!["Always", "500m", "1e27", "-1", "9223372036854775807Gi", "In", "cpu", ""])
            .prop_map(Value::from),
    ];
    let names = [
        "containers",
        "initContainers",
        "resources",
        "requests",
        "limits",
        "cpu",
        "memory",
        "ports",
        "containerPort",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
        "matchExpressions",
        "matchFields",
        "tolerations",
        "overhead",
        "restartPolicy",
        "name",
        "values",
        "nodeSelector",
    ];
    leaf.prop_recursive(8, 80, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((proptest::sample::select(names.to_vec()), inner), 0..6)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

/// Pod specs that are nearly right, so that more of them get far.
fn nearly() -> impl Strategy<Value = Value> {
    let amount = proptest::sample::select(vec!["1", "500m", "64Mi", "0", "9e18", "-1", "x"]);
    let amounts = proptest::collection::btree_map(
        proptest::sample::select(vec!["cpu", "memory", "nvidia.com/gpu"]),
        amount,
        0..3,
    );
    let container = (amounts, any::<bool>(), vec(0_u32..3, 0..2)).prop_map(|(amounts, is_sidecar, ports)| {
        let ports: Vec<Value> = ports.into_iter().map(|port| json!({"containerPort": port})).collect();
        let resources = json!({"requests": amounts, "limits": amounts});
        let mut container = json!({"name": "c", "resources": resources, "ports": ports});
        if is_sidecar {
            container["restartPolicy"] = json!("Always");
        }
        container
    });
    (vec(container.clone(), 0..3), vec(container, 0..3), proptest::option::of(anything())).prop_map(
        |(containers, init, more)| {
            let mut spec = pod_spec(json!({"containers": containers, "initContainers": init}));
            if let Some(more) = more {
                spec["affinity"] = more;
            }
            spec
        },
    )
}

proptest! {
    #[test]
    fn no_pod_spec_panics_and_what_is_taken_can_be_written(
        spec in prop_oneof![anything(), nearly()],
        priority in any::<f64>(),
        ports in vec(0_u32..3, 0..3),
    ) {
        let ingress = IngressConfig { ports: ports.clone(), tls_enabled: true, ..IngressConfig::default() };
        let service = ServiceConfig { ports, ..ServiceConfig::default() };
        let item = Item { priority, ingress: vec![ingress], services: vec![service], ..item_of(spec) };
        if let Ok(job) = check_one(item, &Rules::default()) {
            let types = protobuf::builtin();
            types.encode_message("core.v1.PodSpec", &job.pod_spec).expect("it is a pod spec");
            let objects = job.for_id("01");
            for service in &objects.services {
                types.encode_message("core.v1.Service", service).expect("it is a service");
            }
            for mut ingress in objects.ingresses {
                Addressing::default().complete(&mut ingress);
                types.encode_message("networking.v1.Ingress", &ingress).expect("it is an ingress");
            }
        }
    }

    #[test]
    fn no_ingress_panics(mut ingress in anything()) {
        Addressing::default().complete(&mut ingress);
    }

    #[test]
    fn priorities_are_whole_and_near(priority in -10.0_f64..5e9) {
        let job = check_one(Item { priority, ..item() }, &Rules::default()).expect("accepted");
        let near = priority.clamp(0.0, f64::from(u32::MAX));
        prop_assert!((f64::from(job.priority) - near).abs() <= 0.5);
    }
}
