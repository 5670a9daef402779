//! kube-rs over TLS: watchers, reflectors, optimistic concurrency.

use std::collections::{BTreeMap, BTreeSet};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube_runtime::watcher::{self, Event};
use kube_runtime::{WatchStreamExt, reflector};
use pumice_api::batch::Job;
use pumice_store::Options;
use serde_json::json;

use crate::cluster::{Cluster, PATIENCE};
use crate::wire::{QUEUES, job, queue};

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("count".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

fn strategies() -> [watcher::Config; 3] {
    [watcher::Config::default(), watcher::Config::default().streaming_lists(), watcher::Config::default().page_size(2)]
}

async fn next<T>(stream: &mut (impl Stream<Item = Result<T, watcher::Error>> + Unpin)) -> T {
    tokio::time::timeout(PATIENCE, stream.next()).await.expect("an event").expect("no end").expect("no error")
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_list_and_follow_either_way() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.wire.client.clone(), "default");
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &config_map(name, "0")).await.expect("create");
    }
    for (round, config) in strategies().into_iter().enumerate() {
        let mut events = Box::pin(watcher(maps.clone(), config));
        assert!(matches!(next(&mut events).await, Event::Init));
        let mut listed = BTreeSet::new();
        loop {
            match next(&mut events).await {
                Event::InitApply(object) => listed.insert(object.name_any()),
                Event::InitDone => break,
                other => panic!("{other:?}"),
            };
        }
        assert_eq!(listed.into_iter().collect::<Vec<_>>(), ["a", "b", "c"], "{round}");
        let changed = config_map("a", &format!("r{round}"));
        maps.patch("a", &PatchParams::default(), &Patch::Merge(&changed)).await.expect("patch");
        maps.create(&PostParams::default(), &config_map("d", "0")).await.expect("create");
        maps.delete("d", &DeleteParams::default()).await.expect("delete");
        assert!(matches!(next(&mut events).await, Event::Apply(object) if object.name_any() == "a"));
        assert!(matches!(next(&mut events).await, Event::Apply(object) if object.name_any() == "d"));
        assert!(matches!(next(&mut events).await, Event::Delete(object) if object.name_any() == "d"));
    }
}

fn watcher(
    maps: Api<ConfigMap>,
    config: watcher::Config,
) -> impl Stream<Item = Result<Event<ConfigMap>, watcher::Error>> {
    kube_runtime::watcher(maps, config)
}

#[tokio::test(flavor = "multi_thread")]
async fn reflectors_end_up_with_what_is_stored() {
    // A window this small makes watches fall behind and start over.
    for options in [Options::default(), Options { window_events_max: 16, ..Options::default() }] {
        let cluster = Cluster::over(options).await;
        let maps: Api<ConfigMap> = Api::namespaced(cluster.wire.client.clone(), "default");
        let mut caches = Vec::new();
        let mut tasks = tokio::task::JoinSet::new();
        for config in strategies() {
            let (cache, writer) = reflector::store();
            let stream = reflector(writer, watcher(maps.clone(), config).default_backoff());
            tasks.spawn(async move { stream.for_each(|_| async {}).await });
            caches.push(cache);
        }
        let writers = (0..8).map(|writer| {
            let maps = maps.clone();
            async move {
                for step in 0..12 {
                    let name = format!("m{writer}-{}", step % 3);
                    match step % 4 {
                        0 | 1 => {
                            let _ = maps.create(&PostParams::default(), &config_map(&name, &step.to_string())).await;
                        }
                        2 => {
                            let patch = Patch::Merge(json!({"data": {"count": step.to_string()}}));
                            let _ = maps.patch(&name, &PatchParams::default(), &patch).await;
                        }
                        _ => drop(maps.delete(&name, &DeleteParams::default()).await),
                    }
                }
            }
        });
        futures::future::join_all(writers).await;
        maps.create(&PostParams::default(), &config_map("last", "0")).await.expect("create");
        let wanted = state(maps.list(&ListParams::default()).await.expect("list").items.iter());
        for cache in caches {
            let settled = async {
                while state(cache.state().iter().map(AsRef::as_ref)) != wanted {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(PATIENCE, settled).await.expect("the cache becomes what is stored");
        }
    }
}

fn state<'a>(objects: impl Iterator<Item = &'a ConfigMap>) -> BTreeMap<String, Option<String>> {
    objects.map(|object| (object.name_any(), object.resource_version())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_with_retries_is_exact() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.wire.client.clone(), "default");
    maps.create(&PostParams::default(), &config_map("counter", "0")).await.expect("create");
    let writers = (0..8).map(|_| {
        let maps = maps.clone();
        async move {
            let mut conflicts = 0;
            for _ in 0..15 {
                loop {
                    let mut object = maps.get("counter").await.expect("get");
                    let count = object.data.as_mut().and_then(|data| data.get_mut("count")).expect("count");
                    *count = (count.parse::<u64>().expect("number") + 1).to_string();
                    match maps.replace("counter", &PostParams::default(), &object).await {
                        Ok(_) => break,
                        Err(kube::Error::Api(status)) if status.is_conflict() => conflicts += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            conflicts
        }
    });
    let conflicts: usize = futures::future::join_all(writers).await.into_iter().sum();
    let counted = maps.get("counter").await.expect("get").data.expect("data");
    assert_eq!(counted["count"], "120", "after {conflicts} conflicts");
    assert!(conflicts > 0, "nobody met anybody: this proved nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_clients_read_and_write_every_kind() {
    let cluster = Cluster::start().await;
    let client = cluster.wire.client.clone();
    cluster.wire.post(QUEUES, &queue("default")).await.is(201);
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    let made =
        jobs.create(&PostParams::default(), &serde_json::from_value(job("j")).expect("job")).await.expect("create");
    let mut events =
        Box::pin(kube_runtime::watcher(jobs.clone(), watcher::Config::default().streaming_lists()).applied_objects());
    assert_eq!(events.try_next().await.expect("event").expect("job").uid(), made.uid());
    let patch = Patch::Merge(json!({"status": {"state": {"phase": "Running"}}}));
    jobs.patch_status("j", &PatchParams::default(), &patch).await.expect("status");
    let running = events.try_next().await.expect("event").expect("job");
    assert_eq!(serde_json::to_value(running).expect("json")["status"]["state"]["phase"], "Running");
    let metadata = jobs.get_metadata("j").await.expect("metadata");
    assert_eq!(metadata.uid(), made.uid());
    assert!(jobs.get_opt("none").await.expect("get").is_none());
    let pods: Api<Pod> = Api::all(client.clone());
    assert!(pods.list(&ListParams::default().fields("status.phase=Running")).await.expect("list").items.is_empty());
    let strict =
        PatchParams { field_validation: Some(kube::api::ValidationDirective::Strict), ..PatchParams::default() };
    let refused = jobs.patch("j", &strict, &Patch::Merge(json!({"spec": {"odd": 1}}))).await.expect_err("strict");
    assert!(refused.to_string().contains("unknown field \"spec.odd\""), "{refused}");
    let groups = client.list_api_groups().await.expect("groups").groups;
    assert!(groups.iter().any(|group| group.name == "batch.volcano.sh"));
    let kinds = kube::discovery::Discovery::new(client.clone()).run().await.expect("discovery");
    assert!(kinds.has_group("scheduling.volcano.sh"));
    let kinds = kube::discovery::Discovery::new(client).run_aggregated().await.expect("aggregated discovery");
    assert!(kinds.has_group("scheduling.volcano.sh"));
}
