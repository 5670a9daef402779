//! Starting a pod: its sources are fetched, its directory made, its shim detached.
//!
//! Invariant: a pod's spec is on disk before its shim starts, and a shim refuses a pod that ran
//! before, so that a start can be repeated after any crash without running anything twice.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Namespace, Pod, PodSecurityContext, SecurityContext};
use kube::{Api, Client};
use pumice_api::names::TENANT;
use pumice_cluster::EventRecorder;
use pumice_images::provide::Images;
use pumice_objects::pod_security::{Policy, Profile};
use pumice_units::with_causes;
use serde_json::Value;

use crate::agent::leftovers::remover::Remover;
use crate::agent::own_users::{IdRanges, OwnUsersError, OwnerProbe};
use crate::capabilities::Capabilities;
use crate::confinement::accelerators::DeviceFolders;
use crate::confinement::allotment::PodDevices;
use crate::confinement::app_armor::{self, AppArmorError};
use crate::confinement::container_devices::DeviceView;
use crate::confinement::seccomp::ProfileChoice;
use crate::confinement::seccomp::filter_folder::{FilterError, FilterFolder};
use crate::downward_api::Placement;
use crate::firewall::{Firewall, FirewallError, Labels};
use crate::grace;
use crate::images::{ImageMap, ImageMapError};
use crate::launcher::Launcher;
use crate::layout::{claims_dir, volumes_dir};
use crate::logs::retained::RetainedLogs;
use crate::networks::ahead::Ahead;
use crate::networks::bridge::{self, NodeNetwork};
use crate::networks::hosts_file::{self, Peer};
use crate::networks::resolver;
use crate::pod_images::PodImages;
use crate::pod_journal::PodJournal;
use crate::pod_spec::names;
use crate::pod_spec::resolve::{self, Identity, NodeGround, ResolveError, Resolved};
use crate::pod_spec::security::{self, NodeSupport, PodUsers, UserSupport};
use crate::pod_spec::sources::{References, Sources};
use crate::pod_spec::volumes::{self, Content, HiddenFolders, VolumeGroup, VolumeRoots};
use crate::project_quota::Projects;
use crate::shim_starter::ShimStarter;
use crate::spec_numbers;
use crate::subordinate_ids::SubordinateIds;
use crate::usage::disk::projects;
use pumice_linux::cgroup::{CgroupSpec, Device, Hierarchy};
use pumice_linux::files::{Durability, private_dir, write_atomic};
use pumice_linux::netlink::NetlinkError;
use pumice_shim::capability_set;
use pumice_shim::format::Format;
use pumice_shim::spec::SHARED_MEMORY;
use pumice_shim::spec::{ContainerSpec, Isolation, MountSpec, Network, RootKind, SPEC_FILE, ShimSpec};

/// What all starts on this node share.
pub(crate) struct NodeContext {
    pub client: Client,
    pub authorities: tokio::sync::watch::Sender<Option<Arc<str>>>,
    pub node_name: String,
    pub data_dir: PathBuf,
    /// More folders that no pod sees.
    pub hidden: Vec<PathBuf>,
    pub pods_dir: PathBuf,
    pub filters: FilterFolder,
    pub events: EventRecorder,
    /// None where it could not be opened: then each pod is synced by itself.
    pub journal: Option<Arc<PodJournal>>,
    pub shim: Launcher,
    pub starter: ShimStarter,
    pub remover: Arc<Remover>,
    pub retained_logs: Arc<RetainedLogs>,
    pub image_map: Option<PathBuf>,
    /// None where images that are not in the map are programs of this machine.
    pub images: Option<Arc<Images>>,
    pub default_path: String,
    pub default_profile: Profile,
    pub capabilities: Capabilities,
    pub devices: DeviceFolders,
    /// Projects for pods' folders, where their file system has quotas.
    pub projects: Option<Projects>,
    /// Which ids of the machine pods have.
    pub id_ranges: IdRanges,
    /// Ids that pods have beside this process's user, where that is not root and the machine gives it some.
    pub ids: Option<Arc<SubordinateIds>>,
    /// Where this machine can show files with other owners; none where it never can.
    pub owner_probe: Option<OwnerProbe>,
    pub network: Option<NodeNetwork>,
    pub firewall: Arc<Firewall>,
    pub node_hash: u64,
    pub cgroup_node: PathBuf,
    pub host_ip: Ipv4Addr,
    /// Home of the user that this process runs as.
    pub home: Option<String>,
    pub boot_id: String,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub api_port: Option<u16>,
    pub pod_pids_max: Option<u32>,
    pub log_bytes_max: u64,
}

