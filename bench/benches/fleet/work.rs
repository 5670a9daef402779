//! Jobs as people submit them, who submits them, and the nodes that are to run them.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_engine::{Delta, NodeFacts};
use pumice_fleet_model::submission::Rules;
use pumice_fleet_scheduling::{ViewLimits, node_delta, queue_delta};
use pumice_fleet_server::api::{Api, Permission, Request, Sources, Who, submission};
use pumice_fleet_server::database::{Database, NewJob, Submission};
use pumice_fleet_server::leader::Options;
use pumice_ledger::{
    Digest, Entry, Event, JobId, PriorityClass, PriorityClasses, Queue, Retries, Shape, Submitted, TimeMs,
};
use pumice_wire::api::{JobSubmitRequest, JobSubmitRequestItem};
use pumice_wire::kubernetes::PodSpec;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// The pool of all nodes.
pub const POOL: &str = "default";
pub const QUEUES: usize = 10;
/// Places in a queue that jobs are given.
const PRIORITIES: u64 = 5;
/// When everything begins.
pub const BEGIN: TimeMs = TimeMs(1_764_000_000_000);

pub fn queue_name(index: usize) -> String {
    format!("team-{}", index % QUEUES)
}

pub fn queues() -> impl Iterator<Item = Queue> {
    (0..QUEUES).map(|index| Queue { name: queue_name(index), ..Queue::default() })
}

/// What defines the queues in a log.
pub fn queue_entries() -> impl Iterator<Item = Entry> {
    queues().map(|queue| {
        let name = queue.name.clone();
        Entry { events: vec![Event::QueueSet(Box::new(queue))], ..Entry::new(BEGIN, &name, "") }
    })
}

/// Armada's class of jobs that name none.
pub fn classes() -> PriorityClasses {
    [("armada-default".to_owned(), PriorityClass { value: 0, preemptible: true })].into()
}

/// A leader without limits of its own.
pub fn leader_options() -> Options {
    Options {
        holder: "bench".to_owned(),
        classes: classes(),
        retries: Retries::default(),
        limits: ViewLimits::default(),
        constraints: Arc::default(),
    }
}

/// Somebody who may do everything.
pub fn who() -> Arc<Who> {
    let permissions = Permission::ALL.iter().copied().collect();
    Arc::new(Who { name: "ada".to_owned(), permissions, ..Who::default() })
}

pub fn asked<T>(who: &Arc<Who>, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.extensions_mut().insert(Arc::clone(who));
    request
}

pub fn api(log: &Arc<Database>, stopping: &CancellationToken) -> Api {
    Api::new(Arc::clone(log), Rules::default(), Sources::system(), stopping.clone())
}

