//! Peers that say nothing, or half of it: they cost a bounded time and a bounded room, and keep nobody out.
//!
//! `PUMICE_HOSTILE_PEERS=full` runs them in thousands, and prints what a person notices meanwhile.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pumice_testkit::{Fleet, Peer, Platform, TlsStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::procfs::memory_kib;

/// When all of those who say nothing are gone: the longest limit of a stranger, and some more on a busy machine.
const GONE_WITHIN: Duration = Duration::from_secs(90);
/// What a request may take meanwhile. On a machine of its own 200 ms are not reached.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ADMINISTRATOR: Option<(&str, &[&str])> = Some(("person", &["system:masters"]));

/// What a peer sends before it says no more.
#[derive(Debug, Clone, Copy)]
enum Says {
    /// Not even a handshake.
    NoHandshake,
    Nothing,
    HalfHead,
    HalfPreface,
    HalfHeaders,
    HalfBody,
    /// A request over HTTP/2 whose answer has no room.
    NoWindow,
}

const SLOW: [Says; 6] =
    [Says::NoHandshake, Says::HalfHead, Says::HalfPreface, Says::HalfHeaders, Says::HalfBody, Says::NoWindow];

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// SETTINGS with INITIAL_WINDOW_SIZE 0.
const NO_WINDOW: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];

fn headers(path: &str, announced: usize) -> Vec<u8> {
    let mut block = vec![0x82, 0x87, 0x04, path.len() as u8];
    block.extend(path.as_bytes());
    block.extend([0x01, 1, b'h']);
    let length = (block.len() + announced) as u32;
    // END_STREAM and END_HEADERS, stream 1.
    let mut frame = [&length.to_be_bytes()[1..], &[1, 5, 0, 0, 0, 1]].concat();
    frame.extend(block);
    frame
}

impl Says {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::NoHandshake | Self::Nothing => Vec::new(),
            Self::HalfHead => b"GET /version HTTP/1.1\r\nHost: h\r\nX-".to_vec(),
            Self::HalfPreface => PREFACE[..14].to_vec(),
            Self::HalfHeaders => [PREFACE, NO_WINDOW, &headers("/version", 20)].concat(),
            Self::HalfBody => format!("POST {MAPS} HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\n{{").into_bytes(),
            Self::NoWindow => [PREFACE, NO_WINDOW, &headers("/version", 0)].concat(),
        }
    }

    /// Connects, says it, and waits until the server ends the connection.
    async fn run(self, peer: Peer) -> io::Result<()> {
        let mut buffer = [0; 1024];
        if let Self::NoHandshake = self {
            let mut socket = TcpStream::connect(peer.address()).await?;
            while socket.read(&mut buffer).await? > 0 {}
            return Ok(());
        }
        let mut connection = peer.connect().await?;
        connection.write_all(&self.bytes()).await?;
        while connection.read(&mut buffer).await? > 0 {}
        Ok(())
    }
}

/// Peers that say little, until they are let go.
struct Crowd {
    tasks: JoinSet<()>,
    left: Arc<AtomicUsize>,
}

impl Crowd {
    fn new() -> Self {
        Self { tasks: JoinSet::new(), left: Arc::default() }
    }

    fn add(&mut self, runtime: &Runtime, peer: &Peer, says: Says, count: usize) {
        self.left.fetch_add(count, Ordering::Relaxed);
        for _ in 0..count {
            let (peer, left) = (peer.clone(), Arc::clone(&self.left));
            self.tasks.spawn_on(
                async move {
                    // However the server ends it.
                    let _ = says.run(peer).await;
                    left.fetch_sub(1, Ordering::Relaxed);
                },
                runtime.handle(),
            );
        }
    }

    fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }
}

fn is_full() -> bool {
    std::env::var_os("PUMICE_HOSTILE_PEERS").is_some_and(|value| value == "full")
}

fn raise_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit of open files");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("raise the limit of open files");
}

/// Whoever asks while others say nothing.
struct Person {
    peer: Peer,
    path: &'static str,
    kept: Option<TlsStream<TcpStream>>,
    reused: Vec<Duration>,
    fresh: Vec<Duration>,
}

impl Person {
    fn new(peer: Peer, path: &'static str) -> Self {
        Self { peer, path, kept: None, reused: Vec::new(), fresh: Vec::new() }
    }

    /// Asks once over a connection that is kept, and once over a new one.
    async fn ask(&mut self) {
        let begun = Instant::now();
        let mut kept = match self.kept.take() {
            Some(kept) => kept,
            None => self.peer.connect().await.expect("a connection"),
        };
        let (code, ..) = Peer::ask(&mut kept, "GET", self.path, "").await.expect("an answer");
        assert_eq!(code, 200);
        self.kept = Some(kept);
        self.reused.push(begun.elapsed());
        let begun = Instant::now();
        let mut fresh = self.peer.connect().await.expect("a connection");
        let (code, ..) = Peer::ask(&mut fresh, "GET", self.path, "").await.expect("an answer");
        assert_eq!(code, 200);
        self.fresh.push(begun.elapsed());
    }

    fn judge(&mut self, what: &str) {
        for (how, times) in [("a kept connection", &mut self.reused), ("new connections", &mut self.fresh)] {
            times.sort();
            let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
            println!("{what}, {how}: p50 {:?}, p99 {:?}, of {}", at(50), at(99), times.len());
            assert!(at(99) < ANSWERED_WITHIN, "{what}, {how}: {:?}", at(99));
        }
    }
}