/// One pod to start.
pub(crate) struct StartOrder {
    pub pod: Arc<Pod>,
    pub uid: String,
    pub address: Ipv4Addr,
    /// Everybody in its subdomain, itself included.
    pub members: Vec<Peer>,
    /// A network namespace for it alone, if one was made ahead.
    pub namespace: Option<Ahead>,
    /// What its containers run, where they name images.
    pub images: Option<Arc<PodImages>>,
    /// The accelerators that are its own.
    pub devices: PodDevices,
}

/// Why a pod did not start; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("can't get what the pod refers to")]
    Fetch(#[source] Box<kube::Error>),
    #[error(
        "namespace {namespace:?} enforces the profile restricted, and this node can't keep the host's files from its pods; \
         run the node as root, with its data on a disk that takes an overlay"
    )]
    Restricted { namespace: String },
    #[error(transparent)]
    ImageMap(#[from] ImageMapError),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(
        "{field}: {path} can't be shown to a pod with users of its own: its file system has no idmapped mounts; use a volume of \
         another one, or say hostUsers: true where the namespace does not enforce restricted", path = path.display()
    )]
    Owners {
        field: String,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("spec.hostUsers: the pod can't have users of its own")]
    OwnUsers(#[from] OwnUsersError),
    #[error("container {container:?} can't have its seccomp profile")]
    Filter {
        container: String,
        #[source]
        source: FilterError,
    },
    #[error("container {container:?} can't have its appArmorProfile")]
    AppArmor {
        container: String,
        #[source]
        source: AppArmorError,
    },
    #[error("MountVolume.SetUp failed for volume {volume:?}")]
    Mount {
        volume: String,
        #[source]
        source: io::Error,
    },
    #[error("can't {step}")]
    Prepare {
        step: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("can't lead the pod's address to it")]
    Network(#[from] NetlinkError),
    #[error(transparent)]
    Firewall(#[from] FirewallError),
    #[error("the shim did not start: {0}")]
    Shim(String),
}

impl StartError {
    /// The reason that its waiting containers show.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            StartError::Resolve(error) => error.reason(),
            StartError::ImageMap(_)
            | StartError::Restricted { .. }
            | StartError::Owners { .. }
            | StartError::OwnUsers(OwnUsersError::NoneFree { .. }) => "CreateContainerConfigError",
            StartError::Fetch(_) => "ContainerCreating",
            StartError::Network(_)
            | StartError::Firewall(_)
            | StartError::Filter { .. }
            | StartError::OwnUsers(OwnUsersError::NotWritten)
            | StartError::AppArmor { .. }
            | StartError::Mount { .. }
            | StartError::Prepare { .. }
            | StartError::Shim(_) => "CreateContainerError",
        }
    }

    /// Whether a volume of the pod can't be had.
    pub(crate) fn is_mount(&self) -> bool {
        matches!(self, StartError::Mount { .. } | StartError::Resolve(ResolveError::Volume { .. }))
    }

    /// Whether a claim of the pod has no volume yet.
    pub(crate) fn is_unbound(&self) -> bool {
        let StartError::Resolve(ResolveError::Volume { source, .. }) = self else { return false };
        matches!(**source, ResolveError::Unbound { .. })
    }

    /// What its waiting containers say.
    pub(crate) fn message(&self) -> String {
        with_causes(self)
    }
}

