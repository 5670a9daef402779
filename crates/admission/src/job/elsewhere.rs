//! Jobs that are to be made in some cluster later, and are judged before anybody knows in which.
//!
//! The rules are those of a new Job, but for its queue: there is one, and it is open.

use pumice_objects::schema::{Schema, SchemaError};
use serde_json::{Map, Value, json};

use super::later;
use crate::Rules;

/// Most unknown fields that are named.
const UNKNOWN_MAX: usize = 5;

/// Judges Jobs that are made elsewhere.
#[derive(Debug)]
pub struct Elsewhere {
    spec: Schema,
}

impl Elsewhere {
    /// Knows the fields that a Job has.
    ///
    /// # Errors
    /// Where the definition of Jobs that is built in is none.
    pub fn new() -> Result<Self, SchemaError> {
        let all = pumice_api::crds::all();
        let job = all.iter().find(|definition| definition["metadata"]["name"] == "jobs.batch.volcano.sh");
        let spec = job.and_then(|job| job.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec"));
        Ok(Self { spec: Schema::from_openapi(spec.unwrap_or(&Value::Null), &Map::new())? })
    }

    /// Fills a Job in that gets `name` where it is made, and judges it.
    ///
    /// # Errors
    /// What is wrong with it, in the words of a cluster's admission.
    pub fn judge(&self, job: &mut Value, name: &str) -> Result<(), String> {
        // A cluster would drop them, and nobody would know.
        let unknown = self.spec.unknown_fields(&job["spec"]);
        if !unknown.is_empty() {
            let named: Vec<String> = unknown.iter().take(UNKNOWN_MAX).map(|field| format!("spec.{field}")).collect();
            return Err(format!("there is no field {}: is it misspelt?", named.join(", ")));
        }
        fill_and_judge(job, name)
    }
}

fn fill_and_judge(job: &mut Value, name: &str) -> Result<(), String> {
    let said = job.pointer("/spec/schedulerName").cloned();
    let mut filled = job.clone();
    filled["metadata"]["name"] = json!(name);
    let findings =
        later::fill_and_judge(&mut filled, &Rules::default()).map_err(|error| format!("it is no Job: {error}"))?;
    if let Some(refusal) = findings.refusal() {
        return Err(refusal);
    }
    // Which scheduler a Job gets that names none, and which name, is for its cluster to say.
    job["spec"] = filled["spec"].take();
    if let Some(spec) = job["spec"].as_object_mut() {
        match said {
            Some(said) => spec.insert("schedulerName".to_owned(), said),
            None => spec.remove("schedulerName"),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "armada-00000000000000000000000000-99";

    fn job(change: impl FnOnce(&mut Value)) -> Value {
        let mut job = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "train"},
            "spec": {"plugins": {"pytorch": ["--master=master", "--worker=worker"]}, "tasks": [
                {"name": "master", "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
                {"replicas": 2, "name": "worker",
                    "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}]},
        });
        change(&mut job);
        job
    }

    #[test]
    fn what_is_left_out_is_filled_in_and_the_clusters_own_is_left_to_it() {
        let mut asked = job(|_| {});
        let elsewhere = Elsewhere::new().unwrap();
        elsewhere.judge(&mut asked, NAME).unwrap();
        let spec = &asked["spec"];
        assert_eq!((&spec["minAvailable"], &spec["tasks"][1]["minAvailable"]), (&json!(3), &json!(2)));
        assert_eq!((&spec["plugins"]["svc"], &asked["metadata"]["name"]), (&json!([]), &json!("train")));
        assert_eq!(spec.get("schedulerName"), None);
        let mut named = job(|job| job["spec"]["schedulerName"] = json!("mine"));
        elsewhere.judge(&mut named, NAME).unwrap();
        assert_eq!(named["spec"]["schedulerName"], json!("mine"));
    }

    #[test]
    fn what_no_cluster_takes_is_refused_in_its_words() {
        let elsewhere = Elsewhere::new().unwrap();
        for (job, said) in [
            (
                job(|job| job["spec"]["tasks"][0]["replica"] = json!(1)),
                "no field spec.tasks[0].replica: is it misspelt?",
            ),
            (job(|job| job["spec"]["tasks"] = json!([])), "No task specified in job spec"),
            (job(|job| job["spec"]["plugins"] = json!({"nonsense": []})), "unable to find job plugin: nonsense"),
            (job(|job| job["spec"]["minAvailable"] = json!(4)), "should not be greater than total replicas"),
            (job(|job| job["spec"]["tasks"][1]["name"] = json!("master")), "duplicated task name master"),
            (
                job(|job| {
                    job["spec"]["tasks"][0]["dependsOn"] = json!({"name": ["worker"]});
                    job["spec"]["tasks"][1]["dependsOn"] = json!({"name": ["master"]});
                }),
                "doesn't form a directed acyclic graph",
            ),
            (job(|job| job["spec"]["tasks"][0]["name"] = json!("m".repeat(40))), "must be no more than 63"),
            (job(|job| job["spec"] = json!("x")), "it is no Job"),
            (job(|job| job["spec"]["tasks"][0]["replicas"] = json!("x")), "it is no Job"),
        ] {
            let refusal = elsewhere.judge(&mut job.clone(), NAME).unwrap_err();
            assert!(refusal.contains(said), "{refusal} is not {said}");
        }
    }
}
