//! Reads what a simulation is asked to run: the only file of the simulator that does I/O.
//!
//! Invariant: a file is read whole or refused with its name and its length. Called by `pumice`.

use std::path::{Path, PathBuf};

use pumice_engine::{Config, ConfigError, NodeFacts};
use pumice_recording::{Range, Recording};
use pumice_translate::armada::SpecError;

use super::recorded::{self, RecordedError};
use super::swf::{Log, Parts, SwfError};
use super::trace::{Notes, Trace};
use super::{Baseline, Delays, Looks, Policy, Simulation, armada, generate, native, nodes};

/// Bytes of a trace.
const TRACE_BYTES_MAX: u64 = 1 << 30;

/// What is to be simulated, as a command line says it.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// A file of a trace, or a model with its parameters.
    pub trace: String,
    /// The nodes as text or a file of Node objects; what the trace says where it is absent.
    pub nodes: Option<String>,
    /// The scheduler's configuration; the built-in one where it is absent.
    pub config: Option<PathBuf>,
    pub compare: Option<PathBuf>,
    /// Baselines by name.
    pub against: Vec<String>,
    /// Of what the jobs of logs are made.
    pub parts: Parts,
    /// Days at the beginning whose jobs are left out.
    pub skip_days: u32,
    /// Days after them whose jobs are taken; all where it is absent.
    pub days: Option<u32>,
    /// The part of the time of submissions that is left out of some figures.
    pub warm_up: f64,
    /// How long things take.
    pub delays: Delays,
    /// What else is looked at.
    pub looks: Looks,
}

/// Why a simulation can't be run.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A file can't be read.
    #[error("{path} could not be read")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A trace is too long.
    #[error("{path} has {bytes} bytes, more than {TRACE_BYTES_MAX}: cut it")]
    TooLong {
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// Nobody knows how to read the trace.
    #[error(
        "{0} is no trace: name a file that ends in .swf, .jsonl or .yaml, the folder of a recording, or a model such as lublin:jobs=1000"
    )]
    Unknown(String),
    /// It is no log.
    #[error("{path} is no log that can be run")]
    Swf {
        path: PathBuf,
        #[source]
        source: SwfError,
    },
    /// It is no trace of ours.
    #[error("{path} is no trace")]
    Native {
        path: PathBuf,
        #[source]
        source: native::NativeError,
    },
    /// It is no recording.
    #[error("{path} is no recording that can be run")]
    Recorded {
        path: PathBuf,
        #[source]
        source: RecordedError,
    },
    /// It is no spec of Armada's simulator.
    #[error("{path} is no spec of Armada's simulator that can be run")]
    Armada {
        path: PathBuf,
        #[source]
        source: SpecError,
    },
    /// The model or its parameters are not understood.
    #[error("no workload can be made of that")]
    Generate(#[source] generate::GenerateError),
    /// The nodes are not understood.
    #[error("the nodes are not understood")]
    Nodes(#[source] nodes::NodesError),
    /// The trace says nothing of nodes, and nobody else does.
    #[error("which nodes? Say --nodes, such as --nodes 100x16cpu,64Gi")]
    NoNodes,
    /// The configuration is refused.
    #[error("scheduler configuration {path} refused")]
    Config {
        path: PathBuf,
        #[source]
        source: ConfigError,
    },
    /// There is no such baseline.
    #[error("there is no baseline {0:?}: use fifo, easy, conservative or volcano")]
    Against(String),
    /// Nothing of the trace can run.
    #[error("the trace has no job that these nodes could ever run")]
    Empty,
}

/// Reads all of it. Warnings about configurations are logged.
///
/// # Errors
/// At the first thing that can't be read or is not understood.
pub fn read(request: &Request) -> Result<Simulation, SimulateError> {
    let (given, notes) = request.nodes.as_deref().map(given_nodes).transpose()?.unzip();
    let (mut trace, nodes) = trace_of(request, given)?;
    trace.notes.extend(notes.unwrap_or_default());
    trace.cut(request.skip_days, request.days);
    trace.fit(&nodes);
    if trace.jobs.is_empty() {
        return Err(SimulateError::Empty);
    }
    Ok(Simulation {
        name: name(request),
        trace,
        nodes,
        policies: policies(request)?,
        plugins: pumice_scheduler::plugins(),
        warm_up: request.warm_up,
        delays: request.delays,
        looks: request.looks,
    })
}

fn name(request: &Request) -> String {
    let path = Path::new(&request.trace);
    path.file_name().map_or_else(|| request.trace.clone(), |name| name.to_string_lossy().into_owned())
}

/// The trace's jobs, and the nodes they are for.
fn trace_of(request: &Request, given: Option<Vec<NodeFacts>>) -> Result<(Trace, Vec<NodeFacts>), SimulateError> {
    if generate::is_model(&request.trace) {
        let (trace, meant_for) = generate::generate(&request.trace).map_err(SimulateError::Generate)?;
        let meant_for = || nodes::parse(&meant_for).map_err(SimulateError::Nodes);
        return Ok((trace, given.map_or_else(meant_for, Ok)?));
    }
    let path = Path::new(&request.trace);
    if path.is_dir() {
        let wrong = |source| SimulateError::Recorded { path: path.to_owned(), source };
        let recording = Recording::open(path).map_err(|source| wrong(source.into()))?;
        let recorded = recorded::read(&recording, Range::default()).map_err(wrong)?;
        return Ok((recorded.trace, given.unwrap_or(recorded.nodes)));
    }
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("swf") => {
            let wrong = |source| SimulateError::Swf { path: path.to_owned(), source };
            let log = Log::read(&text(path)?).map_err(wrong)?;
            let nodes = match given {
                Some(nodes) => nodes,
                None => log.nodes().map_err(wrong)?,
            };
            Ok((log.trace(&nodes, request.parts), nodes))
        }
        Some("jsonl") => {
            let trace =
                native::read(&text(path)?).map_err(|source| SimulateError::Native { path: path.to_owned(), source })?;
            Ok((trace, given.ok_or(SimulateError::NoNodes)?))
        }
        Some("yaml" | "yml") => {
            let wrong = |source| SimulateError::Armada { path: path.to_owned(), source };
            let trace = armada::workload(&text(path)?).map_err(wrong)?;
            Ok((trace, given.ok_or(SimulateError::NoNodes)?))
        }
        _ => Err(SimulateError::Unknown(request.trace.clone())),
    }
}

