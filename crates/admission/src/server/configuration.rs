//! The two webhook configurations: what the API server sends to us, and whom it trusts to be us.
//!
//! Invariant: every field that the API server would fill in is given, so that what is stored is what was sent. Objects of the
//! components' own namespace and of `kube-system` are never sent: a cluster whose admission is down can still be mended.
//! Pure; made by the reconciler.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, TypeMeta};
use pumice_api::names::{
    ADMISSION_CONFIGURATION, JDB_MAX_UNAVAILABLE, JDB_MIN_AVAILABLE, NAMESPACE_SYSTEM, QUEUE_ALLOCATION_GATE,
};
use serde_json::{Value, json};

use crate::policies::quoted;
use crate::routes::{Phase, Route, Sent, Unanswered};

/// Seconds that the API server waits for us; Volcano's number.
pub(crate) const TIMEOUT_SECONDS: u64 = 10;
/// Never sent, beside the components' own namespace.
const KUBE_SYSTEM: &str = "kube-system";
/// Port of the service.
const SERVICE_PORT: u16 = 443;

/// Where the API server finds us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Service {
        /// Its namespace, which is ours.
        namespace: String,
        name: String,
    },
    /// At an address: `https://host:port`.
    Url(String),
}

/// What the configurations say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub endpoint: Endpoint,
    /// Schedulers whose pods are ours.
    pub schedulers: Vec<String>,
    /// Whether pods of every scheduler may have to be filled in.
    pub any_pod: bool,
    /// Authorities that may have signed our certificate, PEM.
    pub trusted: String,
}

impl Registration {
    /// The object of one phase.
    pub fn object(&self, phase: Phase, routes: &[&Route]) -> DynamicObject {
        let hooks: Vec<Value> =
            routes.iter().filter(|route| route.phase == phase).map(|route| self.webhook(route)).collect();
        let types =
            TypeMeta { api_version: "admissionregistration.k8s.io/v1".to_owned(), kind: kind(phase).to_owned() };
        let metadata = ObjectMeta { name: Some(ADMISSION_CONFIGURATION.to_owned()), ..ObjectMeta::default() };
        DynamicObject { types: Some(types), metadata, data: json!({ "webhooks": hooks }) }
    }

    fn webhook(&self, route: &Route) -> Value {
        let scope =
            if matches!(route.resource, "queues" | "hypernodes" | "tenants") { "Cluster" } else { "Namespaced" };
        let failure_policy = match route.unanswered {
            Unanswered::Refused => "Fail",
            Unanswered::Passes => "Ignore",
        };
        let mut hook = json!({
            "name": route.webhook,
            "admissionReviewVersions": ["v1"],
            "clientConfig": self.client(route),
            "rules": [{
                "apiGroups": [route.group], "apiVersions": [route.version], "resources": [route.resource],
                "operations": route.operations, "scope": scope,
            }],
            "failurePolicy": failure_policy,
            "matchPolicy": "Equivalent",
            "namespaceSelector": { "matchExpressions": [{
                "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": self.namespaces_left_alone(),
            }] },
            "objectSelector": {},
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_SECONDS,
        });
        if let Some((name, expression)) = self.condition(route.sent) {
            hook["matchConditions"] = json!([{ "name": name, "expression": expression }]);
        }
        if route.phase == Phase::Mutate {
            hook["reinvocationPolicy"] = "Never".into();
        }
        hook
    }

    fn client(&self, route: &Route) -> Value {
        let trusted = STANDARD.encode(&self.trusted);
        match &self.endpoint {
            Endpoint::Service { namespace, name } => json!({
                "caBundle": trusted,
                "service": { "namespace": namespace, "name": name, "path": route.path, "port": SERVICE_PORT },
            }),
            Endpoint::Url(base) => {
                json!({ "caBundle": trusted, "url": format!("{}{}", base.trim_end_matches('/'), route.path) })
            }
        }
    }

    fn namespaces_left_alone(&self) -> Vec<&str> {
        let own = match &self.endpoint {
            Endpoint::Service { namespace, .. } => namespace,
            Endpoint::Url(_) => NAMESPACE_SYSTEM,
        };
        vec![KUBE_SYSTEM, own]
    }

    /// Name and CEL expression of what has to hold for an object to be sent.
    fn condition(&self, sent: Sent) -> Option<(&'static str, String)> {
        let annotated = |key: &str| format!("'{key}' in object.metadata.annotations");
        let of_ours = |keys: &str| {
            let ours = self.schedulers.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
            format!("object.spec.schedulerName in [{ours}] && has(object.metadata.annotations) && ({keys})")
        };
        match sent {
            Sent::All => None,
            Sent::Changed => Some((
                "something-to-judge",
                "request.operation != 'UPDATE' || object.spec != oldObject.spec || \
                 object.metadata.?annotations != oldObject.metadata.?annotations"
                    .to_owned(),
            )),
            Sent::PodsToMutate if self.any_pod => None,
            Sent::PodsToMutate => Some(("asks-for-its-gate", of_ours(&annotated(QUEUE_ALLOCATION_GATE)))),
            Sent::PodsWithBudget => {
                let keys = format!("{} || {}", annotated(JDB_MIN_AVAILABLE), annotated(JDB_MAX_UNAVAILABLE));
                Some(("has-a-budget", of_ours(&keys)))
            }
        }
    }
}

/// The kind of the configuration of a phase.
pub(crate) fn kind(phase: Phase) -> &'static str {
    match phase {
        Phase::Mutate => "MutatingWebhookConfiguration",
        Phase::Validate => "ValidatingWebhookConfiguration",
    }
}
