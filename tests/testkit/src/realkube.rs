//! A real Kubernetes control plane in a temporary directory, with our components as processes of their own.
//!
//! etcd, kube-apiserver and kube-controller-manager, built by `tests/realkube/build`. There is no kubelet: nodes are simulated
//! ones. RBAC is on and every component is a user with the rights of `pumice_auth` and no more.
//!
//! Invariant: when a [`RealKube`] is dropped nothing of it is left: no process, no file.

use std::net::TcpListener;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pumice_api::names;
use pumice_auth::{Ca, Component as Role, Identities, Issued, MASTERS, installation, kubeconfig, write_private};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certificate::{now, write_certificate};
use crate::{Clients, Process, binary, eventually};

/// Builds what is missing and prints where it is.
const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../realkube/build");
/// User of the kubeconfig, a member of `system:masters`.
const ADMINISTRATOR: &str = "pumice:administrator";
/// The user whose rights kube-apiserver makes by itself.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// Gangs of Kubernetes' own, which are not on by default: the kinds, and what its Job controller makes of them.
const GATES: &str = "GenericWorkload=true,WorkloadWithJob=true";
/// A free port may be taken by somebody else before it is used.
const ATTEMPTS: usize = 3;

/// What a control plane is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Nothing is left out but what needs machines.
    Life,
    /// What the peers were measured on: kube-apiserver and etcd alone, everybody served as fast as it can be.
    Load,
}

/// One of our programs, and how it was started.
struct Component {
    name: String,
    kubeconfig: PathBuf,
    args: Vec<String>,
    process: Process,
}

impl Component {
    fn start(name: &str, kubeconfig: PathBuf, args: Vec<String>, directory: &Path) -> Component {
        let mut command = Command::new(binary("pumice"));
        command.args(&args).arg("--kubeconfig").arg(&kubeconfig);
        let process = Process::start(name, &mut command, directory);
        Component { name: name.to_owned(), kubeconfig, args, process }
    }
}

/// A control plane, and what runs on it.
pub struct RealKube {
    // Dropped in this order: who still has something to say ends before who listens.
    components: Vec<Component>,
    plane: Vec<Process>,
    clients: Clients,
    pki: Pki,
    directory: TempDir,
}

impl Deref for RealKube {
    type Target = Clients;

    fn deref(&self) -> &Clients {
        &self.clients
    }
}

/// A namespace of a control plane that tests share as long as one of them runs.
pub struct Tenant {
    clients: Clients,
    cluster: Arc<RealKube>,
}

impl Tenant {
    /// A namespace of the shared control plane, which has `nodes` simulated nodes if this is the first to ask.
    pub fn new(namespace: &str, nodes: u32) -> Tenant {
        static SHARED: Mutex<Weak<RealKube>> = Mutex::new(Weak::new());
        // Who panics here has left it as it was.
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = shared.upgrade().unwrap_or_else(|| {
            let mut cluster = RealKube::with_pumice(nodes);
            cluster.start_admission(&[]);
            Arc::new(cluster)
        });
        *shared = Arc::downgrade(&cluster);
        drop(shared);
        let clients = cluster.in_namespace(&cluster.kubeconfig(), namespace);
        // Pods are refused without it.
        eventually("there is a service account", || clients.get("serviceaccount", "default").ok_or(String::new()));
        Tenant { clients, cluster }
    }
}

impl Deref for Tenant {
    type Target = Clients;

    fn deref(&self) -> &Clients {
        &self.clients
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.cluster.components.iter().for_each(|component| eprintln!("{}", component.process.tail()));
        }
    }
}

impl RealKube {
    /// Starts a control plane and waits until it takes pods.
    ///
    /// # Panics
    /// When it does not come up; the logs are shown.
    #[allow(clippy::new_without_default)] // it starts processes
    pub fn new() -> RealKube {
        let mut cluster = RealKube::start(Purpose::Life);
        let mut manager = manager(&programs(), &cluster.pki);
        let manager = Process::start("kube-controller-manager", &mut manager, cluster.scratch());
        cluster.plane.insert(0, manager);
        // Pods are refused without it.
        cluster.wait("there is a service account", |clients| clients.get("serviceaccount", "default").is_some());
        cluster
    }

