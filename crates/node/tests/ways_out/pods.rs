//! Runs the attempts of some rows in a pod, with all of its controls or with one off.
//!
//! A pod is made by the agent from a Pod object, as a user's is, wherever the object can say it. What only a shim's spec can
//! say is changed in the spec that the agent has made of the object, and a shim runs that.

use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::Pod;
use pumice_shim::spec::{MountSpec, Network, Processes, RootKind, SPEC_FILE, ShimSpec};
use serde_json::{Value, json};

use crate::attempts::{limits, rights};
use crate::fixture::{Fixture, NOBODY};
use crate::harness::{TestPod, wait_for};
use crate::node::TestNode;
use crate::probe::{ORDER, Order, PROBE_ARGS, REPORT, outcome_in};
use crate::table::{Control, Outcome, PodKind, Row};

/// The program's path in the containers that mount it.
const PROGRAM: &str = "/ways-out";

/// A pod for some attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trial {
    pub pod: PodKind,
    /// The control that it is without.
    pub off: Option<Control>,
}

impl Trial {
    /// Whether it needs what only a shim's spec can say.
    fn is_by_spec(self) -> bool {
        use Control::{DeviceGroup, HiddenFolder, Namespaces, Overlay, ProcessLimit, ProgramView};
        matches!(
            self.pod,
            PodKind::AllDevices
                | PodKind::DataMounted
                | PodKind::Limited
                | PodKind::OwnUsersHostProcesses
                | PodKind::Restricted
                | PodKind::Rootless
        ) || matches!(self.off, Some(DeviceGroup | HiddenFolder | Namespaces | Overlay | ProcessLimit | ProgramView))
    }

    /// Whether its root is the host's own, where no mount point is made.
    fn is_in_hosts_root(self) -> bool {
        matches!(self.off, Some(Control::Namespaces | Control::Overlay))
    }
}

/// A node, and what is on the machine for attempts to reach.
pub struct Suite {
    node: TestNode,
    fixture: Fixture,
    program: PathBuf,
    pods: AtomicU32,
}

impl Suite {
    pub async fn start() -> Suite {
        let node = TestNode::start().await;
        let fixture = Fixture::make(&node).await;
        Suite { node, fixture, program: std::env::current_exe().unwrap(), pods: AtomicU32::new(0) }
    }

    /// What came of the attempts of `rows`.
    pub async fn make(&self, trial: Trial, rows: &[&'static Row]) -> Vec<((&'static str, Trial), Outcome)> {
        if trial.pod != PodKind::Limited {
            return self.make_in_one_pod(trial, rows).await;
        }
        // Who takes too much memory may end the whole container, and with it the attempts that would come after.
        let mut outcomes = Vec::new();
        for row in rows {
            outcomes.extend(self.make_in_one_pod(trial, &[row]).await);
        }
        outcomes
    }

    async fn make_in_one_pod(&self, trial: Trial, rows: &[&'static Row]) -> Vec<((&'static str, Trial), Outcome)> {
        let names: Vec<String> = rows.iter().map(|row| row.name.to_owned()).collect();
        let number = self.pods.fetch_add(1, Ordering::Relaxed);
        let volume = if trial.is_in_hosts_root() { &self.fixture.facts.folder } else { Path::new("/volume") };
        let facts = self.fixture.facts_of(format!("scratch-{number}"), volume.to_owned());
        let is_hook = trial.pod == PodKind::Exec;
        let order = |rows| serde_json::to_string(&Order { rows, facts: facts.clone(), is_hook }).unwrap();
        let by_agent = if trial.is_by_spec() { Vec::new() } else { names.clone() };
        let name = format!("trial-{number}");
        let pod = self.node.create(&name, self.pod(trial, &order(by_agent))).await;
        let is_over = |pod: &Pod| has_ended(pod) || refusal(pod).is_some() || (is_hook && has_started(pod));
        let ended = self.node.pod(&name, "ended or refused", is_over).await;
        let refused = refusal(&ended);
        let may_be_refused = rows.iter().all(|row| matches!(row.control, Control::Missing(_)));
        assert!(refused.is_none() || may_be_refused, "{trial:?}: {refused:?}");
        let (log, refused) = if refused.is_some() {
            (String::new(), refused)
        } else if is_hook {
            let report = self.fixture.facts.folder.join(&facts.scratch).join(REPORT);
            let report = || std::fs::read_to_string(&report).ok();
            (tokio::task::block_in_place(|| wait_for("the report of a hook", report)), None)
        } else if trial.is_by_spec() {
            let ran = tokio::task::block_in_place(|| self.run_spec(trial, &pod, &order(names), number));
            ran.map_or_else(|reason| (String::new(), Some(reason)), |log| (log, None))
        } else {
            (self.node.log(&name, "main").await, None)
        };
        let outcome = |row: &Row| match &refused {
            Some(reason) => Outcome::Refused(reason.clone()),
            None => outcome_in(&log, row).unwrap_or_else(|| panic!("{trial:?}: nothing of {:?} in {log}", row.name)),
        };
        rows.iter().map(|row| ((row.name, trial), outcome(row))).collect()
    }

