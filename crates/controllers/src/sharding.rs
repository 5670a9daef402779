//! NodeShards: the shell around the sharding machine.
//!
//! Invariant: pods change what nodes are asked for, and nothing else: the nodes are shared out anew when the period is over,
//! and at once only for nodes, shards and the configuration.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::PostParams;
use kube::{Api, Client};
use pumice_api::shard::NodeShard;
use pumice_cluster::{Change, EventRecorder, WatchScope, failure, watch_all, watch_optional, write};
use pumice_machines::sharding::{ShardEffect, Sharding, ShardingView, share_out, tell};
use serde_json::json;
use tokio::time::Instant;

use crate::cache::Cache;
use crate::deletion::delete;
use crate::settings::{Settings, SettingsLocation};
use crate::small_loop::{Answer, Controller, Plan};

mod loads;

use loads::Loads;

/// The cluster is shared out as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Cluster;

pub(crate) enum Input {
    Node(Box<Change<Node>>),
    Pod(Box<Change<Pod>>),
    Shard(Change<NodeShard>),
    Settings(Change<ConfigMap>),
}

/// Everything that is known of nodes and shards.
pub(crate) struct Shards {
    client: Client,
    settings: Settings,
    /// What counts where no ConfigMap says otherwise.
    fallback: Sharding,
    config: Sharding,
    loads: Loads,
    shards: Cache<NodeShard>,
    /// Whether the nodes are to be shared out, and when they are in any case.
    is_due: bool,
    next: Instant,
    left_over: usize,
}

impl Shards {
    pub fn new(client: Client, recorder: EventRecorder, place: SettingsLocation, fallback: Sharding) -> Self {
        Self {
            client,
            settings: Settings::new(place, recorder),
            config: fallback.clone(),
            fallback,
            loads: Loads::default(),
            shards: Cache::default(),
            is_due: true,
            next: Instant::now(),
            left_over: 0,
        }
    }

    fn take_settings(&mut self, change: Change<ConfigMap>) -> bool {
        let read = match self.settings.take(change) {
            None => return false,
            Some(None) => Ok(self.fallback.clone()),
            Some(Some(text)) => Sharding::parse(text),
        };
        match read {
            Ok(config) => {
                self.config = config;
                true
            }
            Err(error) => {
                self.settings.complain(error.to_string());
                false
            }
        }
    }

    /// Takes a change of shards in: whether there was one, and whether one of what they are to have.
    fn take_shards(&mut self, change: Change<NodeShard>) -> (bool, bool) {
        let desired = |shards: &Cache<NodeShard>| -> Vec<(String, Vec<String>)> {
            let of = |(key, shard): (&crate::index::Key, &NodeShard)| (key.1.clone(), shard.spec.nodes_desired.clone());
            shards.items.iter().map(of).collect()
        };
        let before = desired(&self.shards);
        let mut changed = false;
        self.shards.take(change, |_, _| changed = true);
        (changed, before != desired(&self.shards))
    }

    /// Shares out, if it is time.
    fn effects(&mut self) -> Vec<ShardEffect> {
        let now = Instant::now();
        self.is_due |= now >= self.next;
        let named = |(key, shard): (&crate::index::Key, _)| (key.1.clone(), shard);
        let shards: BTreeMap<String, &NodeShard> = self.shards.items.iter().map(named).collect();
        if self.is_due {
            let nodes = self.loads.nodes();
            let plan = share_out(&ShardingView { config: &self.config, nodes: &nodes, shards: &shards });
            if plan.left_over != self.left_over {
                tracing::info!(
                    nodes = plan.left_over,
                    "nodes are in no shard, since no scheduler's policies want them"
                );
                self.left_over = plan.left_over;
            }
            // Until nothing is left to write it stays due.
            self.is_due = !plan.effects.is_empty();
            if self.is_due {
                return plan.effects;
            }
            self.next = now + self.config.period;
        }
        tell(&shards)
    }
}

impl Controller for Shards {
    const NAME: &'static str = "sharding";
    type Key = Cluster;
    type Input = Input;

    fn feed(&self, client: &Client) -> SelectAll<BoxStream<'static, Input>> {
        let mut feed = SelectAll::new();
        let nodes = watch_all::<Node>(client, WatchScope::default());
        feed.push(nodes.map(|change| Input::Node(Box::new(change))).boxed());
        let pods = watch_all::<Pod>(client, WatchScope::default());
        feed.push(pods.map(|change| Input::Pod(Box::new(change))).boxed());
        feed.push(watch_optional(Api::all(client.clone()), WatchScope::default()).map(Input::Shard).boxed());
        feed.push(self.settings.watch(client).map(Input::Settings).boxed());
        feed
    }

    fn is_complete(&self) -> bool {
        self.loads.is_complete() && self.shards.is_listed && self.settings.is_listed
    }

    fn take(&mut self, input: Input, touched: &mut BTreeSet<Cluster>) {
        let (changed, is_due) = match input {
            Input::Pod(change) => {
                self.loads.take_pods(*change);
                (false, false)
            }
            Input::Node(change) => {
                let counts = self.loads.take_nodes(*change) && self.config.follows_nodes;
                (counts, counts)
            }
            Input::Shard(change) => self.take_shards(change),
            Input::Settings(change) => (true, self.take_settings(change)),
        };
        self.is_due |= is_due;
        if changed {
            touched.insert(Cluster);
        }
    }

    fn plan(&mut self, Cluster: &Cluster) -> Plan<Input> {
        let effects = self.effects();
        let call =
            if effects.is_empty() { None } else { Some(carry_out(Api::all(self.client.clone()), effects).boxed()) };
        // While it is due, what comes of the calls says when to go on.
        Plan { call, look_again: (!self.is_due).then_some(self.next) }
    }
}

/// One after the other: who gives nodes away is told before those who get them.
async fn carry_out(api: Api<NodeShard>, effects: Vec<ShardEffect>) -> Answer<Input> {
    let mut answer = Answer { observed: Vec::new(), failure: None };
    for effect in effects {
        match one(&api, effect).await {
            Ok(change) => answer.observed.push(Input::Shard(change)),
            Err(error) => {
                answer.failure = Some(failure(&error));
                break;
            }
        }
    }
    answer
}

async fn one(api: &Api<NodeShard>, effect: ShardEffect) -> Result<Change<NodeShard>, kube::Error> {
    match effect {
        ShardEffect::Create(shard) => api.create(&PostParams::default(), &shard).await.map(Change::Applied),
        ShardEffect::SetNodes { name, nodes } => {
            let patch = json!({ "spec": { "nodesDesired": nodes } });
            write::merge(api, &name, &patch).await.map(Change::Applied)
        }
        ShardEffect::Delete { name, uid } => delete(api, None, &name, uid).await,
        ShardEffect::WriteStatus { name, to_add, to_remove } => {
            let patch = json!({ "status": { "nodesToAdd": to_add, "nodesToRemove": to_remove } });
            write::merge_status(api, &name, &patch).await.map(Change::Applied)
        }
    }
}