    /// Starts kube-apiserver and etcd as the peers were measured on them: no kube-controller-manager, hence no service
    /// accounts and no taints of nodes; no priority and fairness, 4,000 requests in flight.
    ///
    /// # Panics
    /// When it does not come up; the logs are shown.
    pub fn for_load() -> RealKube {
        RealKube::start(Purpose::Load)
    }

    fn start(purpose: Purpose) -> RealKube {
        let programs = programs();
        let directory = tempfile::Builder::new().prefix("pumice-realkube-").tempdir().expect("a temporary directory");
        let root = directory.path();
        let pki = Pki::new(root);

        let (etcd, etcd_url) = start_on_free_port("etcd", |port| etcd(&programs, root, port), root);
        let (apiserver, url) =
            start_on_free_port("kube-apiserver", |port| apiserver(&programs, &pki, &etcd_url, port, purpose), root);
        let pki = Pki { url: url.replace("http:", "https:"), ..pki };
        let clients = Clients::new(&pki.kubeconfig_of(ADMINISTRATOR, &[MASTERS]), root);
        let mut cluster = RealKube { components: Vec::new(), plane: vec![apiserver, etcd], clients, pki, directory };
        cluster.wait("kube-apiserver is ready", |clients| clients.kubectl(["get", "--raw", "/readyz"]).code == 0);
        cluster
    }

    /// A control plane with our definitions, roles and components, and `nodes` simulated nodes that are ready.
    pub fn with_pumice(nodes: u32) -> RealKube {
        let mut cluster = RealKube::new();
        cluster.install();
        let count = nodes.to_string();
        cluster.start_component("nodes", names::USER_NODE, &["node", "simulated", "--nodes", &count]);
        cluster.start_component("scheduler", names::USER_SCHEDULER, &["scheduler", "run"]);
        cluster.start_component("controllers", names::USER_CONTROLLERS, &["controllers", "run"]);
        cluster.wait("all nodes are ready and untainted", |clients| {
            let usable = |node: &Value| node["spec"]["taints"].is_null() && is_ready(node);
            clients.list("nodes").iter().filter(|node| usable(node)).count() == nodes as usize
        });
        cluster
    }

    /// Installs Volcano's definitions, and the roles and the namespace of our components, which are users here.
    pub fn install(&mut self) {
        let list = |items: Vec<Value>| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        self.kubectl_with_input(["create", "-f", "-"], &list(pumice_api::crds::all())).ok();
        let all = [Role::Scheduler, Role::Controllers, Role::Admission, Role::Nodes];
        let rights = installation(&all, names::NAMESPACE_SYSTEM, Identities::Users);
        self.kubectl_with_input(["create", "-f", "-"], &list(rights)).ok();
        self.wait_for_definitions();
    }

    /// Runs `pumice ARGS` as `user` beside the test.
    pub fn start_component(&mut self, name: &str, user: &str, args: &[&str]) {
        self.start_component_with(name, self.pki.kubeconfig_of(user, &[]), args);
    }

    /// Runs `pumice ARGS` with a kubeconfig of the test's own beside the test.
    pub fn start_component_with(&mut self, name: &str, kubeconfig: PathBuf, args: &[&str]) {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.components.push(Component::start(name, kubeconfig, args, self.directory.path()));
    }

    /// Runs admission beside the test, and waits until the API server asks it.
    pub fn start_admission(&mut self, flags: &[&str]) {
        let kubeconfig = self.pki.kubeconfig_of(names::USER_ADMISSION, &[]);
        self.start_admission_with(kubeconfig, &[&["admission", "run"], flags].concat());
    }

