//! Programs beside those that run, over a real WebSocket to the agent.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use http::Request;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use pumice_node::Handle;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::harness::is_root;
use crate::node::{TestNode, sh};

/// Longest wait for a message; a test that needs it fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// A client of one session.
pub struct Session {
    socket: WebSocketStream<DuplexStream>,
}

/// How a session ended: what was written, what was complained of, the Status.
pub struct Ended {
    pub stdout: String,
    pub stderr: String,
    pub status: Value,
}

/// Connects a WebSocket with channels to the agent; a refusal is its code and text.
pub async fn connect(agent: Handle, path: &str) -> Result<WebSocketStream<DuplexStream>, String> {
    let (client, server) = tokio::io::duplex(64 << 10);
    let answering = service_fn(move |request: Request<hyper::body::Incoming>| {
        let response = agent.answer(request);
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), answering);
    #[allow(clippy::disallowed_methods, reason = "ends with the connection")]
    tokio::spawn(serving.with_upgrades());
    let request = Request::get(format!("ws://node{path}"))
        .header("host", "node")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "v5.channel.k8s.io")
        .body(())
        .unwrap();
    match tokio_tungstenite::client_async(request, client).await {
        Ok((socket, _)) => Ok(socket),
        Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
            let body = response.body().clone().unwrap_or_default();
            Err(format!("{} {}", response.status().as_u16(), String::from_utf8_lossy(&body)))
        }
        Err(error) => panic!("{error}"),
    }
}

impl Session {
    /// Asks the agent for a program: `query` is what follows the path.
    pub async fn open(agent: Handle, pod: &str, query: &str) -> Result<Session, String> {
        Session::at(agent, &format!("/exec/default/{pod}/main?{query}")).await
    }

    /// Asks the agent for the streams at a path.
    pub async fn at(agent: Handle, path: &str) -> Result<Session, String> {
        Ok(Session { socket: connect(agent, path).await? })
    }

    pub async fn send(&mut self, channel: u8, bytes: &[u8]) {
        self.socket.send(Message::binary([&[channel], bytes].concat())).await.unwrap();
    }

    /// Waits until `wanted` has been written.
    pub async fn until(&mut self, wanted: &str) -> String {
        let mut found = String::new();
        while !found.contains(wanted) {
            let (channel, bytes) = self.next().await.expect("the session goes on");
            assert_eq!(channel, 1, "{}", String::from_utf8_lossy(&bytes));
            found.push_str(&String::from_utf8_lossy(&bytes));
        }
        found
    }

    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let binary = async {
            loop {
                match self.socket.next().await?.unwrap() {
                    Message::Binary(bytes) => return Some((bytes[0], bytes[1..].to_vec())),
                    Message::Close(_) => return None,
                    _ => {}
                }
            }
        };
        tokio::time::timeout(DEADLINE, binary).await.expect("a message in time")
    }

    pub async fn end(mut self) -> Ended {
        let mut streams: [Vec<u8>; 4] = Default::default();
        while let Some((channel, bytes)) = self.next().await {
            streams[usize::from(channel)].extend(bytes);
        }
        let [_, stdout, stderr, status] = streams;
        Ended {
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(stderr).unwrap(),
            status: serde_json::from_slice(&status).expect("a Status came last"),
        }
    }
}

/// The query that runs `script` in a shell.
pub fn script(script: &str, flags: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for word in ["/bin/sh", "-c", script] {
        query.append_pair("command", word);
    }
    format!("{}&{flags}", query.finish())
}

async fn running(node: &TestNode) {
    let mut main = sh("echo within > /tmp/exec-mark; hostname > /tmp/exec-host; exec sleep 600");
    main["env"] = json!([{"name": "GIVEN", "value": "by the pod"}]);
    main["workingDir"] = json!("/var/tmp");
    main["securityContext"] = json!({"runAsUser": 1234, "runAsGroup": 2345});
    main["resources"] = json!({"limits": {"memory": "64Mi"}});
    node.create("p", json!({"containers": [main]})).await;
    node.phase("p", "Running").await;
    let mark = "until [ -s /tmp/exec-host ]; do sleep 0.01; done";
    let session = Session::open(node.handle(), "p", &script(mark, "output=1")).await.unwrap();
    let status = session.end().await.status;
    assert_eq!(status["status"], "Success", "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_runs_where_its_container_does() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    running(&node).await;

    let what = "cat /tmp/exec-mark; [ $(hostname) = $(cat /tmp/exec-host) ] && echo same host; echo $GIVEN; pwd; id -u; \
                id -g; echo complaint >&2; [ $(cat /proc/1/comm) ] && ls /proc | grep -c '^[0-9]*$'; exit 3";
    let ended = Session::open(node.handle(), "p", &script(what, "output=1&error=1")).await.unwrap().end().await;
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[..6], ["within", "same host", "by the pod", "/var/tmp", "1234", "2345"], "{}", ended.stderr);
    let processes: u32 = lines[6].parse().unwrap();
    assert!(processes < 12, "it sees its container's processes only: {processes}");
    assert_eq!(ended.stderr, "complaint\n");
    assert_eq!(ended.status["details"]["causes"], json!([{"reason": "ExitCode", "message": "3"}]));

    let mut typed = Session::open(node.handle(), "p", &script("wc -c", "input=1&output=1")).await.unwrap();
    let large = vec![b'x'; 100_000];
    for _ in 0..3 {
        typed.send(0, &large).await;
    }
    typed.send(255, &[0]).await;
    assert_eq!(typed.end().await.stdout.trim(), "300000", "what is typed arrives, and so does its end");

    let much = script("head -c 3000000 /dev/zero | tr '\\0' y", "output=1");
    assert_eq!(Session::open(node.handle(), "p", &much).await.unwrap().end().await.stdout.len(), 3_000_000);

    let killed = Session::open(node.handle(), "p", &script("kill -9 $$", "output=1")).await.unwrap().end().await;
    assert_eq!(killed.status["details"]["causes"][0]["message"], "137");
    // A process beyond the container's memory is killed, and the container goes on.
    let hungry = script("dd if=/dev/zero of=/dev/null bs=200M count=1; echo $?", "output=1");
    let hungry = Session::open(node.handle(), "p", &hungry).await.unwrap().end().await;
    assert_eq!(hungry.stdout, "137\n", "the container's limit holds for it");
    node.phase("p", "Running").await;

    let missing = "command=no-such-program&output=1";
    let missing = Session::open(node.handle(), "p", missing).await.unwrap().end().await;
    assert_eq!(missing.status["reason"], "InternalError");
    let message = missing.status["message"].as_str().unwrap();
    assert!(message.contains("executable file not found in $PATH"), "{message}");
}

