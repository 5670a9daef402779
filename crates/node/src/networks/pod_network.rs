//! Sockets within a pod's network, for connections that the agent makes in the pod's place: to its own loopback, or wherever a
//! probe or hook of it goes.
//!
//! Invariant: a socket belongs to the network in which it was made, so only its making needs a thread
//! inside; nothing else of the agent ever enters a pod. A pod that has a network of its own is never
//! mistaken for the host.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;

use pumice_shim::control::{self, ShimProcess};
use pumice_shim::spec::{Network, ShimSpec, SpecError};

/// Longest wait for a connection to a pod's port.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a pod's network can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodNetworkError {
    #[error("the pod does not run")]
    NotRunning,
    #[error("the pod has no network yet; try again")]
    NotReady,
    #[error("the pod's network can't be opened: {0}")]
    Open(#[source] io::Error),
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// The network of a pod that runs.
#[derive(Debug)]
pub(crate) enum PodNetwork {
    Host,
    /// A namespace, which stays for as long as this does.
    Own(File),
}

impl PodNetwork {
    /// The network of the pod in `dir`.
    pub(crate) fn open(dir: &Path) -> Result<Self, PodNetworkError> {
        if !control::is_alive(dir) {
            return Err(PodNetworkError::NotRunning);
        }
        if ShimSpec::read(dir)?.network == Network::Host {
            return Ok(PodNetwork::Host);
        }
        let shim = ShimProcess::read(dir).map_err(|_| PodNetworkError::NotReady)?;
        let found = File::open(format!("/proc/{}/ns/net", shim.pid)).map_err(PodNetworkError::Open)?;
        if !shim.is_current() {
            return Err(PodNetworkError::NotRunning);
        }
        let own = File::open("/proc/self/ns/net").map_err(PodNetworkError::Open)?;
        if identity(&found).map_err(PodNetworkError::Open)? == identity(&own).map_err(PodNetworkError::Open)? {
            return Err(PodNetworkError::NotReady);
        }
        Ok(PodNetwork::Own(found))
    }

    /// Connects to an address from within.
    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let made = self.sockets(1).await?.pop();
        let sockets = made.ok_or_else(|| io::Error::other("there is no socket"))?;
        let socket = match address {
            SocketAddr::V4(_) => Some(sockets.v4),
            SocketAddr::V6(_) => sockets.v6,
        };
        connect(socket.ok_or(io::ErrorKind::Unsupported)?, address).await
    }

    /// Makes `count` pairs of sockets within.
    pub(crate) async fn sockets(&self, count: usize) -> io::Result<Vec<Sockets>> {
        let PodNetwork::Own(namespace) = self else { return make(count) };
        let namespace = namespace.try_clone()?;
        let (done, made) = oneshot::channel();
        // A thread of its own, since it never comes back from the pod's network.
        std::thread::Builder::new().name("pod-network".to_owned()).spawn(move || {
            let sockets =
                setns(namespace, CloneFlags::CLONE_NEWNET).map_err(io::Error::from).and_then(|()| make(count));
            let _ = done.send(sockets);
        })?;
        made.await.unwrap_or_else(|_| Err(io::Error::other("the pod's network could not be entered")))
    }
}

/// Which namespace a file stands for.
fn identity(namespace: &File) -> io::Result<(u64, u64)> {
    let found = namespace.metadata()?;
    Ok((found.dev(), found.ino()))
}

/// Sockets for one connection, which may be to either of the loopback's addresses.
#[derive(Debug)]
pub(crate) struct Sockets {
    v4: TcpSocket,
    v6: Option<TcpSocket>,
}

fn make(count: usize) -> io::Result<Vec<Sockets>> {
    // A kernel without IPv6 is fine.
    (0..count).map(|_| Ok(Sockets { v4: TcpSocket::new_v4()?, v6: TcpSocket::new_v6().ok() })).collect()
}

