//! Jobs: one case for each rule, in the order of the reference tables.

use super::cluster::{Cluster, queue, typed};
use pumice_admission::{Findings, Rules, job};
use pumice_api::batch::Job;
use serde_json::{Value, json};

/// Values to put at JSON pointers.
type Changes<'a> = &'a [(&'a str, Value)];

/// A good job of one task.
fn good() -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": { "name": "j", "namespace": "n" },
        "spec": {
            "queue": "default", "minAvailable": 1, "maxRetry": 3, "schedulerName": "volcano",
            "tasks": [task("a")],
        },
    })
}

fn task(name: &str) -> Value {
    json!({ "name": name, "replicas": 2, "minAvailable": 1, "maxRetry": 3,
        "template": { "spec": { "containers": [{ "name": "c", "image": "i" }] } } })
}

/// The good job with the values at these pointers replaced; null removes.
fn with(changes: Changes) -> Value {
    let mut job = good();
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').expect("pointer");
        match job.pointer_mut(parent).expect("parent exists") {
            Value::Object(members) if value.is_null() => drop(members.remove(name)),
            Value::Object(members) => drop(members.insert(name.to_owned(), value.clone())),
            Value::Array(items) if name == "-" => items.push(value.clone()),
            Value::Array(items) => items[name.parse::<usize>().expect("index")] = value.clone(),
            other => panic!("{pointer} in {other}"),
        }
    }
    job
}

fn cluster() -> Cluster {
    Cluster {
        queues: vec![
            queue(json!({ "metadata": { "name": "default" }, "status": { "state": "Open" } })),
            queue(json!({ "metadata": { "name": "root" }, "status": { "state": "Open" } })),
            queue(json!({ "metadata": { "name": "new" } })),
            queue(json!({ "metadata": { "name": "closed" }, "status": { "state": "Closed" } })),
            queue(json!({ "metadata": { "name": "top" }, "status": { "state": "Open" } })),
            queue(json!({ "metadata": { "name": "leaf" }, "spec": { "parent": "top" } })),
        ],
        ..Cluster::default()
    }
}

fn create(job: &Value) -> Findings {
    let mut findings = Findings::default();
    job::validate_create(&typed(job), &cluster(), &Rules::default(), &mut findings);
    findings
}

#[test]
fn good_jobs_are_admitted() {
    let cases: &[Changes] = &[
        &[],
        &[("/spec/queue", json!("new"))],
        &[("/spec/queue", json!("leaf"))],
        &[("/spec/tasks/-", task("b")), ("/spec/tasks/1/dependsOn", json!({ "name": ["a"] }))],
        &[("/spec/plugins", json!({ "svc": ["--x"], "ssh": [], "env": [] }))],
        &[("/spec/policies", json!([{ "event": "*", "action": "RestartJob", "timeout": "1h2m" }]))],
        &[(
            "/spec/policies",
            json!([{ "exitCode": 3, "action": "AbortJob" }, { "events": ["PodFailed", "PodFailed"], "event": "PodFailed", "action": "RestartPod" }]),
        )],
        &[("/spec/tasks/0/partitionPolicy", json!({ "totalPartitions": 2, "partitionSize": 1, "minPartitions": 1 }))],
        &[
            ("/spec/tasks/0/topologyPolicy", json!("restricted")),
            ("/spec/tasks/0/template/spec/containers/0/resources", json!({ "limits": { "cpu": "2000m" } })),
        ],
        &[(
            "/spec/volumes",
            json!([{ "mountPath": "/a", "volumeClaimName": "c" }, { "mountPath": "/b", "volumeClaim": {} }]),
        )],
    ];
    for changes in cases {
        assert_eq!(create(&with(changes)).refusals, Vec::<String>::new(), "{changes:?}");
    }
}

