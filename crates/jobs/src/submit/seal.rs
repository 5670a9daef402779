//! What a job that is submitted with a key asks for, as a hash; and the name that the key gives it.
//!
//! Invariant: the hash leaves out what is another at each submission (ids of runs, names that are made up, who submitted from
//! where), and nothing else. Pure. Called by `submit` before the job is sent.

use serde_json::{Value, json};

use crate::bundle::{Location, StoreAddress, location};
use crate::job::idempotency::{SPEC, key, name, tag};
use crate::json::text_at;
use crate::render::{is_default, slurm};

/// The Job with the name of its key and the hash of what it asks for, beside what it brings along.
/// One without a key comes back as it is.
pub fn sealed(mut job: Value, belongings: &[Value]) -> Value {
    let Some(key) = key(&job).map(str::to_owned) else { return job };
    let content = json!([without_surroundings(job.clone()), belongings]).to_string();
    if let Some(metadata) = job.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("generateName");
        metadata.insert("name".to_owned(), json!(name(&key)));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.insert(SPEC.to_owned(), json!(tag(&content)));
        }
    }
    job
}

/// The Job without what is another whenever it is submitted: ids of runs and names of ConfigMaps, which are made up, the PATH of a
/// shell, and who submitted from where.
fn without_surroundings(mut job: Value) -> Value {
    let tasks = job.pointer_mut("/spec/tasks").and_then(Value::as_array_mut).into_iter().flatten();
    for pod in tasks.filter_map(|task| task.pointer_mut("/template/spec")?.as_object_mut()) {
        let containers = pod.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten();
        let mut made_up = None;
        for variables in containers.filter_map(without_defaults) {
            variables.retain(|variable| {
                let name = text_at(variable, "/name");
                name != "PATH" && !slurm::SUBMITTER.contains(&name)
            });
            for variable in variables.iter_mut().filter(|variable| variable["name"] == location::VARIABLE) {
                let Ok(Location { address, root, .. }) = text_at(variable, "/value").parse() else { continue };
                variable["value"] = match address {
                    StoreAddress::Folder(_) => Location { address, root, run: None }.to_string().into(),
                    StoreAddress::ConfigMaps { name, .. } => {
                        made_up = Some(name);
                        root.to_string().into()
                    }
                };
            }
        }
        // The service account has the bundle's name.
        if made_up.is_some_and(|name| pod.get("serviceAccountName") == Some(&json!(name))) {
            pod.remove("serviceAccountName");
        }
    }
    job
}