    /// The same with a kubeconfig and all flags of the test's own, but where it listens.
    pub fn start_admission_with(&mut self, kubeconfig: PathBuf, args: &[&str]) {
        let port = free_port();
        let (url, port) = (format!("https://127.0.0.1:{port}"), port.to_string());
        let place = ["--listen-address", "127.0.0.1", "--port", &port, "--webhook-url", &url];
        self.start_component_with("admission", kubeconfig, &[args, &place].concat());
        self.wait("the API server asks admission", |clients| {
            let queue = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: asked}\n\
                         spec: {weight: 1, parent: asked}\n";
            let output = clients.kubectl_with_input(["create", "--dry-run=server", "-f", "-"], queue);
            output.stderr.contains("denied the request")
        });
    }

    /// How a component was started.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn args_of(&self, name: &str) -> Vec<String> {
        let component = self.components.iter().find(|component| component.name == name);
        component.expect("a component's name").args.clone()
    }

    /// Ends a component.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn stop_component(&mut self, name: &str) {
        let place = self.components.iter().position(|component| component.name == name).expect("a component's name");
        self.components.remove(place);
    }

    /// Kills a component as a crash would and starts it again.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn crash_and_restart(&mut self, name: &str) {
        let place = self.components.iter().position(|component| component.name == name).expect("a component's name");
        let mut dead = self.components.remove(place);
        dead.process.crash();
        let Component { name, kubeconfig, args, .. } = dead;
        self.components.push(Component::start(&name, kubeconfig, args, self.directory.path()));
    }

    /// What runs: the control plane's programs and our components, by name.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.plane.iter().chain(self.components.iter().map(|component| &component.process))
    }

    /// The address of the API server.
    pub fn url(&self) -> &str {
        &self.pki.url
    }

    /// The kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.pki.kubeconfig_of(ADMINISTRATOR, &[MASTERS])
    }

    /// The kubeconfig of a user who has no rights but those that are given to it here.
    pub fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.pki.kubeconfig_of(user, &[])
    }

    /// The kubeconfig of a service account, as its pods have it: by a token.
    pub fn kubeconfig_of_account(&self, namespace: &str, account: &str) -> PathBuf {
        let token = self.kubectl(["create", "token", account, "-n", namespace]).ok();
        let path = self.scratch().join(format!("{account}.kubeconfig"));
        // Clusters are the same for everybody, and so is the authority.
        std::fs::copy(self.kubeconfig(), &path).expect("copy a kubeconfig");
        let file = path.display().to_string();
        let config = ["config", "--kubeconfig", &file];
        self.kubectl([&config[..], &["set-credentials", account, "--token", token.trim()]].concat()).ok();
        self.kubectl([&config[..], &["set-context", "--current", "--user", account]].concat()).ok();
        path
    }

    /// Files in `directory` with a new certificate for this machine, its key, and their authority, which stays the same.
    pub fn certificate_files(&self, directory: &Path) -> (PathBuf, PathBuf, PathBuf) {
        write_certificate(&self.pki.ca, directory)
    }

    /// A program that `tests/realkube/build` has built; what it brings from its own source is beside it, as `NAME.source`.
    pub fn program(name: &str) -> PathBuf {
        programs().join(name)
    }

    /// Waits for a state, but not for what can't come because a process has ended.
    fn wait(&mut self, what: &str, reached: impl Fn(&Clients) -> bool) {
        let (plane, components, clients) = (&mut self.plane, &mut self.components, &self.clients);
        eventually(what, || {
            for process in plane.iter_mut().chain(components.iter_mut().map(|component| &mut component.process)) {
                assert_eq!(process.ended(), None, "{what}: a program has ended\n{}", process.tail());
            }
            if reached(clients) { Ok(()) } else { Err(String::new()) }
        });
    }
}