#[test]
fn every_rule_of_create_refuses_in_volcanos_words() {
    let two = json!([{ "mountPath": "/a", "volumeClaimName": "c" }, { "mountPath": "/a", "volumeClaimName": "d" }]);
    let twice = json!({ "highestTierAllowed": 1, "highestTierName": "t" });
    let long = "x".repeat(60);
    let cases: &[(&str, Changes, &str)] = &[
        ("1", &[("/spec/tasks", json!([]))], "No task specified in job spec"),
        ("2", &[("/spec/plugins", json!({ "mpi": [] }))], "The specified mpi master task was not found"),
        (
            "3",
            &[("/spec/networkTopology", twice.clone())],
            "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously",
        ),
        (
            "4",
            &[("/spec/tasks/0/minAvailable", json!(3))],
            "'minAvailable' is greater than 'replicas' in task: a, job: j;",
        ),
        ("5", &[("/spec/tasks/-", task("a"))], "duplicated task name a;"),
        (
            "6",
            &[("/spec/tasks/0/policies", json!([{ "action": "RestartJob" }]))],
            "either event and exitCode should be specified",
        ),
        ("7", &[("/metadata/name", json!(long))], "create pod with name"),
        (
            "8",
            &[("/spec/tasks/0/template/spec/containers/0/image", Value::Null)],
            "spec.task[0].spec.containers[0].image: Required value.",
        ),
        (
            "8",
            &[("/spec/tasks/0/template/spec/containers", json!([]))],
            "spec.task[0].spec.containers: Required value.",
        ),
        (
            "8",
            &[("/spec/tasks/0/template/spec/restartPolicy", json!("Sometimes"))],
            "spec.task[0].spec.restartPolicy: Unsupported value: \"Sometimes\"",
        ),
        (
            "8",
            &[("/spec/tasks/0/template/spec/containers/-", json!({ "name": "c", "image": "i" }))],
            "spec.containers[1].name: Duplicate value: \"c\"",
        ),
        (
            "8",
            &[("/spec/tasks/0/template/spec/containers/0/resources", json!({ "requests": { "cpu": "1x" } }))],
            "resources.requests[cpu]: Invalid value: \"1x\"",
        ),
        (
            "8",
            &[(
                "/spec/tasks/0/template/spec/containers/0/resources",
                json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } }),
            )],
            "must be less than or equal to cpu limit of 1",
        ),
        (
            "8",
            &[("/spec/tasks/0/template/spec/containers/0/volumeMounts", json!([{ "name": "v", "mountPath": "/v" }]))],
            "volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            "8",
            &[("/spec/tasks/0/template/metadata", json!({ "labels": { "a": "b c" } }))],
            "metadata.labels: Invalid value: \"b c\"",
        ),
        (
            "8",
            &[("/spec/tasks/0/template/spec", Value::Null), ("/spec/tasks/0/template/metadata", json!({}))],
            "spec.task[0].spec.containers: Required value.",
        ),
        (
            "8",
            &[("/spec/tasks/0/template/spec/containers/0/imagePullPolicy", json!("Sometimes"))],
            "spec.task[0].spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\"",
        ),
        (
            "8",
            &[("/spec/tasks/0/template/spec/containers/0/resources", json!({ "limits": { "a.b/gpu": "500m" } }))],
            "resources.limits[a.b/gpu]: Invalid value: \"500m\": must be an integer",
        ),
        (
            "9",
            &[("/spec/tasks/0/topologyPolicy", json!("restricted"))],
            "the cpu request isn't an integer in spec.task[0] container[0].",
        ),
        (
            "9",
            &[
                ("/spec/tasks/0/topologyPolicy", json!("restricted")),
                ("/spec/tasks/0/template/spec/containers/0/resources", json!({ "requests": { "cpu": "1500m" } })),
            ],
            "the cpu request isn't an integer in spec.task[0] container[0].",
        ),
        (
            "10",
            &[("/spec/tasks/0/partitionPolicy", json!({ "totalPartitions": 0, "partitionSize": 1 }))],
            "'TotalPartitions' must be greater than 0",
        ),
        (
            "10",
            &[("/spec/tasks/0/partitionPolicy", json!({ "totalPartitions": 1, "partitionSize": 0 }))],
            "'PartitionSize' must be greater than 0",
        ),
        (
            "10",
            &[("/spec/tasks/0/partitionPolicy", json!({ "totalPartitions": 3, "partitionSize": 1 }))],
            "'Replicas' are not equal to TotalPartitions*PartitionSize",
        ),
        (
            "10",
            &[(
                "/spec/tasks/0/partitionPolicy",
                json!({ "totalPartitions": 2, "partitionSize": 1, "minPartitions": 2 }),
            )],
            "'MinAvailable' is not equal to MinPartitions*PartitionSize",
        ),
        (
            "10",
            &[(
                "/spec/tasks/0/partitionPolicy",
                json!({ "totalPartitions": 2, "partitionSize": 1, "networkTopology": twice }),
            )],
            "must not specify 'highestTierAllowed'",
        ),
        ("11", &[("/metadata/name", json!("J_"))], "create job with name J_ validate failed"),
        (
            "12",
            &[("/spec/minAvailable", json!(3))],
            "job 'minAvailable' should not be greater than total replicas in tasks;",
        ),
        (
            "13",
            &[("/spec/policies", json!([{ "event": "PodRunning", "action": "RestartJob" }]))],
            "spec.policies: Invalid value: \"PodRunning\": invalid policy event",
        ),
        ("14", &[("/spec/plugins", json!({ "nothing": [] }))], "unable to find job plugin: nothing;"),
        ("15", &[("/spec/volumes", json!([{ "mountPath": "", "volumeClaimName": "c" }]))], "mountPath is required;"),
        ("15", &[("/spec/volumes", two)], "duplicated mountPath: /a;"),
        (
            "15",
            &[("/spec/volumes", json!([{ "mountPath": "/a", "volumeClaimName": "C_" }]))],
            "invalid VolumeClaimName C_",
        ),
        (
            "16",
            &[("/spec/queue", json!("nowhere"))],
            "unable to find job queue: queue.scheduling.volcano.sh \"nowhere\" not found;",
        ),
        (
            "17",
            &[("/spec/queue", json!("closed"))],
            "can only submit job to queue with state `Open`, queue `closed` status is `Closed`;",
        ),
        ("18", &[("/spec/queue", json!("root"))], "can not submit job to root queue;"),
        ("19", &[("/spec/queue", json!("top"))], "can only submit job to leaf queue, queue `top` has 1 child queues;"),
        (
            "20",
            &[("/spec/tasks/0/dependsOn", json!({ "name": ["a"] }))],
            "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);",
        ),
        ("20", &[("/spec/tasks/0/dependsOn", json!({ "name": ["z"] }))], "doesn't form a directed acyclic graph(DAG);"),
        (
            "ours",
            &[("/spec/runningEstimate", json!("soon"))],
            "invalid runningEstimate: time: invalid duration \"soon\";",
        ),
    ];
    for (row, changes, fragment) in cases {
        let findings = create(&with(changes));
        let found = findings.refusals.iter().filter(|refusal| refusal.contains(fragment)).count();
        assert_eq!(found, 1, "row {row}: {fragment}: {findings:?}");
    }
}

