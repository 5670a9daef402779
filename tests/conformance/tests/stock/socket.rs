//! What hostile or clumsy peers do to the socket, and how serving ends.

use futures::future::join_all;
use http::Request;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, PATIENCE};
use crate::wire::{JOBS, MAPS, map};

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_talk_nonsense_harm_nobody() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let mut idle = Vec::new();
    for nonsense in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 64], &[0x16, 3, 1, 0xff, 0xff], &[0xff; 100_000]] {
        let mut socket = TcpStream::connect(cluster.address()).await.expect("connect");
        // The server may hang up at any point.
        let _ = socket.write_all(nonsense).await;
        if nonsense.is_empty() {
            idle.push(socket);
            continue;
        }
        let _ = socket.shutdown().await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "the server keeps a broken connection: {:?}", &nonsense[..nonsense.len().min(8)]);
    }
    wire.post(MAPS, &map("a")).await.is(201);
    // Connections that say nothing take no room from others.
    for _ in 0..100 {
        idle.push(TcpStream::connect(cluster.address()).await.expect("connect"));
    }
    wire.get(&format!("{MAPS}/a")).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_our_own_certificates_count() {
    let cluster = Cluster::start().await;
    let other = Cluster::start().await;
    let stranger = cluster.user_of(&other, "admin", &["system:masters"]).await;
    let request = Request::get(MAPS).body(Body::empty()).expect("request");
    match stranger.client.send(request).await {
        Err(_) => {}
        Ok(response) => assert!(matches!(response.status().as_u16(), 401 | 403), "{}", response.status()),
    }
    cluster.wire.get(MAPS).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_off_changes_nothing() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let before = wire.get(MAPS).await.revision().to_owned();
    // What arrives is a whole object; only the announced length says that there was to be more.
    let object = map("half").to_string();
    let text = format!("POST {MAPS} HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{object}");
    let mut stream = cluster.tls("admin", &["system:masters"]).await;
    stream.write_all(text.as_bytes()).await.expect("written");
    stream.shutdown().await.expect("the sending side ends");
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.expect("the server hangs up");
    assert_eq!(wire.get(MAPS).await.revision(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_watchers_see_the_same() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let path = format!("{MAPS}?watch=1");
    let mut watches = join_all((0..100).map(|_| wire.watch(&path))).await;
    for number in 0..20 {
        wire.post(MAPS, &map(&format!("m{number:02}"))).await.is(201);
    }
    wire.delete(MAPS, &Value::Null).await.is(200);
    let seen = join_all(watches.iter_mut().map(|watch| watch.briefs(40))).await;
    assert!(seen.iter().all(|one| one == &seen[0]));
    assert_eq!((seen[0][0].as_str(), seen[0][39].split(' ').next()), ("ADDED m00", Some("DELETED")));
}

// INV-4
#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_does_not_read_holds_nobody_up() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let _deaf = wire.watch(&format!("{MAPS}?watch=1")).await;
    let mut large = map("large");
    large["data"]["a"] = json!("x".repeat(200_000));
    wire.post(MAPS, &large).await.is(201);
    // More than any socket buffer takes.
    for number in 0..60 {
        let patch = json!({"metadata": {"labels": {"n": number.to_string()}}});
        wire.merge(&format!("{MAPS}/large"), &patch).await.is(200);
    }
    let mut attentive = wire.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!(attentive.brief().await, "ADDED large");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_serving_ends_watches() {
    let mut cluster = Cluster::start().await;
    let wire = cluster.wire.clone();
    let mut watches = [wire.watch(&format!("{MAPS}?watch=1")).await, wire.watch(&format!("{JOBS}?watch=1")).await];
    wire.post(MAPS, &map("a")).await.is(201);
    assert_eq!(watches[0].brief().await, "ADDED a");
    tokio::time::timeout(PATIENCE, cluster.stop()).await.expect("serving ends");
    for watch in &mut watches {
        while let Some(event) = watch.next().await {
            assert_eq!(event["type"], "BOOKMARK", "{event}");
        }
    }
    assert!(TcpStream::connect(cluster.address()).await.is_err(), "the port is free");
}