/// A job of one container. `seed` is in its arguments: jobs of different seeds share no specification.
pub fn item(cpu: u32, memory_gib: u32, seed: usize) -> JobSubmitRequestItem {
    let amounts = json!({"cpu": cpu.to_string(), "memory": format!("{memory_gib}Gi"), "ephemeral-storage": "1Gi"});
    let container = json!({
        "name": "main",
        "image": "registry.example.org/models/simulate:1.4.2",
        "command": ["/opt/simulate/bin/run"],
        "args": ["--scenario", "base-case", "--steps", "100000", "--seed", seed.to_string()],
        "env": [{"name": "OMP_NUM_THREADS", "value": cpu.to_string()}, {"name": "RESULTS", "value": "s3://results/base-case"}],
        "resources": {"requests": amounts, "limits": amounts},
    });
    let spec = json!({"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 30});
    JobSubmitRequestItem {
        namespace: "research".to_owned(),
        labels: [("app".to_owned(), "simulate".to_owned())].into(),
        pod_specs: vec![PodSpec::from_json(&spec).expect("a pod spec")],
        ..JobSubmitRequestItem::default()
    }
}

pub fn request(queue: &str, job_set: &str, items: Vec<JobSubmitRequestItem>) -> JobSubmitRequest {
    JobSubmitRequest { queue: queue.to_owned(), job_set_id: job_set.to_owned(), job_request_items: items }
}

/// A job that went the API's way, and what is kept of it by digest.
struct Kind {
    job: NewJob,
    spec: Vec<u8>,
    shape: Shape,
}

/// Jobs in large numbers: each kind went the API's way once, and its jobs differ in id and place.
pub struct Jobs {
    kinds: Vec<Kind>,
    made: u64,
}

impl Jobs {
    /// Jobs of these cores and GiB in turn. The order is mixed, and the same in every run.
    pub fn new(kinds: &[(u32, u32)]) -> Jobs {
        let by = Request { user: "ada".to_owned(), at: BEGIN, random: 0 };
        let kind = |(cpu, memory_gib): &(u32, u32)| {
            let request = request("q", "set", vec![item(*cpu, *memory_gib, 0)]);
            let mut written = submission(request, &Rules::default(), &by).expect("it breaks no rule");
            let job = written.jobs.pop().expect("one job");
            let spec = written.specs.remove(&job.submitted.spec).expect("its specification");
            let shape = written.shapes.remove(&job.submitted.shape).expect("its shape");
            Kind { job, spec, shape }
        };
        Jobs { kinds: kinds.iter().map(kind).collect(), made: 0 }
    }

    /// The next job, submitted at that time.
    pub fn next(&mut self, at: TimeMs) -> NewJob {
        let number = self.made;
        self.made += 1;
        let mixed = mix(number);
        let mut job = self.kinds[(mixed % self.kinds.len() as u64) as usize].job.clone();
        let id = JobId::new(at, u128::from(number));
        job.submitted = Submitted { job: id, priority: (mixed >> 32) as u32 % PRIORITIES as u32, ..job.submitted };
        job
    }

    pub fn shapes(&self) -> BTreeMap<Digest, Shape> {
        self.kinds.iter().map(|kind| (kind.job.submitted.shape, kind.shape.clone())).collect()
    }

    /// Cores of a shape.
    pub fn cores(&self, shape: Digest) -> i64 {
        let of = self.kinds.iter().find(|kind| kind.job.submitted.shape == shape);
        of.and_then(|kind| kind.shape.requests.get("cpu")).map_or(0, |milli| milli / 1_000)
    }

    /// A request of so many of them.
    pub fn submission(&mut self, at: TimeMs, queue: &str, job_set: &str, jobs: usize) -> Submission {
        let jobs = (0..jobs).map(|_| self.next(at)).collect();
        let (queue, job_set, user) = (queue.to_owned(), job_set.to_owned(), "ada".to_owned());
        let specs = self.kinds.iter().map(|kind| (kind.job.submitted.spec, kind.spec.clone())).collect();
        Submission { at, queue, job_set, user, specs, shapes: self.shapes(), jobs }
    }
}

/// The entry of a submission.
pub fn entry(submission: &Submission) -> Entry {
    let mut entry = Entry::new(submission.at, &submission.queue, &submission.job_set);
    entry.user.clone_from(&submission.user);
    entry.shapes.clone_from(&submission.shapes);
    entry.events = submission.jobs.iter().map(|job| Event::Submitted(job.submitted.clone())).collect();
    entry
}

/// Numbers that look like chance: splitmix64.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What a pool is told of queues and of so many nodes of 32 cores and 256 GiB, in clusters of `per_cluster`.
pub fn fleet(nodes: usize, per_cluster: usize) -> Vec<Delta> {
    let mut told: Vec<Delta> = queues().map(|queue| queue_delta(&queue)).collect();
    told.extend((0..nodes).map(|index| {
        let (cluster, name) = place(index, per_cluster);
        let labels = [("kubernetes.io/hostname", name.as_str()), ("node.kubernetes.io/instance-type", "c32")];
        let allocatable = [("cpu", 32_000), ("memory", 256 << 30), ("ephemeral-storage", 1 << 40), ("pods", 110)];
        let facts = NodeFacts {
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            allocatable: allocatable.map(|(name, amount)| (name.to_owned(), amount)).into(),
            name: name.as_str().into(),
            ..NodeFacts::default()
        };
        node_delta(&cluster, facts)
    }));
    told
}

/// Cluster and name of a node.
pub fn place(index: usize, per_cluster: usize) -> (String, String) {
    (format!("cluster-{}", index / per_cluster), format!("node-{:05}", index % per_cluster))
}
