//! What a request needs: what all of them share, and what is known of this one.
//!
//! Invariant: a [`Call`] is of a sender who may make it. Built by the server and the pipeline; given to handlers.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use hyper::upgrade::OnUpgrade;
use jiff::Timestamp;
use pumice_auth::Identity;
use pumice_metrics::Page;
use pumice_objects::pod_security::Profile;
use pumice_objects::status::{GroupResource, Status};
use pumice_store::Store;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admission;
use crate::admission::quota::Quotas;
use crate::admission::submission_rate::SubmissionRates;
use crate::audit::{Annotations, AuditLog};
use crate::health::Health;
use crate::http::connections::{ConnectionEnd, ConnectionLimits};
use crate::http::flow::Flow;
use crate::http::query::Query;
use crate::http::request::ResourceRequest;
use crate::http::request_metrics::RequestMetrics;
use crate::kinds::Descriptor;
use crate::nodes::NodeProxy;
use crate::storage::Storage;

/// Adds to a page of metrics.
pub(crate) type ShowMetrics = Box<dyn Fn(&mut Page) + Send + Sync>;

/// What every request shares.
pub(crate) struct State {
    pub(crate) storage: Arc<Storage>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) submissions: SubmissionRates,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) node_proxy: Arc<dyn NodeProxy>,
    pub(crate) bookmark_every: Duration,
    pub(crate) health: Health,
    pub(crate) requests: RequestMetrics,
    pub(crate) audit: Option<AuditLog>,
    /// What namespaces enforce that say nothing about it.
    pub(crate) default_pod_security: Profile,
    /// Limits of the connections of all listeners.
    pub(crate) connections: Arc<ConnectionLimits>,
    /// What others add to the page of metrics.
    pub(crate) more_metrics: Option<ShowMetrics>,
    /// Whose turn it is.
    pub(crate) flow: Flow,
}

/// Set by a listener on its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listener {
    /// Watches end when it fires, so that the listener can.
    pub(crate) closing: CancellationToken,
    /// Those that go on over a WebSocket.
    pub(crate) sockets: TaskTracker,
}

/// How a listener knows who sends its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownBy {
    /// As `jobctl whoami` says it.
    pub(crate) what: &'static str,
    /// Until when it is good, seconds since 1970; as long as it likes where there is none.
    pub(crate) until: Option<i64>,
}

/// Set by a listener on the requests of somebody who has to be known and is not: they are answered with this, whatever they bring.
#[derive(Clone, Debug)]
pub(crate) struct UnknownPeer(pub(crate) Status);

/// A request whose sender may make it.
pub(crate) struct Call {
    pub(crate) state: Arc<State>,
    pub(crate) descriptor: Arc<Descriptor>,
    pub(crate) identity: Identity,
    pub(crate) request: ResourceRequest,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) listener: Listener,
    /// Breaks the connection off.
    pub(crate) connection: Option<ConnectionEnd>,
    /// How the listener knows the sender; none where a token says it, and in this process.
    pub(crate) shown_by: Option<ShownBy>,
    /// The connection, to be had once this request is answered, if the client asks to change its protocol.
    pub(crate) upgrade: Option<OnUpgrade>,
    /// What the audit log is to note beside the request, where that tells it.
    pub(crate) annotations: Option<Annotations>,
}

impl Call {
    pub(crate) fn store(&self) -> &Store {
        &self.state.storage.store
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.state.storage.clock.now()
    }

    /// How messages name the resource, subresource included.
    pub(crate) fn resource(&self) -> GroupResource<'_> {
        GroupResource { group: &self.descriptor.group, resource: &self.descriptor.plural }
    }

    /// The namespace to list: `None` for all.
    pub(crate) fn namespace(&self) -> Option<&str> {
        if self.descriptor.namespaced && !self.request.namespace.is_empty() {
            Some(&self.request.namespace)
        } else {
            None
        }
    }

    /// The namespace under which the store files the object.
    pub(crate) fn stored_namespace(&self) -> &str {
        if self.descriptor.namespaced { &self.request.namespace } else { "" }
    }
}
