//! Armada's service of logs and cordons, of which each of its clusters has one: here one for all of them.
//!
//! Invariant: who asks has the right to before any cluster is asked. What is answered is bounded; who wants more asks on from the
//! time of the last line. Only the leader reaches clusters; another server says so, and the caller asks elsewhere.

use pumice_fleet_model::names::pod_number;
use pumice_ledger::RunId;
use pumice_wire::binoculars::{CordonRequest, LogLine, LogRequest, LogResponse, binoculars_server};
use pumice_wire::executor::errand::Errand;
use pumice_wire::executor::errand_answer::Answer;
use pumice_wire::executor::{CordonNode, LogPart};
use pumice_wire::wellknown::Empty;
use pumice_wire::{LOG_ENDED, LOG_MORE, LOG_POD};
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use crate::api::{Api, LOG_BYTES_MAX, PodLog, Who, cordon_labels, home};
use crate::executor_commands::ExecutorCommands;

/// Asks clusters, for people.
pub struct Binoculars {
    api: Api,
    commands: ExecutorCommands,
}

impl Clone for Binoculars {
    fn clone(&self) -> Self {
        Self { api: self.api.clone(), commands: self.commands.clone() }
    }
}

impl Binoculars {
    /// A service that finds pods by the log, and asks executors for what they have.
    pub fn new(api: Api, commands: ExecutorCommands) -> Self {
        Self { api, commands }
    }
}

#[tonic::async_trait]
impl binoculars_server::Binoculars for Binoculars {
    async fn logs(&self, request: Request<LogRequest>) -> Result<Response<LogResponse>, Status> {
        let who = Who::of(&request)?;
        let exactly = exactly(&request)?;
        let PodLog { cluster, run, read } = self.api.log_of(&who, request.into_inner(), exactly).await?;
        match self.commands.run(&cluster, Errand::ReadLog(read)).await? {
            Answer::Log(part) => log_response(&cluster, run, part),
            _ => Err(senseless(&cluster)),
        }
    }

    async fn cordon(&self, request: Request<CordonRequest>) -> Result<Response<Empty>, Status> {
        let who = Who::of(&request)?;
        let name = request.into_inner().node_name;
        let (cluster, node) = self.api.node_to_cordon(&who, &name)?;
        let cluster = home(cluster, node, self.commands.homes(node).await?)?;
        let cordon = CordonNode { node: node.to_owned(), labels: cordon_labels(&who.name).into() };
        match self.commands.run(&cluster, Errand::CordonNode(cordon)).await? {
            Answer::Cordoned(_) => {
                tracing::info!(cluster, node, user = who.name, "a node is cordoned");
                Ok(Response::new(Empty {}))
            }
            _ => Err(senseless(&cluster)),
        }
    }
}

/// The number of the pod that is meant and no other, also where it is the first one and there is a later one.
fn exactly(request: &Request<LogRequest>) -> Result<Option<u32>, Status> {
    let Some(number) = request.metadata().get(LOG_POD) else { return Ok(None) };
    let number = number.to_str().ok().and_then(|number| number.parse().ok());
    let wrong = || Status::invalid_argument(format!("{LOG_POD}: have the number of a pod, which is 0 or more"));
    number.map(Some).ok_or_else(wrong)
}

fn senseless(cluster: &str) -> Status {
    Status::internal(format!("the executor of cluster {cluster} answered something else than it was asked"))
}

/// Lines with their times apart, and beside them which pod's they are and whether there is more.
fn log_response(cluster: &str, run: RunId, part: LogPart) -> Result<Response<LogResponse>, Status> {
    if part.lines.len() > LOG_BYTES_MAX as usize + 1 {
        return Err(senseless(cluster));
    }
    let text = String::from_utf8_lossy(&part.lines);
    // A carriage return is the program's own, and stays.
    let lines = text.split_terminator('\n').map(|line| {
        let (time, line) = line.split_once(' ').unwrap_or((line, ""));
        LogLine { timestamp: time.to_owned(), line: line.to_owned() }
    });
    let log = lines.collect();
    let mut response = Response::new(LogResponse { log });
    response.metadata_mut().insert(LOG_POD, pod_number(run).into());
    for (name, said) in [(LOG_MORE, part.more), (LOG_ENDED, part.ended)] {
        if said {
            response.metadata_mut().insert(name, MetadataValue::from_static("true"));
        }
    }
    Ok(response)
}
