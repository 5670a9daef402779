//! The extender against servers of a few lines: one that answers, one that hangs, one that talks nonsense.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use pumice_engine::plugin::Registry;
use pumice_engine::{
    Config, Delta, GroupFacts, GroupPhase, GroupStatus, NodeFacts, Plan, PodFacts, PodTemplate, QueueFacts, Resources,
    World,
};

use super::*;

/// What was asked: path and body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A server on a free port; it answers each POST with what `answer` makes of path and body, or with nothing at all.
fn server(answer: impl Fn(&str, &Value) -> Option<String> + Send + 'static) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked: Asked = Asked::default();
    let seen = asked.clone();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let Some((path, body)) = request(&mut stream) else { continue };
            let reply = answer(&path, &body);
            seen.lock().unwrap().push((path, body));
            match reply {
                Some(reply) => {
                    let _ = stream.write_all(reply.as_bytes());
                }
                // Kept open, never answered.
                None => held.push(stream),
            }
        }
    });
    (address, asked)
}

fn request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    loop {
        let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
        text.extend_from_slice(&part[..read]);
        let Some(head) = text.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let lines = String::from_utf8_lossy(&text[..head]).to_ascii_lowercase();
        let length: usize = lines.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())?;
        if text.len() >= head + 4 + length {
            let path = String::from_utf8_lossy(&text[..head]).split(' ').nth(1)?.to_owned();
            return Some((path, serde_json::from_slice(&text[head + 4..]).ok()?));
        }
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

fn plugin(address: SocketAddr, verbs: &[&str], more: &str) -> String {
    let verbs: Vec<String> =
        verbs.iter().map(|verb| format!("extender.{verb}Verb: {}", verb.to_ascii_lowercase())).collect();
    format!(
        "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: nodeorder\n  \
         - name: extender\n    arguments: {{extender.urlPrefix: 'http://{address}/x/', {}{more}}}\n",
        verbs.join(", ")
    )
}

fn world(config: &str) -> World {
    let mut registry = Registry::default();
    register(&mut registry);
    let (config, warnings) = Config::parse_with(config, &registry).unwrap();
    assert_eq!(warnings, []);
    let mut world = World::with_plugins(config, registry);
    let amounts =
        |cpu| Resources::from([("cpu".to_owned(), cpu), ("memory".to_owned(), 1 << 30), ("pods".to_owned(), 9)]);
    world.apply(&Delta::QueueUpsert(QueueFacts { name: "q".to_owned(), weight: 1, ..QueueFacts::default() }));
    for (name, cpu) in [("small", 2_000), ("large", 64_000)] {
        let (name, allocatable) = (name.into(), amounts(cpu));
        world.apply(&Delta::NodeUpsert(NodeFacts { name, allocatable, ..NodeFacts::default() }));
    }
    world.apply(&Delta::GroupUpsert(Box::new(GroupFacts {
        namespace: "ns".to_owned(),
        name: "g".to_owned(),
        uid: "g".into(),
        queue: "q".to_owned(),
        min_member: 1,
        min_resources: Some(Resources::from([("cpu".to_owned(), 1_000)])),
        status: GroupStatus { phase: GroupPhase::Pending, ..GroupStatus::default() },
        ..GroupFacts::default()
    })));
    world.apply(&Delta::TaskUpsert(Box::new(PodFacts {
        uid: "u".into(),
        namespace: "ns".to_owned(),
        name: "p".to_owned(),
        mine: true,
        group: Some("g".to_owned()),
        template: PodTemplate { requests: Resources::from([("cpu".to_owned(), 1_000)]), ..PodTemplate::default() }
            .into(),
        ..PodFacts::default()
    })));
    world
}

fn bound(plan: &Plan) -> Option<&str> {
    plan.binds.first().map(|bind| bind.node.as_str())
}

#[test]
fn its_answers_decide_and_it_is_told_in_volcanos_words() {
    let (address, asked) = server(|path, body| {
        Some(ok(&match path {
            "/x/predicate" if body["node"]["Name"] == "large" => json!({"status": "too large", "code": 0}).to_string(),
            "/x/jobenqueueable" => json!({"status": 1}).to_string(),
            _ => "{}".to_owned(),
        }))
    });
    let verbs = ["onSessionOpen", "predicate", "jobEnqueueable", "jobEnqueued", "allocateFunc"];
    let plan = world(&plugin(address, &verbs, "")).cycle(TimeMs(0));
    assert_eq!(bound(&plan), Some("small"));
    let asked = asked.lock().unwrap();
    let body = |path: &str| &asked.iter().find(|(asked, _)| asked == path).expect(path).1;
    assert_eq!(body("/x/onsessionopen")["Nodes"]["large"]["Allocatable"]["MilliCPU"], 64_000);
    assert_eq!(body("/x/jobenqueueable")["job"]["UID"], "ns/g");
    assert_eq!(body("/x/predicate")["task"]["Resreq"]["MilliCPU"], 1_000);
    assert_eq!(body("/x/predicate")["task"]["Status"], 1);
    assert_eq!(body("/x/jobenqueued")["job"]["Queue"], "q");
    assert_eq!(body("/x/allocatefunc")["task"]["NodeName"], "small");
}