/// The variables of a container but for what every pod has. Without any there are none, as before there was a default.
fn without_defaults(container: &mut Value) -> Option<&mut Vec<Value>> {
    let variables = container.get_mut("env")?.as_array_mut()?;
    variables.retain(|variable| !is_default(variable));
    if variables.is_empty() {
        container.as_object_mut()?.remove("env");
        return None;
    }
    container.get_mut("env")?.as_array_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::idempotency::{KEY, check, is_same};
    use crate::names;

    fn job(key: &str, replicas: u32) -> Value {
        let metadata = json!({"generateName": "x-", "annotations": {KEY: key}});
        sealed(json!({"metadata": metadata, "spec": {"tasks": [{"replicas": replicas}]}}), &[])
    }

    #[test]
    fn the_key_names_the_job_and_the_hash_tells_jobs_apart() {
        let (one, again, other) =
            (job("nightly 2024-01-02", 1), job("nightly 2024-01-02", 1), job("nightly 2024-01-02", 2));
        assert_eq!(one, again);
        assert_eq!(text_at(&one, "/metadata/name"), "key-nightly-2024-01-02-1fa278645c78be47");
        assert_eq!(text_at(&one, "/metadata/name"), text_at(&other, "/metadata/name"));
        assert!(is_same(&one, &again) && !is_same(&one, &other));
        assert_ne!(text_at(&one, "/metadata/name"), text_at(&job("weekly", 1), "/metadata/name"));
        let bare = json!({"metadata": {"name": "key-x"}});
        assert!(!is_same(&one, &bare), "a job of that name by hand is another");
        assert_eq!(sealed(bare.clone(), &[]), bare);
    }

    #[test]
    fn every_key_gives_a_name_of_a_job() {
        let long = "é".repeat(64);
        for key in ["a", "7", "///", "A b C", &long] {
            assert_eq!(check(key), Ok(()));
            let name = name(key);
            assert!(names::check("job name", &name, crate::render::NAME_MAX).is_ok(), "{name}");
        }
        for bad in ["", "a\n", &"x".repeat(129)] {
            assert!(check(bad).is_err());
        }
    }

    #[test]
    fn a_run_is_no_part_of_what_is_asked_for() {
        let asked = |root: &[u8], run: &str| {
            let bundle = format!("folder:/b#{}/{run}", crate::bundle::ChunkId::of(root));
            let container =
                json!({"env": [{"name": "A", "value": run.len()}, {"name": "PUMICE_BUNDLE", "value": bundle}]});
            let task = json!({"template": {"spec": {"containers": [container]}}});
            sealed(json!({"metadata": {"annotations": {KEY: "k"}}, "spec": {"tasks": [task]}}), &[])
        };
        let one = asked(b"x", "aa");
        assert!(is_same(&one, &asked(b"x", "bb")) && !is_same(&one, &asked(b"y", "aa")));
        let env = "/spec/tasks/0/template/spec/containers/0/env/1/value";
        assert!(text_at(&one, env).ends_with("/aa"), "the job keeps its run: {one}");
    }

    #[test]
    fn what_every_pod_has_and_who_submitted_from_where_is_not_asked_for() {
        let asked = |variables: &[(&str, &str)]| {
            let env: Vec<_> = variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
            let mut container = json!({"command": ["x"]});
            if !env.is_empty() {
                container["env"] = env.into();
            }
            let task = json!({"template": {"spec": {"containers": [container]}}});
            sealed(json!({"metadata": {"annotations": {KEY: "k"}}, "spec": {"tasks": [task]}}), &[])
        };
        let bare = asked(&[]);
        assert!(is_same(&bare, &asked(&[("PYTHONUNBUFFERED", "1")])), "jobs of before there was this are the same");
        assert!(!is_same(&bare, &asked(&[("PYTHONUNBUFFERED", "0")])));
        let from = |host, user| asked(&[("A", "1"), ("SLURM_SUBMIT_HOST", host), ("SLURM_JOB_USER", user)]);
        assert!(is_same(&from("login1", "ada"), &from("login2", "bob")));
        assert!(!is_same(&from("login1", "ada"), &asked(&[("A", "2")])));
    }

    #[test]
    fn a_bundle_in_config_maps_is_known_by_its_root() {
        let asked = |root: &[u8], name: &str, account: &str| {
            let bundle = format!("objects:n/{name}#{}/r-{name}", crate::bundle::ChunkId::of(root));
            let container = json!({"env": [{"name": "PUMICE_BUNDLE", "value": bundle}]});
            let pod = json!({"serviceAccountName": account, "containers": [container]});
            let spec = json!({"tasks": [{"template": {"spec": pod}}]});
            sealed(json!({"metadata": {"annotations": {KEY: "k"}}, "spec": spec}), &[])
        };
        let one = asked(b"x", "b-1", "b-1");
        assert!(is_same(&one, &asked(b"x", "b-2", "b-2")) && !is_same(&one, &asked(b"y", "b-1", "b-1")));
        assert!(!is_same(&one, &asked(b"x", "b-1", "own")), "an account that somebody chose counts");
        assert_eq!(text_at(&one, "/spec/tasks/0/template/spec/serviceAccountName"), "b-1");
    }

    #[test]
    fn what_travels_along_counts() {
        let asked = |script: &str| {
            sealed(json!({"metadata": {"annotations": {KEY: "k"}}}), &[json!({"data": {"a.sh": script}})])
        };
        assert!(is_same(&asked("x"), &asked("x")) && !is_same(&asked("x"), &asked("y")));
    }
}
