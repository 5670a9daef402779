//! What programs in Rust do with kube.

use std::error::Error;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Discovery};
use kube_runtime::{WatchStreamExt, reflector, watcher};
use serde_json::{Value, json};

use super::{Column, Verdict};
use crate::operators::Server;

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

type Outcome = Result<(), Box<dyn Error>>;

/// Tries kube, in the namespace of a kubeconfig.
///
/// # Panics
/// When a behaviour fails.
pub fn kube_rs(server: Server, kubeconfig: &Path) -> Column {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let verdicts = runtime.block_on(async {
        let client = client(kubeconfig).await.expect("a client");
        vec![
            tried("create, replace, patch, list by label, delete", objects(&client)).await,
            tried("a conflict is told", conflict(&client)).await,
            tried("server-side apply", apply(&client)).await,
            tried("a reflector holds what is there", reflects(&client)).await,
            tried("discovery, and a Volcano Job as a dynamic object", dynamic(&client)).await,
        ]
    });
    Column::new("kube (Rust)", &["5"], "5", server, verdicts)
}

async fn client(kubeconfig: &Path) -> Result<Client, Box<dyn Error>> {
    let read = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn tried(name: &str, work: impl Future<Output = Outcome>) -> Verdict {
    let ended = tokio::time::timeout(PATIENCE, work).await;
    let outcome = ended.unwrap_or_else(|_| Err("it does not end".into()));
    outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    Verdict { name: name.to_owned(), wrong: None }
}

/// An error in words where something is not as wanted.
fn check(holds: bool, what: impl ToString) -> Outcome {
    if holds { Ok(()) } else { Err(what.to_string().into()) }
}

fn map(name: &str, suite: &str) -> Result<ConfigMap, serde_json::Error> {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"suite": suite}}, "data": {"a": "1"}}))
}

async fn objects(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut made = maps.create(&PostParams::default(), &map("one", "objects")?).await?;
    made.data.get_or_insert_default().insert("b".into(), "2".into());
    maps.replace("one", &PostParams::default(), &made).await?;
    let patched = maps.patch("one", &PatchParams::default(), &Patch::Merge(json!({"data": {"a": null}}))).await?;
    check(patched.data.is_some_and(|data| data.len() == 1), "the merge patch took one key")?;
    let listed = maps.list(&ListParams::default().labels("suite=objects")).await?;
    check(listed.items.len() == 1, "one is listed")?;
    maps.delete("one", &DeleteParams::default()).await?;
    check(maps.get_opt("one").await?.is_none(), "it is gone")
}

async fn conflict(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let stale = maps.create(&PostParams::default(), &map("stale", "conflict")?).await?;
    maps.patch("stale", &PatchParams::default(), &Patch::Merge(json!({"data": {"b": "2"}}))).await?;
    match maps.replace("stale", &PostParams::default(), &stale).await {
        Err(kube::Error::Api(status)) => check(status.code == 409, status),
        other => check(false, format!("{other:?}")),
    }
}

async fn apply(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let wanted = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"k": value}});
    let as_manager = PatchParams::apply;
    maps.patch("applied", &as_manager("one"), &Patch::Apply(wanted("1"))).await?;
    let refused = maps.patch("applied", &as_manager("two"), &Patch::Apply(wanted("2"))).await;
    check(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 409), format!("{refused:?}"))?;
    let forced = maps.patch("applied", &as_manager("two").force(), &Patch::Apply(wanted("2"))).await?;
    check(forced.data.is_some_and(|data| data.get("k").is_some_and(|value| value == "2")), "what was forced stands")
}

async fn reflects(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let (store, writer) = reflector::store();
    let events = watcher(maps.clone(), watcher::Config::default().labels("suite=reflected"));
    let follow = reflector(writer, events).default_backoff().try_for_each(async |_| Ok(()));
    let steps = async {
        maps.create(&PostParams::default(), &map("seen", "reflected")?).await?;
        until(|| store.len() == 1).await;
        maps.delete("seen", &DeleteParams::default()).await?;
        until(|| store.is_empty()).await;
        Ok(())
    };
    tokio::select! {
        ended = follow => Err(format!("the watch has ended: {ended:?}").into()),
        outcome = steps => outcome,
    }
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(PAUSE).await;
    }
}

async fn dynamic(client: &Client) -> Outcome {
    let discovery = Discovery::new(client.clone()).filter(&["batch.volcano.sh"]).run().await?;
    let group = discovery.get("batch.volcano.sh").ok_or("no group of Volcano's")?;
    let (resource, _): (ApiResource, _) = group.recommended_kind("Job").ok_or("no Job")?;
    let jobs: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let pod = json!({"restartPolicy": "Never", "nodeSelector": {"nowhere": "at-all"}, "containers": [{"name": "main", "image": "none"}]});
    let spec: Value = json!({"spec": {"schedulerName": "volcano", "minAvailable": 1,
        "tasks": [{"name": "w", "replicas": 1, "template": {"spec": pod}}]}});
    let made = jobs.create(&PostParams::default(), &DynamicObject::new("j", &resource).data(spec)).await?;
    check(made.data["spec"]["queue"] == "default", "defaults are filled in")?;
    jobs.delete("j", &DeleteParams::default()).await?;
    Ok(())
}