    /// The spec of the Pod object.
    fn pod(&self, trial: Trial, order: &str) -> Value {
        let program = if trial.pod == PodKind::PlatformProgram { rights::EXE } else { PROGRAM };
        let command: Vec<&str> = [program].into_iter().chain(PROBE_ARGS).collect();
        let mut container = json!({"name": "main", "image": "none", "command": command,
            "env": [{"name": ORDER, "value": order}], "securityContext": security_context(trial)});
        if trial.pod == PodKind::Limited && trial.off != Some(Control::MemoryLimit) {
            container["resources"] = json!({"limits": {"memory": limits::MEMORY_BYTES_MAX.to_string()}});
        }
        if trial.pod == PodKind::Exec {
            container["lifecycle"] = json!({"postStart": {"exec": {"command": command}}});
            container["command"] = json!(["/bin/sleep", "600"]);
        }
        let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
        for (number, volume) in self.volumes(trial).into_iter().enumerate() {
            let name = format!("v{number}");
            volumes.push(json!({"name": name, "hostPath": {"path": volume.source}}));
            mounts.push(json!({"name": name, "mountPath": volume.target, "readOnly": volume.is_read_only}));
        }
        container["volumeMounts"] = mounts.into();
        let host_network = trial.off == Some(Control::OwnNetwork);
        let has_own_users = matches!(trial.pod, PodKind::OwnUsers | PodKind::OwnRoot | PodKind::OwnUsersHostProcesses);
        json!({"containers": [container], "volumes": volumes, "hostNetwork": host_network,
            "hostUsers": !has_own_users || trial.off == Some(Control::OwnUsers), "automountServiceAccountToken": false})
    }

    fn volumes(&self, trial: Trial) -> Vec<Volume> {
        let volume = |source: PathBuf, target| Volume { source, target, is_read_only: false };
        let (facts, folder) = (&self.fixture.facts, self.fixture.path());
        let is_read_only = trial.off != Some(Control::ReadOnlyVolume);
        let mut volumes = vec![
            Volume { source: self.program.clone(), target: PROGRAM, is_read_only: true },
            volume(facts.folder.clone(), "/volume"),
            Volume { source: folder.join("read-only"), target: "/read-only", is_read_only },
        ];
        match trial.off {
            Some(Control::OwnSys) => volumes.push(volume("/sys".into(), "/sys")),
            Some(Control::NoControlGroups) => {
                volumes.push(volume(self.fixture.control_groups.clone(), "/sys/fs/cgroup"))
            }
            _ => {}
        }
        if trial.pod == PodKind::ParentMounted {
            volumes.push(volume(self.node.data_dir.path().to_owned(), "/parent"));
        }
        volumes
    }

