//! What answers the requests of a `kube::Client` that is of a fleet.
//!
//! Invariant: a request is read or refused, never half understood: a selector that has no meaning here, or a path that a fleet
//! has nothing under, is refused with a sentence. A job is found by its name in whatever queue it is.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use pumice_api::batch::JobPhase;
use pumice_api::names::{JOB_NAME, USER};
use pumice_objects::selector::{FieldSelector, LabelSelector};
use pumice_wire::api::JobState;
use pumice_wire::job_sets::{JobSet, ListRequest};
use serde_json::{Value, json};

use super::calls::{Calls, next};
use super::job_view::{JobSetView, JobView};
use super::objects::{self, Known};
use super::refusal::Refusal;
use super::submission::{self, Submission};
use super::{job_set_watch, queues};
use crate::job::idempotency;
use crate::json::text_at;
use crate::names;

mod create;
mod logs;

/// Stories that are remembered.
const STORIES_MAX: usize = 64;
/// Job sets that are remembered.
const KNOWN_MAX: usize = 5_000;
/// A queue that can't be: who asks for its job sets learns who they are.
const NO_QUEUE: &str = "-";
/// Letters of the end of a name that is made up.
const SUFFIX: usize = 5;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, BoxError>;
/// Lines of a watch.
pub(super) type Lines = BoxStream<'static, Result<Bytes, Refusal>>;

/// The answers, and what is remembered of earlier ones.
pub(super) struct KubernetesApi {
    pub(super) calls: Calls,
    queue: String,
    known: Mutex<HashMap<String, Arc<Known>>>,
    views: Mutex<HashMap<(String, String), Arc<JobSetView>>>,
}

enum Answer {
    Object(Value),
    /// A log as it comes.
    Text(Lines),
    Lines(Lines),
}

/// A client that is answered by the fleet.
pub(super) fn client(calls: Calls, queue: String) -> kube::Client {
    let front = Arc::new(KubernetesApi { calls, queue, known: Mutex::default(), views: Mutex::default() });
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let front = Arc::clone(&front);
        async move { Ok::<_, Infallible>(front.answer(request).await) }
    });
    kube::Client::new(service, "default")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is remembered is replaced as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a query asks for.
struct Query {
    labels: LabelSelector,
    /// The text of the labels, in which the name of a job is looked for.
    labels_text: String,
    fields: FieldSelector,
    watch: bool,
    version: u64,
    dry_run: bool,
    container: String,
    tail: Option<i64>,
    follow: bool,
}

impl Query {
    fn read(text: Option<&str>) -> Result<Self, Refusal> {
        let pairs: HashMap<String, String> =
            form_urlencoded::parse(text.unwrap_or_default().as_bytes()).into_owned().collect();
        let said = |name: &str| pairs.get(name).map(String::as_str).unwrap_or_default();
        let wrong = |what: &str, error: String| Refusal::invalid(format!("{what}: {error}"));
        Ok(Query {
            labels: LabelSelector::parse(said("labelSelector")).map_err(|e| wrong("labelSelector", e.to_string()))?,
            labels_text: said("labelSelector").to_owned(),
            fields: FieldSelector::parse(said("fieldSelector")).map_err(|e| wrong("fieldSelector", e.to_string()))?,
            watch: said("watch") == "true",
            version: said("resourceVersion").parse().unwrap_or(0),
            dry_run: !said("dryRun").is_empty(),
            container: said("container").to_owned(),
            tail: said("tailLines").parse().ok(),
            follow: said("follow") == "true",
        })
    }

    /// The job whose pods are asked for.
    fn job(&self) -> Result<&str, Refusal> {
        let mut parts = self.labels_text.split(',');
        let named = parts
            .find_map(|part| part.trim().strip_prefix(JOB_NAME)?.trim_start_matches('=').split_whitespace().next());
        named.ok_or_else(|| Refusal::not_here("a fleet lists the pods of one job at a time: name one"))
    }

    fn takes_labels(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.matches(|key| labels.get(key).and_then(Value::as_str))
    }

    /// Whether the object is meant, by its labels and by what is known of its fields.
    pub(super) fn takes(&self, object: &Value) -> bool {
        let field = |path: &str| match path {
            "metadata.name" => Some(text_at(object, "/metadata/name")),
            "status.phase" => Some(text_at(object, "/status/phase")),
            "spec.nodeName" => Some(text_at(object, "/spec/nodeName")),
            _ => None,
        };
        self.takes_labels(object) && self.fields.matches(field)
    }
}

/// What was told of the job whose pod somebody named.
struct PodView {
    job_set: String,
    id: String,
    view: JobView,
}