#[test]
fn its_scores_are_added() {
    for (score, node) in [("1e300", "small"), ("-7.6", "large")] {
        let body = format!(r#"{{"nodeScore": {{"small": {score}, "other": 5}}}}"#);
        let (address, _) = server(move |_, _| Some(ok(&body)));
        let plan = world(&plugin(address, &["prioritize"], "")).cycle(TimeMs(0));
        assert_eq!(bound(&plan), Some(node), "{score}");
    }
}

#[test]
fn queues_and_groups_wait_where_it_says_so() {
    for (verb, body) in
        [("queueOverused", r#"{"overused": true}"#), ("jobEnqueueable", r#"{"status": -1}"#), ("jobReady", "{}")]
    {
        let (address, _) = server(move |_, _| Some(ok(body)));
        let plan = world(&plugin(address, &[verb], "")).cycle(TimeMs(0));
        assert_eq!(bound(&plan), None, "{verb}");
    }
}

#[test]
fn pods_of_unmanaged_resources_are_none_of_its_business() {
    let (address, asked) = server(|_, _| Some(ok(r#"{"status": "no"}"#)));
    let config = plugin(address, &["predicate", "prioritize"], ", extender.managedResources: [vendor/gpu]");
    assert!(bound(&world(&config).cycle(TimeMs(0))).is_some());
    assert_eq!(asked.lock().unwrap().len(), 0);
}

/// Servers without an answer: what each does, and how often it is asked at most in one cycle.
#[test]
fn without_an_answer_ignorable_decides_and_silence_is_met_once_a_cycle() {
    let hangs = || server(|_, _| None);
    let large = || server(|_, _| Some(ok(&format!("{{\"status\": \"{}\"}}", "x".repeat(11 << 20)))));
    let nonsense = || server(|_, _| Some(ok("<html>")));
    let wrong = || server(|_, _| Some(ok(r#"{"status": {"deep": []}}"#)));
    let failing = || server(|_, _| Some("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_owned()));
    let garbage = || server(|_, _| Some("what is this\r\n\r\n".to_owned()));
    type Server<'a> = &'a dyn Fn() -> (SocketAddr, Asked);
    let servers: [(&str, Server<'_>, bool); 6] = [
        ("hangs", &hangs, true),
        ("large", &large, false),
        ("nonsense", &nonsense, false),
        ("wrong", &wrong, false),
        ("failing", &failing, false),
        ("garbage", &garbage, true),
    ];
    for (name, server, silent) in servers {
        for ignorable in [true, false] {
            let (address, asked) = server();
            let more = format!(", extender.ignorable: {ignorable}, extender.httpTimeout: 1500ms");
            let plan = world(&plugin(address, &["predicate"], &more)).cycle(TimeMs(0));
            assert_eq!(bound(&plan).is_some(), ignorable, "{name}");
            let asked = asked.lock().unwrap().len();
            assert!(asked >= 1 && (!silent || asked == 1), "{name} was asked {asked} times");
        }
    }
}

#[test]
fn a_server_that_is_gone_is_an_answer_by_ignorable_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // The own end of a connection: the port is taken, and nobody listens there.
    let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let address = connection.local_addr().unwrap();
    for ignorable in [true, false] {
        let more = format!(", extender.ignorable: {ignorable}");
        let plan = world(&plugin(address, &["jobEnqueueable", "predicate"], &more)).cycle(TimeMs(0));
        assert_eq!(bound(&plan).is_some(), ignorable);
    }
}

#[test]
fn a_configuration_that_can_not_work_is_refused() {
    let mut registry = Registry::default();
    register(&mut registry);
    let refused = |arguments: &str| {
        let text = format!("actions: allocate\ntiers:\n- plugins:\n  - name: extender\n    arguments: {arguments}\n");
        Config::parse_with(&text, &registry).map(|_| ()).map_err(|error| error.to_string())
    };
    assert!(refused("{}").is_ok(), "nothing is asked");
    for (arguments, says) in [
        ("{extender.predicateVerb: p}", "must be an address"),
        ("{extender.predicateVerb: p, extender.urlPrefix: 'https://x'}", "without TLS"),
        ("{extender.predicateVerb: p, extender.urlPrefix: 'http://x', extender.httpTimeout: soon}", "a duration"),
        ("{extender.predicateVerb: p, extender.urlPrefix: 'http://x', extender.httpTimeout: -1s}", "a duration"),
    ] {
        let error = refused(arguments).expect_err(arguments);
        assert!(error.contains(says), "{error}");
    }
}
