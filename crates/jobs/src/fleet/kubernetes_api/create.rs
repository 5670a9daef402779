//! A new job, in as many requests as it takes.
//!
//! Invariant: a request whose answer was lost is sent again and gives the same jobs, since each has a client id. A job of which
//! only a part could be submitted is ended, unless it has a key: then the same again goes on with it.

use std::time::Duration;

use pumice_wire::api::{JobSubmitRequest, JobSubmitRequestItem, JobSubmitResponseItem};

use super::*;

/// Times that a request is sent.
const TRIES: u32 = 4;
/// The code of a request whose answer did not come: what it asked for may have been done.
const NO_ANSWER: u16 = 503;
/// The pause after the first.
const PAUSE: Duration = Duration::from_millis(200);

impl KubernetesApi {
    /// What a platform would write on a job that is only tried: who submits it.
    pub(super) async fn try_create(&self) -> Result<Value, Refusal> {
        let request = ListRequest { queue: NO_QUEUE.to_owned(), ..ListRequest::default() };
        let user = self.calls.job_sets(request).await?.user;
        Ok(json!({"kind": "Job", "metadata": {"annotations": {USER: user}}}))
    }

    pub(super) async fn create(&self, namespace: &str, mut job: Value) -> Result<Value, Refusal> {
        let name = self.complete(namespace, &mut job)?;
        let key = match idempotency::key(&job) {
            Some(_) => name.clone(),
            None => random()?,
        };
        let Submission { items, batch } = submission::items(&job, &key)?;
        let wanted = items.len() as u64;
        let queue = objects::queue_of(&job);
        for (known, set) in self.named(&name).await? {
            // A job set is its queue's, and a job its namespace's: neither may be two.
            if known.queue != queue && known.namespace != namespace {
                continue;
            }
            let is_here = known.queue == queue && known.namespace == namespace;
            let same = idempotency::key(&job).is_some() && idempotency::is_same(&job, &of_set(&known, &set));
            if !(is_here && same) || objects::counts_of(&set).0.all() >= wanted {
                return Err(Refusal::exists("job", &name));
            }
        }
        let first = match self.submit(queue, &name, items, batch).await {
            Ok(first) => first,
            // Nothing of it is there, or the same again goes on with it.
            Err((0, refusal)) if refusal.code != NO_ANSWER => return Err(refusal),
            Err((_, refusal)) if idempotency::key(&job).is_some() => return Err(refusal),
            Err((sent, refusal)) => {
                // The failure that led to this is the one to tell of.
                let _ = self.calls.cancel_set(queue, &name, "only a part could be submitted").await;
                let message =
                    format!("{}; {sent} of {wanted} pods were submitted and are ended again", refusal.message);
                return Err(Refusal { message, ..refusal });
            }
        };
        let view = self.calls.jobs(std::slice::from_ref(&first)).await?.remove(&first);
        let known = view.map(Known::of).ok_or_else(|| Refusal::missing("job", &name))?;
        let counts = super::super::job_view::JobCounts { waiting: wanted, ..Default::default() };
        Ok(objects::job(&known, &counts, None, "0"))
    }

    /// Fills in what a Job may leave to the server; its name.
    fn complete(&self, namespace: &str, job: &mut Value) -> Result<String, Refusal> {
        if objects::queue_of(job).is_empty() {
            let spec = job.get_mut("spec").and_then(Value::as_object_mut);
            let spec = spec.ok_or_else(|| Refusal::invalid("spec is no object"))?;
            spec.insert("queue".to_owned(), json!(self.queue));
        }
        let name = match (text_at(job, "/metadata/name"), text_at(job, "/metadata/generateName")) {
            ("", "") => return Err(Refusal::invalid("metadata.name is missing")),
            ("", front) => format!("{front}{}", random()?.get(..SUFFIX).unwrap_or_default()),
            (name, _) => name.to_owned(),
        };
        let metadata = job.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.ok_or_else(|| Refusal::invalid("metadata is no object"))?;
        metadata.remove("generateName");
        metadata.insert("name".to_owned(), json!(name));
        metadata.insert("namespace".to_owned(), json!(namespace));
        Ok(name)
    }

    /// The id of the first job; or how many are there, and why not all.
    async fn submit(
        &self,
        queue: &str,
        name: &str,
        mut items: Vec<JobSubmitRequestItem>,
        batch: usize,
    ) -> Result<String, (usize, Refusal)> {
        let (mut first, mut sent) = (None, 0);
        while !items.is_empty() {
            let rest = items.split_off(items.len().min(batch));
            let request = JobSubmitRequest {
                queue: queue.to_owned(),
                job_set_id: name.to_owned(),
                job_request_items: std::mem::replace(&mut items, rest),
            };
            let answer = self.send(&request).await.map_err(|refusal| (sent, refusal))?;
            if let Some(refused) = answer.iter().find(|item| !item.error.is_empty()) {
                return Err((sent, Refusal::invalid(refused.error.clone())));
            }
            sent += answer.len();
            first = first.or_else(|| answer.into_iter().next().map(|item| item.job_id));
        }
        first.ok_or_else(|| (0, Refusal::invalid("the server took no job")))
    }

    /// One request, sent again where no answer came.
    async fn send(&self, request: &JobSubmitRequest) -> Result<Vec<JobSubmitResponseItem>, Refusal> {
        let mut pause = PAUSE;
        for _ in 1..TRIES {
            match self.calls.submit(request.clone()).await {
                Ok(answer) => return Ok(answer.job_response_items),
                Err(refusal) if refusal.code == NO_ANSWER => tokio::time::sleep(pause).await,
                Err(refusal) => return Err(refusal),
            }
            pause *= 2;
        }
        Ok(self.calls.submit(request.clone()).await?.job_response_items)
    }
}

fn random() -> Result<String, Refusal> {
    names::random().map_err(|_| Refusal {
        code: 500,
        reason: "InternalError",
        message: format!("cannot read {}", names::RANDOM_SOURCE),
    })
}
