//! `Connection`: one platform, and what can be asked of it.
//!
//! Invariant: thin. Each method resolves the job, calls one function of `pumice-jobs` with the interpreter set free,
//! and turns the answer into Python's values. A connection inherited through a fork is opened anew.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use pumice_jobs::explain::why::{self, About};
use pumice_jobs::history::sheet::Sheet;
use pumice_jobs::history::{self, Ask, GroupBy};
use pumice_jobs::job::{Counts, JobDocument, JobRef};
use pumice_jobs::lifecycle::{DesiredState, StateChange, set_desired_state};
use pumice_jobs::logs::{JobLogs, LogOptions, Pieces, may_have_written};
use pumice_jobs::lookup::pods::{self, Selection};
use pumice_jobs::lookup::{self, Scope, events};
use pumice_jobs::manifest::{self, Object};
use pumice_jobs::monitor::RunMonitor;
use pumice_jobs::platform::target::{Environment, Flags, Target};
use pumice_jobs::platform::{autostart, contexts};
use pumice_jobs::submit::{self, marked};
use pumice_jobs::{Error, Exit};
use pyo3::prelude::*;
use pyo3::types::PyString;
use serde_json::{Value, json};

use crate::errors::{exception, misuse, raised};
use crate::json;
use crate::messages;
use crate::runtime::{Owned, wait};
use crate::stream::Stream;

/// What errors call the job that was given.
const ORIGIN: &str = "job";

/// One platform. May be used by any number of threads.
#[pyclass(frozen, module = "pumice._core")]
pub struct Connection {
    target: Target,
    #[pyo3(get)]
    namespace: String,
    /// Held only for a moment and by who holds the interpreter, so a fork never finds it held.
    open: Mutex<Owned<pumice_jobs::Connection>>,
}

impl Connection {
    /// The open connection of this process.
    fn here(&self, py: Python<'_>) -> PyResult<pumice_jobs::Connection> {
        let known = self.open.lock().unwrap_or_else(PoisonError::into_inner).here().cloned();
        if let Some(connection) = known {
            return Ok(connection);
        }
        let opened = open(py, &self.target, Some(&self.namespace))?;
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Owned::new(opened.clone());
        Ok(opened)
    }

    /// Asks something of the platform.
    fn ask<T, F>(&self, py: Python<'_>, question: impl FnOnce(pumice_jobs::Connection) -> F) -> PyResult<T>
    where
        T: Send,
        F: Future<Output = Result<T, Error>> + Send,
    {
        wait(py, question(self.here(py)?))?.map_err(|error| self.exception(py, error))
    }

    /// Asks something about the job that `job` selects.
    fn ask_about<T, F>(
        &self,
        py: Python<'_>,
        job: &str,
        question: impl FnOnce(pumice_jobs::Connection, JobRef) -> F + Send,
    ) -> PyResult<T>
    where
        T: Send,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let selector = job.parse().map_err(|error: pumice_jobs::names::NameError| self.exception(py, error))?;
        self.ask(py, |connection| async move {
            let job = lookup::find_one(&connection, &selector).await?;
            question(connection, job).await
        })
    }

    fn explanation<'py>(&self, py: Python<'py>, about: About, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let explanation = self.ask(py, |connection| async move { why::of(&connection, about, name).await })?;
        json::to_python(py, &explanation)
    }

    fn exception(&self, py: Python<'_>, error: impl Into<Error>) -> PyErr {
        let error = error.into();
        if error.exit() == Exit::Unreachable {
            // A restarted `up` may listen elsewhere: the next call finds it.
            self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        exception(py, error, Some(&self.target))
    }
}

fn open(py: Python<'_>, target: &Target, namespace: Option<&str>) -> PyResult<pumice_jobs::Connection> {
    wait(py, pumice_jobs::Connection::open(target.clone(), namespace))?
        .map_err(|error| exception(py, error, Some(target)))
}