impl Sockets {
    /// Connects to `port` of 127.0.0.1, then of ::1. The error is the first one's.
    pub(crate) async fn connect(self, port: u16) -> io::Result<TcpStream> {
        let first = connect(self.v4, SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
        match (first, self.v6) {
            (Err(error), Some(v6)) => {
                connect(v6, SocketAddr::from((Ipv6Addr::LOCALHOST, port))).await.map_err(|_| error)
            }
            (first, _) => first,
        }
    }
}

async fn connect(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpStream> {
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, socket.connect(address)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nix::sched::unshare;
    use pumice_linux::links;
    use pumice_linux::procfs;
    use pumice_shim::format::Format;
    use pumice_shim::spec::{Isolation, Processes, RestartPolicy, RootKind, SPEC_FILE};
    use std::io::{Read, Write};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Writes the spec of a pod with this network.
    pub(crate) fn write_spec(dir: &Path, network: Network) {
        std::fs::write(dir.join(SPEC_FILE), serde_json::to_vec(&spec(network)).unwrap()).unwrap();
    }

    /// The spec of a pod without containers.
    pub(crate) fn spec(network: Network) -> ShimSpec {
        ShimSpec {
            format: Format,
            uid: "u".into(),
            boot_id: "b".into(),
            namespace: "ns".into(),
            name: "p".into(),
            owner: None,
            hostname: "p".into(),
            restart_policy: RestartPolicy::Never,
            grace_seconds: 1,
            active_deadline_seconds: None,
            users: None,
            isolation: Isolation { namespaces: false, user: false, root: RootKind::Host },
            processes: Processes::default(),
            host_ipc: false,
            sysctls: vec![],
            network,
            address: None,
            cgroup: None,
            memory_volumes: Vec::new(),
            image_volumes: Vec::new(),
            hidden: Vec::new(),
            log_bytes_max: 1 << 20,
            init_containers: Vec::new(),
            containers: Vec::new(),
        }
    }

    fn own() -> Network {
        let (address, gateway) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1));
        Network::Bridge { bridge: "b".into(), veth: "v".into(), address, prefix: 24, gateway }
    }

    #[test]
    fn only_a_pod_that_runs_has_a_network() {
        let dir = tempfile::tempdir().unwrap();
        let open = || PodNetwork::open(dir.path()).map_err(|error| error.to_string());
        write_spec(dir.path(), Network::Host);
        assert_eq!(open().unwrap_err(), "the pod does not run");
        let _lock = control::lock(dir.path()).unwrap();
        assert!(matches!(open(), Ok(PodNetwork::Host)));
        write_spec(dir.path(), own());
        assert_eq!(open().unwrap_err(), "the pod has no network yet; try again");
        let pid = i32::try_from(std::process::id()).unwrap();
        let here = ShimProcess { pid, start_ticks: procfs::start_ticks(pid).unwrap() };
        here.write(dir.path()).unwrap();
        assert_eq!(open().unwrap_err(), "the pod has no network yet; try again", "the host's is not the pod's");
        ShimProcess { start_ticks: here.start_ticks + 1, ..here }.write(dir.path()).unwrap();
        assert_eq!(open().unwrap_err(), "the pod does not run", "its pid is somebody else by now");
        std::fs::write(dir.path().join(SPEC_FILE), "{}").unwrap();
        assert_eq!(open().unwrap_err(), "spec.json is not a pod's spec");
    }

    #[tokio::test]
    async fn sockets_are_within_the_pods_network() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let (tell, told) = oneshot::channel();
        let pod = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            links::set_up(&mut links::open().unwrap(), links::LOOPBACK).unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let namespace = File::open(format!("/proc/self/task/{}/ns/net", nix::unistd::gettid())).unwrap();
            tell.send((namespace, listener.local_addr().unwrap().port())).unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            let mut bytes = [0; 5];
            peer.read_exact(&mut bytes).unwrap();
            peer.write_all(&bytes).unwrap();
        });
        let (namespace, port) = told.await.unwrap();
        let mut sockets = PodNetwork::Own(namespace).sockets(2).await.unwrap();
        let mut stream = sockets.pop().unwrap().connect(port).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut back = [0; 5];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"hello");
        pod.join().unwrap();
        let refused = sockets.pop().unwrap().connect(port).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "nobody listens any more");
    }
}
