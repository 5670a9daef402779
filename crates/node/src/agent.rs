//! The agent: follows the API server and keeps this host's pods as it wants them.
//!
//! `Options::build() -> NodeAgent::run(shutdown)`, with a [`Handle`] for logs and draining.
//! Invariant: the agent may die at any time; pods go on, and the next agent takes them over.

mod claims;
mod ephemeral;
mod leftovers;
mod node_object;
mod options;
mod own_users;
mod pods;
mod start;
mod teardown;

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use pumice_cluster::EventRecorder;
use pumice_objects::pod_security::Profile;
use pumice_units::with_causes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::image_pruning;
use crate::images::{ImageMap, ImageMapError};
pub use crate::kubelet_api::NodeBody;
pub use leftovers::finish_removals;
pub use leftovers::set_aside::{SetAside, SetAsideError, remove_set_aside, set_aside};
pub use options::{Options, POD_PIDS_MAX};
pub use teardown::{TornDown, Unended, tear_down};

use crate::capabilities::{self, Capabilities, Given};
use crate::confinement::seccomp::filter_folder::FilterFolder;
use crate::disk_condition;
use crate::kubelet_api::NodeService;
use crate::launcher::Launcher;
use crate::layout::{seccomp_filters_dir, seccomp_profiles_dir};
use crate::lease;
use crate::logs::retained::RetainedLogs;
use crate::networks::bridge::{NodeFirewall, NodeNetwork};
use crate::node_images;
use crate::pod_index::PodIndex;
use crate::pod_journal::PodJournal;
use crate::pod_spec::tokens::follow_authorities;
use crate::pods_folder;
use crate::project_quota::Projects;
use crate::shim_starter::ShimStarter;
use crate::subordinate_ids::SubordinateIds;
use crate::usage::disk::measuring::{FINDINGS_MAX, Measurer};
use crate::usage::{Sampler, Usage};
use leftovers::remover::{NodeGroups, Remover};
use node_object::Capacity;
pub use node_object::host_ip;
use own_users::{IdRanges, OwnerProbe};
use pods::eviction::SharedDisk;
use pods::{Drain, Pods};
use pumice_clock as clock;
use pumice_linux::files::private_dir;
use pumice_shim::format::FORMAT;
use pumice_shim::newer::{Newer, newer};
use start::NodeContext;
use teardown::NodePaths;

/// Who events are from.
const COMPONENT: &str = "pumice-node";
/// Drains waiting to be taken on.
const DRAINS_MAX: usize = 4;
/// Waits between attempts to register, while the API server is not there.
const REGISTER_AGAIN: Duration = Duration::from_millis(500);

