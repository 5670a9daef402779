//! Seams of the API server that are filled after it is built.
//!
//! The server needs to know whom to ask for a pod's log or a job's reasons before those components
//! exist, because they in turn need a client of the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use pumice_apiserver::{
    AggregatedApi, AggregatedResource, AggregatedService, Body, Builder, NodeProxy, NodeProxyError, Verb,
};

use crate::args::UpArgs;

/// The node agent's and the scheduler's side, once they are there.
#[derive(Clone)]
pub struct Late {
    /// The name of this machine's node.
    pub node_name: String,
    /// The node agent of this machine.
    pub node: Arc<OnceLock<pumice_node::Handle>>,
    pub scheduler: Arc<OnceLock<pumice_scheduler::Handle>>,
    pub history: Arc<OnceLock<pumice_history::Handle>>,
    /// What must run before work is taken.
    pub parts: [Part; 4],
}

/// A component as `/readyz` sees it.
#[derive(Clone)]
pub struct Part {
    pub name: &'static str,
    runs: Arc<AtomicBool>,
}

impl Part {
    fn new(name: &'static str) -> Part {
        Part { name, runs: Arc::default() }
    }

    /// Whether the flags ask for it.
    pub fn is_wanted(&self, args: &UpArgs) -> bool {
        match self.name {
            NODE_AGENT => args.runs_pods(),
            SIMULATED_NODES => args.simulated.simulated_nodes > 0,
            _ => true,
        }
    }

    /// Why it isn't well.
    pub fn look(&self) -> Result<(), String> {
        if self.runs.load(Ordering::Relaxed) { Ok(()) } else { Err("it does not run".to_owned()) }
    }

    /// Says whether it runs.
    pub fn runs(&self, runs: bool) {
        self.runs.store(runs, Ordering::Relaxed);
    }
}

/// Names of the components that start after the API server answers, as log and `status` show them.
pub const HISTORY: &str = "history";
pub const CONTROLLERS: &str = "controllers";
pub const DIRECTORIES: &str = "directories";
pub const SCHEDULER: &str = "scheduler";
pub const NODE_AGENT: &str = "node-agent";
pub const SIMULATED_NODES: &str = "simulated-nodes";

impl Late {
    /// Seams to nobody yet.
    pub fn new(node_name: String) -> Late {
        let parts = [CONTROLLERS, SCHEDULER, NODE_AGENT, SIMULATED_NODES].map(Part::new);
        Late { node_name, node: Arc::default(), scheduler: Arc::default(), history: Arc::default(), parts }
    }

    /// Carries requests for this machine's node to its agent.
    pub fn node_proxy(&self) -> ThisMachine {
        ThisMachine { name: self.node_name.clone(), node: Arc::clone(&self.node) }
    }

    /// The group that tells why jobs wait.
    pub fn why(&self) -> AggregatedApi {
        AggregatedApi {
            group: pumice_scheduler::WHY_GROUP.into(),
            version: pumice_scheduler::WHY_VERSION.into(),
            resources: vec![
                resource("jobs", "Why", true, vec![Verb::Get, Verb::List]),
                resource("queues", "QueueWhy", false, vec![Verb::Get]),
                resource("nodes", "NodeWhy", false, vec![Verb::Get]),
            ],
            right: None,
            service: Arc::new(Why { scheduler: Arc::clone(&self.scheduler) }),
        }
    }

    /// Adds the group that tells what became of jobs, and how the history does. Work goes on without it.
    pub fn with_history(&self, builder: Builder) -> Builder {
        let history = Arc::clone(&self.history);
        let look = move || history.get().map_or_else(|| Err("it is starting".to_owned()), pumice_history::Handle::look);
        let api = AggregatedApi {
            group: pumice_history::GROUP.into(),
            version: pumice_history::VERSION.into(),
            resources: vec![resource("jobs", "JobHistory", true, vec![Verb::Get, Verb::List])],
            right: None,
            service: Arc::new(History(Arc::clone(&self.history))),
        };
        builder.aggregate(api).informational_check(HISTORY, look)
    }
}

fn resource(name: &str, kind: &str, namespaced: bool, verbs: Vec<Verb>) -> AggregatedResource {
    AggregatedResource { name: name.into(), kind: kind.into(), namespaced, verbs }
}

/// Reaches the one node there is.
pub struct ThisMachine {
    name: String,
    node: Arc<OnceLock<pumice_node::Handle>>,
}

impl NodeProxy for ThisMachine {
    fn call(&self, node: &str, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, NodeProxyError>> {
        let agent = (node == self.name).then(|| self.node.get().cloned()).flatten();
        let node = node.to_owned();
        Box::pin(async move {
            let agent = agent.ok_or(NodeProxyError::NotConnected { node })?;
            // Only the body is dropped: a client's connection to take over is among the extensions.
            Ok(agent.answer(request.map(drop)).map(Body::new))
        })
    }
}

struct Why {
    scheduler: Arc<OnceLock<pumice_scheduler::Handle>>,
}

impl AggregatedService for Why {
    fn call(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        let scheduler = self.scheduler.get().cloned();
        Box::pin(async move {
            let response = match scheduler {
                Some(scheduler) => {
                    // The answer may have to wait for the end of a scheduling cycle.
                    let path = request.uri().path().to_owned();
                    let answer = tokio::task::spawn_blocking(move || scheduler.answer(&path)).await;
                    answer.unwrap_or_else(|_| pumice_scheduler::not_ready())
                }
                None => pumice_scheduler::not_ready(),
            };
            response.map(|bytes| Body::new(Full::new(bytes)))
        })
    }
}

struct History(Arc<OnceLock<pumice_history::Handle>>);

impl AggregatedService for History {
    fn call(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        let history = self.0.get().cloned();
        Box::pin(async move {
            let response = match history {
                Some(history) => history.answer(request.uri().path(), request.uri().query().unwrap_or_default()).await,
                None => pumice_history::not_ready(),
            };
            response.map(|bytes| Body::new(Full::new(bytes)))
        })
    }
}