impl KubernetesApi {
    async fn answer(self: Arc<Self>, request: Request<kube::client::Body>) -> Response<Body> {
        match self.route(request).await {
            Ok(Answer::Object(object)) => response(200, "application/json", full(object.to_string())),
            Ok(Answer::Text(lines)) => response(200, "text/plain", streamed(lines)),
            Ok(Answer::Lines(lines)) => response(200, "application/json", streamed(lines)),
            Err(refusal) => response(refusal.code, "application/json", full(refusal.status().to_string())),
        }
    }

    async fn route(self: Arc<Self>, request: Request<kube::client::Body>) -> Result<Answer, Refusal> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().trim_matches('/').to_owned();
        let query = Query::read(parts.uri.query())?;
        let segments: Vec<&str> = path.split('/').collect();
        let is_get = parts.method == Method::GET;
        match segments.as_slice() {
            ["apis", "batch.volcano.sh", "v1alpha1", "jobs"] if is_get => self.jobs(None, query).await,
            ["apis", "batch.volcano.sh", "v1alpha1", "namespaces", namespace, "jobs"] if is_get => {
                self.jobs(Some(namespace), query).await
            }
            ["apis", "batch.volcano.sh", "v1alpha1", "namespaces", namespace, "jobs"]
                if parts.method == Method::POST =>
            {
                match query.dry_run {
                    true => self.try_create().await.map(Answer::Object),
                    false => self.create(namespace, read(body).await?).await.map(Answer::Object),
                }
            }
            ["apis", "batch.volcano.sh", "v1alpha1", "namespaces", namespace, "jobs", name] if is_get => {
                self.job(namespace, name).await.map(Answer::Object)
            }
            ["apis", "batch.volcano.sh", "v1alpha1", "namespaces", _, "jobs", name]
                if parts.method == Method::DELETE =>
            {
                Err(Refusal::not_here(format!(
                    "a fleet forgets ended jobs by itself: jobctl cancel {name} ends one that goes on"
                )))
            }
            ["apis", "bus.volcano.sh", "v1alpha1", "namespaces", namespace, "commands"]
                if parts.method == Method::POST =>
            {
                self.command(namespace, read(body).await?).await.map(Answer::Object)
            }
            ["api", "v1", "namespaces", namespace, "pods"] if is_get => self.pods(namespace, query).await,
            ["api", "v1", "namespaces", namespace, "pods", name] if is_get => {
                self.pod(namespace, name).map(Answer::Object)
            }
            ["api", "v1", "namespaces", namespace, "pods", name, "log"] if is_get => {
                self.log(namespace, name, query).await.map(Answer::Text)
            }
            ["apis", "why.pumice.sh", "v1alpha1", "namespaces", namespace, "jobs", name] if is_get => {
                self.why(namespace, name).await.map(Answer::Object)
            }
            ["apis", "why.pumice.sh", "v1alpha1", "queues", name] if is_get => {
                Ok(Answer::Object(json!({"status": {}, "text": self.calls.queue_report(name).await?})))
            }
            ["apis", "scheduling.volcano.sh", "v1beta1", "queues"] if is_get => {
                let queues = self.calls.queues().await?.iter().map(queues::object).collect();
                Ok(Answer::Object(objects::list("QueueList", "0", queues)))
            }
            ["apis", "scheduling.volcano.sh", "v1beta1", "queues", name] if is_get => {
                Ok(Answer::Object(queues::object(&self.calls.queue(name).await?)))
            }
            _ => Err(not_here(&path)),
        }
    }

    /// Jobs, or one of them with updates to come.
    async fn jobs(self: Arc<Self>, namespace: Option<&str>, query: Query) -> Result<Answer, Refusal> {
        let name = query.fields.exact("metadata.name").map(str::to_owned);
        match (name, namespace) {
            (Some(name), Some(namespace)) => {
                let found = self.find(namespace, &name).await?;
                let Some((known, _)) = found.into_iter().next() else {
                    return Ok(Answer::Object(objects::list("JobList", "0", Vec::new())));
                };
                let view = self.view(&known).await?;
                if query.watch {
                    return Ok(Answer::Lines(job_set_watch::job(self, known, view, query.version)));
                }
                let version = view.read.to_string();
                Ok(Answer::Object(objects::list("JobList", &version, vec![objects::job_of_view(&known, &view)])))
            }
            _ if query.watch => Err(Refusal::not_here(
                "a fleet tells of one job at a time: use jobctl list, or jobctl progress --follow JOB",
            )),
            _ => {
                let answer = self.calls.job_sets(ListRequest::default()).await?;
                let found = self.known(answer.job_sets).await?;
                let jobs =
                    found.iter().filter(|(known, _)| namespace.is_none_or(|namespace| known.namespace == namespace));
                let jobs = jobs.map(|(known, set)| of_set(known, set)).filter(|job| query.takes(job)).collect();
                Ok(Answer::Object(objects::list("JobList", "0", jobs)))
            }
        }
    }

    async fn job(&self, namespace: &str, name: &str) -> Result<Value, Refusal> {
        let found = self.find(namespace, name).await?;
        let (known, set) = found.first().ok_or_else(|| Refusal::missing("job", name))?;
        let job = of_set(known, set);
        if JobPhase::from(text_at(&job, "/status/state/phase")).is_finished() {
            // Why it ended is told by its events only.
            return Ok(objects::job_of_view(known, &*self.view(known).await?));
        }
        Ok(job)
    }

    /// Job sets of a name whose pods are in the namespace, newest first.
    async fn find(&self, namespace: &str, name: &str) -> Result<Vec<(Arc<Known>, JobSet)>, Refusal> {
        let mut found = self.named(name).await?;
        found.retain(|(known, _)| known.namespace == namespace);
        Ok(found)
    }

    /// Job sets of a name, in whatever queue and namespace.
    async fn named(&self, name: &str) -> Result<Vec<(Arc<Known>, JobSet)>, Refusal> {
        let request = ListRequest { job_set: name.to_owned(), ..ListRequest::default() };
        self.known(self.calls.job_sets(request).await?.job_sets).await
    }

    /// Job sets with what does not change of them.
    async fn known(&self, sets: Vec<JobSet>) -> Result<Vec<(Arc<Known>, JobSet)>, Refusal> {
        let missing: Vec<String> = {
            let known = locked(&self.known);
            let firsts = sets.iter().filter_map(objects::first_of);
            firsts.filter(|first| !known.contains_key(*first)).map(str::to_owned).collect()
        };
        let view = self.calls.jobs(&missing).await?;
        let mut known = locked(&self.known);
        if known.len() + view.len() > KNOWN_MAX {
            known.retain(|first, _| sets.iter().any(|set| objects::first_of(set) == Some(first)));
        }
        known.extend(view.into_iter().map(|(first, details)| (first, Arc::new(Known::of(details)))));
        let found = sets.into_iter().filter_map(|set| Some((Arc::clone(known.get(objects::first_of(&set)?)?), set)));
        Ok(found.collect())
    }

    /// Everything that was told of a set's jobs until now.
    async fn view(&self, known: &Known) -> Result<Arc<JobSetView>, Refusal> {
        let remembered = locked(&self.views).get(&queue_and_name(known)).cloned();
        let mut view = remembered.unwrap_or_default();
        let mut events = self.calls.events(&known.queue, &known.name, &view.last, false).await?;
        while let Some(event) = next(&mut events).await? {
            Arc::make_mut(&mut view).take(event.id, event.message);
        }
        self.remember(known, &view);
        Ok(view)
    }

    /// Keeps a story for the next question, if it goes further than what is kept.
    pub(super) fn remember(&self, known: &Known, view: &Arc<JobSetView>) {
        let mut views = locked(&self.views);
        let key = queue_and_name(known);
        if views.len() >= STORIES_MAX && !views.contains_key(&key) {
            views.clear();
        }
        let kept = views.entry(key).or_default();
        if kept.read < view.read {
            *kept = Arc::clone(view);
        }
    }

    async fn pods(self: Arc<Self>, namespace: &str, query: Query) -> Result<Answer, Refusal> {
        let found = self.find(namespace, query.job()?).await?;
        let Some((known, _)) = found.into_iter().next() else {
            return Ok(Answer::Object(objects::list("PodList", "0", Vec::new())));
        };
        let view = self.view(&known).await?;
        if query.watch {
            let version = query.version;
            return Ok(Answer::Lines(job_set_watch::pods(self, known, view, version, move |pod| query.takes(pod))));
        }
        let there = view.jobs.iter().filter(|(_, view)| objects::is_there(view));
        let pods = there.map(|(id, view)| objects::pod(&known.name, id, view)).filter(|pod| query.takes(pod)).collect();
        Ok(Answer::Object(objects::list("PodList", &view.read.to_string(), pods)))
    }

    /// A pod of which there was word before: its name alone does not say of which job it is.
    fn pod(&self, namespace: &str, name: &str) -> Result<Value, Refusal> {
        let PodView { job_set, id, view } =
            self.view_of_pod(namespace, name).ok_or_else(|| Refusal::missing("pod", name))?;
        Ok(objects::pod(&job_set, &id, &view))
    }

    /// The job whose pod has this name.
    fn view_of_pod(&self, namespace: &str, name: &str) -> Option<PodView> {
        let views = locked(&self.views);
        views.iter().find_map(|((_, job_set), view)| {
            let (id, view) = objects::pod_named(job_set, view, name).filter(|(_, view)| view.namespace == namespace)?;
            Some(PodView { job_set: job_set.clone(), id: id.clone(), view: view.clone() })
        })
    }

    /// Why the first of a job's pods that wait does so.
    async fn why(&self, namespace: &str, name: &str) -> Result<Value, Refusal> {
        let found = self.find(namespace, name).await?;
        let (known, set) = found.first().ok_or_else(|| Refusal::missing("job", name))?;
        let first = |state: JobState| {
            let state = i32::from(state);
            set.states.iter().find(|known| known.state == state)
        };
        if let Some(waiting) = first(JobState::Queued) {
            let text = self.calls.job_report(&waiting.first_job_id).await?;
            // That it waits is known; what follows says why.
            let front = format!("job {} waits\n", waiting.first_job_id);
            let text = text.strip_prefix(&front).filter(|rest| !rest.is_empty()).unwrap_or(&text);
            return Ok(json!({"stage": "Queued", "text": text}));
        }
        if let Some(starting) = first(JobState::Leased).or_else(|| first(JobState::Pending)) {
            let text = format!("{} of its pods have a node and are being started there", starting.jobs);
            return Ok(json!({"stage": "Starting", "text": text}));
        }
        let job = of_set(known, set);
        let phase = text_at(&job, "/status/state/phase");
        if JobPhase::from(phase).is_finished() {
            // Its end is told by the job and its pods.
            return Err(Refusal::missing("reason to wait for job", name));
        }
        let mut text = format!("the job does not wait: it is {phase}");
        // Where its cluster is away, that is what it was when somebody last heard of it.
        if let Some(running) = first(JobState::Running) {
            text = format!("{text}\n{}", self.calls.job_report(&running.first_job_id).await?.trim_end());
        }
        Ok(json!({"stage": phase, "text": text}))
    }

    /// Ends a job; nothing else can be asked of one.
    async fn command(&self, namespace: &str, command: Value) -> Result<Value, Refusal> {
        let name = text_at(&command, "/target/name");
        match text_at(&command, "/action") {
            "TerminateJob" => {}
            _ => {
                return Err(Refusal::not_here(format!(
                    "a fleet suspends no jobs: jobctl cancel {name} ends it, and jobctl retry {name} submits it anew"
                )));
            }
        }
        let found = self.find(namespace, name).await?;
        let (known, _) = found.first().ok_or_else(|| Refusal::missing("job", name))?;
        self.calls.cancel_set(&known.queue, &known.name, text_at(&command, "/message")).await?;
        Ok(command)
    }
}

