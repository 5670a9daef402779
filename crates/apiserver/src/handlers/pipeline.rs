//! The one way every request takes: path, identity, rights, then a verb or a document.
//!
//! Invariant: nothing is read from the body, and no object is looked at, before the caller's rights are known; and nothing is
//! processed before its body is there. Called by
//! the tower services.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http::{Method, Request, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use pumice_auth::{Attributes, Decision, Identity, Issuer, MASTERS, Target as AuthTarget, Unknown, Verified, named};
use pumice_objects::status::{GroupResource, Status};
use tokio_util::sync::DropGuard;

use crate::audit::{Annotations, Source};
use crate::authn::{self, Caller, Credential, Refused};
use crate::authz::nodes::Selected;
use crate::context::{Call, Listener, ShownBy, State, UnknownPeer};
use crate::handlers::request_log::{RequestLog, STREAMS};
use crate::handlers::{non_resource, reviews, subresources, verbs};
use crate::http::body::Body;
use crate::http::connections::ConnectionEnd;
use crate::http::query::{Query, ReadOptions};
use crate::http::request::{self, ResourceRequest, Target, Verb};
use crate::http::respond::{Answer, refusal};
use crate::http::websocket;
use crate::kinds::Descriptor;
use crate::kinds::aggregated::AggregatedRight;
use crate::kinds::descriptor::Subresource;
use crate::kinds::registry::Registry;
use crate::login::{self, Wanted};

/// The subresource that is read for as long as a client follows it.
const LOG: &str = "log";
/// Longest time for a write whose body is there.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Whether the caller has the right to another verb on what it asks for.
pub(crate) fn authorize_also(call: &Call, verb: Verb) -> Result<(), Status> {
    let wanted = ResourceRequest { verb, ..call.request.clone() };
    authorize_resource(&call.state, &call.identity, &wanted, &call.query)
}

/// Answers any request, counts it and tells the audit log. A panic while it is handled is answered with 500 and ends nothing else.
pub(crate) async fn answer(state: Arc<State>, request: Request<Body>) -> Response<Body> {
    let head = request.method() == Method::HEAD;
    let path = request.uri().path().to_owned();
    let mut log = RequestLog::begin();
    let routed = route(Arc::clone(&state), request, &mut log);
    let answered = AssertUnwindSafe(routed).catch_unwind().await;
    let mut response = match answered {
        Ok(answer) => answer.unwrap_or_else(|status| refusal(&status)),
        // The panic is this object's alone: the store is changed by its own writer, and the registry is replaced whole.
        Err(_) => {
            tracing::error!(path, "a request panicked");
            refusal(&Status::internal_error("the request could not be processed; the server's log has the details"))
        }
    };
    if head {
        *response.body_mut() = Body::empty();
    }
    log.end(&state, response)
}

async fn route(state: Arc<State>, mut request: Request<Body>, log: &mut RequestLog) -> Answer {
    let query = Query::parse(request.uri().query().unwrap_or_default())?;
    let watching = query.flag("watch")?.unwrap_or(false);
    let target = request::parse(request.method(), request.uri().path(), watching)
        .map_err(|error| Status::bad_request(error.to_string()))?;
    log.target(&state, &target, &query, &request);
    let verified = verified(&state, &request);
    let verified = match verified {
        Some((issuer, token)) => Some(issuer.identify(&token, state.storage.clock.now()).await),
        None => None,
    };
    if let Target::Other(segments) = &target
        && let Some(wanted) = login::wanted(request.method(), segments)
    {
        let known = verified.as_ref().and_then(|verified| verified.as_ref().ok());
        let identity = known.map_or_else(Identity::anonymous, |verified| verified.identity.clone());
        let caller = Caller { identity, by: None, credential: Credential::Certificate };
        log.caller(&state, &target, Ok(&caller), &request);
        return match wanted {
            Wanted::Methods => login::methods(&state),
            Wanted::Logout => login::logout(&state, verified, authn::own_token(request.headers())).await,
            Wanted::Token => {
                let address = request.extensions().get::<Source>().map(|source| source.0);
                login::tokens::answer(&state, address, request.into_body()).await
            }
        };
    }
    let caller = caller_of(&state, &request, &target, verified);
    log.caller(&state, &target, caller.as_ref().map_err(|refused| refused.who.as_ref()), &request);
    let caller = caller.map_err(|refused| refused.status)?;
    if let Some(annotations) = log.annotations() {
        request.extensions_mut().insert(annotations);
    }
    websocket::without_bearer(request.headers_mut());
    match target {
        Target::Other(segments) => {
            let path = format!("/{}", segments.join("/"));
            let verb = request.method().as_str().to_ascii_lowercase();
            let attributes = Attributes { verb: &verb, target: AuthTarget::Path(&path) };
            let nothing = GroupResource { group: "", resource: "" };
            authorize(&state, &caller.identity, &attributes, nothing, "")?;
            non_resource::serve(&state, &segments, &query, &caller.identity, &request)
        }
        Target::Resource(wanted) => resource(state, caller, wanted, query, request).await,
    }
}

