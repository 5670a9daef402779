//! From a pod to what its shim runs.
//!
//! Invariant: pure: the same pod, sources and node give the same spec. What can't be resolved is an
//! error with the reason that a container waits for.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SecurityContext};

use crate::downward_api::{self, Placement};
use crate::images::{ImageContent, ImageEntry, ImageMap};
use crate::pod_spec::disk_limits;
use crate::pod_spec::environment::expand;
use crate::pod_spec::environment::{self, Environment};
use crate::pod_spec::names;
use crate::pod_spec::security::{self, NodeSupport, PodUsers};
use crate::pod_spec::sources::Sources;
use crate::pod_spec::users::{self, Lists};
use crate::pod_spec::volumes::{self, PlannedVolume, VolumeRoots};
use crate::probes::{self, ProbesAndHooks};
use crate::spec_numbers::{self, NumberError};
use crate::subordinate_ids::POD_IDS;
use pumice_linux::cgroup::{DiskLimits, Limits};
use pumice_shim::spec::{ContainerSpec, ImageVolume, MemoryVolume, MountSpec, RestartPolicy};

/// PATH in an image that sets none, as container engines have it.
const IMAGE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a pod can't be started as it is now; it may be later.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("{kind} {name:?} not found")]
    Missing { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {kind} {name:?}")]
    MissingKey { kind: &'static str, name: String, key: String },
    #[error("there is no field {path:?} that a container can refer to")]
    Field { path: String },
    #[error("the path {path:?} must be relative and must not contain '..'")]
    Path { path: String },
    #[error("the claim {claim:?} is not bound to a volume yet")]
    Unbound { claim: String },
    #[error("this node gets no images; start it without --images host")]
    NoImages,
    #[error(transparent)]
    Number(#[from] NumberError),
    #[error("this node can't provide {what}")]
    Unsupported { what: String },
    #[error(transparent)]
    Security(#[from] security::Refusal),
    #[error("{0}")]
    NoCommand(String),
    #[error("the image {image} runs as {name:?}, and its lists of users and groups have nobody of this name")]
    ImageUser { image: String, name: String },
    // The kubelet's words, by which people look for help.
    #[error("MountVolume.SetUp failed for volume {volume:?}")]
    Volume {
        volume: String,
        #[source]
        source: Box<ResolveError>,
    },
}

impl ResolveError {
    /// The reason that a waiting container shows.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            ResolveError::Volume { source, .. } => source.reason(),
            ResolveError::NoCommand(_) => "ErrImageNeverPull",
            _ => "CreateContainerConfigError",
        }
    }

    /// What is wrong with a volume of the pod.
    pub(crate) fn of_volume(self, volume: &str) -> ResolveError {
        ResolveError::Volume { volume: volume.to_owned(), source: Box::new(self) }
    }
}

/// The user and the group that a container runs as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub uid: u32,
    pub gid: u32,
}

/// What a node gives to every pod.
pub(crate) struct NodeGround<'a> {
    /// What images stand for.
    pub image_map: &'a ImageMap,
    /// The images themselves, by their names in the pod, of those that the map doesn't have.
    pub images: &'a BTreeMap<String, ImageEntry>,
    /// Where the image map is, for messages.
    pub image_map_path: Option<&'a Path>,
    /// PATH of containers that set none.
    pub default_path: &'a str,
    /// Identity when this node has no right to another.
    pub only_identity: Option<Identity>,
    /// Home of this process's user on the machine. It may be called root in a pod, and root's folder is none of its own.
    pub only_home: Option<&'a str>,
    /// Mounts of every container: hosts, host name, resolver.
    pub common_mounts: Vec<MountSpec>,
    /// Where the pod reaches the API server.
    pub api: Option<SocketAddrV4>,
    pub support: NodeSupport,
    /// Whose users this pod has.
    pub users: PodUsers,
    /// What a container's environment says of its accelerators.
    pub accelerators: &'a dyn Fn(&Container) -> Vec<(&'static str, String)>,
}

impl NodeGround<'_> {
    /// What a container's image stands for: an entry of the map wins over the image itself.
    fn entry(&self, container: &Container) -> Option<&ImageEntry> {
        let image = container.image.as_deref()?;
        self.image_map.get(image).or_else(|| self.images.get(image))
    }
}

