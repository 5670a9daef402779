//! JobFlows and JobTemplates: the shell around the JobFlow machine.
//!
//! Invariant: a Job belongs to the flow that controls it, by uid. Of Jobs only those with the label of a flow are watched.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PostParams;
use kube::{Api, Client};
use pumice_api::batch::Job;
use pumice_api::flow::{JobFlow, JobTemplate};
use pumice_api::names;
use pumice_clock as clock;
use pumice_cluster::events::{Occurrence, Severity};
use pumice_cluster::{Change, EventRecorder, WatchScope, failure, watch_optional, words, write};
use pumice_machines::job_flow::{FlowEffect, FlowView, job_name, step};
use serde_json::json;

use crate::cache::Cache;
use crate::deletion;
use crate::index::{self, key};
use crate::metrics::Metrics;
use crate::small_loop::{Answer, Controller, Plan};

/// A flow or a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Flow(index::Key),
    Template(index::Key),
}

pub(crate) enum Input {
    Flow(Change<JobFlow>),
    Template(Change<JobTemplate>),
    Job(Box<Change<Job>>),
}

fn job_input(change: Change<Job>) -> Input {
    Input::Job(Box::new(change))
}

/// The flow that controls a Job.
fn flow_of(job: &Job) -> Option<&OwnerReference> {
    let mut owners = job.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == JobFlow::KIND)
}

/// Everything that is known of flows.
pub(crate) struct JobFlows {
    client: Client,
    recorder: EventRecorder,
    metrics: Metrics,
    flows: Cache<JobFlow>,
    templates: Cache<JobTemplate>,
    jobs: Cache<Job>,
    /// Names of the Jobs made of each template.
    of_template: BTreeMap<index::Key, BTreeSet<String>>,
}

impl JobFlows {
    pub fn new(client: Client, recorder: EventRecorder, metrics: Metrics) -> Self {
        Self {
            client,
            recorder,
            metrics,
            flows: Cache::default(),
            templates: Cache::default(),
            jobs: Cache::default(),
            of_template: BTreeMap::new(),
        }
    }

    fn flow(&self, place: &index::Key) -> Option<Vec<FlowEffect>> {
        let flow = self.flows.items.get(place)?;
        let named: BTreeSet<&str> = flow.spec.flows.iter().map(|flow| flow.name.as_str()).collect();
        let beside = |name: &str| (place.0.clone(), name.to_owned());
        let templates = named.iter().filter_map(|name| Some((*name, self.templates.items.get(&beside(name))?)));
        let jobs = named.iter().filter_map(|name| self.jobs.items.get(&beside(&job_name(&place.1, name))));
        let ours = jobs.filter(|job| flow_of(job).map(|owner| &owner.uid) == flow.metadata.uid.as_ref());
        let view = FlowView {
            flow,
            templates: templates.collect(),
            jobs: ours.filter_map(|job| Some((job.metadata.name.as_deref()?, job))).collect(),
        };
        let (warnings, effects): (Vec<_>, Vec<_>) =
            step(&view, clock::now()).into_iter().partition(|effect| matches!(effect, FlowEffect::Warn { .. }));
        for warning in warnings {
            if let FlowEffect::Warn { reason, message } = warning {
                let (about, reason) = (reference(flow), reason.to_owned());
                self.recorder.record(Occurrence {
                    about,
                    severity: Severity::Warning,
                    reason,
                    message,
                    at: clock::now(),
                });
            }
        }
        Some(effects)
    }
}

impl Controller for JobFlows {
    const NAME: &'static str = "jobflow";
    type Key = Key;
    type Input = Input;

    fn feed(&self, client: &Client) -> SelectAll<BoxStream<'static, Input>> {
        let mut feed = SelectAll::new();
        let all = WatchScope::default;
        feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Flow).boxed());
        feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Template).boxed());
        let of_flows = WatchScope::labels(names::CREATED_BY_JOB_FLOW);
        feed.push(watch_optional(Api::all(client.clone()), of_flows).map(job_input).boxed());
        feed
    }

    fn is_complete(&self) -> bool {
        self.flows.is_listed && self.templates.is_listed && self.jobs.is_listed
    }

    fn take(&mut self, input: Input, touched: &mut BTreeSet<Key>) {
        let Self { flows, templates, jobs, of_template, .. } = self;
        match input {
            Input::Flow(change) => flows.take(change, |flow, _| {
                touched.insert(Key::Flow(key(&flow.metadata)));
            }),
            Input::Template(change) => templates.take(change, |template, _| {
                let place = key(&template.metadata);
                let named = flows.of_namespace(&place.0).filter(|flow| names_template(flow, &place.1));
                touched.extend(named.map(|flow| Key::Flow(key(&flow.metadata))));
                touched.insert(Key::Template(place));
            }),
            Input::Job(change) => jobs.take(*change, |job, is_there| {
                let (namespace, name) = key(&job.metadata);
                if let Some(owner) = flow_of(job) {
                    touched.insert(Key::Flow((namespace.clone(), owner.name.clone())));
                }
                let Some(template) = template_of(job).map(|template| (namespace, template.to_owned())) else { return };
                let made = of_template.entry(template.clone()).or_default();
                let changed = if is_there { made.insert(name) } else { made.remove(&name) };
                if changed {
                    touched.insert(Key::Template(template));
                }
            }),
        }
    }

    fn plan(&mut self, key: &Key) -> Plan<Input> {
        let idle = Plan { call: None, look_again: None };
        match key {
            Key::Flow(place) => {
                let Some(effects) = self.flow(place).filter(|effects| !effects.is_empty()) else { return idle };
                let Some(flow) = self.flows.items.get(place) else { return idle };
                let carrying = Carrying {
                    client: self.client.clone(),
                    recorder: self.recorder.clone(),
                    metrics: self.metrics.clone(),
                    flow: flow.clone(),
                };
                Plan { call: Some(carrying.carry_out(effects).boxed()), look_again: None }
            }
            Key::Template(place) => {
                let Some(template) = self.templates.items.get(place) else { return idle };
                let made = self.of_template.get(place).into_iter().flatten();
                if template.metadata.deletion_timestamp.is_some()
                    || made.clone().eq(&template.status.job_depends_on_list)
                {
                    return idle;
                }
                let list: Vec<String> = made.cloned().collect();
                let api: Api<JobTemplate> = Api::namespaced(self.client.clone(), &place.0);
                let name = place.1.clone();
                let call = async move {
                    let patch = json!({ "status": { "jobDependsOnList": list } });
                    answer(write::merge_status(&api, &name, &patch).await, Input::Template)
                };
                Plan { call: Some(call.boxed()), look_again: None }
            }
        }
    }
}