#[test]
fn policies_are_judged_in_order() {
    let cases = [
        (
            json!([{ "event": "PodFailed", "exitCode": 1, "action": "RestartJob" }]),
            "must not specify event and exitCode simultaneously",
        ),
        (json!([{}]), "either event and exitCode should be specified"),
        (json!([{ "event": "OutOfSync", "action": "RestartJob" }]), "invalid policy event"),
        (json!([{ "event": "PodFailed", "action": "SyncJob" }]), "invalid policy action"),
        (json!([{ "event": "PodFailed" }]), "invalid policy action"),
        (json!([{ "exitCode": 1, "action": "Dance" }]), "invalid policy action"),
        (
            json!([{ "event": "PodFailed", "action": "RestartJob" }, { "events": ["PodFailed"], "action": "AbortJob" }]),
            "duplicate event PodFailed  across different policy",
        ),
        (json!([{ "exitCode": 0, "action": "RestartJob" }]), "0 is not a valid error code"),
        (
            json!([{ "exitCode": 2, "action": "RestartJob" }, { "exitCode": 2, "action": "AbortJob" }]),
            "duplicate exitCode 2",
        ),
        (
            json!([{ "event": "*", "action": "RestartJob" }, { "event": "PodFailed", "action": "AbortJob" }]),
            "if there's * here, no other policy should be here",
        ),
        (json!([{ "event": "PodFailed", "action": "RestartJob", "timeout": "5 minutes" }]), "invalid policy timeout"),
        (
            json!([{ "event": "PodFailed", "action": "ScaleUpMemory" }]),
            "action ScaleUpMemory answers event OOMKilled alone",
        ),
        (json!([{ "exitCode": 137, "action": "ScaleUpMemory" }]), "action ScaleUpMemory answers event OOMKilled alone"),
        (json!([{ "event": "OOMKilled", "action": "ScaleUpMemory", "timeout": "1m" }]), "takes no timeout"),
        (
            json!([{ "event": "OOMKilled", "action": "ScaleUpMemory", "scaleUp": { "factor": 1 } }]),
            "spec.policies.scaleUp: factor 1 is no number above 1",
        ),
        (
            json!([{ "event": "PodFailed", "action": "RestartJob", "scaleUp": { "factor": 2 } }]),
            "spec.policies.scaleUp belongs to action ScaleUpMemory",
        ),
    ];
    for (policies, fragment) in cases {
        let findings = create(&with(&[("/spec/policies", policies)]));
        assert_eq!(findings.refusals.len(), 1, "{fragment}: {findings:?}");
        assert!(findings.refusals[0].contains(fragment), "{fragment}: {findings:?}");
        assert!(findings.refusals[0].ends_with("valid actions are [AbortJob RestartJob RestartTask RestartPod RestartPartition TerminateJob CompleteJob ResumeJob ScaleUpMemory];"));
    }
}