/// What a pod is on this node: volumes to make before it starts, and containers as its shim runs them.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// By their names.
    pub volumes: BTreeMap<String, PlannedVolume>,
    pub memory_volumes: Vec<MemoryVolume>,
    pub image_volumes: Vec<ImageVolume>,
    pub group: Option<u32>,
    pub disk: Option<DiskLimits>,
    pub init_containers: Vec<ContainerSpec>,
    pub containers: Vec<ContainerSpec>,
}

/// Turns `pod` into what its shim runs; everything that it refers to is in `sources` already. Makes nothing on the disk.
pub(crate) fn resolve(
    pod: &Pod,
    sources: &Sources,
    placement: &Placement,
    node: &NodeGround<'_>,
    roots: &VolumeRoots<'_>,
) -> Result<Resolved, ResolveError> {
    let images = |container: &Container| image_identity(container, node.entry(container));
    let users = probes::containers(pod).map(|container| Ok((container.name.clone(), images(container)?)));
    let users = users.collect::<Result<BTreeMap<_, _>, ResolveError>>()?;
    let image_uid = |container: &Container| users.get(&container.name).copied().flatten().map(|identity| identity.uid);
    security::check(pod, node.users, &node.support, &image_uid)?;
    let planned = volumes::plan(pod, sources, placement, roots)?;
    let spec = pod.spec.as_ref().ok_or_else(|| ResolveError::Unsupported { what: "a pod without a spec".into() })?;
    let named = id("spec.securityContext.fsGroup", spec.security_context.as_ref().and_then(|one| one.fs_group))?;
    let group = if node.only_identity.is_none() { named } else { None };
    let container = |container: &Container| -> Result<ContainerSpec, ResolveError> {
        let entry = node.entry(container);
        let mut environment = base_environment(pod, container, entry, node);
        environment::add(&mut environment, pod, container, sources, placement)?;
        let mut mounts = node.common_mounts.clone();
        mounts.extend(volumes::mounts(container, &planned, |name| environment.get(name))?);
        let user = users.get(&container.name).copied().flatten();
        one(pod, container, Image { entry, user }, environment, mounts, node)
    };
    let init_containers = spec.init_containers.iter().flatten().map(container).collect::<Result<_, _>>()?;
    let containers = spec.containers.iter().map(container).collect::<Result<_, _>>()?;
    let memory_volumes = volumes::memory(&planned, group);
    let image_volumes = volumes::images(&planned);
    let disk = disk_limits::of_pod(pod, node.support.disk_limits)?;
    Ok(Resolved { memory_volumes, image_volumes, group, disk, init_containers, containers, volumes: planned })
}

fn base_environment(
    pod: &Pod,
    container: &Container,
    entry: Option<&ImageEntry>,
    node: &NodeGround<'_>,
) -> Environment {
    let mut environment = Environment::default();
    let is_image = entry.is_some_and(|entry| entry.content.is_some());
    environment.set("PATH", if is_image { IMAGE_PATH } else { node.default_path }.to_owned());
    environment.set("HOSTNAME", names::own_name(pod));
    // Where clients look that find themselves in a pod.
    if let Some(api) = node.api {
        environment.set("KUBERNETES_SERVICE_HOST", api.ip().to_string());
        environment.set("KUBERNETES_SERVICE_PORT", api.port().to_string());
        environment.set("KUBERNETES_SERVICE_PORT_HTTPS", api.port().to_string());
    }
    for (name, value) in entry.iter().flat_map(|entry| &entry.env) {
        environment.set(name, value.clone());
    }
    for (name, value) in (node.accelerators)(container) {
        environment.set(name, value);
    }
    if container.tty == Some(true) {
        environment.set("TERM", "xterm".into());
    }
    environment
}

/// What a container's image says.
#[derive(Clone, Copy)]
struct Image<'a> {
    entry: Option<&'a ImageEntry>,
    /// Whom it runs as.
    user: Option<Identity>,
}

/// Whom an image runs as, by its own lists; none where it doesn't say.
fn image_identity(container: &Container, entry: Option<&ImageEntry>) -> Result<Option<Identity>, ResolveError> {
    let Some(content) = entry.and_then(|entry| entry.content.as_ref()) else { return Ok(None) };
    let Some(user) = &content.user else { return Ok(None) };
    let image = || container.image.clone().unwrap_or_default();
    let found = Lists::of_layers(&content.layers).find(user);
    let (uid, gid) = found.map_err(|name| ResolveError::ImageUser { image: image(), name })?;
    Ok(Some(Identity { uid, gid: gid.unwrap_or(0) }))
}