/// Effects of one flow on their way.
struct Carrying {
    client: Client,
    recorder: EventRecorder,
    metrics: Metrics,
    /// The flow as the plan saw it.
    flow: JobFlow,
}

impl Carrying {
    async fn carry_out(self, effects: Vec<FlowEffect>) -> Answer<Input> {
        let mut all = Answer { observed: Vec::new(), failure: None };
        for effect in effects {
            let answer = self.one(effect).await;
            all.observed.extend(answer.observed);
            all.failure = all.failure.or(answer.failure);
        }
        all
    }

    async fn one(&self, effect: FlowEffect) -> Answer<Input> {
        let (namespace, name) = key(&self.flow.metadata);
        match effect {
            FlowEffect::CreateJob(job) => {
                let name = job.metadata.name.clone().unwrap_or_default();
                let jobs: Api<Job> = Api::namespaced(self.client.clone(), &namespace);
                let created = jobs.create(&PostParams::default(), &job).await;
                match &created {
                    Ok(_) => {
                        self.record(Severity::Normal, "Created", format!("create a job named {name} successfully!"))
                    }
                    Err(error) => {
                        let message = format!("can't create job {name}: {}", words(error));
                        self.record(Severity::Warning, "FailedCreate", message);
                    }
                }
                answer(created, job_input)
            }
            FlowEffect::DeleteJob { name, uid } => {
                let jobs: Api<Job> = Api::namespaced(self.client.clone(), &namespace);
                match deletion::delete(&jobs, Some(&namespace), &name, uid).await {
                    Err(error) => failed(&error),
                    Ok(left) => Answer { observed: vec![job_input(left)], failure: None },
                }
            }
            FlowEffect::WriteStatus(status) => {
                let api: Api<JobFlow> = Api::namespaced(self.client.clone(), &namespace);
                // A merge would keep lists and entries that the new status leaves out.
                let flow = JobFlow { status: *status, ..self.flow.clone() };
                let written = api.replace_status(&name, &PostParams::default(), &flow).await;
                let phase = flow.status.state.phase.as_ref();
                if written.is_ok() && phase != self.flow.status.state.phase.as_ref() {
                    self.metrics.flow_ended(&namespace, phase);
                }
                answer(written, Input::Flow)
            }
            FlowEffect::Warn { .. } => nothing(),
        }
    }

    fn record(&self, severity: Severity, reason: &str, message: String) {
        let (about, reason) = (reference(&self.flow), reason.to_owned());
        self.recorder.record(Occurrence { about, severity, reason, message, at: clock::now() });
    }
}

fn nothing() -> Answer<Input> {
    Answer { observed: Vec::new(), failure: None }
}

fn failed(error: &kube::Error) -> Answer<Input> {
    Answer { observed: Vec::new(), failure: Some(failure(error)) }
}

fn answer<K>(result: Result<K, kube::Error>, input: impl Fn(Change<K>) -> Input) -> Answer<Input> {
    match result {
        Ok(object) => Answer { observed: vec![input(Change::Applied(object))], failure: None },
        Err(error) => failed(&error),
    }
}

fn names_template(flow: &JobFlow, template: &str) -> bool {
    flow.spec.flows.iter().any(|flow| flow.name == template)
}

/// The template that a Job was made of; names may have dots, namespaces have none.
fn template_of(job: &Job) -> Option<&str> {
    let annotation = job.metadata.annotations.as_ref()?.get(names::CREATED_BY_JOB_TEMPLATE)?;
    let (namespace, template) = annotation.split_once('.')?;
    (job.metadata.namespace.as_deref() == Some(namespace)).then_some(template)
}

fn reference(flow: &JobFlow) -> ObjectReference {
    ObjectReference {
        api_version: Some("flow.volcano.sh/v1alpha1".to_owned()),
        kind: Some("JobFlow".to_owned()),
        namespace: flow.metadata.namespace.clone(),
        name: flow.metadata.name.clone(),
        uid: flow.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