#[test]
fn more_memory_is_asked_for_by_a_policy_or_by_an_annotation() {
    let policy = json!([{ "event": "OOMKilled", "action": "ScaleUpMemory", "scaleUp": { "step": "1Gi", "tries": 2 } }]);
    let beside_any =
        json!([{ "event": "*", "action": "RestartJob" }, { "event": "OOMKilled", "action": "ScaleUpMemory" }]);
    let annotated = |text: &str| json!({ "pumice.sh/on-oom": text });
    let template = "/spec/tasks/0/template/metadata";
    let limit = ("/spec/tasks/0/template/spec/containers/0/resources", json!({ "limits": { "memory": "1Gi" } }));
    let good: &[Changes] = &[
        &[limit.clone(), ("/spec/policies", policy.clone())],
        &[limit.clone(), ("/spec/policies", beside_any)],
        &[limit.clone(), ("/metadata/annotations", annotated("factor=1.5,ceiling=64Gi,tries=3"))],
        &[
            limit.clone(),
            (template, json!({ "annotations": annotated("step=1Gi") })),
            ("/spec/policies", policy.clone()),
        ],
        &[("/spec/policies", json!([{ "event": "OOMKilled", "action": "RestartJob" }]))],
        &[("/spec/policies", policy.clone()), ("/metadata/annotations", annotated("off"))],
        &[("/metadata/annotations", json!({ "pumice.sh/learn-memory": "off" }))],
        &[(template, json!({ "annotations": { "pumice.sh/min-success": "2" } }))],
    ];
    for changes in good {
        assert_eq!(create(&with(changes)), Findings::default(), "{changes:?}");
    }
    let bad: &[(Changes, &str)] = &[
        (
            &[("/metadata/annotations", annotated("a lot"))],
            "annotation pumice.sh/on-oom of job j: \"a lot\" is none of",
        ),
        (
            &[("/metadata/annotations", json!({ "pumice.sh/learn-memory": "no" }))],
            "annotation pumice.sh/learn-memory of job j: \"no\" is not off; write off, or leave it out",
        ),
        (&[(template, json!({ "annotations": annotated("") }))], "annotation pumice.sh/on-oom of task a: write a rule"),
        (
            &[("/metadata/annotations", annotated("factor=2")), ("/spec/policies", policy.clone())],
            "job j says what to do on OOMKilled by a policy and by annotation",
        ),
        (&[(template, json!({ "annotations": { "pumice.sh/min-success": "0" } }))], "write a whole number from 1"),
        (
            &[
                (template, json!({ "annotations": { "pumice.sh/min-success": "2" } })),
                ("/spec/tasks/0/minSuccess", json!(1)),
            ],
            "task a has minSuccess 1 and annotation pumice.sh/min-success 2; leave one of them out",
        ),
    ];
    for (changes, fragment) in bad {
        let findings = create(&with(changes));
        assert_eq!(findings.refusals.len(), 1, "{fragment}: {findings:?}");
        assert!(findings.refusals[0].contains(fragment), "{fragment}: {findings:?}");
    }
    let nothing = create(&with(&[("/spec/policies", policy)]));
    assert!(nothing.warnings[0].contains("task a has no container with a memory limit"), "{nothing:?}");
}

#[test]
fn a_gang_is_no_larger_than_what_may_be_there_at_once() {
    let task = "/spec/tasks/0";
    let template = "/spec/tasks/0/template/metadata";
    let annotated = json!({ "annotations": { "pumice.sh/max-parallel": "2" } });
    let parallel = |most: i32| ("/spec/tasks/0/maxParallel", json!(most));
    let least = |task: i32, job: i32| {
        [
            ("/spec/tasks/0/minAvailable", json!(task)),
            ("/spec/minAvailable", json!(job)),
            ("/spec/tasks/0/replicas", json!(5)),
        ]
    };
    let with_all = |most: &(&'static str, Value), least: [(&'static str, Value); 3]| {
        create(&with(&least.into_iter().chain([most.clone()]).collect::<Vec<_>>()))
    };
    for most in [parallel(2), (template, annotated.clone())] {
        assert_eq!(with_all(&most, least(2, 2)), Findings::default());
        let findings = with_all(&most, least(3, 2));
        assert_eq!(findings.refusals.len(), 1, "{findings:?}");
        assert!(findings.refusals[0].contains("'minAvailable' 3 is greater than 'maxParallel' 2"), "{findings:?}");
        let findings = with_all(&most, least(1, 3));
        assert_eq!(findings.refusals.len(), 1, "{findings:?}");
        assert!(findings.refusals[0].contains("job 'minAvailable' 3 is greater than the 2 pods"), "{findings:?}");
    }
    let bad = json!({ "annotations": { "pumice.sh/max-parallel": "0" } });
    assert!(create(&with(&[(template, bad)])).refusals[0].contains("write a whole number from 1"));
    let both = create(&with(&[(template, annotated), parallel(1)]));
    assert!(both.refusals[0].contains("task a has maxParallel 1 and annotation pumice.sh/max-parallel 2"), "{both:?}");
    let mut job = with(&[("/spec/tasks/0/replicas", json!(5)), parallel(2)]);
    for pointer in [task, "/spec"] {
        job.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove("minAvailable");
    }
    job::mutate(&mut job, &Rules::default());
    assert_eq!((&job["spec"]["minAvailable"], &job["spec"]["tasks"][0]["minAvailable"]), (&json!(2), &json!(2)));
    let mut findings = Findings::default();
    let mut more = job.clone();
    more["spec"]["tasks"][0]["maxParallel"] = 4.into();
    job::validate_update(&typed::<Job>(&more), &typed(&job), &cluster(), &mut findings);
    assert_eq!(findings, Findings::default(), "it may change while the job runs");
}