/// The issuer that has to vouch for the request's token, and the token.
fn verified(state: &State, request: &Request<Body>) -> Option<(Issuer, String)> {
    state.storage.authenticator().of_issuer(request.extensions().get::<Identity>(), request.headers())
}

/// The caller. Health is told to anybody; everything else needs an identity.
fn caller_of(
    state: &State,
    request: &Request<Body>,
    target: &Target,
    verified: Option<Result<Verified, Unknown>>,
) -> Result<Caller, Refused> {
    if let Some(UnknownPeer(status)) = request.extensions().get() {
        return Err(Refused { status: status.clone(), who: None });
    }
    let shown = request.extensions().get::<Identity>();
    if let Some(caller) = state.storage.authenticator().identify(shown, request.headers(), verified)? {
        return Ok(caller);
    }
    let public = match target {
        Target::Other(segments) => {
            matches!(segments.first().map(String::as_str), Some("healthz" | "livez" | "readyz" | "version"))
        }
        Target::Resource(_) => false,
    };
    if public {
        Ok(Caller { identity: Identity::anonymous(), by: None, credential: Credential::Certificate })
    } else {
        Err(Refused { status: Status::unauthorized(), who: None })
    }
}

async fn resource(
    state: Arc<State>,
    caller: Caller,
    wanted: ResourceRequest,
    query: Query,
    request: Request<Body>,
) -> Answer {
    let identity = caller.identity.clone();
    let registry = state.storage.registry.load(&state.storage.store);
    let aggregated = registry.aggregated(&wanted.group, &wanted.version);
    match aggregated.and_then(|api| api.right) {
        Some(right) => authorize_as(&state, &identity, &wanted, right)?,
        None => authorize_resource(&state, &identity, &wanted, &query)?,
    }
    if let Some(api) = aggregated {
        let service = Arc::clone(&api.service);
        let mut request = request;
        request.headers_mut().remove(header::AUTHORIZATION);
        request.extensions_mut().insert(identity);
        return Ok(service.call(request).await);
    }
    if (wanted.group.as_str(), wanted.version.as_str(), wanted.resource.as_str()) == ("", "v1", "bindings") {
        return namespaced_binding(state, &registry, identity, wanted, query, request).await;
    }
    let Some(descriptor) = registry.find(&wanted.group, &wanted.version, &wanted.resource).cloned() else {
        return Err(Status::unknown_path());
    };
    let in_process = is_in_process(&request);
    let mut call = call(state, descriptor, identity, wanted, query, &request);
    let body = request.into_body();
    if !in_process && let Some(stream) = stream(&mut call, caller) {
        let answer = match call.request.verb {
            Verb::Get | Verb::Watch => dispatch(call, body).await?,
            _ => bounded(call, in_process, body, dispatch).await?,
        };
        return Ok(match answer.status() {
            // It goes on with its connection.
            StatusCode::SWITCHING_PROTOCOLS => {
                stream.disarm();
                answer
            }
            _ => answer.map(|body| body.guarded(stream)),
        });
    }
    match call.request.verb {
        Verb::List if !in_process => {
            let turn = call.state.flow.list(&call.identity).await?;
            Ok(dispatch(call, body).await?.map(|body| body.guarded(turn)))
        }
        Verb::Get | Verb::List | Verb::Watch => dispatch(call, body).await,
        _ => bounded(call, in_process, body, dispatch).await,
    }
}