/// Why a node agent can't work.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its folder can't be made or read.
    #[error("can't prepare the node's folder {}", path.display())]
    Prepare {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A newer version has run pods here.
    #[error(
        "{path} has format {found}, newer than {supported}, the newest that this version reads; use the version that runs \
         its pods, or end them by its `pumice down`", path = path.display()
    )]
    NewerPods {
        path: PathBuf,
        found: u32,
        /// The newest format known here.
        supported: u32,
    },
    /// The image map is unusable from the start.
    #[error(transparent)]
    ImageMap(#[from] ImageMapError),
    /// It could not enforce what it is to enforce.
    #[error("this machine lacks what the profile restricted needs:{}", missing.iter().map(|line| format!("\n  - {line}")).collect::<String>())]
    Restricted { missing: Vec<String> },
    /// Files could not be watched.
    #[error("can't watch the status of pods")]
    Watch(#[source] io::Error),
    /// A part of the agent panicked.
    #[error("a part of the node agent failed")]
    Task(#[source] tokio::task::JoinError),
}

/// An agent that is ready to run.
pub struct NodeAgent {
    context: Arc<NodeContext>,
    capacity: Capacity,
    pods: Pods,
    drains: mpsc::Receiver<Drain>,
    events: BoxFuture<'static, ()>,
    sampler: Sampler,
    measurer: Measurer,
    disk_pressure: watch::Receiver<bool>,
    handle: Handle,
}

/// What others may ask of a running agent; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    service: NodeService,
    drains: mpsc::Sender<Drain>,
    capabilities: Arc<Capabilities>,
    gateway: Option<Ipv4Addr>,
}

impl Handle {
    /// Answers one request of the kubelet's API: `/containerLogs/{namespace}/{pod}/{container}`, `/exec/` likewise,
    /// `/portForward/{namespace}/{pod}`, and `/stats/summary`; and of ours `/retainedLogs/{namespace}/{owner}`.
    /// For a stream it takes the connection from the request's extensions. Needs a runtime.
    pub fn answer<B>(&self, request: Request<B>) -> Response<NodeBody> {
        self.service.answer(request.map(drop))
    }

    /// What this host lets the agent do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// This machine's address on the bridge of its pods, where they have networks of their own.
    pub fn gateway(&self) -> Option<Ipv4Addr> {
        self.gateway
    }

    /// Stops all pods, starts no more, and waits until nothing of them runs. Returns at once when
    /// the agent does not run. Cancel safe: pods are stopped either way.
    pub async fn drain(&self, grace: Duration) {
        let (done, ended) = oneshot::channel();
        if self.drains.send(Drain { ends_at: clock::monotonic() + grace, done }).await.is_ok() {
            let _ = ended.await;
        }
    }
}

impl Options {
    /// Finds out what this host can do, takes over what runs, and makes an agent. Must be called
    /// within a runtime; takes some ten milliseconds.
    pub fn build(self) -> Result<NodeAgent, AgentError> {
        build(self)
    }
}

fn build(options: Options) -> Result<NodeAgent, AgentError> {
    let prepare = |path: &PathBuf| {
        let path = path.clone();
        move |source| AgentError::Prepare { path, source }
    };
    private_dir(&options.data_dir).map_err(prepare(&options.data_dir))?;
    let paths = NodePaths::of(&options.data_dir).map_err(prepare(&options.data_dir))?;
    pods_folder::make(&paths.pods_dir).map_err(prepare(&paths.pods_dir))?;
    if let Some(Newer { path, found }) = newer(&paths.pods_dir) {
        return Err(AgentError::NewerPods { path, found, supported: FORMAT });
    }
    if let Some(path) = &options.image_map {
        ImageMap::read(path)?;
    }
    let network = make_network(&paths);
    let rules = network.as_ref().map_or_else(|_| NodeFirewall::absent(), |network| network.firewall(options.api_port));
    let shim = Launcher::new(options.shim.clone());
    // Most file systems have none.
    let projects = Projects::detect(&paths.node_dir.join("probe"));
    tracing::debug!(found = ?projects, "quotas of projects");
    let projects = projects.ok();
    let owner_probe = OwnerProbe::detect(&paths.node_dir, &shim);
    let ids = SubordinateIds::of_user(&paths.node_dir, &shim);
    let given = Given {
        network: network.as_ref().map(drop).map_err(Clone::clone),
        projects: projects.is_some(),
        users: owner_probe.as_ref().map(drop).map_err(Clone::clone),
        ids: ids.as_ref().map(drop).map_err(Clone::clone),
    };
    let mut capabilities = Capabilities::detect(&paths.node_dir, &paths.cgroup, given, &shim);
    if options.default_profile == Profile::Restricted && !capabilities.missing_for_restricted.is_empty() {
        // Pods of before go on, and what they share.
        if std::fs::read_dir(&paths.pods_dir).is_ok_and(|mut pods| pods.next().is_none()) {
            teardown::remove_shared(&paths.node_dir, paths.hash, capabilities.cgroup.as_ref(), &paths.cgroup);
        }
        return Err(AgentError::Restricted { missing: capabilities.missing_for_restricted });
    }
    if let Some(reason) = network.as_ref().ok().and_then(|network| network.inside_only.as_ref()) {
        capabilities.notes.push(format!("no address translation ({reason}): pods reach each other and this host only"));
    }
    capabilities.network_policy = rules.enforces;
    capabilities.notes.extend(rules.notes);
    if options.own_process
        && let Some(hierarchy) = &capabilities.cgroup
        && let Err(error) = hierarchy.join_agent(&paths.cgroup)
    {
        tracing::warn!(%error, "this process has no CPU time of its own: busy pods may slow its answers");
    }
    tracing::info!(capabilities = capabilities.summary(), "node agent ready");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let capacity = Capacity {
        cpu_milli: options.cpu_milli.unwrap_or(i64::try_from(cores).unwrap_or(1).saturating_mul(1000)),
        memory_bytes: options.memory_bytes.unwrap_or_else(node_object::machine_memory),
        pods: options.pods_max,
        disk_bytes: disk_bytes(&paths),
        accelerators: options.devices.offered(),
        kubelet_port: options.kubelet_port,
    };
    let (recorder, events) = EventRecorder::new(options.client.clone(), COMPONENT);
    let groups = capabilities.cgroup.clone().map(|hierarchy| NodeGroups { hierarchy, path: paths.cgroup.clone() });
    let ids = ids.ok().flatten().filter(|_| capabilities.isolation.user).map(Arc::new);
    let remover = Arc::new(Remover::new(&paths.data_dir, options.shim, groups, ids.clone()));
    let retained_logs = Arc::new(RetainedLogs::open(&paths.node_dir));
    let boot_id = node_object::boot_id();
    let opened = PodJournal::open(&paths.node_dir, &paths.pods_dir, &boot_id);
    let opened = opened.inspect_err(|error| tracing::warn!(%error, "what becomes of pods is synced one by one"));
    let (journal, ranges) =
        opened.map_or((None, BTreeMap::new()), |(journal, ranges)| (Some(Arc::new(journal)), ranges));
    let id_ranges = IdRanges::new(&paths.data_dir, paths.hash, ranges);
    let (hierarchy, group) = (capabilities.cgroup.clone(), paths.cgroup.clone());
    let starter = ShimStarter::new(shim.clone(), paths.pods_dir.clone(), move |pid| {
        // Each shim joins by itself, too.
        let _ = hierarchy.as_ref().map(|hierarchy| hierarchy.add_to_shims(&group, pid));
    });
    let context = Arc::new(NodeContext {
        id_ranges,
        ids,
        owner_probe: owner_probe.ok(),
        authorities: watch::Sender::default(),
        client: options.client,
        node_name: options.node_name,
        filters: FilterFolder::new(seccomp_profiles_dir(&paths.data_dir), seccomp_filters_dir(&paths.node_dir)),
        hidden: options.hidden,
        data_dir: paths.data_dir,
        pods_dir: paths.pods_dir,
        events: recorder,
        journal,
        shim,
        starter,
        remover,
        retained_logs: Arc::clone(&retained_logs),
        image_map: options.image_map,
        images: options.images,
        default_path: options.default_path,
        default_profile: options.default_profile,
        capabilities: capabilities.clone(),
        devices: options.devices,
        projects,
        network: network.ok(),
        firewall: Arc::new(rules.firewall),
        node_hash: paths.hash,
        cgroup_node: paths.cgroup,
        host_ip: node_object::host_ip(),
        home: home(),
        boot_id,
        cpu_milli: capacity.cpu_milli,
        memory_bytes: capacity.memory_bytes,
        api_port: options.api_port,
        pod_pids_max: options.pod_pids_max,
        log_bytes_max: options.log_bytes_max,
    });
    let index = PodIndex::default();
    let sampler = Sampler {
        usage: Usage::default(),
        index: index.clone(),
        hierarchy: context.capabilities.cgroup.clone(),
        cgroup_node: context.cgroup_node.clone(),
    };
    let service = NodeService::new(index.clone(), retained_logs, context.shim.clone(), sampler.usage.clone());
    let (findings, found) = mpsc::channel(FINDINGS_MAX);
    let (pressure_sender, disk_pressure) = watch::channel(false);
    let measurer = Measurer {
        pods_dir: context.pods_dir.clone(),
        index: index.clone(),
        usage: sampler.usage.clone(),
        projects: context.projects.is_some(),
        ids: context.ids.clone(),
        findings,
    };
    let disk = SharedDisk::new(found, pressure_sender);
    let pods =
        Pods::open(context.clone(), options.pods_max, options.starts_max, index, disk).map_err(AgentError::Watch)?;
    let (sender, drains) = mpsc::channel(DRAINS_MAX);
    let gateway = context.network.as_ref().map(|network| network.subnet().gateway());
    let handle = Handle { service, drains: sender, capabilities: Arc::new(capabilities), gateway };
    Ok(NodeAgent {
        context,
        capacity,
        pods,
        drains,
        events: Box::pin(events),
        sampler,
        measurer,
        disk_pressure,
        handle,
    })
}

fn make_network(paths: &NodePaths) -> Result<NodeNetwork, String> {
    capabilities::try_network().map_err(|error| error.to_string())?;
    NodeNetwork::ensure(&paths.node_dir, paths.hash).map_err(|error| with_causes(&error))
}

/// The home of this process's user, by whatever this machine keeps its users in.
fn home() -> Option<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).ok().flatten()?;
    user.dir.into_os_string().into_string().ok().filter(|home| !home.is_empty())
}