fn one(
    pod: &Pod,
    container: &Container,
    Image { entry, user }: Image<'_>,
    mut environment: Environment,
    mounts: Vec<MountSpec>,
    node: &NodeGround<'_>,
) -> Result<ContainerSpec, ResolveError> {
    let care = ProbesAndHooks::of(container).map_err(|error| ResolveError::Unsupported { what: error.to_string() })?;
    let sidecar = is_sidecar(container);
    let argv = argv(container, entry, &environment);
    if argv.is_empty() {
        return Err(no_command(container, entry, node.image_map_path));
    }
    let pod_context = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    let context = container.security_context.clone().unwrap_or_default();
    let root = entry.and_then(|entry| entry.root.clone());
    let content = entry.and_then(|entry| entry.content.as_ref());
    let files = root.as_deref().unwrap_or(Path::new("/"));
    let roots: Vec<&Path> = entry.and_then(|entry| entry.layer.as_deref()).into_iter().chain([files]).collect();
    let lists = content.map_or_else(|| Lists::of_roots(&roots), |content| Lists::of_layers(&content.layers));
    let image = content.map(|_| ImageUsers { user, lists: &lists });
    let Identity { uid, gid } = identity(&pod_context, &context, node.only_identity, image)?;
    // The user that the platform is, however the pod calls it.
    let is_platforms = node.only_identity.is_some() || node.users == PodUsers::Subordinate && uid == 0;
    // On the machine its groups are, and pods have them as long as they name none.
    let has_platforms_groups =
        node.only_identity.is_some() || is_platforms && users::names_no_group(&pod_context, &context);
    let mut groups = if has_platforms_groups { Vec::new() } else { users::all_groups(&pod_context, uid, gid, &lists)? };
    if node.users != PodUsers::Machines {
        // What it names itself was looked at before; the lists of a root may have others.
        groups.retain(|group| *group < POD_IDS);
    }
    let is_unlisted = content.is_some() && uid != 0 && !lists.has(uid);
    if environment.get("HOME").is_none() {
        // In a root folder of an image there is that image's home alone.
        let home = match node.only_home {
            Some(own) if root.is_none() && content.is_none() && is_platforms => own.to_owned(),
            _ if is_unlisted => format!("/home/{uid}"),
            _ if content.is_some() => lists.home(uid),
            _ => Lists::of_roots(&[files]).home(uid),
        };
        environment.set("HOME", home);
    }
    let home = environment.get("HOME").filter(|home| is_unlisted && home.starts_with('/')).map(PathBuf::from);
    let capabilities = context.capabilities.unwrap_or_default();
    let cwd = container.working_dir.clone().filter(|dir| !dir.is_empty());
    Ok(ContainerSpec {
        name: container.name.clone(),
        root,
        layer: entry.and_then(|entry| entry.layer.clone()),
        image_layers: content.map(|content| content.layers.clone()),
        declared_volumes: content.map(|content| declared_volumes(content, &mounts)).unwrap_or_default(),
        unlisted_home: home,
        stop_signal: content.and_then(|content| content.stop_signal),
        argv,
        env: environment.into_variables(),
        cwd: cwd.or_else(|| entry.and_then(|entry| entry.working_dir.clone())).unwrap_or_else(|| "/".into()),
        uid,
        gid,
        groups,
        mounts,
        read_only_root: context.read_only_root_filesystem == Some(true),
        privileged: context.privileged == Some(true),
        unmasked_proc: context.proc_mount.as_deref() == Some("Unmasked"),
        capabilities_add: capabilities.add.unwrap_or_default(),
        capabilities_drop: capabilities.drop.unwrap_or_default(),
        no_new_privileges: context.allow_privilege_escalation == Some(false),
        // A file that is made when the pod is, and devices that are looked up then.
        seccomp: None,
        app_armor: None,
        devices: None,
        accelerators: None,
        limits: limits(container),
        sidecar,
        start_gate: sidecar && care.is_awaited(),
        termination_message_path: container
            .termination_message_path
            .clone()
            .unwrap_or_else(|| "/dev/termination-log".into()),
        termination_message_from_log: container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError"),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        terminal: container.tty == Some(true),
    })
}