#[test]
fn what_a_job_waits_for_is_read_when_it_is_written() {
    let after = |text: &str| with(&[("/metadata/annotations", json!({ "pumice.sh/after": text }))]);
    assert_eq!(create(&after("ok:a,failed:b, any:c.d")), Findings::default());
    let bad = [
        ("a", "\"a\" is none of ok:JOB, failed:JOB and any:JOB"),
        ("", "\"\" is none of"),
        ("ok:a,any:a", "names job a twice"),
        ("ok:j", "job j can't wait for itself"),
    ];
    let update = |new: &Value, old: &Value| {
        let mut findings = Findings::default();
        job::validate_update(&typed::<Job>(new), &typed(old), &cluster(), &mut findings);
        findings.refusals
    };
    for (text, fragment) in bad {
        let findings = create(&after(text));
        assert_eq!(findings.refusals.len(), 1, "{text}: {findings:?}");
        assert!(findings.refusals[0].contains(fragment), "{text}: {findings:?}");
        assert_eq!(update(&after(text), &after("ok:a")).len(), 1, "{text}");
        assert_eq!(update(&after(text), &after(text)), [""; 0], "{text}");
    }
}

#[test]
fn a_rule_may_change_but_not_into_nonsense() {
    let annotated = |text: &str| with(&[("/metadata/annotations", json!({ "pumice.sh/on-oom": text }))]);
    let update = |new: &Value, old: &Value| {
        let mut findings = Findings::default();
        job::validate_update(&typed::<Job>(new), &typed(old), &cluster(), &mut findings);
        findings.refusals
    };
    assert_eq!(update(&annotated("factor=3"), &good()), [""; 0]);
    assert!(update(&annotated("x"), &good())[0].contains("annotation pumice.sh/on-oom of job j"));
    assert_eq!(
        update(&annotated("x"), &annotated("x")),
        [""; 0],
        "what is there already keeps nobody from other changes"
    );
}

#[test]
fn several_faults_are_told_together() {
    let findings = create(&with(&[
        ("/spec/minAvailable", json!(9)),
        ("/spec/queue", json!("nowhere")),
        ("/spec/plugins", json!({ "x": [] })),
    ]));
    assert_eq!(findings.refusals.len(), 3);
    assert_eq!(
        findings.refusal().as_deref(),
        Some(
            "job 'minAvailable' should not be greater than total replicas in tasks; unable to find job plugin: x; \
              unable to find job queue: queue.scheduling.volcano.sh \"nowhere\" not found;"
        )
    );
}

#[test]
fn what_volcano_refuses_and_we_do_not_warns() {
    let findings = create(&with(&[(
        "/spec/volumes",
        json!([{ "mountPath": "/in" }, { "mountPath": "/out", "volumeClaimName": "claim", "volumeClaim": {} }]),
    )]));
    assert_eq!(findings.refusal(), None);
    assert_eq!(
        findings.warnings,
        [
            "volume /in names no claim: each pod gets an empty directory there that goes with the pod",
            "volume /out names claim claim and describes it: the claim is made if it does not exist",
        ]
    );
}

#[test]
fn a_job_that_could_never_start_is_refused() {
    let refusals = |changes: &[(&str, Value)]| create(&with(changes)).refusals;
    let plugins = |plugins: Value| ("/spec/plugins", plugins);
    let no_head = r#"job plugin ray needs a task "head"; add it, or name another with --head;"#;
    assert_eq!(refusals(&[plugins(json!({ "ray": [], "env": [] }))]), [no_head]);
    for (good, given) in [
        (true, json!({ "ray": ["--head=a"] })),
        (true, json!({ "mpi": ["--master=a"] })),
        (true, json!({ "mpi": ["--master", "a"] })),
        (true, json!({ "mpi": ["--port=1", "-master", "a"] })),
        (false, json!({ "mpi": ["--unknown", "--master=a"] })),
        (true, json!({ "tensorflow": [], "pytorch": [], "hcclrank": [], "svc": [], "ssh": [], "env": [] })),
    ] {
        assert_eq!(refusals(&[plugins(given.clone())]).is_empty(), good, "{given}");
    }
}

