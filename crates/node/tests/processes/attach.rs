//! Clients attached to containers, over a real WebSocket to the agent.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::exec::{Session, connect};
use crate::harness::{is_root, wait_for};
use crate::node::{TestNode, sh};

/// Says what it is told, on both streams, until its input ends.
const ECHO: &str = "while read line; do echo \"<$line>\"; echo \"!$line\" >&2; done; echo over";
const ALL: &str = "input=1&output=1&error=1";
/// Longest wait for all that goes through.
const DEADLINE: Duration = Duration::from_secs(120);

/// A client that is attached: the agent has agreed to it, and the shim has it.
async fn attach(node: &TestNode, pod: &Pod, container: &str, streams: &str) -> Session {
    let before = sockets(node, pod);
    let session = Session::at(node.handle(), &format!("/attach/default/p/{container}?{streams}")).await.unwrap();
    tokio::task::block_in_place(|| {
        wait_for("the shim's end", || (!sockets(node, pod).is_subset(&before)).then_some(()))
    });
    session
}

/// The sockets that a pod's shim has.
fn sockets(node: &TestNode, pod: &Pod) -> BTreeSet<PathBuf> {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", node.shim_pid(pod))).into_iter().flatten().flatten();
    let files = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    files.filter(|file| file.to_string_lossy().starts_with("socket:")).collect()
}

