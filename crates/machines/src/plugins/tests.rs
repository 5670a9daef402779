//! Plugins against pods: what several plugins' tests share, and what concerns all of them.

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::Job;
use pumice_api::names;
use serde_json::{Value, json};

use super::{KNOWN, Plugin, PodPlace, of_job, task};

/// A job `j` of this spec; tasks without a template get two containers and an init container.
pub(super) fn job(spec: &str) -> Job {
    let mut spec: Value = serde_json::from_str(spec).unwrap();
    for task in spec["tasks"].as_array_mut().unwrap() {
        let template = task.as_object_mut().unwrap().entry("template");
        template.or_insert_with(
            || json!({"spec": {"containers": [{"name": "c"}, {"name": "d"}], "initContainers": [{"name": "i"}]}}),
        );
    }
    serde_json::from_value(json!({"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": spec})).unwrap()
}

/// The pod of a task at an index after a single plugin with these arguments.
pub(super) fn shaped(job: &Job, plugin: &str, arguments: &[&str], task: &str, index: i32) -> (ObjectMeta, PodSpec) {
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    let plugin = Plugin::read(job, plugin, &arguments).unwrap();
    shape_all(job, &[plugin], task, index)
}

pub(super) fn shape_all(job: &Job, plugins: &[Plugin], task_name: &str, index: i32) -> (ObjectMeta, PodSpec) {
    let task = task(job, task_name).unwrap();
    let mut metadata = task.template.metadata.clone().unwrap_or_default();
    let mut pod = task.template.spec.clone().unwrap();
    let pod_name = names::pod_name("j", task_name, index);
    let place = PodPlace { job, task, pod_name: &pod_name, index, attempt: 1 };
    for plugin in plugins {
        plugin.shape_pod(&place, &mut metadata, &mut pod);
    }
    (metadata, pod)
}

pub(super) fn env(container: &Container) -> Vec<(&str, &str)> {
    let all = container.env.iter().flatten();
    all.map(|variable| (variable.name.as_str(), variable.value.as_deref().unwrap_or_default())).collect()
}

pub(super) fn ports(container: &Container) -> Vec<(&str, i32)> {
    let all = container.ports.iter().flatten();
    all.map(|port| (port.name.as_deref().unwrap_or_default(), port.container_port)).collect()
}