/// Notes what lasts longer than its request, so that it ends with its user's access. What is returned ends it when it is dropped.
fn stream(call: &mut Call, caller: Caller) -> Option<DropGuard> {
    let is_connection = STREAMS.contains(&call.request.subresource.as_str());
    let lasts = is_connection || call.request.verb == Verb::Watch || call.request.subresource == LOG;
    if !lasts || caller.by.is_none() && caller.identity.is_in(MASTERS) {
        return None;
    }
    let end = call.listener.closing.child_token();
    call.listener.closing = end.clone();
    let becomes_other = is_connection || websocket::is_asked(&call.headers);
    let connection = call.connection.clone().filter(|_| becomes_other).map(|ConnectionEnd(end)| end);
    call.state.storage.logins.streams.begin(caller, end.clone(), connection);
    Some(end.drop_guard())
}

/// Whether a request comes from inside this process: listeners leave their mark on all others.
fn is_in_process(request: &Request<Body>) -> bool {
    request.extensions().get::<Listener>().is_none()
}

/// Makes a write when it is its user's turn, and bounds how long it may take. A change that the store has begun goes on.
async fn bounded<W>(call: Call, in_process: bool, body: Body, write: impl FnOnce(Call, Body) -> W) -> Answer
where
    W: Future<Output = Answer>,
{
    let state = Arc::clone(&call.state);
    let (body, _charge) = if in_process {
        (body, None)
    } else {
        let (bytes, charge) = state.flow.read(&call.identity, &call.headers, body).await?;
        (Body::from(bytes), Some(charge))
    };
    let work = async {
        let _turn = state.flow.write(&call.identity, in_process).await?;
        write(call, body).await
    };
    tokio::time::timeout(WRITE_TIMEOUT, work).await.unwrap_or_else(|_| {
        Err(Status::timeout(format!("request did not complete within {} s", WRITE_TIMEOUT.as_secs())))
    })
}

fn call(
    state: Arc<State>,
    descriptor: Arc<Descriptor>,
    identity: Identity,
    request: ResourceRequest,
    query: Query,
    http: &Request<Body>,
) -> Call {
    let listener = http.extensions().get::<Listener>().cloned().unwrap_or_default();
    let shown_by = http.extensions().get::<ShownBy>().copied();
    let upgrade = http.extensions().get::<OnUpgrade>().cloned();
    let annotations = http.extensions().get::<Annotations>().cloned();
    let connection = http.extensions().get::<ConnectionEnd>().cloned();
    let headers = http.headers().clone();
    Call { state, descriptor, identity, request, query, headers, listener, shown_by, connection, upgrade, annotations }
}

/// `POST /api/v1/namespaces/x/bindings` names the pod in its body.
async fn namespaced_binding(
    state: Arc<State>,
    registry: &Registry,
    identity: Identity,
    wanted: ResourceRequest,
    query: Query,
    request: Request<Body>,
) -> Answer {
    let pods = registry.find("", "v1", "pods").cloned().ok_or_else(Status::unknown_path)?;
    if wanted.verb != Verb::Create || wanted.namespace.is_empty() || !wanted.name.is_empty() {
        return Err(Status::method_not_allowed(
            GroupResource { group: "", resource: "bindings" },
            wanted.verb.as_str(),
        ));
    }
    let in_process = is_in_process(&request);
    let call = call(state, pods, identity, wanted, query, &request);
    let bind = async |call: Call, body| subresources::binding::bind(&call, body).await;
    bounded(call, in_process, request.into_body(), bind).await
}

async fn dispatch(call: Call, body: Body) -> Answer {
    let request = &call.request;
    let cluster_path = request.namespace.is_empty();
    let misplaced = call.descriptor.namespaced && cluster_path && !request.name.is_empty();
    let foreign = !call.descriptor.namespaced && !cluster_path && request.resource != "namespaces";
    if misplaced || foreign || !request.rest.is_empty() {
        return Err(Status::unknown_path());
    }
    if !request.subresource.is_empty() {
        let Some(subresource) = call.descriptor.subresource(&request.subresource).cloned() else {
            return Err(Status::unknown_path());
        };
        if !subresource.verbs().contains(&request.verb.as_str()) {
            return Err(Status::method_not_allowed(call.resource(), request.verb.as_str()));
        }
        return below(&call, &subresource, body).await;
    }
    if let Some(review) = call.descriptor.review {
        if request.verb != Verb::Create || !request.name.is_empty() {
            return Err(Status::method_not_allowed(call.resource(), request.verb.as_str()));
        }
        return reviews::answer(&call, review, body).await;
    }
    match request.verb {
        Verb::Get => verbs::read::get(&call).await,
        Verb::List => verbs::read::list(&call).await,
        Verb::Watch => verbs::watch::watch(&call),
        Verb::Create if request.name.is_empty() => verbs::create::create(&call, body).await,
        Verb::Create => Err(Status::method_not_allowed(call.resource(), "create")),
        Verb::Update if !request.name.is_empty() => verbs::update::update(&call, None, body).await,
        Verb::Patch if !request.name.is_empty() => verbs::update::patch(&call, None, body).await,
        Verb::Update | Verb::Patch => Err(Status::method_not_allowed(call.resource(), request.verb.as_str())),
        Verb::Delete => verbs::delete::delete(&call, body).await,
        Verb::DeleteCollection => verbs::delete::delete_collection(&call, body).await,
    }
}

