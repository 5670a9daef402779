//! Any object and any configuration at the seam of admission: an answer, never a panic; filling in twice is filling in once;
//! and the machines begin with whatever was admitted.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use libfuzzer_sys::fuzz_target;
use pumice_admission::pod::{self, ResourceGroups};
use pumice_admission::{Rules, VolcanoAdmission};
use pumice_apiserver::{Admission, AdmissionRequest, ObjectReader, Operation};
use pumice_auth::Identity;
use pumice_fuzz::Bytes;
use pumice_fuzz::manifests::{KINDS, object, queues};
use pumice_machines::hyper_nodes::{self, Discovery, NetworkView};
use pumice_machines::job::{Effect, JobView};
use pumice_machines::sharding::Sharding;
use pumice_machines::{cron, job, job_flow};
use serde_json::Value;

struct Queues(Vec<Value>);

impl ObjectReader for Queues {
    fn get(&self, _: &str, _: &str, name: &str) -> Option<Value> {
        self.0.iter().find(|queue| queue["metadata"]["name"] == name).cloned()
    }

    fn list(&self, _: &str, _: Option<&str>) -> Vec<Value> {
        self.0.clone()
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, rest @ ..] = bytes else { return };
    let kind = usize::from(choice & 7);
    match choice >> 3 {
        // An object as text, whole.
        0 | 1 => {
            if let Ok(object) = serde_json::from_slice(rest) {
                judge(kind, object, None);
            }
        }
        2 => {
            if let Ok(text) = str::from_utf8(rest) {
                configure(text);
            }
        }
        // A good object with edits, new or in place of another one.
        changed => {
            let mut bytes = Bytes::new(rest);
            let old = (changed % 2 == 1).then(|| object(&mut bytes, kind));
            judge(kind, object(&mut bytes, kind), old);
        }
    }
});

fn judge(kind: usize, mut new: Value, old: Option<Value>) {
    let admission = VolcanoAdmission::new(Rules::default());
    let (group, resource, namespaced) = KINDS[kind];
    let (identity, queues) = (Identity::new("ann", [] as [&str; 0]), Queues(queues()));
    let request = AdmissionRequest {
        operation: if old.is_some() { Operation::Update } else { Operation::Create },
        identity: &identity,
        group,
        version: "v1",
        resource,
        kind: "",
        subresource: "",
        namespace: if namespaced { "n" } else { "" },
        name: "x",
        old: old.as_ref(),
        dry_run: false,
        objects: &queues,
        tenants: &pumice_apiserver::NoTenants,
        now: now(),
    };
    let before = new.clone();
    let Ok(admitted) = admission.admit(&request, Some(&mut new)) else { return };
    assert!(!admitted.untouched || new == before, "{before} became {new}");
    let mut again = new.clone();
    admission.admit(&request, Some(&mut again)).expect("what was filled in passes again");
    assert_eq!(again, new);
    if admission.validate(&request, Some(&new)).is_ok() {
        begin(resource, &new);
    }
    if let Some(old) = &old {
        let gone = AdmissionRequest { operation: Operation::Delete, old: Some(old), ..request };
        let _ = admission.admit(&gone, None);
    }
}

/// The first look of the machine that will look after an object.
fn begin(resource: &str, object: &Value) {
    match resource {
        "jobs" => {
            let Ok(job) = serde_json::from_value(object.clone()) else { return };
            let view = JobView {
                job: &job,
                pods: &BTreeMap::new(),
                evicted: &[],
                group: None,
                queue_exists: true,
                claims: &BTreeSet::from(["claim".to_owned()]),
                applied: &BTreeMap::new(),
                priorities: &BTreeMap::new(),
                awaited: &BTreeMap::new(),
                network_policies: true,
                profiles: &BTreeMap::new(),
                largest_node: None,
                command: None,
            };
            let plan = job::step(&view, now());
            // Plugins may be doubted, but never keep an admitted job back.
            let has = |wanted: fn(&Effect) -> bool| plan.stages.iter().flatten().any(wanted);
            let is_doubted = has(|effect| matches!(effect, Effect::Record { reason: "PluginError", .. }));
            assert!(!is_doubted || has(|effect| matches!(effect, Effect::CreateGroup(_))), "{object}: {plan:?}");
        }
        "cronjobs" => {
            let Ok(cron) = serde_json::from_value(object.clone()) else { return };
            let cron: pumice_api::batch::CronJob = cron;
            let schedule = cron::Schedule::read(&cron.spec.schedule, TimeZone::UTC);
            cron::step(&cron::CronView { cron: &cron, schedule: schedule.as_ref(), jobs: Vec::new() }, now());
        }
        "jobflows" => {
            let Ok(flow) = serde_json::from_value(object.clone()) else { return };
            let view = job_flow::FlowView { flow: &flow, templates: BTreeMap::new(), jobs: BTreeMap::new() };
            job_flow::step(&view, now());
        }
        "hypernodes" => {
            let Ok(hyper_node) = serde_json::from_value(object.clone()) else { return };
            let nodes = BTreeMap::from([("n1".to_owned(), BTreeMap::from([("a".to_owned(), "b".to_owned())]))]);
            let hyper_nodes = BTreeMap::from([("x".to_owned(), &hyper_node)]);
            let discovery = Discovery::default();
            hyper_nodes::step(&NetworkView { discovery: &discovery, nodes: &nodes, hyper_nodes: &hyper_nodes });
        }
        _ => {}
    }
}

/// Any text as any of the files that an administrator may give.
fn configure(text: &str) {
    let _ = (Discovery::parse(text), Sharding::parse(text), Sharding::of_flags(&[text.to_owned()]));
    let Ok(resource_groups) = ResourceGroups::parse(text) else { return };
    let rules = Rules { resource_groups, ..Rules::default() };
    for namespace in ["n", "default"] {
        let mut pod = object(&mut Bytes::new(&[]), 7);
        pod::mutate(&mut pod, namespace, &rules);
        let once = pod.clone();
        assert!(!pod::mutate(&mut pod, namespace, &rules), "{pod}");
        assert_eq!(pod, once);
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).expect("a time")
}