/// The folders that an image declares as volumes, but where the pod mounts something there or around it.
fn declared_volumes(content: &ImageContent, mounts: &[MountSpec]) -> Vec<PathBuf> {
    let is_free = |path: &&PathBuf| !mounts.iter().any(|mount| path.starts_with(&mount.target));
    content.volumes.iter().filter(is_free).cloned().collect()
}

/// Whether an init container goes on beside the containers.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// A container's command replaces the image's whole; its arguments alone replace the image's arguments. An entry may insist.
/// As with a kubelet, `$(NAME)` and `$$` count in what the pod and the map say, and mean nothing in what an image itself says.
fn argv(container: &Container, entry: Option<&ImageEntry>, environment: &Environment) -> Vec<String> {
    let expanded = |list: &[String]| -> Vec<String> {
        list.iter().map(|text| expand(text, |name| environment.get(name))).collect()
    };
    let own = |list: &Option<Vec<String>>| list.as_deref().filter(|list| !list.is_empty()).map(expanded);
    let of_entry = |list: fn(&ImageEntry) -> &Vec<String>| match entry {
        Some(entry) if entry.content.is_some() => list(entry).clone(),
        Some(entry) => expanded(list(entry)),
        None => Vec::new(),
    };
    let (command, args) = match entry {
        Some(entry) if entry.replace_command => (None, None),
        _ => (own(&container.command), own(&container.args)),
    };
    match (command, args) {
        (Some(command), args) => [command, args.unwrap_or_default()].concat(),
        (None, Some(args)) => [of_entry(|entry| &entry.command), args].concat(),
        (None, None) => [of_entry(|entry| &entry.command), of_entry(|entry| &entry.args)].concat(),
    }
}

fn no_command(container: &Container, entry: Option<&ImageEntry>, map: Option<&Path>) -> ResolveError {
    let image = container.image.as_deref().unwrap_or_default();
    if entry.is_some_and(|entry| entry.content.is_some()) {
        let name = &container.name;
        let text = format!(
            "container {name:?} has no command, and its image {image:?} names none; give the container a command"
        );
        return ResolveError::NoCommand(text);
    }
    let map = match map {
        Some(path) => format!("add {image:?} to the image map {}", path.display()),
        None => format!("start the node with an image map (--image-map FILE) that has {image:?}"),
    };
    ResolveError::NoCommand(format!(
        "container {:?} has no command, and this node runs host processes and pulls no image: {map}, with a command or a root \
         folder, or give the container a command",
        container.name
    ))
}

/// Users of an image.
#[derive(Clone, Copy)]
struct ImageUsers<'a> {
    /// Whom it runs as, if it says so.
    user: Option<Identity>,
    lists: &'a Lists,
}

fn identity(
    pod: &PodSecurityContext,
    context: &SecurityContext,
    only: Option<Identity>,
    image: Option<ImageUsers<'_>>,
) -> Result<Identity, ResolveError> {
    let uid = id("securityContext.runAsUser", context.run_as_user.or(pod.run_as_user))?;
    let gid = id("securityContext.runAsGroup", context.run_as_group.or(pod.run_as_group))?;
    // Who names no user is the image's, and root where it names none. Another one has the group that the image lists for it.
    let own = image.and_then(|image| image.user).filter(|own| uid.is_none_or(|uid| uid == own.uid));
    let listed = uid.zip(image).and_then(|(uid, image)| image.lists.first_group(uid));
    let first = own.map(|own| own.gid).or(listed);
    let uid = uid.or(own.map(|own| own.uid)).unwrap_or(0);
    Ok(only.unwrap_or(Identity { uid, gid: gid.or(first).unwrap_or(0) }))
}

/// The user or group that a field names, if it names one.
fn id(field: &str, named: Option<i64>) -> Result<Option<u32>, NumberError> {
    named.map(|named| spec_numbers::identity(field, named)).transpose()
}

fn limits(container: &Container) -> Limits {
    let resources = container.resources.as_ref();
    let quantity = |list: Option<&BTreeMap<String, _>>, name: &str| {
        list.and_then(|list| list.get(name)).and_then(downward_api::parse)
    };
    let (limits, requests) = (
        resources.and_then(|resources| resources.limits.as_ref()),
        resources.and_then(|resources| resources.requests.as_ref()),
    );
    let cpu_limit_milli = quantity(limits, "cpu").map(|cpu| cpu.cpu_milli()).filter(|milli| *milli > 0);
    Limits {
        memory_bytes: quantity(limits, "memory").map(|memory| memory.value()).filter(|bytes| *bytes > 0),
        cpu_request_milli: quantity(requests, "cpu").map(|cpu| cpu.cpu_milli()).or(cpu_limit_milli),
        cpu_limit_milli,
    }
}