/// Fetches what a pod refers to, makes its directory, and starts its shim there.
pub(crate) async fn start(context: Arc<NodeContext>, mut order: StartOrder) -> Result<(), StartError> {
    spec_numbers::check(&order.pod).map_err(ResolveError::from)?;
    let references = References::of(&order.pod);
    let sources =
        references.fetch(&context.client, &order.pod).await.map_err(|error| StartError::Fetch(Box::new(error)))?;
    let (confinement, labels) = confinement(&context, &order.pod).await?;
    if confinement.users == PodUsers::Own {
        // It has one that belongs to its users.
        order.namespace = None;
    }
    context.firewall.ready().await;
    let made = tokio::task::spawn_blocking(move || {
        context.firewall.admit(&order.uid, order.pod.metadata.namespace.as_deref().map(|name| (name, &labels)))?;
        make(&context, &order, &sources, confinement)?;
        let gateway = api_host(&context, &order.pod);
        let namespace = order.namespace.take().map(|ahead| ahead.lead(order.address, gateway)).transpose()?;
        start_shim(&context, &context.pods_dir.join(&order.uid), namespace)
    });
    made.await.unwrap_or_else(|error| Err(StartError::Shim(error.to_string())))
}

/// Makes the pod's directory with everything that its shim needs.
fn make(
    context: &NodeContext,
    order: &StartOrder,
    sources: &Sources,
    Confinement { isolation, users }: Confinement,
) -> Result<(), StartError> {
    let step = |step| move |source: io::Error| StartError::Prepare { step, source };
    let pod = &*order.pod;
    let dir = context.pods_dir.join(&order.uid);
    let view = device_view(context, &order.devices);
    let images = order.images.as_deref();
    let ground = PodGround { pod, dir: &dir, address: order.address, sources, images, users, view: &view };
    let mut resolved = resolve_on(context, &ground)?;
    // The shim mounts its shared memory there: a disk without room is met where the start is tried again.
    private_dir(&dir.join(SHARED_MEMORY)).map_err(step("make the pod's directory"))?;
    let group = resolved.group.map(|gid| VolumeGroup { gid, ids: context.ids.as_deref() });
    for (name, volume) in &resolved.volumes {
        let failed = |source| StartError::Mount { volume: name.clone(), source };
        let hidden = HiddenFolders { data_dir: &context.data_dir, others: &context.hidden };
        volumes::make(volume, group, hidden).map_err(failed)?;
    }
    if let Some(projects) = &context.projects
        && let Err(error) = projects::assign(projects, &dir, pod)
    {
        tracing::warn!(
            uid = order.uid,
            error = with_causes(&error),
            "what a pod keeps on disk is counted file by file"
        );
    }
    view.give(pod, &mut resolved.init_containers, &mut resolved.containers);
    let (users, range) = match users {
        PodUsers::Machines => (None, None),
        PodUsers::Subordinate => (context.ids.as_ref().map(|ids| ids.users().clone()), None),
        PodUsers::Own if context.journal.is_none() => return Err(OwnUsersError::NotWritten.into()),
        PodUsers::Own => {
            try_owners(context, pod, &resolved)?;
            let range = context.id_ranges.give(pod.metadata.namespace.as_deref().unwrap_or_default(), &order.uid)?;
            (Some(range.users()), Some(range))
        }
    };
    let spec = ShimSpec { users, ..shim_spec(context, order, resolved, isolation) };
    write_names(&dir, order, &spec).map_err(step("write the pod's hosts and resolver files"))?;
    let bytes = serde_json::to_vec(&spec).map_err(|error| step("write the pod's spec")(error.into()))?;
    let durability = if context.journal.is_some() { Durability::Process } else { Durability::Power };
    write_atomic(&dir.join(SPEC_FILE), &bytes, durability).map_err(step("write the pod's spec"))?;
    let begun = context.journal.as_ref().map_or(Ok(()), |journal| journal.begin(&order.uid, &bytes, range));
    begun.map_err(step("write down that the pod starts"))
}

/// What a pod sees of this machine's devices, of which these are its own.
pub(super) fn device_view<'a>(context: &'a NodeContext, own: &'a PodDevices) -> DeviceView<'a> {
    let Capabilities { isolation, cgroup, .. } = &context.capabilities;
    DeviceView {
        folders: &context.devices,
        own,
        namespaces: isolation.namespaces,
        is_limited: isolation.namespaces || cgroup.as_ref().is_some_and(Hierarchy::limits_devices),
    }
}