/// Counts that a server shows, by the beginning of their lines.
async fn metric(peer: &Peer, line: &str) -> f64 {
    let mut connection = peer.connect().await.expect("a connection");
    let (code, _, page) = Peer::ask(&mut connection, "GET", "/metrics", "").await.expect("an answer");
    assert_eq!(code, 200, "{page}");
    let values = page.lines().filter_map(|one| one.strip_prefix(line)?.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// Lets `silent` and `slow` peers come, looks at what a person notices, and waits until they are gone.
fn endure(runtime: &Runtime, pid: i32, nobody: &Peer, mut person: Person, silent: usize, slow: usize) {
    runtime.block_on(async {
        for _ in 0..20 {
            person.ask().await;
        }
    });
    person.judge("before");
    (person.reused, person.fresh) = Default::default();
    let idle = memory_kib(pid, "VmRSS");
    let mut most = idle;
    let begun = Instant::now();
    let mut crowd = Crowd::new();
    // Some at a time, as a person would not come through the handshakes of this machine's two cores otherwise.
    let step = 50;
    for at in (0..silent).step_by(step) {
        crowd.add(runtime, nobody, Says::Nothing, step.min(silent - at));
        let count = slow * step / silent;
        for (number, says) in SLOW.into_iter().enumerate() {
            crowd.add(runtime, nobody, says, count / SLOW.len() + usize::from(number < count % SLOW.len()));
        }
        runtime.block_on(person.ask());
        most = most.max(memory_kib(pid, "VmRSS"));
    }
    let came = begun.elapsed();
    while crowd.left() > 0 {
        assert!(begun.elapsed() < came + GONE_WITHIN, "{} are still there", crowd.left());
        runtime.block_on(async {
            person.ask().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        });
        most = most.max(memory_kib(pid, "VmRSS"));
    }
    println!("{silent} silent and {slow} slow came in {came:?} and were gone after {:?}", begun.elapsed());
    println!("memory {} MB, {} MB before", most >> 10, idle >> 10);
    person.judge("meanwhile");
    assert!(most < idle + idle / 2 + (64 << 10), "memory {} MB, {} MB before", most >> 10, idle >> 10);
    let (ended, anonymous) = runtime.block_on(async {
        let ended = metric(&person.peer, "pumice_connections_ended_total").await;
        (ended, metric(&person.peer, "pumice_connections{shown=\"anonymous\"}").await)
    });
    assert!(ended > 0.0 && anonymous < 5.0, "{ended} ended, {anonymous} are left");
}

#[test]
fn silent_and_slow_peers_keep_nobody_out_of_a_platform() {
    raise_descriptors();
    let platform = Platform::new();
    let runtime = Runtime::new().expect("a runtime");
    let (silent, slow) = if is_full() { (5000, 1000) } else { (600, 120) };
    let person = Person::new(platform.peer(ADMINISTRATOR), "/api/v1/namespaces/default");
    let pid = platform.pid().expect("it is up");
    endure(&runtime, pid, &platform.peer(None), person, silent, slow);
    let lines = platform.log().lines().filter(|line| line.contains("connections are ended to make room")).count();
    assert!(lines < 30, "{lines} lines tell of it");
}

#[test]
fn silent_and_slow_peers_keep_nobody_out_of_a_fleet() {
    raise_descriptors();
    let fleet = Fleet::server(&[]);
    let runtime = Runtime::new().expect("a runtime");
    let (silent, slow) = if is_full() { (2000, 400) } else { (300, 60) };
    let person = Person::new(fleet.peer(Some(("administrator", &["pumice:administrators"]))), "/health");
    endure(&runtime, fleet.process().pid(), &fleet.peer(None), person, silent, slow);
}

#[test]
fn unfinished_writes_of_one_user_hold_up_nobody() {
    let platform = Platform::new();
    platform.kubectl(["create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant"]).ok();
    let tenant = platform.peer(Some(("tenant", &[])));
    let mut crowd = Crowd::new();
    let runtime = Runtime::new().expect("a runtime");
    let begun = Instant::now();
    crowd.add(&runtime, &tenant, Says::HalfBody, 256);
    let administrator = platform.peer(ADMINISTRATOR);
    let other = platform.peer(Some(("other", &["system:masters"])));
    runtime.block_on(async {
        let bytes = async || metric(&administrator, "pumice_request_body_bytes").await;
        while bytes().await < 256.0 {
            assert!(begun.elapsed() < Duration::from_secs(25), "{} of 256 bodies have begun", bytes().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for (number, peer) in [&administrator, &other, &tenant].into_iter().enumerate() {
            let object =
                format!(r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "map-{number}"}}}}"#);
            let begun = Instant::now();
            let mut connection = peer.connect().await.expect("a connection");
            let (code, _, body) = Peer::ask(&mut connection, "POST", MAPS, &object).await.expect("an answer");
            println!("a write beside 256 unfinished ones: {:?}", begun.elapsed());
            assert_eq!(code, 201, "{body}");
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        }
        // The bodies are given up, and their memory with them; the connections go when they were idle for long enough.
        while bytes().await > 0.0 {
            assert!(begun.elapsed() < GONE_WITHIN, "bodies are still waited for");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
}