/// The folder of the three programs.
fn programs() -> PathBuf {
    let output = Command::new(BUILD).stderr(Stdio::inherit()).output().expect("run tests/realkube/build");
    assert!(output.status.success(), "tests/realkube/build failed");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// A port that is free at the moment.
fn free_port() -> u16 {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    free.expect("a free port").port()
}

/// Starts a program on a port that was free a moment ago, until one has lived long enough to have taken it.
fn start_on_free_port(name: &str, command: impl Fn(u16) -> Command, directory: &Path) -> (Process, String) {
    for _ in 0..ATTEMPTS {
        let port = free_port();
        let mut process = Process::start(name, &mut command(port), directory);
        let taken = eventually(&format!("{name} listens"), || {
            let listens = std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
            match process.ended() {
                Some(_) => Ok(false),
                None if listens => Ok(true),
                None => Err(process.tail()),
            }
        });
        if taken {
            return (process, format!("http://127.0.0.1:{port}"));
        }
        assert!(process.log().contains("address already in use"), "{name} ended\n{}", process.tail());
    }
    panic!("{name}: no port stayed free");
}

fn etcd(programs: &Path, root: &Path, port: u16) -> Command {
    let mut command = Command::new(programs.join("etcd"));
    let client = format!("http://127.0.0.1:{port}");
    command.arg("--data-dir").arg(root.join("etcd"));
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    // It is alone: nobody has to find its port for peers.
    command.args(["--listen-peer-urls", "http://127.0.0.1:0", "--log-level", "warn"]);
    command
}

fn apiserver(programs: &Path, pki: &Pki, etcd: &str, port: u16, purpose: Purpose) -> Command {
    let mut command = Command::new(programs.join("kube-apiserver"));
    let file = |name: &str| pki.root.join(name).display().to_string();
    let flags = [
        ("etcd-servers", etcd.to_owned()),
        ("secure-port", port.to_string()),
        ("bind-address", "127.0.0.1".into()),
        ("advertise-address", "127.0.0.1".into()),
        // An Endpoints object can't hold a loopback address, and nothing here looks for the service `kubernetes`.
        ("endpoint-reconciler-type", "none".into()),
        ("cert-dir", file("apiserver")),
        ("tls-cert-file", file("server.crt")),
        ("tls-private-key-file", file("server.key")),
        ("client-ca-file", file("pki/ca.crt")),
        ("service-account-issuer", "https://kubernetes.default.svc".into()),
        ("service-account-key-file", file("accounts.crt")),
        ("service-account-signing-key-file", file("accounts.key")),
        ("service-cluster-ip-range", "10.0.0.0/16".into()),
        ("authorization-mode", "Node,RBAC".into()),
        // As every cluster has it: what is privileged is for admission to say.
        ("allow-privileged", "true".into()),
        ("feature-gates", GATES.into()),
        ("runtime-config", "scheduling.k8s.io/v1alpha2=true".into()),
    ];
    command.args(flags.map(|(name, value)| format!("--{name}={value}")));
    if purpose == Purpose::Load {
        command.args(["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"]);
        command.args(["--enable-priority-and-fairness=false", "--max-requests-inflight=4000"]);
        command.arg("--max-mutating-requests-inflight=4000");
    }
    command
}

fn manager(programs: &Path, pki: &Pki) -> Command {
    let mut command = Command::new(programs.join("kube-controller-manager"));
    let file = |name: &str| pki.root.join(name).display().to_string();
    let flags = [
        ("kubeconfig", pki.kubeconfig_of(CONTROLLER_MANAGER, &[]).display().to_string()),
        // Each controller with the rights that kube-apiserver gives it.
        ("use-service-account-credentials", "true".into()),
        ("service-account-private-key-file", file("accounts.key")),
        ("root-ca-file", file("pki/ca.crt")),
        ("leader-elect", "false".into()),
        ("feature-gates", GATES.into()),
        // No listener of its own.
        ("secure-port", "0".into()),
    ];
    command.args(flags.map(|(name, value)| format!("--{name}={value}")));
    command
}

/// The certificates of one control plane.
struct Pki {
    ca: Ca,
    root: PathBuf,
    url: String,
}

impl Pki {
    fn new(root: &Path) -> Pki {
        let ca = Ca::open_or_create(&root.join("pki"), now()).expect("a certificate authority");
        let pki = Pki { ca, root: root.to_owned(), url: String::new() };
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        pki.write("server", &pki.ca.issue_server(&names, now()).expect("a certificate"));
        // Only its key pair is used, to sign tokens of service accounts.
        pki.write("accounts", &pki.ca.issue_client("accounts", &[], now()).expect("a certificate"));
        pki
    }

    fn write(&self, name: &str, issued: &Issued) {
        let file = |ending: &str| self.root.join(format!("{name}.{ending}"));
        write_private(&file("crt"), issued.certificate_pem.as_bytes()).expect("write a certificate");
        write_private(&file("key"), issued.key_pem.as_bytes()).expect("write a key");
    }

    /// The kubeconfig file of a user, made when it is first asked for.
    fn kubeconfig_of(&self, user: &str, groups: &[&str]) -> PathBuf {
        let path = self.root.join(format!("{}.kubeconfig", user.replace(':', "-")));
        if !path.exists() {
            let issued = self.ca.issue_client(user, groups, now()).expect("a certificate");
            write_private(&path, kubeconfig(&self.url, &self.ca, &issued).as_bytes()).expect("write a kubeconfig");
        }
        path
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}