/// The restart policy, which is Always when none is given.
pub(crate) fn restart_policy(pod: &Pod) -> RestartPolicy {
    match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    }
}

/// What a pod asks of the node at most at one time: its containers with all sidecars, or an init container with the sidecars
/// that were started before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    /// Thousandths of a core.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory_bytes: i64,
}

/// Adds up the requests of `pod`.
pub(crate) fn requests(pod: &Pod) -> Requests {
    let of = |container: &Container| {
        let resources = container.resources.as_ref();
        let quantity = |name: &str| {
            let asked = resources.and_then(|resources| resources.requests.as_ref()).and_then(|list| list.get(name));
            let limit = resources.and_then(|resources| resources.limits.as_ref()).and_then(|list| list.get(name));
            asked.or(limit).and_then(downward_api::parse)
        };
        Requests {
            cpu_milli: quantity("cpu").map_or(0, |cpu| cpu.cpu_milli()),
            memory_bytes: quantity("memory").map_or(0, |memory| memory.value()),
        }
    };
    let Some(spec) = &pod.spec else { return Requests::default() };
    let (mut sidecars, mut most) = (Requests::default(), Requests::default());
    for init in spec.init_containers.iter().flatten() {
        let together = sidecars.plus(of(init));
        most = most.max(together);
        if is_sidecar(init) {
            sidecars = together;
        }
    }
    most.max(spec.containers.iter().map(of).fold(sidecars, Requests::plus))
}