/// A container's first process begins in the host's files and leaves them when all of the container's own are mounted: a
/// program beside it must never see the former.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_comes_early_waits_for_the_files_of_its_container() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let host = node.data_dir.path().join("of-the-host");
    std::fs::write(&host, "untouched").unwrap();
    let mut main = sh("exec sleep 600");
    main["volumeMounts"] = (0..500).map(|at| json!({"name": "v", "mountPath": format!("/m/{at}")})).collect();
    let spec = json!({"containers": [main], "volumes": [{"name": "v", "emptyDir": {}}]});
    node.create("p", spec).await;
    let write = script(&format!("echo touched > {}; ls /m | wc -l", host.display()), "output=1&error=1");
    let session = loop {
        match Session::open(node.handle(), "p", &write).await {
            Ok(session) => break session,
            Err(refused) => assert!(refused.starts_with("4"), "{refused}"),
        }
    };
    let ended = session.end().await;
    assert_eq!(std::fs::read_to_string(&host).unwrap(), "untouched");
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("500\n", ""), "{}", ended.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_one() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    running(&node).await;
    let query = script(
        "trap 'stty size' WINCH; tty; echo ready; while :; do read line && echo \"<$line>\"; done",
        "tty=1&input=1&output=1",
    );
    let mut session = Session::open(node.handle(), "p", &query).await.unwrap();
    let begun = session.until("ready").await;
    assert!(begun.starts_with("/dev/pts/"), "{begun}");
    session.send(4, br#"{"Width": 99, "Height": 33}"#).await;
    // Before anything is typed: the shell drops what it has read of a line when the signal comes.
    session.until("33 99").await;
    session.send(0, b"hello\n").await;
    session.until("<hello>").await;
    // Keys are signals: an interrupt ends the shell.
    session.send(0, b"\x03").await;
    let ended = session.end().await;
    assert_eq!(ended.status["details"]["causes"][0]["message"], "130", "{}", ended.status);
}

// INV-52
#[tokio::test(flavor = "multi_thread")]
async fn a_program_ends_with_its_client_and_with_its_container() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    running(&node).await;
    let left = "trap 'echo gone > /tmp/exec-hung-up; exit' HUP; echo ready; while :; do sleep 0.05; done";
    let mut session = Session::open(node.handle(), "p", &script(left, "output=1")).await.unwrap();
    session.until("ready").await;
    drop(session);
    let seen = "until [ -s /tmp/exec-hung-up ]; do sleep 0.01; done; cat /tmp/exec-hung-up";
    let seen = Session::open(node.handle(), "p", &script(seen, "output=1")).await.unwrap().end().await;
    assert_eq!(seen.stdout, "gone\n");

    let mut session = Session::open(node.handle(), "p", &script("echo ready; sleep 600", "output=1")).await.unwrap();
    session.until("ready").await;
    node.delete("p", &kube::api::DeleteParams::default().grace_period(0)).await;
    assert_eq!(session.end().await.status["details"]["causes"][0]["message"], "137");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_run_is_refused() {
    let node = TestNode::start().await;
    let refused = Session::open(node.handle(), "none", "command=true&output=1").await.err().unwrap();
    assert_eq!(refused, "404 pod \"none\" is not on this node");
    if !is_root() {
        return;
    }
    node.sh("p", "true").await;
    node.phase("p", "Succeeded").await;
    for (query, expected) in [
        ("command=true&output=1", "400 container \"main\" in pod \"p\" is not running"),
        ("output=1", "400 you must specify at least 1 command for the container"),
        ("command=true", "400 you must specify at least 1 of stdin, stdout, stderr"),
    ] {
        assert_eq!(Session::open(node.handle(), "p", query).await.err().unwrap(), expected);
    }
}