#[test]
fn names_that_the_plugins_objects_can_not_have_are_refused() {
    let refusals = |name: &str, replicas: u32, plugins: Value| {
        create(&with(&[
            ("/metadata/name", json!(name)),
            ("/spec/tasks/0/replicas", json!(replicas)),
            ("/spec/plugins", plugins),
        ]))
        .refusals
    };
    let (of_59, of_60) = ("x".repeat(59), "x".repeat(60));
    let (of_54, of_55) = ("x".repeat(54), "x".repeat(55));
    let cases = [
        ("a-1", 1, json!({ "svc": [], "ssh": [] }), None),
        ("7z", 1, json!({ "ssh": [] }), None),
        ("7z", 1, json!({ "svc": [] }), Some("plugin svc makes a Service 7z: a DNS-1035 label")),
        ("a.b", 1, json!({}), None),
        ("a.b", 1, json!({ "svc": [] }), Some("plugin svc makes a Service a.b: ")),
        ("a.b", 1, json!({ "ssh": [] }), Some("plugin ssh makes a volume a.b-ssh: a lowercase RFC 1123 label")),
        (of_59.as_str(), 1, json!({ "svc": [], "ssh": [] }), None),
        (of_59.as_str(), 10, json!({ "svc": [], "ssh": [] }), None),
        (of_59.as_str(), 11, json!({ "ssh": [] }), None),
        (of_59.as_str(), 11, json!({ "svc": [] }), Some("plugin svc makes pods' names their hostnames, ")),
        (of_60.as_str(), 1, json!({ "ssh": [] }), Some("create pod with name ")),
        (of_54.as_str(), 1, json!({ "ray": ["--head=a"] }), None),
        (of_55.as_str(), 1, json!({ "ray": ["--head=a"] }), Some("plugin ray makes a Service ")),
    ];
    for (name, replicas, plugins, reason) in cases {
        let told = refusals(name, replicas, plugins.clone());
        assert_eq!(told.is_empty(), reason.is_none(), "{name} {replicas} {plugins}: {told:?}");
        assert!(reason.is_none_or(|reason| told[0].starts_with(reason)), "{told:?}");
    }
    let fixed = [("/spec/tasks/0/template/spec/hostname", json!("h")), ("/metadata/name", json!(of_59))];
    let many = [("/spec/tasks/0/replicas", json!(2000)), ("/spec/plugins", json!({ "svc": [] }))];
    assert_eq!(
        create(&with(&[fixed, many].concat())).refusals,
        Vec::<String>::new(),
        "the template's hostname is short"
    );
}

#[test]
fn pods_are_listed_up_to_a_bound() {
    let job = |replicas: u32, plugins: Value| {
        with(&[("/spec/tasks/0/replicas", json!(replicas)), ("/spec/plugins", plugins)])
    };
    assert_eq!(create(&job(2000, json!({ "svc": [] }))).refusals, Vec::<String>::new());
    assert_eq!(create(&job(100_000, json!({ "ssh": [], "env": [] }))).refusals, Vec::<String>::new());
    let reason = "job plugin svc writes out the addresses of all pods, of 2000 at most, and the job has 2001; \
        ask for fewer pods, or leave the plugin out;";
    let big = job(2001, json!({ "svc": [] }));
    assert_eq!(create(&big).refusals, [reason]);
    let update = |new: &Value, old: &Value| {
        let mut findings = Findings::default();
        job::validate_update(&typed(new), &typed(old), &cluster(), &mut findings);
        findings.refusals
    };
    assert_eq!(update(&big, &job(3, json!({ "svc": [] }))), [reason], "also when a job grows");
    assert_eq!(update(&big, &big), Vec::<String>::new(), "a job from before the bound can be labelled");
}

#[test]
fn arguments_that_have_no_effect_warn() {
    let findings = create(&with(&[("/spec/plugins", json!({ "svc": ["--enable-networking"], "pytorch": [] }))]));
    assert_eq!(findings.refusal(), None);
    assert_eq!(
        findings.warnings,
        [
            r#"job plugin svc does not understand argument "--enable-networking"; it and those after it have no effect"#,
            r#"job plugin pytorch finds no task "master" to be the master, and does nothing; name one by --master"#,
        ]
    );
}

