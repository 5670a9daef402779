//! Manifests people have: Volcano's examples and those of the articles.

use std::path::{Path, PathBuf};

use super::cluster::{Cluster, typed};
use pumice_admission::{Findings, Rules, View as _, job, pod_group, queue};
use pumice_api::scheduling::QueueState;
use serde_json::{Value, json};

/// Examples that are refused on purpose, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("example__invalid_jobs__duplicatedTaskName-webhook-deny.yaml", "duplicated task name task-1;"),
    (
        "example__invalid_jobs__minAvailable-webhook-deny.yaml",
        "job 'minAvailable' should not be greater than total replicas in tasks;",
    ),
];

/// Files of a folder of fixtures; none where they are absent.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures").join(folder);
    if !folder.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "fixtures are missing at {}", folder.display());
        return Vec::new();
    }
    let entries = std::fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect();
    files.sort();
    files
}

/// The documents of a file that are of this kind of Volcano's.
fn documents(path: &Path, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("fixture");
    let documents: Vec<Value> = serde_saphyr::from_str_multiple(&text).expect("YAML");
    let is_ours =
        |document: &Value| document["apiVersion"].as_str().is_some_and(|version| version.contains(".volcano.sh/"));
    documents.into_iter().filter(|document| document["kind"] == kind && is_ours(document)).collect()
}

/// Findings about a new job whose queue exists.
fn submit(mut job: Value) -> Findings {
    job::mutate(&mut job, &Rules::default());
    let mut cluster = Cluster::default();
    cluster.queues.push(typed(&json!({ "metadata": { "name": job["spec"]["queue"] } })));
    cluster.queues[0].status.state = Some(QueueState::Open);
    let mut findings = Findings::default();
    job::validate_create(&typed(&job), &cluster, &Rules::default(), &mut findings);
    findings
}

#[test]
fn volcanos_examples_are_admitted_but_for_the_bad_ones() {
    let files = files("volcano/examples");
    let mut judged = 0;
    for path in &files {
        let name = path.file_name().and_then(|name| name.to_str()).expect("name").to_owned();
        let refused = REFUSED.iter().find(|(file, _)| *file == name);
        for job in documents(path, "Job") {
            let findings = submit(job);
            match refused {
                None => assert_eq!(findings.refusals, Vec::<String>::new(), "{name}"),
                Some((_, reason)) => assert_eq!(findings.refusals, [*reason], "{name}"),
            }
            judged += 1;
        }
    }
    assert!(files.is_empty() || judged >= 20, "only {judged} jobs were found");
}

#[test]
fn the_articles_are_admitted() {
    for path in files("articles") {
        for job in documents(&path, "Job") {
            assert_eq!(submit(job).refusals, Vec::<String>::new(), "{}", path.display());
        }
        let cluster =
            Cluster { queues: vec![typed(&json!({ "metadata": { "name": "default" } }))], ..Cluster::default() };
        for new in documents(&path, "Queue") {
            let mut findings = Findings::default();
            let old = cluster.queue("default");
            queue::validate(&typed(&new), old.as_ref(), &cluster, &Rules::default(), &mut findings);
            assert_eq!(findings.refusals, Vec::<String>::new(), "{}", path.display());
        }
        for group in documents(&path, "PodGroup") {
            let mut findings = Findings::default();
            pod_group::validate(&typed(&group), &cluster, &mut findings);
            assert_eq!(findings.refusals, Vec::<String>::new(), "{}", path.display());
        }
    }
}