fn queue_and_name(known: &Known) -> (String, String) {
    (known.queue.clone(), known.name.clone())
}

fn of_set(known: &Known, set: &JobSet) -> Value {
    let (counts, last) = objects::counts_of(set);
    objects::job(known, &counts, last, "0")
}

/// What a fleet has nothing of, and what to do instead.
fn not_here(path: &str) -> Refusal {
    let is = |word: &str| path.split('/').any(|segment| segment == word);
    let sentence = if is("configmaps") {
        "a fleet has no place for files beside a job: a script goes along with jobctl submit SCRIPT, other files into the image"
    } else if is("version") {
        "a fleet's server does not tell its version"
    } else if is("metrics.k8s.io") {
        "a fleet does not measure what pods use: use a context of the cluster that the pod is in"
    } else if is("nodes") {
        "the nodes of a fleet are its clusters' own: use a context of that cluster"
    } else if is("exec") || is("attach") || is("portforward") {
        "a fleet opens no terminals in pods: use a context of the cluster that the pod is in"
    } else if is("history.pumice.sh") {
        "a fleet keeps no history apart from its jobs: use jobctl list"
    } else if is("events") {
        "a fleet tells of a job by its states: use jobctl get and jobctl why"
    } else {
        return Refusal::not_here(format!("a fleet has nothing of this kind: {path}"));
    };
    Refusal::not_here(sentence)
}

async fn read(body: kube::client::Body) -> Result<Value, Refusal> {
    let bytes = body.collect_bytes().await.map_err(|error| Refusal::invalid(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| Refusal::invalid(error.to_string()))
}

fn streamed(lines: Lines) -> Body {
    let frames = lines.map_ok(http_body::Frame::data).map_err(|refusal| BoxError::from(refusal.message));
    StreamBody::new(frames).boxed_unsync()
}

fn full(text: String) -> Body {
    Full::from(text).map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn response(code: u16, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
