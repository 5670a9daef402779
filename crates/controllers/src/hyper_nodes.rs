//! HyperNodes: the shell around the HyperNode machine.
//!
//! Invariant: of nodes only names and labels are kept, and only what changes them makes work. HyperNodes that nobody
//! discovered are never written, but for the count in their status.

use std::collections::BTreeSet;

use futures::FutureExt as _;
use futures::stream::{self, BoxStream, SelectAll, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::PostParams;
use kube::{Api, Client};
use pumice_api::topology::HyperNode;
use pumice_cluster::{Change, EventRecorder, WatchScope, failure, watch_all, watch_optional, write};
use pumice_machines::hyper_nodes::{Discovery, HyperNodeEffect, Labels, NetworkView, step};
use serde_json::json;

use crate::cache::Cache;
use crate::deletion::delete;
use crate::node_table::NodeTable;
use crate::settings::{Settings, SettingsLocation};
use crate::small_loop::{Answer, Controller, Plan};

/// Most changes carried out before looking again.
const EFFECTS_MAX: usize = 1_000;
/// Most calls at once.
const CALLS_MAX: usize = 16;

/// The network is looked at as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Network;

pub(crate) enum Input {
    Node(Box<Change<Node>>),
    HyperNode(Change<HyperNode>),
    Settings(Change<ConfigMap>),
}

/// Everything that is known of the network.
pub(crate) struct HyperNodes {
    client: Client,
    settings: Settings,
    discovery: Discovery,
    nodes: NodeTable<Labels>,
    hyper_nodes: Cache<HyperNode>,
}

impl HyperNodes {
    pub fn new(client: Client, recorder: EventRecorder, place: SettingsLocation) -> Self {
        Self {
            client,
            settings: Settings::new(place, recorder),
            discovery: Discovery::default(),
            nodes: NodeTable::default(),
            hyper_nodes: Cache::default(),
        }
    }

    fn take_settings(&mut self, change: Change<ConfigMap>) -> bool {
        let Some(text) = self.settings.take(change) else { return false };
        match Discovery::parse(text.unwrap_or_default()) {
            Ok((discovery, problems)) => {
                self.discovery = discovery;
                problems.into_iter().for_each(|problem| self.settings.complain(problem));
                true
            }
            Err(error) => {
                self.settings.complain(error.to_string());
                false
            }
        }
    }
}

impl Controller for HyperNodes {
    const NAME: &'static str = "hypernode";
    type Key = Network;
    type Input = Input;

    fn feed(&self, client: &Client) -> SelectAll<BoxStream<'static, Input>> {
        let mut feed = SelectAll::new();
        let nodes = watch_all::<Node>(client, WatchScope::default());
        feed.push(nodes.map(|change| Input::Node(Box::new(change))).boxed());
        let hyper_nodes = watch_optional(Api::all(client.clone()), WatchScope::default());
        feed.push(hyper_nodes.map(Input::HyperNode).boxed());
        feed.push(self.settings.watch(client).map(Input::Settings).boxed());
        feed
    }

    fn is_complete(&self) -> bool {
        self.nodes.is_listed && self.hyper_nodes.is_listed && self.settings.is_listed
    }

    fn take(&mut self, input: Input, touched: &mut BTreeSet<Network>) {
        let changed = match input {
            Input::Node(change) => self.nodes.take(*change, |node| node.metadata.labels.unwrap_or_default()),
            Input::Settings(change) => self.take_settings(change),
            Input::HyperNode(change) => {
                let mut changed = false;
                self.hyper_nodes.take(change, |_, _| changed = true);
                changed
            }
        };
        if changed {
            touched.insert(Network);
        }
    }

    fn plan(&mut self, Network: &Network) -> Plan<Input> {
        let named = |hyper_node: &HyperNode| hyper_node.metadata.name.clone().unwrap_or_default();
        let hyper_nodes = self.hyper_nodes.items.values().map(|hyper_node| (named(hyper_node), hyper_node)).collect();
        let view = NetworkView { discovery: &self.discovery, nodes: &self.nodes.entries, hyper_nodes: &hyper_nodes };
        let mut effects = step(&view);
        effects.truncate(EFFECTS_MAX);
        if effects.is_empty() {
            return Plan { call: None, look_again: None };
        }
        Plan { call: Some(carry_out(Api::all(self.client.clone()), effects).boxed()), look_again: None }
    }
}

async fn carry_out(api: Api<HyperNode>, effects: Vec<HyperNodeEffect>) -> Answer<Input> {
    let calls = effects.into_iter().map(|effect| one(&api, effect));
    let results: Vec<_> = stream::iter(calls).buffer_unordered(CALLS_MAX).collect().await;
    let mut answer = Answer { observed: Vec::new(), failure: None };
    for result in results {
        match result {
            Ok(change) => answer.observed.push(Input::HyperNode(change)),
            Err(error) => answer.failure = answer.failure.or(Some(failure(&error))),
        }
    }
    answer
}

async fn one(api: &Api<HyperNode>, effect: HyperNodeEffect) -> Result<Change<HyperNode>, kube::Error> {
    match effect {
        HyperNodeEffect::Create(hyper_node) => {
            api.create(&PostParams::default(), &hyper_node).await.map(Change::Applied)
        }
        HyperNodeEffect::Update(hyper_node) => {
            let name = hyper_node.metadata.name.as_deref().unwrap_or_default();
            let metadata = json!({ "uid": hyper_node.metadata.uid, "labels": hyper_node.metadata.labels });
            let patch = json!({ "metadata": metadata, "spec": hyper_node.spec });
            write::merge(api, name, &patch).await.map(Change::Applied)
        }
        HyperNodeEffect::Delete { name, uid } => delete(api, None, &name, uid).await,
        HyperNodeEffect::WriteCount { name, count } => {
            let patch = json!({ "status": { "nodeCount": count } });
            write::merge_status(api, &name, &patch).await.map(Change::Applied)
        }
    }
}
