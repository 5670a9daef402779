//! Connections to a pod's ports, over a real WebSocket to the agent.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use kube::api::DeleteParams;
use serde_json::json;
use tokio::io::DuplexStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::exec::connect;
use crate::harness::is_root;
use crate::node::{TestNode, sh};

/// Longest wait for a message; a test that needs it fails.
const DEADLINE: Duration = Duration::from_secs(60);
/// The port on which the pod listens, on its own loopback.
const PORT: u16 = 7788;

/// Runs within a pod: greets each who connects in capital letters, and waits for the pod's end.
#[test]
fn inside_entry() {
    if std::env::var_os("PORT_FORWARD_INSIDE").is_none() {
        return;
    }
    let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
    println!("listening");
    for peer in listener.incoming() {
        let mut peer = peer.unwrap();
        let mut name = [0; 3];
        if peer.read_exact(&mut name).is_ok() {
            peer.write_all(&name.to_ascii_uppercase()).unwrap();
            // The peer ends it, or the pod's end does.
            let _ = peer.read(&mut name);
        }
    }
}

/// The next message with bytes; none when the agent has closed.
async fn next(client: &mut WebSocketStream<DuplexStream>) -> Option<Vec<u8>> {
    loop {
        let message = tokio::time::timeout(DEADLINE, client.next()).await.expect("a message in time");
        match message?.unwrap() {
            Message::Binary(bytes) => return Some(bytes.to_vec()),
            Message::Close(_) => return None,
            _ => {}
        }
    }
}

async fn begins(client: &mut WebSocketStream<DuplexStream>, port: u16) {
    for channel in [0, 1] {
        assert_eq!(next(client).await.unwrap(), [&[channel][..], &port.to_le_bytes()].concat());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_the_pods_own_loopback_is_reached() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let mut container = sh("");
    let program = std::env::current_exe().unwrap();
    container["command"] = json!([program, "--exact", "port_forward::inside_entry", "--nocapture"]);
    container["env"] = json!([{"name": "PORT_FORWARD_INSIDE", "value": "1"}]);
    node.create("p", json!({"containers": [container]})).await;
    let pod = node.phase("p", "Running").await;
    let listens = async {
        while !node.log("p", "main").await.contains("listening") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, listens).await.expect("the pod listens in time");
    let path = |port: u16| format!("/portForward/default/p?port={port}");
    let mut client = connect(node.handle(), &path(PORT)).await.unwrap();
    begins(&mut client, PORT).await;
    client.send(Message::binary(&b"\0ann"[..])).await.unwrap();
    assert_eq!(next(&mut client).await.unwrap(), b"\0ANN");

    let mut refused = connect(node.handle(), &path(PORT + 1)).await.unwrap();
    begins(&mut refused, PORT + 1).await;
    let text = String::from_utf8(next(&mut refused).await.unwrap()).unwrap();
    assert_eq!(text, "\u{1}pod's port 7789 refuses connections: nothing listens there on 127.0.0.1 or ::1");
    assert_eq!(next(&mut refused).await, None);

    let none = connect(node.handle(), "/portForward/default/none?port=1").await.unwrap_err();
    assert_eq!(none, "404 pod \"none\" is not on this node");
    node.delete("p", &DeleteParams::default().grace_period(0)).await;
    // The connection breaks or ends; either way the stream ends with the pod.
    while next(&mut client).await.is_some() {}
    node.gone(&pod).await;
}