fn policies(request: &Request) -> Result<Vec<(String, Policy)>, SimulateError> {
    let main = request.config.as_deref().map(configuration).transpose()?.unwrap_or_default();
    let mut policies = vec![("engine".to_owned(), Policy::Engine(Box::new(main.clone())))];
    if let Some(path) = &request.compare {
        let name = path.file_stem().map_or_else(|| "compared".to_owned(), |name| name.to_string_lossy().into_owned());
        policies.push((name, Policy::Engine(Box::new(configuration(path)?))));
    }
    for name in &request.against {
        let policy = match (name.as_str(), Baseline::from_name(name)) {
            (_, Some(baseline)) => Policy::Baseline(baseline),
            ("volcano", None) => Policy::without_reservations(main.clone()),
            _ => return Err(SimulateError::Against(name.clone())),
        };
        policies.push((name.clone(), policy));
    }
    Ok(policies)
}

fn configuration(path: &Path) -> Result<Config, SimulateError> {
    let (config, warnings) = Config::parse_with(&text(path)?, &pumice_scheduler::plugins())
        .map_err(|source| SimulateError::Config { path: path.to_owned(), source })?;
    for warning in warnings {
        tracing::warn!(target: "pumice_scheduler::simulate::read", %warning, path = %path.display(), "scheduler configuration");
    }
    Ok(config)
}

/// Nodes as somebody names them, and what of a file that describes them is not followed.
fn given_nodes(text_or_file: &str) -> Result<(Vec<NodeFacts>, Notes), SimulateError> {
    let path = Path::new(text_or_file);
    let is_file = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml" || ending == "json");
    if !is_file {
        return Ok((nodes::parse(text_or_file).map_err(SimulateError::Nodes)?, Notes::default()));
    }
    let text = text(path)?;
    if armada::is_cluster(&text) {
        return armada::nodes(&text).map_err(|source| SimulateError::Armada { path: path.to_owned(), source });
    }
    Ok((nodes::read(&text).map_err(SimulateError::Nodes)?, Notes::default()))
}

/// A file's text; what is not UTF-8 of it is replaced, as old logs have names in other encodings.
fn text(path: &Path) -> Result<String, SimulateError> {
    let unread = |source| SimulateError::Read { path: path.to_owned(), source };
    let bytes = std::fs::metadata(path).map_err(unread)?.len();
    if bytes > TRACE_BYTES_MAX {
        return Err(SimulateError::TooLong { path: path.to_owned(), bytes });
    }
    let bytes = std::fs::read(path).map_err(unread)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}