#[test]
fn new_jobs_are_filled_in() {
    let mut job = json!({
        "metadata": { "name": "j" },
        "spec": {
            "queue": "", "plugins": { "mpi": [], "svc": ["--x"] },
            "tasks": [
                { "replicas": 2, "template": { "spec": { "hostNetwork": true, "containers": [] } } },
                { "name": "b", "replicas": 4, "minAvailable": 0, "maxRetry": 7 },
                { "replicas": 4, "partitionPolicy": { "totalPartitions": 2, "partitionSize": 2, "minPartitions": 1 } },
            ],
        },
    });
    let wanted = json!({
        "metadata": { "name": "j" },
        "spec": {
            "queue": "default", "schedulerName": "volcano", "maxRetry": 3, "minAvailable": 4,
            "plugins": { "mpi": [], "svc": ["--x"], "ssh": [] },
            "tasks": [
                { "name": "default0", "replicas": 2, "minAvailable": 2, "maxRetry": 3,
                  "template": { "spec": { "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet", "containers": [] } } },
                { "name": "b", "replicas": 4, "minAvailable": 0, "maxRetry": 7 },
                { "name": "default2", "replicas": 4, "minAvailable": 2, "maxRetry": 3,
                  "partitionPolicy": { "totalPartitions": 2, "partitionSize": 2, "minPartitions": 1 } },
            ],
        },
    });
    job::mutate(&mut job, &Rules::default());
    assert_eq!(job, wanted);
    job::mutate(&mut job, &Rules::default());
    assert_eq!(job, wanted, "a second time changes nothing");
}

#[test]
fn filling_in_leaves_nonsense_alone() {
    for nonsense in
        [json!(null), json!({ "spec": [] }), json!({ "spec": { "tasks": [1, { "replicas": "x" }], "plugins": 3 } })]
    {
        let mut job = nonsense.clone();
        job::mutate(&mut job, &Rules::default());
        assert_eq!(job.pointer("/spec/minAvailable"), None);
        assert_eq!(job.pointer("/spec/plugins"), nonsense.pointer("/spec/plugins"));
    }
}

#[test]
fn the_queue_of_a_job_changes_only_while_none_of_its_pods_runs() {
    let new: Job = typed(&with(&[("/spec/queue", json!("leaf"))]));
    for (status, may) in [
        (json!({}), true),
        (json!({ "state": { "phase": "Pending" }, "pending": 2 }), true),
        (json!({ "state": { "phase": "Aborted" }, "succeeded": 1 }), true),
        (json!({ "state": { "phase": "Pending" }, "pending": 1, "running": 1 }), false),
        (json!({ "state": { "phase": "Pending" }, "terminating": 1 }), false),
        (json!({ "state": { "phase": "Running" }, "running": 2 }), false),
        (json!({ "state": { "phase": "Restarting" } }), false),
        (json!({ "state": { "phase": "Completed" } }), false),
    ] {
        let mut old: Job = typed(&good());
        old.status = serde_json::from_value(status.clone()).unwrap();
        let mut findings = Findings::default();
        job::validate_update(&new, &old, &cluster(), &mut findings);
        assert_eq!(findings.refusals.is_empty(), may, "{status}: {findings:?}");
    }
}

#[test]
fn suspend_and_deadline_are_read_when_they_are_written() {
    for (key, good, bad) in [
        ("pumice.sh/suspend", ["true", "false"], ["yes", ""]),
        ("pumice.sh/active-deadline-seconds", ["1", "86400"], ["0", "1h"]),
    ] {
        let annotated = |text: &str| with(&[("/metadata/annotations", json!({ key: text }))]);
        for text in good {
            assert_eq!(create(&annotated(text)), Findings::default(), "{key} {text}");
        }
        for text in bad {
            let refusals = create(&annotated(text)).refusals;
            assert!(refusals.len() == 1 && refusals[0].contains(key), "{key} {text}: {refusals:?}");
        }
    }
}

#[test]
fn who_leaves_first_is_read_when_it_is_written() {
    let annotated = |text: &str| with(&[("/metadata/annotations", json!({ "pumice.sh/scale-down": text }))]);
    assert_eq!(create(&annotated("pending-first")), Findings::default());
    let refusals = create(&annotated("running-first")).refusals;
    assert!(refusals.len() == 1 && refusals[0].contains("is not pending-first"), "{refusals:?}");
    let mut numbered = annotated("pending-first");
    numbered["spec"]["plugins"] = json!({ "env": [] });
    let findings = create(&numbered);
    assert!(findings.refusals.is_empty() && findings.warnings.len() == 1, "{findings:?}");
}

