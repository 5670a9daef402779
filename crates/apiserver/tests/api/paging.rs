//! Lists in pages, as kubectl, client-go's pager and kube read them.

use std::sync::Arc;

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use pumice_apiserver::{AdmitAll, NoNodes};
use pumice_store::{Options, Store};
use serde_json::{Value, json};

use crate::definitions::{definition, widget};
use crate::harness::{MAPS, Server, administrator, config_map, over, server};

async fn with_maps(server: &Server, names: &[&str]) {
    for (index, name) in names.iter().enumerate() {
        let mut map = config_map(name);
        map["metadata"]["labels"] = json!({ "parity": if index % 2 == 0 { "even" } else { "odd" } });
        server.post(MAPS, &map).await.is(201);
    }
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("name").to_owned()).collect()
}

/// All pages from the first, each with what may be written before the next.
async fn pages(server: &Server, query: &str, mut between: impl AsyncFnMut(usize)) -> Vec<Value> {
    let mut pages: Vec<Value> = Vec::new();
    loop {
        let token = pages.last().map_or(String::new(), |page| {
            format!("&continue={}", page["metadata"]["continue"].as_str().expect("a token"))
        });
        let page = server.get(&format!("{MAPS}?{query}{token}")).await.is(200).body;
        let ends = page["metadata"]["continue"].is_null();
        pages.push(page);
        if ends {
            return pages;
        }
        between(pages.len()).await;
    }
}

#[tokio::test]
async fn pages_are_of_the_first_ones_moment() {
    let server = server().await;
    with_maps(&server, &["a", "b", "c", "d", "e"]).await;
    let whole = server.get(MAPS).await.body;
    assert!(whole["metadata"]["continue"].is_null() && whole["metadata"]["remainingItemCount"].is_null());
    let pages = pages(&server, "limit=2", async |read| {
        if read == 1 {
            server.delete(&format!("{MAPS}/b"), &Value::Null).await.is(200);
            server.delete(&format!("{MAPS}/d"), &Value::Null).await.is(200);
            server.merge(&format!("{MAPS}/e"), &json!({"data": {"a": "2"}})).await.is(200);
            server.post(MAPS, &config_map("cc")).await.is(201);
        }
    })
    .await;
    let items: Vec<Value> = pages.iter().flat_map(|page| page["items"].as_array().unwrap().clone()).collect();
    assert_eq!(json!(items), whole["items"]);
    let left: Vec<&Value> = pages.iter().map(|page| &page["metadata"]["remainingItemCount"]).collect();
    assert_eq!(left, [&json!(3), &json!(1), &Value::Null]);
    for page in &pages {
        assert_eq!(page["metadata"]["resourceVersion"], whole["metadata"]["resourceVersion"]);
    }
}

#[tokio::test]
async fn a_page_is_filled_with_what_matches() {
    let server = server().await;
    with_maps(&server, &["a", "b", "c", "d", "e"]).await;
    let pages = pages(&server, "limit=2&labelSelector=parity%3Deven", async |_| {}).await;
    assert_eq!(pages.iter().map(names).collect::<Vec<_>>(), [vec!["a", "c"], vec!["e"]]);
    assert!(pages[0]["metadata"]["remainingItemCount"].is_null());
    let none = server.get(&format!("{MAPS}?limit=1&fieldSelector=metadata.name%3Dnone")).await.is(200).body;
    assert!(names(&none).is_empty() && none["metadata"]["continue"].is_null());
}