/// A pod, with what was got for it.
pub(super) struct PodGround<'a> {
    pub pod: &'a Pod,
    pub dir: &'a Path,
    pub address: Ipv4Addr,
    pub sources: &'a Sources,
    /// What its containers run, where they name images.
    pub images: Option<&'a PodImages>,
    pub users: PodUsers,
    pub view: &'a DeviceView<'a>,
}

/// What a pod is on this node. Makes nothing on the disk but filters of system calls.
pub(super) fn resolve_on(context: &NodeContext, ground: &PodGround<'_>) -> Result<Resolved, StartError> {
    let PodGround { pod, dir, address, sources, images, users, view } = *ground;
    let image_map = context.image_map.as_deref().map(ImageMap::read).transpose()?.unwrap_or_default();
    let none = BTreeMap::new();
    let accelerators = |container: &Container| view.environment(container);
    let node = NodeGround {
        image_map: &image_map,
        images: images.map_or(&none, |images| &images.entries),
        image_map_path: context.image_map.as_deref(),
        default_path: &context.default_path,
        only_identity: only_identity(context),
        only_home: context.home.as_deref(),
        common_mounts: common_mounts(context, dir),
        api: context.api_port.map(|port| SocketAddrV4::new(api_host(context, pod), port)),
        support: support(context),
        users,
        accelerators: &accelerators,
    };
    let (pod_volumes, claims) = (volumes_dir(dir), claims_dir(&context.data_dir));
    let roots = VolumeRoots { pod: &pod_volumes, claims: &claims, images: images.map(|images| &images.volumes) };
    let mut resolved = resolve::resolve(pod, sources, &placement(context, address), &node, &roots)?;
    confine(context, pod, &mut resolved)?;
    if context.capabilities.cgroup.is_some() {
        let containers = resolved.init_containers.iter_mut().chain(&mut resolved.containers);
        containers.for_each(|container| container.limits.bound_memory(context.memory_bytes));
    }
    Ok(resolved)
}

/// How the pod is separated from the host, and whose users it has.
struct Confinement {
    isolation: Isolation,
    users: PodUsers,
}

/// As the pod and the profile of its namespace say, whose labels come along. Of the host's files a namespace that enforces `restricted`
/// shows those on a list.
async fn confinement(context: &NodeContext, pod: &Pod) -> Result<(Confinement, Labels), StartError> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let found = Api::<Namespace>::all(context.client.clone()).get(&namespace).await;
    let found = found.map_err(|error| StartError::Fetch(Box::new(error)))?;
    let labels = found.metadata.labels.unwrap_or_default();
    let is_tenants = labels.contains_key(TENANT);
    let values = labels.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    let policy = Policy::of_namespace(&namespace, &Value::Object(values), context.default_profile);
    let isolation = context.capabilities.isolation.clone();
    let is_restricted = policy.enforce.profile == Profile::Restricted;
    let isolation = match isolation.root {
        RootKind::Host | RootKind::OverlayInMemory if is_restricted => {
            return Err(StartError::Restricted { namespace });
        }
        _ if is_restricted => Isolation { root: RootKind::AllowList, ..isolation },
        _ => isolation,
    };
    // A tenant's pods are the tenant on the machine, too: their files on network storage are its own.
    let users = PodUsers::of(pod, is_restricted && !is_tenants, &support(context)).map_err(ResolveError::from)?;
    Ok((Confinement { isolation, users }, labels))
}

/// Refuses a pod with users of its own for the first volume that can't be shown to them as it is on the disk.
fn try_owners(context: &NodeContext, pod: &Pod, resolved: &Resolved) -> Result<(), StartError> {
    let Some(probe) = &context.owner_probe else { return Ok(()) };
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    for (index, volume) in volumes.enumerate() {
        let Some(planned) = resolved.volumes.get(&volume.name) else { continue };
        let field = match planned.content {
            Content::Host(_) => "hostPath.path",
            Content::Claim => "persistentVolumeClaim.claimName",
            Content::Empty | Content::Memory { .. } | Content::Files(_) | Content::Image(_) => continue,
        };
        let field = format!("spec.volumes[{index}].{field}");
        let path = planned.path.clone();
        // A device has the owner that the machine has for it, whoever sees it.
        if Device::of_node(&path).is_none() {
            probe.try_view(&path).map_err(|source| StartError::Owners { field, path, source })?;
        }
    }
    Ok(())
}