fn disk_bytes(paths: &NodePaths) -> i64 {
    let found = nix::sys::statvfs::statvfs(&paths.node_dir);
    found.map_or(0, |disk| i64::try_from(disk.blocks().saturating_mul(disk.fragment_size())).unwrap_or(i64::MAX))
}

impl NodeAgent {
    /// For those who ask things of the agent while it runs.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs until `shutdown`. Pods that run then go on; when none does, nothing is left on the host.
    pub fn run(self, shutdown: CancellationToken) -> BoxFuture<'static, Result<(), AgentError>> {
        Box::pin(async move {
            let NodeAgent { context, capacity, pods, drains, events, sampler, measurer, disk_pressure, handle } = self;
            let service = handle.service.clone();
            // With the last handle gone, nobody can ask for a drain any more; ours must not be it.
            let _handle = handle;
            let mut parts = JoinSet::new();
            let following = follow_authorities(context.client.clone(), context.authorities.clone());
            let (reclaiming, reclaim_shutdown) = (Box::pin(claims::reclaim(Arc::clone(&context))), shutdown.clone());
            parts.spawn(async move {
                let _ = reclaim_shutdown.run_until_cancelled(futures::future::join(reclaiming, following)).await;
                Ok(())
            });
            let (removing, removal_shutdown) = (Arc::clone(&context), shutdown.clone());
            parts.spawn(async move {
                let remover = Arc::clone(&removing.remover);
                let _ = removal_shutdown.run_until_cancelled(remover.run(|aside| removing.tell_of(aside))).await;
                Ok(())
            });
            if let Some(images) = context.images.clone() {
                let pruning = image_pruning::prune_at_times(Arc::clone(images.store()), context.pods_dir.clone());
                let (client, node_name) = (context.client.clone(), context.node_name.clone());
                let reporting = node_images::report_at_times(client, node_name, Arc::clone(images.store()));
                let images_shutdown = shutdown.clone();
                parts.spawn(async move {
                    let _ = images_shutdown.run_until_cancelled(futures::future::join(pruning, reporting)).await;
                    Ok(())
                });
            }
            let (expiring, expiry_shutdown) = (Arc::clone(&context.retained_logs).expire(), shutdown.clone());
            parts.spawn(async move {
                let _ = expiry_shutdown.run_until_cancelled(expiring).await;
                Ok(())
            });
            let firewall = Arc::clone(&context.firewall).run(context.client.clone(), shutdown.clone());
            parts.spawn(async move {
                firewall.await;
                Ok(())
            });
            let lease_shutdown = shutdown.clone();
            parts.spawn(async move {
                register_and_renew(&context, capacity, disk_pressure, lease_shutdown).await;
                Ok(())
            });
            let events_shutdown = shutdown.clone();
            parts.spawn(async move {
                let _ = events_shutdown.run_until_cancelled(events).await;
                Ok(())
            });
            let sampler_shutdown = shutdown.clone();
            parts.spawn(async move {
                let _ = sampler_shutdown.run_until_cancelled(sampler.run()).await;
                Ok(())
            });
            let measurer_shutdown = shutdown.clone();
            parts.spawn(async move {
                let _ = measurer_shutdown.run_until_cancelled(measurer.run()).await;
                Ok(())
            });
            let pods_shutdown = shutdown.clone();
            parts.spawn(async move { pods.run(drains, pods_shutdown).await.map_err(AgentError::Watch) });
            let mut outcome = Ok(());
            while let Some(part) = parts.join_next().await {
                let part = part.unwrap_or_else(|error| Err(AgentError::Task(error)));
                if part.is_err() {
                    shutdown.cancel();
                    outcome = outcome.and(part);
                }
            }
            service.end().await;
            outcome
        })
    }
}