#[pymethods]
impl Connection {
    #[staticmethod]
    #[pyo3(signature = (context=None, kubeconfig=None, data_dir=None, namespace=None))]
    fn open(
        py: Python<'_>,
        context: Option<String>,
        kubeconfig: Option<PathBuf>,
        data_dir: Option<PathBuf>,
        namespace: Option<&str>,
    ) -> PyResult<Self> {
        let environment = Environment::read(|name| std::env::var_os(name));
        let (target, usual) = contexts::resolve(Flags { kubeconfig, context, data_dir, fleet: None }, &environment)
            .map_err(|error| exception(py, error, None))?;
        let opened = open(py, &target, namespace.or(usual.as_deref()))?;
        let namespace = opened.namespace().to_owned();
        Ok(Connection { target, namespace, open: Mutex::new(Owned::new(opened)) })
    }

    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let connection = self.here(py)?;
        let (data_dir, kubeconfig, context) = match &self.target {
            Target::Local { data_dir, context, .. } => (Some(data_dir), None, context),
            Target::Kubeconfig { path, context } => (None, Some(path), context),
            Target::Socket(_) | Target::Fleet(_) => (None, None, &None),
        };
        let described = json!({
            "url": connection.url(), "namespace": self.namespace, "local": data_dir.is_some() || matches!(self.target, Target::Socket(_)),
            "data_dir": data_dir, "kubeconfig": kubeconfig, "context": context, "fleet": connection.is_fleet(),
        });
        json::to_python(py, &described)
    }

    #[pyo3(signature = (job, run_key=None))]
    fn submit(&self, py: Python<'_>, job: &Bound<'_, PyAny>, run_key: Option<&str>) -> PyResult<String> {
        let objects = match job.cast::<PyString>() {
            Ok(text) => {
                let text: String = text.extract()?;
                py.detach(|| manifest::parse(&text, ORIGIN)).map_err(|error| self.exception(py, error))?
            }
            Err(_) => vec![Object { body: json::from_python(job)?, origin: ORIGIN.to_owned() }],
        };
        if objects.iter().filter(|object| submit::is_job(&object.body)).count() != 1 {
            return Err(misuse(py, "give one Job of batch.volcano.sh, with what it needs beside it"));
        }
        if run_key.is_some() && objects.len() > 1 {
            return Err(misuse(py, "a job whose results are marked is submitted alone: leave out what is beside it"));
        }
        submit::check(&objects, Some(&self.namespace)).map_err(|error| self.exception(py, error))?;
        let submitted = self.ask(py, |connection| async move {
            match (run_key, objects.as_slice()) {
                (Some(key), [job]) => Ok(vec![marked::submit(&connection, job, key).await?]),
                _ => Ok(submit::submit(&connection, &objects, |_| ()).await?),
            }
        })?;
        Ok(submitted.iter().find_map(submit::Submitted::job).map(|job| job.name).unwrap_or_default())
    }

    fn get<'py>(&self, py: Python<'py>, job: &str) -> PyResult<Bound<'py, PyAny>> {
        let object = self.ask_about(py, job, |connection, job| async move { lookup::get(&connection, &job).await })?;
        json::to_python(py, &object)
    }

    fn status<'py>(&self, py: Python<'py>, job: &str) -> PyResult<Bound<'py, PyAny>> {
        let summary = self.ask_about(py, job, |connection, job| async move {
            let object = lookup::get(&connection, &job).await?;
            Ok(JobDocument::of(&lookup::typed(&connection, &object)?))
        })?;
        json::to_python(py, &summary)
    }

    #[pyo3(signature = (all_namespaces=false, selector=None))]
    fn jobs<'py>(&self, py: Python<'py>, all_namespaces: bool, selector: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        let list = self.ask(py, |connection| async move {
            let jobs = lookup::list(&connection, Scope { all_namespaces, labels: selector }, true).await?;
            let brief = |job: &Value| lookup::typed(&connection, job).map(|job| JobDocument::of(&job));
            jobs.iter().filter_map(|job| job.whole.as_ref()).map(brief).collect::<Result<Vec<_>, Error>>()
        })?;
        json::to_python(py, &list)
    }

    #[pyo3(signature = (job, timeout=None))]
    fn wait<'py>(&self, py: Python<'py>, job: &str, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let limit = timeout.map(|timeout| crate::seconds(py, timeout)).transpose()?;
        let ending = self.ask_about(py, job, |connection, job| async move {
            let end = RunMonitor::new(connection, job.clone(), None).end();
            match limit {
                None => Ok(Ok(end.await?)),
                Some(limit) => match tokio::time::timeout(limit, end).await {
                    Ok(ending) => Ok(Ok(ending?)),
                    Err(_) => Ok(Err(job)),
                },
            }
        })?;
        match ending {
            Ok(ending) => json::to_python(py, &messages::of_ending(&ending)),
            Err(job) => {
                let text = format!("job {} has not ended within {} s", job.name, timeout.unwrap_or_default());
                let next = format!("jobctl why {}{}", job.name, job.namespace_flag());
                Err(raised(py, Exit::TimedOut, text, Some(next)))
            }
        }
    }

    #[pyo3(signature = (job, wait=true))]
    fn cancel<'py>(&self, py: Python<'py>, job: &str, wait: bool) -> PyResult<Bound<'py, PyAny>> {
        let cancelled = self.ask_about(py, job, |connection, job| async move {
            set_desired_state(&connection, &job, DesiredState::Cancel, wait).await
        })?;
        let (end, before) = match cancelled {
            StateChange::AlreadyEnded(end) => (Some(end.word()), true),
            StateChange::Ended(end) => (Some(end.word()), false),
            // Of a cancelled job only the first is said.
            StateChange::Requested | StateChange::AlreadyEnding | StateChange::AlreadyGoesOn | StateChange::GoesOn => {
                (None, false)
            }
        };
        json::to_python(py, &json!({"end": end, "already_ended": before}))
    }

    fn why<'py>(&self, py: Python<'py>, job: &str) -> PyResult<Bound<'py, PyAny>> {
        let why =
            self.ask_about(py, job, |connection, job| async move { why::fetch_first_word(&connection, &job).await })?;
        json::to_python(py, &why)
    }

    fn why_queue<'py>(&self, py: Python<'py>, queue: &str) -> PyResult<Bound<'py, PyAny>> {
        self.explanation(py, About::Queue, queue)
    }

    fn why_node<'py>(&self, py: Python<'py>, node: &str) -> PyResult<Bound<'py, PyAny>> {
        self.explanation(py, About::Node, node)
    }

    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn history<'py>(
        &self,
        py: Python<'py>,
        name: Option<String>,
        user: Option<String>,
        queue: Option<String>,
        node: Option<String>,
        states: Vec<String>,
        since: Option<&str>,
        until: Option<&str>,
        all_namespaces: bool,
        limit: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (since, until) = (moment(py, since)?, moment(py, until)?);
        let namespace = (!all_namespaces).then(|| self.namespace.clone());
        let ask = Ask { namespace, name, user, queue, node, states, since, until };
        let (jobs, _) = self.ask(py, |connection| async move { history::jobs(&connection, &ask, limit).await })?;
        json::to_python(py, &Sheet::of_jobs(&jobs).records())
    }

    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn history_sums<'py>(
        &self,
        py: Python<'py>,
        by: &str,
        name: Option<String>,
        user: Option<String>,
        queue: Option<String>,
        node: Option<String>,
        states: Vec<String>,
        since: Option<&str>,
        until: Option<&str>,
        all_namespaces: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let by: GroupBy = by.parse().map_err(|error| refused(py, &error))?;
        let (since, until) = (moment(py, since)?, moment(py, until)?);
        let namespace = (!all_namespaces).then(|| self.namespace.clone());
        let ask = Ask { namespace, name, user, queue, node, states, since, until };
        let groups = self.ask(py, |connection| async move { history::groups(&connection, &ask, by).await })?;
        json::to_python(py, &Sheet::of_groups(&groups, "key").records())
    }

    #[pyo3(signature = (name, uid=None))]
    fn history_of<'py>(&self, py: Python<'py>, name: &str, uid: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        let namespace = self.namespace.as_str();
        let job = self.ask(py, |connection| async move { history::one(&connection, namespace, name, uid).await })?;
        json::to_python(py, &job)
    }

    #[pyo3(signature = (job, pod=None))]
    fn events<'py>(&self, py: Python<'py>, job: &str, pod: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        let events =
            self.ask_about(py, job, |connection, job| async move { events::fetch(&connection, &job, pod).await })?;
        json::to_python(py, &events)
    }

    #[pyo3(signature = (job, task=None, index=None, failed=false))]
    fn pods<'py>(
        &self,
        py: Python<'py>,
        job: &str,
        task: Option<String>,
        index: Option<u32>,
        failed: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let selection = Selection { task, index, failed };
        let pods =
            self.ask_about(py, job, |connection, job| async move { pods::fetch(&connection, &job, &selection).await })?;
        json::to_python(py, &pods)
    }

    #[pyo3(signature = (job, logs=false))]
    fn watch(&self, py: Python<'_>, job: &str, logs: bool) -> PyResult<Stream> {
        let lines = LogOptions { follow: true, pieces: Some(Pieces::Lines), ..LogOptions::default() };
        let options = logs.then_some(lines);
        let happenings = self.ask_about(py, job, |connection, job| async move {
            let name = job.name.clone();
            Ok(messages::of_attendance(RunMonitor::new(connection, job, options), name))
        })?;
        Ok(Stream::new(happenings, self.target.clone()))
    }

    #[pyo3(signature = (job, task=None, index=None, failed=false))]
    fn watch_pods(
        &self,
        py: Python<'_>,
        job: &str,
        task: Option<String>,
        index: Option<u32>,
        failed: bool,
    ) -> PyResult<Stream> {
        let selection = Selection { task, index, failed };
        let pods = self.ask_about(py, job, |connection, job| async move {
            // A job that isn't there has no pods either; only asking for it tells.
            lookup::get(&connection, &job).await?;
            Ok(pods::follow(connection, &job, &selection))
        })?;
        Ok(Stream::new(messages::of_pods(pods), self.target.clone()))
    }

    #[pyo3(signature = (job, index=None, task=None, container=None, tail=None, follow=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn logs(
        &self,
        py: Python<'_>,
        job: &str,
        index: Option<u32>,
        task: Option<&str>,
        container: Option<String>,
        tail: Option<u32>,
        follow: bool,
    ) -> PyResult<Stream> {
        let lines = self.ask_about(py, job, |connection, job| async move {
            let object = lookup::get(&connection, &job).await?;
            let typed = lookup::typed(&connection, &object)?;
            let pod = index.map(|index| pods::name_of(&typed, task, index)).transpose()?;
            let options = LogOptions {
                follow,
                tail_lines: tail,
                pod,
                container,
                pieces: Some(Pieces::Lines),
                pods_total: if may_have_written(&typed) { Counts::of(&typed).total } else { 0 },
                ..LogOptions::default()
            };
            let name = job.name.clone();
            Ok(if follow {
                messages::lines_of_attendance(RunMonitor::new(connection, job, Some(options)), name)
            } else {
                messages::of_logs(JobLogs::new(connection, job, options), name)
            })
        })?;
        Ok(Stream::new(lines, self.target.clone()))
    }
}

/// Reads a moment of the history, such as `7d`, if one is given.
fn moment(py: Python<'_>, text: Option<&str>) -> PyResult<Option<Timestamp>> {
    text.map(|text| history::moment(text, now())).transpose().map_err(|error| refused(py, &error))
}

/// What is wrong with an argument.
fn refused(py: Python<'_>, error: &dyn std::fmt::Display) -> PyErr {
    misuse(py, &error.to_string())
}

#[allow(clippy::disallowed_methods, reason = "what is so long ago is so from now")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// Brings up the platform of this machine where nothing names another and none runs; gives the line that says so.
#[pyfunction]
#[pyo3(signature = (beside=None))]
pub fn bring_up(py: Python<'_>, beside: Option<PathBuf>) -> PyResult<Option<String>> {
    let environment = Environment::read(|name| std::env::var_os(name));
    let (target, _) = contexts::resolve(Flags::default(), &environment).map_err(|error| exception(py, error, None))?;
    py.detach(|| autostart::ensure(&target, &environment, beside.as_deref()))
        .map_err(|error| exception(py, error, Some(&target)))
}
