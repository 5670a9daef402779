//! The group `certificates.pumice.sh`: what certificates there are, renewals for components and nodes, and rotations of the authority.
//!
//! Invariant: a renewal gives whoever asks what he is already, to components and nodes alone; a rotation is an administrator's. What is
//! asked has a bound of size and time.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use pumice_api::names;
use pumice_apiserver::{AggregatedApi, AggregatedResource, AggregatedService, Body, Verb};
use pumice_auth::{ClientTrust, Identity, MASTERS, is_due, node_of, valid_until};
use pumice_clock::now;
use pumice_objects::status::{GroupResource, Status, StatusReason};
use pumice_units::with_causes;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Certificates;

const GROUP: &str = "certificates.pumice.sh";
/// Where certificates are told of, renewed, and where the authority is rotated.
pub const AUTHORITIES: &str = "/apis/certificates.pumice.sh/v1alpha1/authorities";
pub const RENEWALS: &str = "/apis/certificates.pumice.sh/v1alpha1/renewals";
pub const ROTATIONS: &str = "/apis/certificates.pumice.sh/v1alpha1/rotations";
/// Components that have a certificate.
pub const COMPONENTS: [(&str, &str); 4] = [
    ("scheduler", names::USER_SCHEDULER),
    ("controllers", names::USER_CONTROLLERS),
    ("admission", names::USER_ADMISSION),
    ("history", names::USER_HISTORY),
];
/// Largest body, and how long it may take to come.
const BODY_BYTES_MAX: usize = 64 << 10;
const BODY_WITHIN: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Renewal {
    certificate: String,
    authorities: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rotate {
    #[serde(default)]
    finish: bool,
    #[serde(default)]
    force: bool,
}

/// The group, for the API server.
pub fn api(certificates: &Arc<Certificates>) -> AggregatedApi {
    let resource = |name: &str, kind: &str, verb: Verb| AggregatedResource {
        name: name.into(),
        kind: kind.into(),
        namespaced: false,
        verbs: vec![verb],
    };
    AggregatedApi {
        group: GROUP.into(),
        version: "v1alpha1".into(),
        resources: vec![
            resource("authorities", "Authority", Verb::List),
            resource("renewals", "Renewal", Verb::Create),
            resource("rotations", "Rotation", Verb::Create),
        ],
        right: None,
        service: Arc::new(Service(Arc::clone(certificates))),
    }
}

struct Service(Arc<Certificates>);

impl AggregatedService for Service {
    fn call(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        let certificates = Arc::clone(&self.0);
        Box::pin(async move {
            let (code, value) = match answer(&certificates, request).await {
                Ok(value) => (StatusCode::OK, value),
                Err(status) => {
                    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                    (code, status.to_json())
                }
            };
            let mut response = Response::new(Body::from(value.to_string()));
            *response.status_mut() = code;
            let json = http::HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        })
    }
}

async fn answer(certificates: &Certificates, request: Request<Body>) -> Result<Value, Status> {
    let identity = request.extensions().get::<Identity>().cloned().ok_or_else(Status::unauthorized)?;
    match (request.method().as_str(), request.uri().path()) {
        ("GET", AUTHORITIES) => Ok(certificates.report()),
        ("POST", RENEWALS) => renew(certificates, &identity, read(request).await?),
        ("POST", ROTATIONS) => rotate(certificates, &identity, read(request).await?).await,
        _ => Err(Status::unknown_path()),
    }
}

async fn read<T: serde::de::DeserializeOwned>(request: Request<Body>) -> Result<T, Status> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    let bytes = match tokio::time::timeout(BODY_WITHIN, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return Err(Status::bad_request(format!("the body can't be read: {error}"))),
        Err(_) => return Err(Status::timeout("the body did not come in time")),
    };
    serde_json::from_slice(&bytes).map_err(|error| Status::bad_request(format!("the body can't be read: {error}")))
}

fn refused(resource: &str, cause: String) -> Status {
    Status::forbidden(GroupResource { group: GROUP, resource }, "", cause)
}

fn renew(certificates: &Certificates, identity: &Identity, asked: Renewal) -> Result<Value, Status> {
    let shown = CertificateDer::from_pem_slice(asked.certificate.as_bytes())
        .map_err(|error| Status::bad_request(format!("certificate: no certificate in PEM: {error}")))?;
    let failed = |error: &dyn std::fmt::Display| Status::internal_error(error);
    let authority = certificates.authority();
    let (issuing, now) = (authority.issuing(), now());
    let is_newest = ClientTrust::new(issuing.pem(), false).map_err(|error| failed(&error))?.takes(&shown);
    let until = valid_until(&shown).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    let bundle = authority.bundle();
    if is_newest && asked.authorities == bundle && until.is_some_and(|until| !is_due(until, now)) {
        return Ok(json!({ "renewed": false }));
    }
    let issued = match node_of(identity) {
        Some(node) => issuing.issue_node(node, now),
        None if COMPONENTS.iter().any(|(_, user)| *user == identity.user) => {
            issuing.issue_component(&identity.user, now)
        }
        None => return Err(refused("renewals", format!("{} has no certificate that is renewed", identity.user))),
    };
    let issued = issued.map_err(|error| failed(&error))?;
    Ok(json!({
        "renewed": true, "certificate": issued.certificate_pem, "key": issued.key_pem, "authorities": bundle,
    }))
}

async fn rotate(certificates: &Certificates, identity: &Identity, asked: Rotate) -> Result<Value, Status> {
    if !identity.is_in(MASTERS) {
        return Err(refused("rotations", "the authority is rotated by administrators".to_owned()));
    }
    match certificates.rotate(asked.finish, asked.force).await {
        Ok(Ok(())) => Ok(certificates.report()),
        Ok(Err(error)) => Err(Status::new(StatusReason::Conflict, with_causes(&error))),
        Err(error) => Err(Status::internal_error(with_causes(&*error))),
    }
}