/// Gives each container the filter of system calls and the profile of AppArmor that it is to run under.
fn confine(context: &NodeContext, pod: &Pod, resolved: &mut Resolved) -> Result<(), StartError> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let given = spec.init_containers.iter().flatten().chain(&spec.containers);
    let specs = resolved.init_containers.iter_mut().chain(&mut resolved.containers);
    for (given, spec) in given.zip(specs) {
        let own = given.security_context.clone().unwrap_or_default();
        let container = || given.name.clone();
        let filter = filter(context, &of_pod, &own, spec);
        spec.seccomp = filter.map_err(|source| StartError::Filter { container: container(), source })?;
        let profile = app_armor::profile(&of_pod, &own);
        spec.app_armor = profile.map_err(|source| StartError::AppArmor { container: container(), source })?;
    }
    Ok(())
}

/// The file with the filter of a container's profile; none where it has none.
fn filter(
    context: &NodeContext,
    of_pod: &PodSecurityContext,
    own: &SecurityContext,
    spec: &ContainerSpec,
) -> Result<Option<PathBuf>, FilterError> {
    if context.capabilities.seccomp {
        let rights = capability_set::retained(&spec.capabilities_add, &spec.capabilities_drop);
        context.filters.file(&ProfileChoice::of(of_pod, own), &rights)
    } else if ProfileChoice::is_asked_for(of_pod, own) {
        Err(FilterError::NoFilters)
    } else {
        Ok(None)
    }
}

/// What of a pod's security this node can give.
fn support(context: &NodeContext) -> NodeSupport {
    let Capabilities { isolation, cgroup, .. } = &context.capabilities;
    NodeSupport {
        namespaces: isolation.namespaces,
        networks: context.network.is_some(),
        control_groups: cgroup.is_some(),
        disk_limits: cgroup.as_ref().is_some_and(Hierarchy::limits_disk),
        app_armor: app_armor::is_enabled(),
        selinux: Path::new(SELINUX).exists(),
        only_uid: only_identity(context).map(|identity| identity.uid),
        users: match (isolation.user, context.capabilities.own_users) {
            (true, _) if context.ids.is_some() => UserSupport::Subordinate,
            (true, _) => UserSupport::One,
            (false, true) => UserSupport::Some,
            (false, false) => UserSupport::None,
        },
    }
}

/// Where the kernel says whether SELinux refuses or only notes; it is there where SELinux runs.
const SELINUX: &str = "/sys/fs/selinux/enforce";

/// Without root and ids of others there is one identity: this process's, which a user namespace calls root.
fn only_identity(context: &NodeContext) -> Option<Identity> {
    let (uid, gid) = (nix::unistd::Uid::effective(), nix::unistd::Gid::effective());
    let own = Identity { uid: uid.as_raw(), gid: gid.as_raw() };
    let seen = if context.capabilities.isolation.user { Identity { uid: 0, gid: 0 } } else { own };
    if uid.is_root() || context.ids.is_some() { None } else { Some(seen) }
}

/// The network that the pod has part in, where it has one of its own.
fn network<'c>(context: &'c NodeContext, pod: &Pod) -> Option<&'c NodeNetwork> {
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    if host_network { None } else { context.network.as_ref() }
}

/// This machine, as the pod sees it.
fn api_host(context: &NodeContext, pod: &Pod) -> Ipv4Addr {
    network(context, pod).map_or(Ipv4Addr::LOCALHOST, |network| network.subnet().gateway())
}

fn common_mounts(context: &NodeContext, dir: &Path) -> Vec<MountSpec> {
    if context.capabilities.isolation.namespaces { names::common_mounts(dir) } else { Vec::new() }
}

fn placement(context: &NodeContext, address: Ipv4Addr) -> Placement {
    Placement {
        node_name: context.node_name.clone(),
        host_ip: context.host_ip,
        pod_ip: address,
        node_cpu_milli: context.cpu_milli,
        node_memory_bytes: context.memory_bytes,
    }
}