#[test]
fn plugins_are_read_in_one_order_whatever_the_manifest_says() {
    let all = KNOWN.iter().map(|name| format!("\"{name}\": []")).collect::<Vec<_>>().join(", ");
    let job = job(&format!(r#"{{"plugins": {{{all}}}, "tasks": [{{"name": "head"}}]}}"#));
    let names: Vec<&str> = of_job(&job).unwrap().iter().map(Plugin::name).collect();
    assert_eq!(names, KNOWN);
}

#[test]
fn a_plugin_nobody_knows_is_an_error() {
    let job = job(r#"{"plugins": {"svc": [], "spark": []}, "tasks": []}"#);
    let known = "known are env, svc, ssh, tensorflow, pytorch, mpi, ray, hcclrank";
    assert_eq!(of_job(&job).unwrap_err().to_string(), format!("job plugin \"spark\" is unknown; {known}"));
}

#[test]
fn arguments_that_nobody_reads_are_told() {
    for (plugins, doubts) in [
        (
            r#"{"svc": ["--disable-network-policy", "--enable-networking"]}"#,
            vec!["svc does not understand argument \"--enable-networking\""],
        ),
        (r#"{"env": ["x"]}"#, vec!["env does not understand argument \"x\""]),
        (r#"{"ssh": ["--ssh-public-key=k"]}"#, vec!["ssh needs both"]),
        (r#"{"ssh": ["--ssh-public-key=k", "--ssh-private-key=p"]}"#, vec![]),
        (r#"{"hcclrank": ["--worker=w"]}"#, vec![]),
        (r#"{"hcclrank": []}"#, vec!["hcclrank finds neither task"]),
    ] {
        let job = job(&format!(r#"{{"plugins": {plugins}, "tasks": [{{"name": "w", "replicas": 1}}]}}"#));
        let told: Vec<String> = of_job(&job).unwrap().iter().flat_map(|plugin| plugin.doubts(&job)).collect();
        assert_eq!(told.len(), doubts.len(), "{plugins}: {told:?}");
        assert!(told.iter().zip(&doubts).all(|(told, doubt)| told.contains(doubt)), "{told:?}");
    }
}

#[test]
fn addresses_are_written_out_up_to_a_bound() {
    let long = "n".repeat(60);
    let cases = [
        (r#"{"svc": []}"#, "w", 2_000, None),
        (
            r#"{"svc": []}"#,
            "w",
            2_001,
            Some("job plugin svc writes out the addresses of all pods, of 2000 at most, and the job has 2001"),
        ),
        (r#"{"tensorflow": []}"#, "w", 2_001, Some("job plugin tensorflow")),
        (r#"{"mpi": []}"#, "w", 2_001, Some("job plugin mpi")),
        (r#"{"ssh": [], "env": [], "pytorch": [], "hcclrank": []}"#, "w", 100_000, None),
        (r#"{"svc": []}"#, long.as_str(), 2_000, Some("_HOSTS would have")),
        (r#"{"svc": ["--inject-hosts-env=false"]}"#, long.as_str(), 2_000, None),
        (r#"{"tensorflow": []}"#, long.as_str(), 2_000, None),
        (r#"{"tensorflow": ["--worker=W"]}"#, long.as_str(), 2_000, Some("variable TF_CONFIG would have")),
        (r#"{"mpi": ["--worker=W"]}"#, long.as_str(), 2_000, Some("variable MPI_HOST would have")),
    ];
    for (plugins, name, replicas, reason) in cases {
        let plugins = plugins.replace('W', name);
        let job = job(&format!(
            r#"{{"plugins": {plugins}, "tasks": [{{"name": "x", "replicas": 0}}, {{"name": "{name}", "replicas": {replicas}}}]}}"#
        ));
        let told = of_job(&job).err().map(|error| error.to_string());
        assert_eq!(told.is_some(), reason.is_some(), "{plugins}: {told:?}");
        assert!(told.zip(reason).is_none_or(|(told, reason)| told.contains(reason)), "{plugins}");
    }
}

/// The ssh config of a job of these tasks.
fn ssh_config(tasks: &str, arguments: &[&str]) -> String {
    let job = job(&format!(r#"{{"tasks": {tasks}}}"#));
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    super::ssh::secret_plan(&job, &super::ssh::Arguments::parse(&arguments)).config
}

const SSH_START: &str = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n";

#[test]
fn the_ssh_config_of_a_small_job_names_every_pod() {
    let tasks = r#"[{"name": "a", "replicas": 2}, {"name": "b", "replicas": 5,
        "template": {"spec": {"hostname": "h", "subdomain": "d", "containers": []}}}]"#;
    let entries = |port: u16| {
        let entry = |host: &str, domain: &str| format!("Host {host}\n  HostName {host}.{domain}\n  Port {port}\n");
        [SSH_START.to_owned(), entry("j-a-0", "j"), entry("j-a-1", "j"), entry("h", "d")].concat()
    };
    assert_eq!(ssh_config(tasks, &[]), entries(22));
    assert_eq!(ssh_config(tasks, &["--ssh-port=0"]), entries(22));
    let whole_addresses = "Host *.d\n  Port 2222\nHost *.j\n  Port 2222\n";
    assert_eq!(ssh_config(tasks, &["--ssh-port=2222"]), entries(2222) + whole_addresses);
}

#[test]
fn the_ssh_config_of_a_big_job_has_patterns() {
    let tasks = r#"[{"name": "a", "replicas": 90000}, {"name": "a-b", "replicas": 1,
        "template": {"spec": {"subdomain": "d", "containers": []}}}, {"name": "b", "replicas": 5,
        "template": {"spec": {"hostname": "h", "containers": []}}}]"#;
    let expected = "Host h\n  HostName h.j\n  Port 22\n\
        Host j-a-b-* !*.*\n  HostName %h.d\n  Port 22\n\
        Host j-a-* !*.*\n  HostName %h.j\n  Port 22\n";
    assert_eq!(ssh_config(tasks, &[]), format!("{SSH_START}{expected}"));
}