#[tokio::test]
async fn tables_and_defined_kinds_have_pages_too() {
    let server = server().await;
    server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await.is(201);
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    for name in ["a", "b", "c"] {
        server.post(widgets, &widget(name)).await.is(201);
    }
    for (accept, items) in [
        ("application/json", "items"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", "rows"),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "items"),
    ] {
        // All namespaces, too.
        for path in [widgets, "/apis/example.com/v1/widgets"] {
            let get = async |query: &str| {
                server.raw(Method::GET, &format!("{path}?{query}"), &[("accept", accept)], "").await.is(200).body
            };
            let first = get("limit=2").await;
            assert_eq!(
                (first[items].as_array().unwrap().len(), &first["metadata"]["remainingItemCount"]),
                (2, &json!(1))
            );
            let token = first["metadata"]["continue"].as_str().unwrap();
            let second = get(&format!("limit=2&continue={token}")).await;
            assert_eq!(second[items].as_array().unwrap().len(), 1);
            assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        }
    }
}

#[tokio::test]
async fn parameters_that_do_not_go_together_are_refused() {
    let server = server().await;
    with_maps(&server, &["a", "b"]).await;
    let first = server.get(&format!("{MAPS}?limit=1")).await.is(200).body;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let revision = first["metadata"]["resourceVersion"].as_str().unwrap();
    for (query, text) in [
        ("continue=x", "invalid continue token: continue key is not valid"),
        ("limit=x", "limit"),
        (&*format!("continue={token}&resourceVersion={revision}"), "specifying resource version is not allowed"),
        (&*format!("continue={token}&resourceVersionMatch=Exact"), "forbidden when continue is provided"),
    ] {
        let answer = server.get(&format!("{MAPS}?{query}")).await.is(400);
        assert!(answer.message().contains(text), "{}", answer.text);
    }
    let elsewhere = MAPS.replace("default", "other");
    server.get(&format!("{elsewhere}?continue={token}")).await.is(400);
    // No limit: all that is left. None below one is a limit, nor is one of a list of any state.
    for (query, count) in
        [(&*format!("continue={token}"), 1), ("limit=0", 2), ("limit=-1", 2), ("limit=1&resourceVersion=0", 2)]
    {
        assert_eq!(names(&server.get(&format!("{MAPS}?{query}")).await.is(200).body).len(), count, "{query}");
    }
    // A limit makes a revision exact, as upstream.
    with_maps(&server, &["c"]).await;
    let then = server.get(&format!("{MAPS}?limit=5&resourceVersion={revision}")).await.is(200).body;
    assert_eq!((names(&then).len(), &then["metadata"]["resourceVersion"]), (2, &json!(revision)));
    server.get(&format!("{MAPS}?limit=5&resourceVersion=999999")).await.is(504);
}

#[tokio::test]
async fn a_list_that_is_too_old_can_go_on_with_what_is_there() {
    let store = Store::in_memory(Options { window_events_max: 4, ..Options::default() }).expect("store");
    let server = over(store, Arc::new(AdmitAll), Arc::new(NoNodes)).await;
    with_maps(&server, &["a", "b", "c", "d"]).await;
    let first = server.get(&format!("{MAPS}?limit=1")).await.is(200).body;
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    server.delete(&format!("{MAPS}/b"), &Value::Null).await.is(200);
    with_maps(&server, &["0", "e", "f", "g"]).await;
    let gone = server.get(&format!("{MAPS}?limit=2&continue={token}")).await.is(410);
    assert_eq!(gone.body["reason"], "Expired");
    assert!(gone.message().contains("use the continue token in this response"), "{}", gone.text);
    let token = gone.body["metadata"]["continue"].as_str().expect("a token").to_owned();
    let next = server.get(&format!("{MAPS}?limit=2&continue={token}")).await.is(200).body;
    assert_eq!(names(&next), ["c", "d"]);
    assert!(next["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]);
    // From here on it is consistent again.
    with_maps(&server, &["d0"]).await;
    let token = next["metadata"]["continue"].as_str().expect("a token").to_owned();
    let last = server.get(&format!("{MAPS}?continue={token}")).await.is(200).body;
    assert_eq!(names(&last), ["e", "f", "g"]);
    assert_eq!(last["metadata"]["resourceVersion"], next["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_page_can_be_deleted() {
    let server = server().await;
    with_maps(&server, &["a", "b", "c"]).await;
    let answer = server.delete(&format!("{MAPS}?limit=2"), &Value::Null).await.is(200);
    assert!(answer.body["metadata"]["continue"].is_string());
    assert_eq!(names(&server.get(MAPS).await.body), ["c"]);
}

#[tokio::test]
async fn kube_reads_pages() {
    let server = server().await;
    with_maps(&server, &["a", "b", "c"]).await;
    let maps: Api<ConfigMap> =
        Api::default_namespaced(kube::Client::new(server.api.client_service(administrator()), "default"));
    let first = maps.list(&ListParams::default().limit(2)).await.expect("list");
    assert_eq!((first.items.len(), first.metadata.remaining_item_count), (2, Some(1)));
    let token = first.metadata.continue_.expect("token");
    let second = maps.list(&ListParams::default().limit(2).continue_token(&token)).await.expect("list");
    assert_eq!((second.items.len(), second.metadata.continue_), (1, None));
}
