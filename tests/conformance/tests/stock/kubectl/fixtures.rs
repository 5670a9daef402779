//! Manifests that people have, sent as they are.

use std::path::{Path, PathBuf};

use super::*;

/// File name and what kubectl says of it, as with Volcano.
const REFUSED: &[(&str, &str)] = &[
    ("example__invalid_jobs__duplicatedTaskName-webhook-deny.yaml", "duplicated task name task-1"),
    ("example__invalid_jobs__minAvailable-webhook-deny.yaml", "job 'minAvailable' should not be greater than total"),
    ("example__kubecon-2019-china__task-priority__elastic-job.yaml", "strict decoding error: unknown field"),
    ("docs__design__node-group__1.yaml", "strict decoding error: unknown field \"metadata.spec\""),
];

/// What may stand in the way of any other: kinds that are not served, and objects that other manifests make.
const EXCUSES: &[&str] = &[
    "no matches for kind",
    "unable to find job queue",
    "failed to get parent queue",
    "namespaces \"volcano-system\" not found",
    "namespaces \"argo\" not found",
    "already exists",
];
/// How many manifests are taken as they are, at least.
const TAKEN_MIN: usize = 27;

#[tokio::test(flavor = "multi_thread")]
async fn published_manifests_are_taken_or_refused_in_words() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    #[allow(clippy::disallowed_methods)] // whether fixtures may be missing is the caller's choice
    if !root.is_dir() {
        assert!(std::env::var("CI").is_err(), "{} is missing although CI is set", root.display());
        eprintln!("left out: {} is not here", root.display());
        return;
    }
    let cluster = Cluster::start().await;
    let kubectl = Kubectl(&cluster);
    cluster.wire.post(QUEUES, &queue("default")).await.is(201);
    let (mut taken, mut surprises) = (0, Vec::new());
    for file in manifests(&root) {
        let name = file.file_name().expect("a file").to_string_lossy().into_owned();
        // Dry, because several manifests share names.
        let said = kubectl.run(&format!("create --dry-run=server -f {}", file.display())).await;
        taken += usize::from(said.code == 0);
        let as_wanted = match REFUSED.iter().find(|(refused, _)| *refused == name) {
            Some((_, why)) => said.code != 0 && said.err.contains(why),
            None => said.code == 0 || EXCUSES.iter().any(|excuse| said.err.contains(excuse)),
        };
        if !as_wanted {
            surprises.push(format!("{name}: {}{}", said.out, said.err));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
    assert!(taken >= TAKEN_MIN, "only {taken} were taken");
}

fn manifests(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["articles", "volcano/examples"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("folder");
        files.extend(entries.map(|entry| entry.expect("entry").path()));
    }
    files.retain(|file| file.extension().is_some_and(|end| end == "yaml"));
    files.sort();
    assert!(files.len() > 40, "{files:?}");
    files
}