#[test]
fn only_what_needs_no_other_pods_may_change_in_a_job() {
    let old = with(&[(
        "/spec/volumes",
        json!([{ "mountPath": "/a", "volumeClaim": {} }, { "mountPath": "/b", "volumeClaimName": "c" }]),
    )]);
    let volumes = |first: Value, second: &str| json!([first, { "mountPath": "/b", "volumeClaimName": second }]);
    let fixed = "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`";
    let kept = json!({ "mountPath": "/a", "volumeClaim": {} });
    let named = json!({ "mountPath": "/a", "volumeClaim": {}, "volumeClaimName": "j-pvc-1" });
    let cases = [
        ("/spec/minAvailable", json!(2), None),
        ("/spec/minAvailable", json!(0), None),
        ("/spec/tasks/0/replicas", json!(5), None),
        ("/spec/priorityClassName", json!("high"), None),
        ("/spec/volumes", volumes(named, "c"), None),
        ("/spec/volumes", volumes(kept, "d"), Some(fixed)),
        ("/spec/queue", json!("leaf"), None),
        ("/spec/queue", json!("nowhere"), Some("unable to find job queue")),
        ("/spec/maxRetry", json!(9), None),
        ("/spec/ttlSecondsAfterFinished", json!(9), None),
        ("/spec/activeDeadlineSeconds", json!(9), None),
        ("/spec/suspend", json!(true), None),
        ("/spec/policies", json!([{ "event": "PodFailed", "action": "RestartJob" }]), None),
        ("/spec/policies", json!([{ "event": "Never", "action": "RestartJob" }]), Some("invalid policy event")),
        ("/spec/tasks/0/policies", json!([{ "event": "TaskCompleted", "action": "CompleteJob" }]), None),
        ("/spec/tasks/0/maxRetry", json!(9), None),
        ("/spec/schedulerName", json!("other"), Some(fixed)),
        ("/spec/tasks/0/template/spec/containers/0/image", json!("j"), Some(fixed)),
        ("/spec/tasks/-", task("b"), Some("job updates may not add or remove tasks")),
        ("/spec/minAvailable", json!(3), Some("job 'minAvailable' must not be greater than total replicas")),
        ("/spec/minAvailable", json!(-1), Some("job 'minAvailable' must be >= 0")),
        ("/spec/tasks/0/replicas", json!(-1), Some("'replicas' must be >= 0 in task: a;")),
        ("/spec/tasks/0/minAvailable", json!(-1), Some("'minAvailable' must be >= 0 in task: a;")),
        ("/spec/tasks/0/minAvailable", json!(3), Some("'minAvailable' must be <= 'replicas' in task: a;")),
        ("/spec/networkTopology", json!({ "highestTierAllowed": 1, "highestTierName": "t" }), Some("must not specify")),
        (
            "/spec/tasks/0/partitionPolicy",
            json!({ "totalPartitions": 3, "partitionSize": 1 }),
            Some("'Replicas' are not equal"),
        ),
    ];
    let old: Job = typed(&old);
    for (pointer, value, refusal) in cases {
        let volumes = json!([{ "mountPath": "/a", "volumeClaim": {} }, { "mountPath": "/b", "volumeClaimName": "c" }]);
        let new = with(&[("/spec/volumes", volumes), (pointer, value.clone())]);
        let mut findings = Findings::default();
        job::validate_update(&typed(&new), &old, &cluster(), &mut findings);
        match refusal {
            None => assert_eq!(findings.refusals, Vec::<String>::new(), "{pointer} {value}"),
            Some(fragment) => {
                assert!(
                    findings.refusals.iter().any(|found| found.contains(fragment)),
                    "{pointer} {value}: {findings:?}"
                );
            }
        }
    }
}

#[test]
fn policies_that_have_nothing_to_act_on_warn() {
    let policies = |action: &str, event: Value| json!([{ "action": action, "event": event }]);
    let cases = [
        ("/spec/policies", policies("RestartPod", json!("Unknown")), Some("RestartPod on Unknown")),
        ("/spec/policies", policies("RestartTask", json!("Unknown")), Some("RestartTask on Unknown")),
        ("/spec/tasks/0/policies", policies("RestartTask", json!("JobUpdated")), Some("RestartTask on JobUpdated")),
        (
            "/spec/policies",
            json!([{ "action": "RestartPod", "events": ["PodFailed", "Unknown"] }]),
            Some("RestartPod on Unknown"),
        ),
        ("/spec/policies", policies("RestartJob", json!("Unknown")), None),
        ("/spec/policies", policies("RestartPod", json!("PodFailed")), None),
        ("/spec/policies", policies("RestartPod", json!("*")), None),
    ];
    for (pointer, policies, wanted) in cases {
        let findings = create(&with(&[(pointer, policies.clone())]));
        assert_eq!(findings.refusal(), None, "Volcano admits it");
        assert_eq!(findings.warnings.len(), usize::from(wanted.is_some()), "{policies}: {:?}", findings.warnings);
        assert!(wanted.is_none_or(|wanted| findings.warnings[0].contains(wanted)), "{:?}", findings.warnings);
    }
}

#[test]
fn a_budget_that_its_pods_would_be_refused_for_is_refused() {
    let refusals = |annotations: Value| create(&with(&[("/metadata/annotations", annotations)])).refusals;
    let (least, most) = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable");
    assert_eq!(refusals(json!({ least: "1" })), Vec::<String>::new());
    assert_eq!(refusals(json!({ least: "1", most: "x" })), Vec::<String>::new(), "pods get only the first");
    let wanted = format!("invalid value <\"0\"> for {most}, it must be a positive integer;");
    assert_eq!(refusals(json!({ most: "0" })), [wanted]);
}
