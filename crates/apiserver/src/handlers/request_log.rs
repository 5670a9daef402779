//! The request log: each request is counted in metrics, and written to the audit log.
//!
//! Invariant: whatever becomes of a request, it is counted once, and no longer under way when it was answered; what goes on
//! after its answer (a watch, a log that is followed) ends with its body, or with what [`LongRunning`] was given to. Used by the pipeline alone.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Method, Request, Response, header};
use pumice_auth::{ANONYMOUS, Authenticated, Identity};
use tokio::time::Instant;

use crate::audit::{Annotations, Entry};
use crate::authn::Caller;
use crate::context::State;
use crate::http::body::Body;
use crate::http::query::Query;
use crate::http::request::{ResourceRequest, Target, Verb};
use crate::http::request_metrics::{Labels, Series};

/// Subresources whose answers go on.
pub(crate) const STREAMS: [&str; 4] = ["exec", "attach", "portforward", "proxy"];

/// A request that is being answered.
pub(crate) struct RequestLog {
    begun: Instant,
    series: Option<Arc<Series>>,
    goes_on: bool,
    under_way: Option<UnderWay>,
    entry: Option<Box<Entry>>,
    /// Who the request itself showed to have sent it.
    authenticated: Option<Authenticated>,
}

/// Counts a request as one under way while it lives.
struct UnderWay {
    state: Arc<State>,
    mutating: bool,
}

impl UnderWay {
    fn new(state: &Arc<State>, mutating: bool) -> Self {
        let state = Arc::clone(state);
        state.requests.in_flight(mutating).fetch_add(1, Relaxed);
        Self { state, mutating }
    }

    fn gauge(&self) -> &AtomicU64 {
        self.state.requests.in_flight(self.mutating)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.gauge().fetch_sub(1, Relaxed);
    }
}

/// What goes on after its answer.
struct GoesOn {
    series: Arc<Series>,
    entry: Option<(Box<Entry>, Arc<State>)>,
}

impl Drop for GoesOn {
    fn drop(&mut self) {
        self.series.end_long();
        if let Some((entry, state)) = self.entry.take() {
            complete(&entry, &state);
        }
    }
}

/// For what lasts longer than its answer, because the connection becomes something else: holds what counts it.
#[derive(Clone, Default)]
pub(crate) struct LongRunning(Arc<Mutex<Option<GoesOn>>>);

impl LongRunning {
    /// Marks an answer whose body does not tell the end: it goes on until what is returned here is dropped.
    pub(crate) fn in_place_of(response: &mut Response<Body>) -> Self {
        let lasting = Self::default();
        response.extensions_mut().insert(lasting.clone());
        lasting
    }
}

impl RequestLog {
    /// Begins with a request that has just come in.
    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), series: None, goes_on: false, under_way: None, entry: None, authenticated: None }
    }

    /// What is asked for is known.
    pub(crate) fn target(&mut self, state: &Arc<State>, target: &Target, query: &Query, request: &Request<Body>) {
        match target {
            Target::Resource(wanted) => {
                let labels = labels(wanted, request.headers(), query.filled("dryRun").is_some());
                let known = || {
                    let registry = state.storage.registry.load(&state.storage.store);
                    let main = wanted.subresource.is_empty();
                    let served = registry.find(&wanted.group, &wanted.version, &wanted.resource);
                    let served = served.is_some_and(|one| main || one.subresource(&wanted.subresource).is_some());
                    served || (main && registry.aggregated(&wanted.group, &wanted.version).is_some())
                };
                self.series = Some(state.requests.series(&labels, known));
                self.goes_on = wanted.verb == Verb::Watch
                    || STREAMS.contains(&wanted.subresource.as_str())
                    || (wanted.subresource == "log" && matches!(query.flag("follow"), Ok(Some(true))));
                if !self.goes_on {
                    let reads = matches!(wanted.verb, Verb::Get | Verb::List | Verb::Watch);
                    self.under_way = Some(UnderWay::new(state, !reads));
                }
            }
            Target::Other(_) => {
                let verb = if *request.method() == Method::GET { "GET" } else { "other" };
                let labels =
                    Labels { verb, group: "", version: "", resource: "", subresource: "", scope: "", dry_run: false };
                self.series = Some(state.requests.series(&labels, || true));
                self.under_way = Some(UnderWay::new(state, false));
            }
        }
    }

    /// Who asks is known, or who was refused, if he has shown who he is.
    pub(crate) fn caller(
        &mut self,
        state: &State,
        target: &Target,
        caller: Result<&Caller, Option<&Identity>>,
        request: &Request<Body>,
    ) {
        let sender = match caller {
            Ok(Caller { identity, by, .. }) => Some(by.as_ref().unwrap_or(identity)),
            Err(refused) => refused,
        };
        // The listener knows already what a certificate shows.
        let by_token = request.extensions().get::<Identity>().is_none();
        if let Some(sender) = sender
            && by_token
            && sender.user != ANONYMOUS
        {
            self.authenticated = Some(Authenticated(sender.user.clone()));
        }
        self.entry =
            state.audit.as_ref().and_then(|audit| audit.begin(state.storage.clock.now(), target, caller, request));
    }

    /// What the audit log is to note beside the request; nothing where it doesn't tell it.
    pub(crate) fn annotations(&self) -> Option<Annotations> {
        self.entry.as_ref().map(|entry| entry.annotations())
    }

    /// The answer is there.
    pub(crate) fn end(self, state: &Arc<State>, mut response: Response<Body>) -> Response<Body> {
        let Self { begun, series, goes_on, under_way, entry, authenticated } = self;
        drop(under_way);
        if let Some(authenticated) = authenticated {
            response.extensions_mut().insert(authenticated);
        }
        let goes_on = goes_on && response.status().as_u16() < 300;
        if let Some(series) = &series {
            series.count(response.status(), (!goes_on).then(|| begun.elapsed()));
        }
        let entry = entry.map(|mut entry| {
            entry.answered(&response);
            entry
        });
        match (series, goes_on) {
            (Some(series), true) => {
                series.begin_long();
                let entry = entry.map(|entry| {
                    if let Some(audit) = &state.audit {
                        entry.started(audit, state.storage.clock.now());
                    }
                    (entry, Arc::clone(state))
                });
                let guard = GoesOn { series, entry };
                match response.extensions().get::<LongRunning>() {
                    Some(lasting) => {
                        *lasting.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(guard);
                        response
                    }
                    None => response.map(|body| body.guarded(guard)),
                }
            }
            _ => {
                if let Some(entry) = entry {
                    complete(&entry, state);
                }
                response
            }
        }
    }
}

/// Tells that all is over.
fn complete(entry: &Entry, state: &State) {
    if let Some(audit) = &state.audit {
        entry.complete(audit, state.storage.clock.now());
    }
}

fn labels<'r>(wanted: &'r ResourceRequest, headers: &HeaderMap, dry_run: bool) -> Labels<'r> {
    let applies = || {
        let kind = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes());
        kind.is_some_and(|kind| kind.starts_with(b"application/apply-patch"))
    };
    let verb = match wanted.verb {
        _ if STREAMS.contains(&wanted.subresource.as_str()) => "CONNECT",
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch if applies() => "APPLY",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
    };
    let scope = match (wanted.name.is_empty(), wanted.namespace.is_empty()) {
        (false, _) => "resource",
        // As upstream: what is made belongs to no collection.
        (true, _) if wanted.verb == Verb::Create => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    };
    Labels {
        verb,
        group: &wanted.group,
        version: &wanted.version,
        resource: &wanted.resource,
        subresource: &wanted.subresource,
        scope,
        dry_run,
    }
}