/// A pod that runs whose main container has an input and these fields.
async fn running(node: &TestNode, script: &str, fields: Value, more: Value) -> Pod {
    let mut main = sh(script);
    main["stdin"] = json!(true);
    for (key, value) in fields.as_object().unwrap() {
        main[key] = value.clone();
    }
    let mut spec = json!({"containers": [main]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    node.create("p", spec).await;
    node.phase("p", "Running").await
}

fn log(node: &TestNode, pod: &Pod) -> String {
    std::fs::read_to_string(node.pod_dir(pod).join("logs/main/0.log")).unwrap()
}

async fn exit_code(node: &TestNode, phase: &str) -> i32 {
    let status = node.phase("p", phase).await.status.unwrap();
    status.container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap().exit_code
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_reaches_the_program_and_all_who_are_attached_see_what_it_writes() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let pod = running(&node, ECHO, json!({}), json!({})).await;
    let (mut one, mut two) =
        (attach(&node, &pod, "main", ALL).await, attach(&node, &pod, "main", "input=1&output=1").await);
    one.send(0, b"first\n").await;
    two.until("<first>").await;
    drop(one);
    // Without a client the program waits; who comes later sees nothing of before.
    two.send(0, b"second\n").await;
    two.until("<second>").await;
    drop(two);
    let mut late = attach(&node, &pod, "main", "input=1&output=1").await;
    late.send(0, b"third\n").await;
    assert_eq!(late.until("<third>").await, "<third>\n");
    // Its input goes on without whoever types no more: that one is let go.
    late.send(255, &[0]).await;
    let ended = late.end().await;
    assert_eq!((ended.stdout.as_str(), &ended.status["status"]), ("", &json!("Success")));
    let written = log(&node, &pod);
    for line in ["stdout F <first>", "stderr F !first", "stdout F <second>", "stdout F <third>"] {
        assert!(written.contains(line), "{line}: {written}");
    }
    node.phase("p", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_for_once_ends_with_the_first_who_types() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    // The other container begins later, and must have nothing of the first one's input.
    let mut other = sh("sleep 1; exec cat");
    (other["name"], other["stdin"], other["stdinOnce"]) = (json!("other"), json!(true), json!(true));
    let mut main = sh(&format!("{ECHO}; exit 3"));
    (main["stdin"], main["stdinOnce"]) = (json!(true), json!(true));
    node.create("p", json!({"containers": [main, other]})).await;
    let pod = node.phase("p", "Running").await;
    let onlooker = attach(&node, &pod, "main", "output=1&error=1").await;
    let mut typist = attach(&node, &pod, "main", ALL).await;
    let elsewhere = attach(&node, &pod, "other", ALL).await;
    drop(attach(&node, &pod, "main", "output=1").await);
    typist.send(0, b"word\n").await;
    typist.send(255, &[0]).await;
    for session in [typist, onlooker] {
        let ended = session.end().await;
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("<word>\nover\n", "!word\n"));
        // As a kubelet has it: the code is in the pod's status.
        assert_eq!(ended.status["status"], "Success", "{}", ended.status);
    }
    // Who goes ends it as well.
    drop(elsewhere);
    assert_eq!(exit_code(&node, "Failed").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_one_for_all() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let script = "trap 'echo woken' INT; tty; echo $TERM; [ -t 0 ] && [ -t 2 ] && echo all; \
                  while :; do read line && echo \"<$line>\" $(stty size); done";
    for more in [json!({}), json!({"hostUsers": false})] {
        let pod = running(&node, script, json!({"tty": true, "stdinOnce": true}), more.clone()).await;
        let mut one = attach(&node, &pod, "main", "input=1&output=1&tty=1").await;
        one.send(4, br#"{"Width": 99, "Height": 33}"#).await;
        one.send(0, b"ready\n").await;
        one.until("<ready> 33 99").await;
        let mut two = attach(&node, &pod, "main", "output=1&tty=1").await;
        one.send(0, b"hello\n").await;
        assert!(two.until("<hello>").await.contains("hello\r\n"), "what is typed is shown as well");
        one.send(0, b"\x03").await;
        // The shell looks for signals between commands, and may just have begun to read.
        one.send(0, b"go\n").await;
        two.until("woken").await;
        // A terminal goes on without its people, who may come back.
        one.send(255, &[0]).await;
        assert_eq!(one.end().await.status["status"], "Success");
        drop(two);
        let mut again = attach(&node, &pod, "main", "input=1&output=1&tty=1").await;
        again.send(0, b"again\n").await;
        again.until("<again>").await;
        let written = log(&node, &pod);
        assert!(written.contains("stdout F /dev/pts/0"), "{more}: {written}");
        assert!(written.contains("stdout F xterm") && written.contains("stdout F all"), "{written}");
        node.delete("p", &kube::api::DeleteParams::default().grace_period(0)).await;
        again.end().await;
        node.gone(&pod).await;
    }
}

// INV-48
#[tokio::test(flavor = "multi_thread")]
async fn an_input_outlives_the_agent() {
    if !is_root() {
        return;
    }
    let mut node = TestNode::start().await;
    for (fields, typed) in [(json!({}), "stop"), (json!({"tty": true}), "kill")] {
        let pod = running(&node, ECHO, fields, json!({})).await;
        let mut before = attach(&node, &pod, "main", "input=1&output=1").await;
        before.send(0, b"before\n").await;
        before.until("<before>").await;
        match typed {
            "stop" => node.stop_agent().await,
            _ => node.kill_agent().await,
        }
        drop(before);
        node.start_agent().await;
        let mut after = loop {
            match Session::at(node.handle(), "/attach/default/p/main?input=1&output=1").await {
                Ok(session) => break session,
                // The agent has not come to it yet.
                Err(refused) => assert!(refused.starts_with("404"), "{refused}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        after.send(0, b"after\n").await;
        after.until("<after>").await;
        assert_eq!(log(&node, &pod).matches("F <").count(), 2, "it is the same program");
        node.delete("p", &kube::api::DeleteParams::default().grace_period(0)).await;
        after.end().await;
        node.gone(&pod).await;
    }
}

/// Most memory that a process has had, in KiB; none once it has ended.
fn most_memory(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_nothing_is_sent_away_and_the_others_miss_nothing() {
    if !is_root() {
        return;
    }
    const LINES: usize = 400_000;
    let node = TestNode::start().await;
    let pod = running(&node, &format!("read go; seq {LINES}; read end"), json!({}), json!({})).await;
    let shim = node.shim_pid(&pod);
    let before = most_memory(shim).unwrap();
    let mut deaf = connect(node.handle(), "/attach/default/p/main?output=1").await.unwrap();
    let mut reader = attach(&node, &pod, "main", "input=1&output=1").await;
    reader.send(0, b"go\n").await;
    let whole = reader.until(&format!("\n{LINES}\n")).await;
    assert!(whole.lines().map(|line| line.parse::<usize>().unwrap()).eq(1..=LINES), "all of it, in its order");
    assert!(log(&node, &pod).ends_with(&format!("stdout F {LINES}\n")), "the log has it as well");
    let grown = most_memory(shim).unwrap() - before;
    assert!(grown < 8 << 10, "{grown} KiB more for what is buffered");
    reader.send(0, b"end\n").await;
    reader.end().await;
    assert_eq!(exit_code(&node, "Succeeded").await, 0);
    // What it has not read is not lost to it before it was sent away: the beginning, and why there is no more.
    deaf.send(Message::Ping(Default::default())).await.unwrap();
    let (mut said, mut status) = (0, Value::Null);
    while let Some(Ok(message)) = deaf.next().await {
        match message {
            Message::Binary(bytes) if bytes[0] == 1 => said += bytes.len() - 1,
            Message::Binary(bytes) if bytes[0] == 3 => status = serde_json::from_slice(&bytes[1..]).unwrap(),
            _ => {}
        }
    }
    assert!(said > 0 && said < whole.len(), "{said}");
    assert!(status["message"].as_str().unwrap().contains("sent this client away since it was too slow"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn much_goes_in_and_comes_out_again() {
    if !is_root() {
        return;
    }
    const PIECES: usize = 300;
    let node = TestNode::start().await;
    let pod = running(&node, "exec cat", json!({"stdinOnce": true}), json!({})).await;
    let piece = |number: usize| -> Vec<u8> { (0..100_000).map(|at| ((at * 7 + number * 13) % 251) as u8).collect() };
    let socket = connect(node.handle(), &format!("/attach/default/p/main?{ALL}")).await.unwrap();
    let (mut sink, mut stream) = socket.split();
    let typing = async move {
        for number in 0..PIECES {
            sink.send(Message::binary([&[0], piece(number).as_slice()].concat())).await.unwrap();
        }
        sink.send(Message::binary([255, 0].as_slice())).await.unwrap();
        sink
    };
    let reading = async {
        let mut found = Vec::new();
        while let Some(Ok(Message::Binary(bytes))) = stream.next().await {
            if bytes[0] == 1 {
                found.extend_from_slice(&bytes[1..]);
            }
        }
        found
    };
    let shim = node.shim_pid(&pod);
    let before = most_memory(shim).unwrap();
    let watching = async {
        let mut most = before;
        while let Some(now) = most_memory(shim) {
            most = now.max(most);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        most
    };
    let all = async { tokio::join!(typing, reading, watching) };
    let (_sink, found, most) = tokio::time::timeout(DEADLINE, all).await.expect("all of it in time");
    assert!(found == (0..PIECES).flat_map(piece).collect::<Vec<u8>>(), "{} bytes of {}", found.len(), PIECES * 100_000);
    assert!(most - before < 8 << 10, "{} KiB more", most - before);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_input_what_is_typed_goes_nowhere() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let script = "[ -z \"$(cat)\" ] && echo empty; until [ -e /tmp/go ]; do sleep 0.05; done; echo gone";
    let pod = running(&node, script, json!({"stdin": false}), json!({})).await;
    let mut session = attach(&node, &pod, "main", ALL).await;
    for (channel, bytes) in
        [(0, &b"typed\n"[..]), (4, b"{}"), (4, br#"{"Width": 1, "Height": 1}"#), (9, b"?"), (255, b"\0")]
    {
        session.send(channel, bytes).await;
    }
    let touch = crate::exec::script("touch /tmp/go", "output=1");
    Session::open(node.handle(), "p", &touch).await.unwrap().end().await;
    let ended = session.end().await;
    assert!(ended.stdout.ends_with("gone\n"), "{}", ended.stdout);
    assert_eq!(ended.status["status"], "Success");
    assert!(log(&node, &pod).contains("stdout F empty"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_attached_to_is_refused() {
    let node = TestNode::start().await;
    let refused = |path: &'static str| {
        let agent = node.handle();
        async move { Session::at(agent, path).await.err().unwrap() }
    };
    assert_eq!(refused("/attach/default/none/main?output=1").await, "404 pod \"none\" is not on this node");
    if !is_root() {
        return;
    }
    node.sh("p", "true").await;
    node.phase("p", "Succeeded").await;
    for (path, expected) in [
        ("/attach/default/p/main?output=1", "400 container \"main\" in pod \"p\" is not running"),
        ("/attach/default/p/none?output=1", "400 container none is not valid for pod p"),
        ("/attach/default/p/main?tty=1", "400 you must specify at least 1 of stdin, stdout, stderr"),
    ] {
        assert_eq!(refused(path).await, expected);
    }
}
