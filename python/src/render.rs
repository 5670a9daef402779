//! `render`: keywords to a Job, as `jobctl`'s flags make one.

use std::collections::BTreeMap;
use std::path::Path;

use pumice_jobs::render::{JobFlags, links};
use pyo3::prelude::*;

use crate::errors::exception;
use crate::json;

/// A Job for `command`, as a dictionary that `Connection.submit` takes.
#[pyfunction]
#[pyo3(signature = (
    command, *, name=None, replicas=None, cpu=None, memory=None, queue=None, image=None, env=BTreeMap::new(), workdir=None,
    share_workdir=false, min_available=None, max_parallel=None, max_retry=None, retries=None, gpu=None, zone=None, priority_class=None,
))]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
pub fn render<'py>(
    py: Python<'py>,
    command: Vec<String>,
    name: Option<String>,
    replicas: Option<u32>,
    cpu: Option<String>,
    memory: Option<String>,
    queue: Option<String>,
    image: Option<String>,
    env: BTreeMap<String, String>,
    workdir: Option<String>,
    share_workdir: bool,
    min_available: Option<u32>,
    max_parallel: Option<u32>,
    max_retry: Option<u32>,
    retries: Option<u32>,
    gpu: Option<u32>,
    zone: Option<String>,
    priority_class: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let linked = match &workdir {
        Some(folder) if share_workdir => links::look(Path::new(folder)),
        _ => links::Links::default(),
    };
    let flags = JobFlags {
        name,
        replicas,
        cpu,
        memory,
        queue,
        image,
        env: env.into_iter().collect(),
        workdir,
        share_workdir,
        linked: linked.shared,
        min_available,
        max_parallel,
        max_retry,
        retries,
        gpu,
        zone,
        priority_class,
        command,
        ..JobFlags::default()
    };
    let job = pumice_jobs::render::render(&flags).map_err(|error| exception(py, error, None))?;
    json::to_python(py, &job)
}

/// What `jobctl` says of the links of a folder that pods are to work in, a sentence each.
#[pyfunction]
pub fn link_notes(folder: &str) -> Vec<String> {
    links::look(Path::new(folder)).notes()
}