fn shim_spec(context: &NodeContext, order: &StartOrder, resolved: Resolved, isolation: Isolation) -> ShimSpec {
    let pod = &*order.pod;
    let spec = pod.spec.as_ref();
    let network = match network(context, pod) {
        Some(network) => Network::Bridge {
            bridge: network.bridge.clone(),
            veth: bridge::pair_name(context.node_hash, &order.uid),
            address: order.address,
            // Routed to, and alone on its link.
            prefix: 32,
            gateway: network.subnet().gateway(),
        },
        None => Network::Host,
    };
    let cgroup = context.capabilities.cgroup.clone();
    ShimSpec {
        format: Format,
        uid: order.uid.clone(),
        boot_id: context.boot_id.clone(),
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        owner: owner(pod),
        hostname: names::own_name(pod),
        restart_policy: resolve::restart_policy(pod),
        grace_seconds: grace::grace_seconds(pod),
        active_deadline_seconds: spec.and_then(|spec| spec.active_deadline_seconds).and_then(|s| u64::try_from(s).ok()),
        isolation,
        users: None,
        processes: security::processes(pod),
        host_ipc: spec.and_then(|spec| spec.host_ipc) == Some(true),
        sysctls: security::sysctls(pod),
        network,
        address: Some(order.address),
        cgroup: cgroup.map(|hierarchy| CgroupSpec {
            hierarchy,
            path: context.cgroup_node.join(&order.uid),
            pids_max: context.pod_pids_max,
            disk: resolved.disk,
        }),
        memory_volumes: resolved.memory_volumes,
        image_volumes: resolved.image_volumes,
        hidden: std::iter::once(&context.data_dir).chain(&context.hidden).cloned().collect(),
        log_bytes_max: context.log_bytes_max,
        init_containers: resolved.init_containers,
        containers: resolved.containers,
    }
}

/// The uid of the object that controls the pod.
fn owner(pod: &Pod) -> Option<String> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).next()
}

fn write_names(dir: &Path, order: &StartOrder, spec: &ShimSpec) -> io::Result<()> {
    write_public(&dir.join("hostname"), &format!("{}\n", spec.hostname))?;
    write_public(&dir.join("resolv.conf"), &resolver::text())?;
    hosts_file::rewrite(&dir.join("hosts"), &hosts_text(&order.pod, order.address, &order.members))?;
    make_public(&dir.join("hosts"))
}

/// The hosts file of a pod among its peers.
pub(crate) fn hosts_text(pod: &Pod, address: Ipv4Addr, members: &[Peer]) -> String {
    let own = Peer { hostname: names::hostname(pod), address };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let subdomain = pod.spec.as_ref().and_then(|spec| spec.subdomain.as_deref()).filter(|name| !name.is_empty());
    hosts_file::render(&own, namespace, subdomain, members, &resolve::host_aliases(pod))
}

/// Programs of any user read such a file.
const PUBLIC_MODE: u32 = 0o644;

/// Programs of any user read it within the pod; the directory around it stays closed.
fn make_public(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(PUBLIC_MODE))
}

fn write_public(path: &Path, text: &str) -> io::Result<()> {
    // Nobody reads it before the shim is there, so it may be written where it is.
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(PUBLIC_MODE))
}

/// Starts the shim of a pod whose directory an earlier agent has made.
pub(crate) async fn start_again(context: Arc<NodeContext>, uid: String, dir: PathBuf) -> Result<(), StartError> {
    context.firewall.ready().await;
    let started = tokio::task::spawn_blocking(move || {
        context.firewall.admit(&uid, None)?;
        start_shim(&context, &dir, None)
    });
    started.await.unwrap_or_else(|error| Err(StartError::Shim(error.to_string())))
}

/// Starts the shim of a directory, in a network namespace for its pod alone if there is one, and waits until it stands on its own.
fn start_shim(context: &NodeContext, dir: &Path, namespace: Option<OwnedFd>) -> Result<(), StartError> {
    let failed = |source| StartError::Prepare { step: "start the shim", source };
    // Of root's pods some have a network; others' have users.
    let users = || context.ids.as_ref().map(|ids| ids.namespace()).transpose();
    let namespace = namespace.map_or_else(users, |network| Ok(Some(network))).map_err(failed)?;
    context.starter.start(dir, namespace.as_ref()).map_err(failed)?.map_err(StartError::Shim)
}
