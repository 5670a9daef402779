//! Commands that delete.

use super::*;
use crate::wire::{MAPS, owned_by};

#[tokio::test(flavor = "multi_thread")]
async fn delete_waits_for_the_end() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    cluster.wire.post(PODS, &pod("unbound")).await.is(201);
    for (line, wanted) in [
        ("delete pod unbound", "pod \"unbound\" deleted"),
        ("delete cm/a --wait", "configmap \"a\" deleted"),
        ("delete vcjob j", "job.batch.volcano.sh \"j\" deleted"),
        ("delete pod p --force --grace-period=0", "pod \"p\" force deleted"),
        ("delete node n", "node \"n\" deleted"),
        ("delete cm none --ignore-not-found", ""),
        ("delete pods --all", "No resources found"),
    ] {
        let out = kubectl.ok(line).await;
        assert!(out.starts_with(wanted), "{line}: {out}");
    }
    let missing = kubectl.run("delete pod p").await.fails("delete");
    assert!(missing.contains("Error from server (NotFound): pods \"p\" not found"), "{missing}");
    for name in ["x", "y"] {
        let mut object = map(name);
        object["metadata"]["labels"] = json!({"l": "1"});
        cluster.wire.post(MAPS, &object).await.is(201);
    }
    assert_eq!(kubectl.ok("delete cm -l l=1").await.lines().count(), 2);
    let manifest = kubectl.fed("create -f -", &map("z").to_string()).await.ok("create");
    assert_eq!(manifest, "configmap/z created\n");
    kubectl.fed("delete -f -", &map("z").to_string()).await.ok("delete -f");
    cluster.wire.get(&format!("{MAPS}/z")).await.is(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_follow_the_cascade() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    let wire = &cluster.wire;
    for (cascade, kept) in [("background", false), ("foreground", false), ("orphan", true)] {
        let owner = wire.post(JOBS, &job(cascade)).await.is(201).body;
        let child = format!("{MAPS}/{cascade}");
        wire.post(MAPS, &owned_by(map(cascade), &owner, true)).await.is(201);
        kubectl.ok(&format!("delete vcjob {cascade} --cascade={cascade}")).await;
        wire.get(&format!("{JOBS}/{cascade}")).await.is(404);
        match (cascade, kept) {
            (_, true) => assert!(wire.get(&child).await.is(200).body["metadata"].get("ownerReferences").is_none()),
            ("foreground", _) => drop(wire.get(&child).await.is(404)),
            _ => wire.until_gone(&child).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_goes_with_all_it_holds() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    cluster.wire.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.is(201);
    for (collection, object) in [(MAPS, map("m")), (JOBS, job("j")), (PODS, pod("p"))] {
        cluster.wire.post(&collection.replace("/default/", "/team/"), &object).await.is(201);
    }
    assert_eq!(kubectl.ok("delete ns team").await, "namespace \"team\" deleted\n");
    assert_eq!(kubectl.ok("get cm,vcjob,pods -n team -o name").await, "");
    let refused = kubectl.run("delete ns default").await.fails("delete");
    assert!(refused.contains("Forbidden"), "{refused}");
}