/// Keeps the Node and its Lease fresh.
async fn register_and_renew(
    context: &NodeContext,
    capacity: Capacity,
    mut disk_pressure: watch::Receiver<bool>,
    shutdown: CancellationToken,
) {
    let (client, name) = (&context.client, &context.node_name);
    let work = async {
        while let Err(error) =
            node_object::register(client, name, &capacity, &context.capabilities, context.host_ip, clock::now()).await
        {
            tracing::warn!(node = name, error = %error, "node not registered, will try again");
            tokio::time::sleep(REGISTER_AGAIN).await;
        }
        let mut renewals = tokio::time::interval(node_object::RENEW_EVERY);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut written = false;
        loop {
            tokio::select! {
                _ = renewals.tick() => if let Err(error) = lease::renew(client, name, clock::now()).await {
                    tracing::warn!(node = name, error = %error, "lease not renewed, will try again");
                },
                Ok(()) = disk_pressure.changed() => {}
            }
            let pressure = *disk_pressure.borrow_and_update();
            if pressure != written {
                match disk_condition::write(client, name, pressure, clock::now()).await {
                    Ok(()) => written = pressure,
                    Err(error) => {
                        tracing::warn!(node = name, error = %error, "the pressure on the disk is not on the Node, will try again");
                        tokio::time::sleep(REGISTER_AGAIN).await;
                        disk_pressure.mark_changed();
                    }
                }
            }
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = work => {}
    }
}