    /// Runs the agent's spec of `pod`, which has ended, with changes. Returns its log and last message, or why its shim refused it.
    fn run_spec(&self, trial: Trial, pod: &Pod, order: &str, number: u32) -> Result<String, String> {
        let bytes = std::fs::read(self.node.pod_dir(pod).join(SPEC_FILE)).unwrap();
        let mut spec: ShimSpec = serde_json::from_slice(&bytes).unwrap();
        let dir = tempfile::tempdir().unwrap();
        spec.uid = format!("{}-by-spec", spec.uid);
        if let Network::Bridge { veth, .. } = &mut spec.network {
            // The kernel takes its time to remove the link of the pod that had this address.
            *veth = format!("wo{:x}n{number:x}", std::process::id());
        }
        let container = &mut spec.containers[0];
        container.env.iter_mut().filter(|(name, _)| name == ORDER).for_each(|(_, value)| order.clone_into(value));
        if trial.is_in_hosts_root() {
            container.mounts.clear();
            container.argv[0] = self.program.to_string_lossy().into_owned();
        }
        if let Some(cgroup) = &mut spec.cgroup {
            cgroup.path.set_file_name(&spec.uid);
            if trial.pod == PodKind::Limited {
                cgroup.pids_max = (trial.off != Some(Control::ProcessLimit)).then_some(limits::PROCESSES_MAX);
            }
        }
        if trial.pod == PodKind::AllDevices || trial.off == Some(Control::DeviceGroup) {
            spec.containers[0].devices = None;
        }
        if trial.pod == PodKind::OwnUsersHostProcesses {
            spec.processes = Processes::Host;
        }
        if trial.pod == PodKind::Rootless {
            keep_what_users_may_have(&mut spec, dir.path(), &[&self.program, self.fixture.path()]);
            spec.isolation.user = trial.off != Some(Control::UserNamespace);
            spec.isolation.root = if spec.isolation.user { RootKind::OverlayByFolder } else { RootKind::Overlay };
        }
        if trial.pod == PodKind::Restricted && trial.off != Some(Control::AllowList) {
            spec.isolation.root = RootKind::AllowList;
        }
        match trial.off {
            Some(Control::Namespaces) => spec.isolation.namespaces = false,
            Some(Control::Overlay) => spec.isolation.root = RootKind::Host,
            Some(Control::HiddenFolder) => spec.hidden.clear(),
            // A shim of the suite is started by the program's own file, whatever else is changed.
            _ => {}
        }
        if trial.pod == PodKind::DataMounted {
            let link = self.fixture.path().join(format!("link-{number}"));
            symlink(&self.fixture.facts.data_dir, &link).unwrap();
            let mount = MountSpec { source: link, sub_path: None, target: "/data".into(), read_only: false };
            spec.containers[0].mounts.push(mount);
        }
        let pod = TestPod { dir, spec };
        let end = pod.start().exit();
        let message = end.message.unwrap_or_default();
        match end.reason.as_str() {
            "StartError" => Err(message),
            "OOMKilled" => Err("its container was ended for memory".to_owned()),
            _ => Ok(format!("{}{message}\n", pod.log())),
        }
    }
}

/// Makes a spec one that a shim of an ordinary user can follow: no control group, no link, no files of root's.
fn keep_what_users_may_have(spec: &mut ShimSpec, dir: &Path, sources: &[&Path]) {
    (spec.network, spec.cgroup) = (Network::Host, None);
    let container = &mut spec.containers[0];
    container.groups.clear();
    container.mounts.retain(|mount| sources.iter().any(|source| mount.source.starts_with(source)));
    if let Some(filter) = &mut container.seccomp {
        let own = dir.join("filter");
        std::fs::copy(&*filter, &own).unwrap();
        chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
        *filter = own;
    }
}

/// A folder or file of the host in a container.
struct Volume {
    source: PathBuf,
    target: &'static str,
    is_read_only: bool,
}

fn security_context(trial: Trial) -> Value {
    let mut context = match trial.pod {
        PodKind::Tenant => json!({"runAsUser": NOBODY, "runAsGroup": NOBODY, "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true}),
        PodKind::RightsDropped => json!({"capabilities": {"drop": ["ALL"]}}),
        PodKind::OwnRoot => json!({"privileged": true}),
        PodKind::MakesNodes => json!({"capabilities": {"add": ["MKNOD"]}}),
        _ => json!({}),
    };
    match trial.off {
        Some(Control::Capability(name)) => context["capabilities"]["add"] = json!([name]),
        Some(Control::Seccomp) => context["seccompProfile"] = json!({"type": "Unconfined"}),
        Some(Control::Unprivileged) => context["privileged"] = true.into(),
        Some(Control::NoNewPrivileges) => context["allowPrivilegeEscalation"] = true.into(),
        Some(Control::User) => (context["runAsUser"], context["runAsGroup"]) = (0.into(), 0.into()),
        Some(Control::ReadOnlyRoot) => context["readOnlyRootFilesystem"] = false.into(),
        _ => {}
    }
    context
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether all containers run, which they do once their hooks have ended.
fn has_started(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    containers.is_some_and(|containers| containers.iter().all(|container| container.started == Some(true)))
}

/// Why the node does not start a pod.
fn refusal(pod: &Pod) -> Option<String> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let reason = containers.first()?.state.as_ref()?.waiting.as_ref()?.reason.clone()?;
    (reason != "ContainerCreating").then_some(reason)
}
