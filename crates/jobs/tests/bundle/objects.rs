//! ConfigMaps of the embedded API server: bounds, races, owners.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use kube_runtime::wait::{await_condition, conditions::is_deleted};
use pumice_apiserver::ApiServer;
use pumice_auth::{Identity, MASTERS, Policy, built_in};
use pumice_jobs::Connection;
use pumice_jobs::bundle::config_maps::shard_bytes_max;
use pumice_jobs::bundle::{Bundle, ConfigMaps, Location, Memory, StoreAddress};
use pumice_jobs::error::sentence;
use pumice_store::{Options, Store};
use serde_json::json;

use crate::support::{pack, race, run, told};

/// Longest wait for a state that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server over memory, which lives as long as it is held, and two ways to it.
struct Server {
    _api: ApiServer,
    client: Client,
    connection: Connection,
}

async fn server() -> Server {
    let store = Store::in_memory(Options::default()).unwrap();
    let api = ApiServer::builder(store, Policy::new(built_in())).build().await.unwrap();
    let client = Client::new(api.client_service(Identity::new("admin", [MASTERS])), "default");
    let connection = Connection::with_client(client.clone(), "default");
    Server { _api: api, client, connection }
}

/// Waits until the garbage collector has taken all of them.
async fn all_gone(maps: &Api<ConfigMap>, those: &[ConfigMap]) {
    for map in those {
        let (name, uid) = (map.name_any(), map.uid().unwrap());
        let gone = await_condition(maps.clone(), &name, is_deleted(&uid));
        tokio::time::timeout(PATIENCE, gone).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_bundle_is_small_objects_that_go_with_their_owner() {
    let Server { _api, client, connection } = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let store = Arc::new(ConfigMaps::make(&connection, "train-x7").await.unwrap());
    let values: Vec<Bytes> = (0..3000).map(|number: u32| Bytes::from(vec![number as u8; 1000])).collect();
    let packed = pack(store.clone(), values.clone(), &[("function", &[7; 1_000_000])]).await.unwrap();

    let all = maps.list(&ListParams::default().labels("pumice.sh/bundle=train-x7")).await.unwrap().items;
    assert_eq!(all.len() as u64, packed.chunks + 1, "the chunks and their anchor");
    for map in &all {
        assert!(serde_json::to_vec(map).unwrap().len() < 700 << 10, "{} is too large", map.name_any());
        assert_eq!(map.immutable, Some(true));
    }
    // As a pod finds it.
    let location = Location {
        address: StoreAddress::objects("default", "train-x7").unwrap(),
        root: packed.root,
        run: Some(run()),
    };
    let there = location.address.open(Some(&connection), 100).await.unwrap();
    let bundle = Bundle::open(there, location.root).await.unwrap();
    assert_eq!(bundle.record(2999).await.unwrap().value, values[2999]);
    let mut function = Vec::new();
    bundle.attachment("function", &mut function).await.unwrap();
    assert_eq!(function, [7; 1_000_000]);
    let error = sentence(&location.address.open(None, 1).await.unwrap_err());
    assert!(error.contains("objects:default/train-x7 is in the API"), "{error}");

    let owner = ConfigMap {
        metadata: ObjectMeta { name: Some("owner".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let mut owner = serde_json::to_value(maps.create(&PostParams::default(), &owner).await.unwrap()).unwrap();
    owner["apiVersion"] = json!("v1");
    owner["kind"] = json!("ConfigMap");
    store.adopt(&owner).await.unwrap();
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    all_gone(&maps, &all).await;
}

// INV-46
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_racing_attempts_one_records() {
    let Server { _api, client, connection } = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let store = Arc::new(ConfigMaps::make(&connection, "race").await.unwrap());
    race(store.clone(), 4, 50).await;
    let all = maps.list(&ListParams::default().labels("pumice.sh/bundle=race")).await.unwrap().items;
    store.discard().await.unwrap();
    all_gone(&maps, &all).await;
}

#[tokio::test]
async fn what_is_too_much_for_the_api_names_the_folder() {
    let Server { _api, connection, .. } = server().await;
    ConfigMaps::make(&connection, "small").await.unwrap();
    let store = Arc::new(ConfigMaps::open(&connection, "default", "small", 2000).await.unwrap());
    let text = told(pack(store, [Bytes::from(vec![0; 3000])], &[]).await.unwrap_err());
    assert!(text.contains("at most 2000") && text.contains("--bundle-dir FOLDER"), "{text}");
    // What is on its way there is known to be too much before it is sent.
    let text = told(pack(Arc::new(Memory::bounded(2000)), [Bytes::from(vec![0; 3000])], &[]).await.unwrap_err());
    assert!(text.contains("at most 2000") && text.contains("--bundle-dir FOLDER"), "{text}");
    assert_eq!(shard_bytes_max(10_000).unwrap(), 26_843);
    let text = sentence(&shard_bytes_max(100_000).unwrap_err());
    assert!(text.contains("shards: 100000") && text.contains("--bundle-dir FOLDER"), "{text}");
}

#[tokio::test]
async fn names_of_others_are_refused() {
    let Server { _api, client, connection } = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("other".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &map).await.unwrap();
    let text = sentence(&ConfigMaps::open(&connection, "default", "other", 1).await.unwrap_err());
    assert_eq!(text, "ConfigMap default/other is no part of a bundle");
    let text = sentence(&ConfigMaps::make(&connection, "other").await.unwrap_err());
    assert!(text.contains("already exists"), "{text}");
    let text = sentence(&ConfigMaps::make(&connection, "a.b").await.unwrap_err());
    assert!(text.contains("bundle \"a.b\" is not valid"), "{text}");
    let text = sentence(&ConfigMaps::open(&connection, "default", "absent", 1).await.unwrap_err());
    assert!(text.contains("cannot read bundle absent"), "{text}");
}

#[tokio::test]
async fn a_pod_gets_no_more_rights_than_it_needs() {
    let Server { _api, connection, .. } = server().await;
    let store = ConfigMaps::make(&connection, "train-x7").await.unwrap();
    let mut rights = store.rights();
    for object in &mut rights {
        let reference = &mut object["metadata"]["ownerReferences"][0]["uid"];
        assert!(!reference.as_str().unwrap().is_empty());
        *reference = json!("UID");
    }
    insta::assert_yaml_snapshot!(rights);
}
