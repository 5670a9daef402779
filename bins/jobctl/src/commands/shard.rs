//! `jobctl shard`, in a pod: the records that are this pod's own, and a command for each.
//!
//! Invariant: which records are a pod's own follows from two variables alone; a bundle is opened, once, only to read records from it
//! and to record results beside it, and only one in ConfigMaps is talked to.

mod exec;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use pumice_jobs::Exit;
use pumice_jobs::bundle::{Bundle, Folder, Location, Store, StoreAddress, location, parameters};
use pumice_jobs::render::{RULE_VARIABLE, slurm};
use pumice_jobs::shards::{Kind, Plan, Record};
use tokio::runtime::Runtime;

use super::{Session, runtime};
use crate::args::ShardCommand;
use crate::environment::variable;
use crate::failure::Failure;
use crate::output;

/// The variable with a pod's index.
const INDEX_VARIABLE: &str = "VC_TASK_INDEX";

/// Runs, prints or names the records of this pod.
pub fn run(session: &Session, command: &ShardCommand) -> Result<Exit, Failure> {
    match command {
        ShardCommand::Exec(args) => return exec::run(session, &args.argv),
        ShardCommand::Env(args) => {
            let slice = Slice::of_this_pod(session, Purpose::Telling)?;
            let lines = slice.variables(&slice.nth(args.position)?);
            let line = |(name, value): (String, String)| format!("export {name}={}\n", quoted(&value));
            output::text(&lines.into_iter().map(line).collect::<String>())?;
        }
        ShardCommand::Key(args) => {
            let slice = Slice::of_this_pod(session, Purpose::Telling)?;
            output::text(&format!("{}\n", slice.nth(args.position)?.key))?;
        }
        ShardCommand::List => {
            let slice = Slice::of_this_pod(session, Purpose::Telling)?;
            for index in slice.records.clone() {
                output::text(&format!("{}\n", slice.record(index)?.key))?;
            }
        }
    }
    Ok(Exit::Success)
}

/// What a slice is wanted for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To say what is in it.
    Telling,
    /// To run it, and to record what comes of it.
    Running,
}

/// Records of a bundle that are read at once; each has at most 64 KiB.
const WINDOW: u32 = 64;

/// The records of one pod.
struct Slice {
    plan: Plan,
    index: u32,
    records: Range<u32>,
    /// The bundle, where it is needed.
    store: Option<Rc<OpenStore>>,
    /// Where those are that can't be computed.
    bundled: Option<Bundled>,
}

impl Slice {
    fn of_this_pod(session: &Session, purpose: Purpose) -> Result<Slice, Failure> {
        let [rule, index] = [RULE_VARIABLE, INDEX_VARIABLE].map(|name| {
            text_of(name).ok_or_else(|| outside(format!("{name} is not set: this is no pod of a job with shards")))
        });
        let (rule, index) = (rule?, index?);
        let plan = Plan::parse(&rule).map_err(|error| outside(format!("{RULE_VARIABLE}: {error}")))?;
        let slice = index.parse().ok().and_then(|index| Some((index, plan.slice(index)?)));
        let (index, records) = slice.ok_or_else(|| {
            outside(format!("{INDEX_VARIABLE} {index:?} is not the index of one of {} pods", plan.pods()))
        })?;
        let told = text_of(location::VARIABLE).map(|text| text.parse::<Location>()).transpose()?;
        let packed = plan.bundle().is_some();
        if packed && told.is_none() {
            return Err(outside(format!("{} is not set, and has the records", location::VARIABLE)));
        }
        let records_results = |told: &Location| purpose == Purpose::Running && told.run.is_some();
        let told = told.filter(|told| packed || records_results(told));
        let store = told.map(|told| OpenStore::open(session, told, plan.pods())).transpose()?.map(Rc::new);
        let bundled = match &store {
            Some(store) if packed => Some(Bundled::open(store)?),
            _ => None,
        };
        Ok(Slice { plan, index, records, store, bundled })
    }

    fn record(&self, index: u32) -> Result<Record, Failure> {
        let record = match &self.bundled {
            Some(bundled) => bundled.record(index, self.records.end)?,
            None => self.plan.shards().record(index),
        };
        record.ok_or_else(|| outside(format!("there is no record {index}: {RULE_VARIABLE} counts more than there are")))
    }

    /// The record at a place of this pod, from 0.
    fn nth(&self, position: u32) -> Result<Record, Failure> {
        let index = self.records.start.checked_add(position).filter(|index| self.records.contains(index));
        self.record(index.ok_or_else(|| {
            outside(format!("there is no place {position} in this pod: it has {} records, from 0", self.records.len()))
        })?)
    }

    /// The variables of a record.
    fn variables(&self, record: &Record) -> Vec<(String, String)> {
        let shards = self.plan.shards();
        let mut variables = shards.env(record);
        if shards.kind() == Kind::Array {
            variables.push((slurm::ARRAY_TASK_ID.to_owned(), record.key.clone()));
            let number = text_of(slurm::ARRAY_JOB_ID);
            variables.extend(number.iter().flat_map(|number| slurm::of_array_task(number, record.index)));
        }
        variables
    }
}

/// The store of the bundle that this pod has the address of, open, and what waits for it.
struct OpenStore {
    location: Location,
    chunks: Arc<dyn Store>,
    /// The same, if it is a folder.
    folder: Option<Folder>,
    runtime: Runtime,
}

impl OpenStore {
    fn open(session: &Session, location: Location, pods: u32) -> Result<OpenStore, Failure> {
        let runtime = runtime()?;
        if let StoreAddress::Folder(path) = &location.address {
            let folder = Folder::open(path)?;
            return Ok(OpenStore { location, chunks: Arc::new(folder.clone()), folder: Some(folder), runtime });
        }
        let chunks = runtime.block_on(async {
            let connection = session.of_this_pod().await?;
            Ok::<_, Failure>(location.address.open(Some(&connection), pods).await?)
        })?;
        Ok(OpenStore { location, chunks, folder: None, runtime })
    }
}

/// Records of a bundle, read some at a time: they are taken in order, and lie side by side.
struct Bundled {
    bundle: Bundle,
    store: Rc<OpenStore>,
    /// Those that were read last.
    window: RefCell<Vec<Record>>,
}

impl Bundled {
    fn open(store: &Rc<OpenStore>) -> Result<Bundled, Failure> {
        let bundle = store.runtime.block_on(Bundle::open(Arc::clone(&store.chunks), store.location.root))?;
        Ok(Bundled { bundle, store: Rc::clone(store), window: RefCell::default() })
    }

    /// A record, and in the same go those after it, but not beyond `end`.
    fn record(&self, index: u32, end: u32) -> Result<Option<Record>, Failure> {
        let mut window = self.window.borrow_mut();
        if !window.iter().any(|record| record.index == index) {
            let numbers = index..index.saturating_add(WINDOW).min(end);
            *window = self.store.runtime.block_on(parameters::read(&self.bundle, numbers))?;
        }
        Ok(window.iter().find(|record| record.index == index).cloned())
    }
}

/// A variable of this pod.
fn text_of(name: &str) -> Option<String> {
    variable(name).and_then(|value| value.into_string().ok())
}

/// A text that a shell reads back as it is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn outside(message: String) -> Failure {
    Failure::Usage { message, next: "jobctl submit --array 0-3 -- echo {key}".to_owned() }
}