async fn below(call: &Call, subresource: &Subresource, body: Body) -> Answer {
    match (subresource, call.request.verb) {
        (Subresource::Status | Subresource::EphemeralContainers, Verb::Get) => verbs::read::get(call).await,
        (Subresource::Status | Subresource::EphemeralContainers, Verb::Patch) => {
            verbs::update::patch(call, Some(subresource), body).await
        }
        (Subresource::Status | Subresource::EphemeralContainers, _) => {
            verbs::update::update(call, Some(subresource), body).await
        }
        (Subresource::Scale { .. }, _) => subresources::scale::serve(call, subresource, body).await,
        (Subresource::Binding, _) => subresources::binding::bind(call, body).await,
        (Subresource::Eviction, _) => subresources::eviction::evict(call, body).await,
        (Subresource::Log, _) => subresources::log::read(call).await,
        (Subresource::Exec, _) => subresources::stream::exec(call).await,
        (Subresource::Attach, _) => subresources::stream::attach(call).await,
        (Subresource::PortForward, _) => subresources::stream::port_forward(call).await,
        (Subresource::Token, _) => subresources::token::create(call, body).await,
        (Subresource::Finalize, _) => subresources::finalize(call, body).await,
    }
}

fn authorize_resource(
    state: &State,
    identity: &Identity,
    wanted: &ResourceRequest,
    query: &Query,
) -> Result<(), Status> {
    let options = if wanted.name.is_empty() { selectors(query) } else { None };
    let selected = options.as_ref().and_then(|options| options.fields.exact("metadata.name"));
    let attributes = Attributes {
        verb: wanted.verb.as_str(),
        target: AuthTarget::Resource {
            group: &wanted.group,
            resource: &wanted.resource,
            subresource: named(&wanted.subresource),
            namespace: named(&wanted.namespace),
            // Rights by name apply to the name that a field selector has.
            name: named(&wanted.name).or(selected),
        },
    };
    let resource = GroupResource { group: &wanted.group, resource: &wanted.resource };
    let selected = options.as_ref().map(Selected::by).unwrap_or_default();
    let rights = state.storage.rights.load(&state.storage.store);
    allowed(rights.decide_selected(identity, &attributes, selected), resource, &wanted.name)
}

/// Whether the caller has the right that an aggregated group asks for in place of its own.
fn authorize_as(
    state: &State,
    identity: &Identity,
    wanted: &ResourceRequest,
    right: AggregatedRight,
) -> Result<(), Status> {
    let target = AuthTarget::Resource {
        group: right.group,
        resource: right.resource,
        subresource: named(right.subresource),
        namespace: named(&wanted.namespace),
        name: None,
    };
    let resource = GroupResource { group: right.group, resource: right.resource };
    authorize(state, identity, &Attributes { verb: wanted.verb.as_str(), target }, resource, "")
}

/// The selectors of a request that has some.
fn selectors(query: &Query) -> Option<ReadOptions> {
    query.filled("fieldSelector").or(query.filled("labelSelector"))?;
    ReadOptions::parse(query).ok()
}

fn authorize(
    state: &State,
    identity: &Identity,
    attributes: &Attributes<'_>,
    resource: GroupResource<'_>,
    name: &str,
) -> Result<(), Status> {
    allowed(state.storage.rights.load(&state.storage.store).decide(identity, attributes), resource, name)
}

fn allowed(decision: Decision, resource: GroupResource<'_>, name: &str) -> Result<(), Status> {
    match decision {
        Decision::Allow { .. } => Ok(()),
        Decision::Deny { reason } => Err(Status::forbidden(resource, name, reason)),
    }
}