impl Requests {
    fn plus(self, other: Requests) -> Requests {
        Requests {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    /// The larger of each.
    fn max(self, other: Requests) -> Requests {
        Requests {
            cpu_milli: self.cpu_milli.max(other.cpu_milli),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
        }
    }
}

/// Paths of host aliases: address and names.
pub(crate) fn host_aliases(pod: &Pod) -> Vec<(String, Vec<String>)> {
    let aliases = pod.spec.iter().flat_map(|spec| spec.host_aliases.iter().flatten());
    aliases.map(|alias| (alias.ip.clone(), alias.hostnames.clone().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_spec::security::UserSupport;
    use serde_json::{Value, json};

    fn resolved(pod: Value) -> Result<ContainerSpec, ResolveError> {
        resolved_as(pod, None, None, PodUsers::Machines)
    }

    /// With the only identity that pods can have, and the home of the platform's user.
    fn resolved_as(
        pod: Value,
        only: Option<Identity>,
        home: Option<&str>,
        users: PodUsers,
    ) -> Result<ContainerSpec, ResolveError> {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let map = dir.path().join("map.yaml");
        std::fs::write(
            &map,
            "tf: {command: [python, -u], args: [default.py], root: /opt/tf, workingDir: /w}\nempty: {root: /r}\n\
             instead: {command: [echo, $(A)], args: [b], replaceCommand: true}\n\
             gpus: {command: [a], env: {NVIDIA_VISIBLE_DEVICES: all}}\n",
        )
        .unwrap();
        let image_map = ImageMap::read(&map).unwrap();
        let node = NodeGround {
            image_map: &image_map,
            images: &BTreeMap::new(),
            image_map_path: Some(Path::new("/etc/map.yaml")),
            default_path: "/bin",
            only_identity: only,
            only_home: home,
            common_mounts: vec![],
            api: Some(SocketAddrV4::new([10, 0, 0, 1].into(), 6443)),
            support: NodeSupport {
                namespaces: true,
                networks: true,
                control_groups: true,
                disk_limits: true,
                app_armor: false,
                selinux: false,
                only_uid: only.map(|identity| identity.uid),
                users: UserSupport::Some,
            },
            users,
            accelerators: &|_| {
                vec![("NVIDIA_VISIBLE_DEVICES", "0".to_owned()), ("CUDA_VISIBLE_DEVICES", "GPU-1".to_owned())]
            },
        };
        let roots = VolumeRoots { pod: Path::new("/pod"), claims: Path::new("/claims"), images: None };
        let resolved = resolve(&pod, &Sources::default(), &downward_api::placement(), &node, &roots)?;
        Ok(resolved.containers[0].clone())
    }

    fn pod(container: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    }

    #[test]
    fn command_and_arguments_combine_with_the_images() {
        let cases = [
            (json!({"name": "c", "image": "x", "command": ["a"], "args": ["b"]}), vec!["a", "b"]),
            (json!({"name": "c", "image": "x", "args": ["b", "c"]}), vec!["b", "c"]),
            (json!({"name": "c", "image": "tf"}), vec!["python", "-u", "default.py"]),
            (json!({"name": "c", "image": "tf", "args": ["my.py"]}), vec!["python", "-u", "my.py"]),
            (json!({"name": "c", "image": "tf:2", "command": ["sh"]}), vec!["sh"]),
            (
                json!({"name": "c", "image": "instead", "command": ["none"], "args": ["c"],
                       "env": [{"name": "A", "value": "a"}]}),
                vec!["echo", "a", "b"],
            ),
            (json!({"name": "c", "image": "instead", "args": ["c"]}), vec!["echo", "$(A)", "b"]),
            (
                json!({"name": "c", "image": "x", "command": ["$(A)", "$(HOSTNAME)", "$$(A)", "$(NONE)"],
                       "env": [{"name": "A", "value": "v"}]}),
                vec!["v", "p", "$(A)", "$(NONE)"],
            ),
        ];
        for (container, expected) in cases {
            assert_eq!(resolved(pod(container.clone())).unwrap().argv, expected, "{container}");
        }
    }

    #[test]
    fn a_pods_own_word_on_its_devices_goes_before_the_nodes_and_that_before_an_images() {
        let own = json!({"name": "c", "image": "gpus", "command": ["echo", "$(NVIDIA_VISIBLE_DEVICES)"],
            "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "1"}]});
        let spec = resolved(pod(own)).unwrap();
        let value = |wanted: &str| spec.env.iter().find(|(name, _)| name == wanted).map(|(_, value)| &**value);
        assert_eq!(value("NVIDIA_VISIBLE_DEVICES"), Some("0"));
        assert_eq!(value("CUDA_VISIBLE_DEVICES"), Some("1"));
        assert_eq!(spec.argv, ["echo", "0"]);
    }

    /// Bug: what a pod relied on and did not get was passed over in silence.
    #[test]
    fn a_pod_that_relies_on_what_this_node_has_not_waits_and_says_why() {
        let mut isolated = pod(json!({"name": "c", "image": "tf"}));
        assert!(resolved(isolated.clone()).is_ok());
        isolated["spec"]["os"] = json!({"name": "windows"});
        let refused = resolved(isolated).expect_err("refused");
        assert_eq!(refused.reason(), "CreateContainerConfigError");
        assert!(refused.to_string().starts_with("spec.os.name: "), "{refused}");
    }

    #[test]
    fn an_image_without_a_command_names_the_map() {
        for image in ["nginx", "empty"] {
            let error = resolved(pod(json!({"name": "c", "image": image}))).unwrap_err();
            assert_eq!(error.reason(), "ErrImageNeverPull");
            assert!(error.to_string().contains("the image map /etc/map.yaml"), "{error}");
            assert!(error.to_string().contains(image), "{error}");
        }
    }

    #[test]
    fn security_contexts_set_identity_and_rights() {
        let mut given = pod(json!({"name": "c", "image": "tf", "workingDir": "/mine",
            "securityContext": {"runAsUser": 7, "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
                                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true}}));
        given["spec"]["securityContext"] =
            json!({"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4]});
        let spec = resolved(given).unwrap();
        assert_eq!((spec.uid, spec.gid, spec.groups, spec.cwd.as_str()), (7, 2, vec![4, 3, 2], "/mine"));
        assert!(spec.no_new_privileges && spec.read_only_root && !spec.privileged);
        assert_eq!((spec.capabilities_add, spec.capabilities_drop), (vec!["NET_ADMIN".into()], vec!["ALL".to_owned()]));

        let refused = resolved(pod(json!({"name": "c", "image": "tf", "securityContext": {"runAsNonRoot": true}})));
        assert!(matches!(refused, Err(ResolveError::Security(_))));
    }

    /// Bug: without root a pod's home was `/root`, which it may neither read nor write.
    #[test]
    fn without_root_the_home_is_that_of_the_platforms_user() {
        let own = Some(Identity { uid: 0, gid: 0 });
        let user = Some(Identity { uid: 1000, gid: 1000 });
        for (container, only, home) in [
            (json!({"name": "c", "command": ["a"]}), own, "/home/ada"),
            (json!({"name": "c", "command": ["a"], "securityContext": {"runAsUser": 0}}), own, "/home/ada"),
            (json!({"name": "c", "command": ["a"]}), user, "/home/ada"),
            (json!({"name": "c", "command": ["a"], "env": [{"name": "HOME", "value": "/mine"}]}), own, "/mine"),
            // A root folder of its own has its own homes.
            (json!({"name": "c", "image": "tf"}), own, "/root"),
        ] {
            let spec = resolved_as(pod(container.clone()), only, Some("/home/ada"), PodUsers::Machines).unwrap();
            let found = spec.env.iter().find(|(name, _)| name == "HOME").map(|(_, value)| value.as_str());
            assert_eq!(found, Some(home), "{container} {only:?}");
        }
    }

    #[test]
    fn pods_of_a_user_with_more_ids_have_the_users_groups_until_they_name_some() {
        for (of_pod, of_container, image, home, groups) in [
            (json!({}), json!({}), "instead", "/home/ada", 0),
            (json!({"supplementalGroupsPolicy": "Strict"}), json!({}), "instead", "/home/ada", 1),
            (json!({"supplementalGroupsPolicy": "Strict"}), json!({"runAsGroup": 7}), "instead", "/home/ada", 1),
            (json!({"supplementalGroups": [8]}), json!({"runAsUser": 9}), "tf", "/", 2),
        ] {
            let mut given = pod(json!({"name": "c", "image": image, "securityContext": of_container}));
            given["spec"]["securityContext"] = of_pod.clone();
            let spec = resolved_as(given, None, Some("/home/ada"), PodUsers::Subordinate).unwrap();
            let found = spec.env.iter().find(|(name, _)| name == "HOME").map(|(_, value)| value.as_str());
            assert_eq!((found, spec.groups.len()), (Some(home), groups), "{of_pod} {of_container}");
        }
    }

    #[test]
    fn what_is_no_user_is_never_root() {
        for id in [-1_i64, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, i64::MIN, i64::MAX] {
            for field in ["runAsUser", "runAsGroup"] {
                let mut context = json!({});
                context[field] = json!(id);
                let refused =
                    resolved(pod(json!({"name": "c", "image": "tf", "securityContext": context}))).unwrap_err();
                assert!(matches!(refused, ResolveError::Number(_)), "{field} {id}: {refused}");
                assert_eq!(refused.reason(), "CreateContainerConfigError");
                assert!(refused.to_string().contains(field), "{refused}");
            }
            for context in [json!({"fsGroup": id}), json!({"supplementalGroups": [0, id]}), json!({"runAsUser": id})] {
                let mut given = pod(json!({"name": "c", "image": "tf"}));
                given["spec"]["securityContext"] = context;
                assert!(matches!(resolved(given), Err(ResolveError::Number(_))), "{id}");
            }
        }
    }

    #[test]
    fn requests_are_the_larger_of_init_and_main() {
        let pod = json!({"spec": {
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3", "memory": "1Mi"}}}],
        "containers": [
            {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            {"name": "b", "resources": {"limits": {"cpu": "1"}}},
        ]}});
        let found = requests(&serde_json::from_value(pod).unwrap());
        assert_eq!(found, Requests { cpu_milli: 3000, memory_bytes: 1 << 30 });
    }

    #[test]
    fn a_sidecar_counts_with_what_runs_beside_it() {
        let with = |init: &[(&str, &str)], main: &str| {
            let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
            let init: Vec<Value> = init
                .iter()
                .map(|(kind, cpu)| {
                    let mut container = container(cpu);
                    container["restartPolicy"] = if *kind == "sidecar" { json!("Always") } else { Value::Null };
                    container
                })
                .collect();
            let pod = json!({"spec": {"initContainers": init, "containers": [container(main)]}});
            requests(&serde_json::from_value(pod).unwrap()).cpu_milli
        };
        assert_eq!(with(&[("sidecar", "1"), ("init", "2")], "500m"), 3000);
        assert_eq!(with(&[("init", "2"), ("sidecar", "1")], "500m"), 2000);
        assert_eq!(with(&[("sidecar", "1"), ("sidecar", "1")], "500m"), 2500);
    }
}
