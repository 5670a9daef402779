//! kube-rs over the in-memory service: what every component uses.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Error, ResourceExt};
use kube_runtime::watcher;
use serde_json::json;

use crate::harness::{administrator, pod, server};

async fn client() -> (Client, crate::harness::Server) {
    let server = server().await;
    (Client::new(server.api.client_service(administrator()), "default"), server)
}

#[tokio::test]
async fn objects_are_made_changed_and_deleted() {
    let (client, _server) = client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() },
        data: Some([("k".to_owned(), "v".to_owned())].into()),
        ..ConfigMap::default()
    };
    let made = maps.create(&PostParams::default(), &map).await.expect("create");
    assert!(made.uid().is_some() && made.creation_timestamp().is_some());
    let patch = json!({"data": {"k": "w"}});
    let patched = maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patch");
    assert_eq!(patched.data.expect("data")["k"], "w");
    let mut stale = made;
    stale.data = None;
    match maps.replace("a", &PostParams::default(), &stale).await {
        Err(Error::Api(status)) => assert_eq!((status.code, status.reason.as_str()), (409, "Conflict")),
        other => panic!("{other:?}"),
    }
    assert_eq!(maps.list(&ListParams::default().fields("metadata.name=a")).await.expect("list").items.len(), 1);
    maps.delete("a", &DeleteParams::background()).await.expect("delete");
    assert!(maps.get_opt("a").await.expect("get").is_none());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert!(namespaces.get("pumice-system").await.is_ok());
    assert!(client.apiserver_version().await.expect("version").git_version.starts_with("v1.36"));
}

#[tokio::test]
async fn watchers_of_both_kinds_see_every_change() {
    let (client, server) = client().await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    server.post(crate::harness::PODS, &pod("a")).await.is(201);
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut events = watcher(pods.clone(), config).boxed();
        let mut next = async || {
            tokio::time::timeout(crate::harness::PATIENCE, events.try_next()).await.expect("in time").expect("event")
        };
        assert!(matches!(next().await, Some(watcher::Event::Init)));
        assert!(matches!(next().await, Some(watcher::Event::InitApply(pod)) if pod.name_any() == "a"));
        assert!(matches!(next().await, Some(watcher::Event::InitDone)));
        server.post(crate::harness::PODS, &pod("b")).await.is(201);
        assert!(matches!(next().await, Some(watcher::Event::Apply(pod)) if pod.name_any() == "b"));
        server.delete(&format!("{}/b", crate::harness::PODS), &serde_json::Value::Null).await.is(200);
        assert!(matches!(next().await, Some(watcher::Event::Delete(pod)) if pod.name_any() == "b"));
    }
}
