//! One case from its queues to what is cleared away after it.
//!
//! Invariant: it ends, in its timeout and [`CLEAR_LIMIT`] more; what it made it tries to remove, however it went.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use pumice_wire::api::{JobSetCancelRequest, JobSubmitRequest, JobSubmitRequestItem};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::action::{Target, act, needs_places};
use super::event_stream::watch;
use super::failure::Failure;
use super::matcher::Matcher;
use super::queues;
use super::server::{Server, answer};
use super::spec::{PlannedAction, Spec, Submission};
use super::{Case, Report, Settings};

/// How long it may take to clear away.
const CLEAR_LIMIT: Duration = Duration::from_secs(60);

/// Runs a case. With `stop` it ends early, as a failure, and is cleared away nonetheless.
pub async fn run(server: &Server, case: &Case, settings: &Settings, stop: &CancellationToken) -> Report {
    let started = Instant::now();
    let mut run = CaseRun::new(server, case, settings);
    let ended = tokio::select! {
        biased;
        () = stop.cancelled() => Some(Err(Failure::Stopped)),
        ended = timeout(case.spec.timeout, run.go()) => ended.ok(),
    };
    let mut failure = ended.unwrap_or_else(|| run.late()).err();
    let mut notes = Vec::new();
    match timeout(CLEAR_LIMIT, run.clear(&mut notes)).await {
        Ok(Ok(())) => {}
        Ok(Err(wrong)) if failure.is_none() => failure = Some(wrong),
        Ok(Err(wrong)) => notes.push(wrong.to_string()),
        Err(_) => notes.push(format!("it took more than {} s to clear away", CLEAR_LIMIT.as_secs())),
    }
    Report { name: case.name.clone(), took: started.elapsed(), failure, notes }
}

struct CaseRun<'a> {
    server: &'a Server,
    spec: &'a Spec,
    settings: &'a Settings,
    queue: String,
    job_set: String,
    /// Queues of its own, made or about to be.
    made: Vec<String>,
    /// Whether there may be jobs.
    has_submitted: bool,
    /// Whether all are submitted.
    is_submitted: bool,
    has_acted: bool,
    matcher: Matcher,
}

impl<'a> CaseRun<'a> {
    fn new(server: &'a Server, case: &'a Case, settings: &'a Settings) -> Self {
        let spec = &case.spec;
        // Events of an earlier run are none of this one.
        let own_name = || case.name.rsplit('/').next().unwrap_or_default();
        let base = spec.job_set.as_deref().unwrap_or_else(own_name);
        let job_set = format!("{base}-{:016x}", rand::random::<u64>());
        Self {
            server,
            spec,
            settings,
            queue: spec.queue.clone(),
            job_set,
            made: Vec::new(),
            has_submitted: false,
            is_submitted: false,
            has_acted: spec.planned.is_none(),
            matcher: Matcher::new(spec.expected.clone()),
        }
    }

    async fn go(&mut self) -> Result<(), Failure> {
        match &self.spec.queues {
            None => queues::provide(self.server, &self.queue).await?,
            Some(case) => {
                queues::set_up(self.server, case, &self.spec.queue, &mut self.made).await?;
                if let Some(first) = self.made.first() {
                    self.queue.clone_from(first);
                }
                queues::update(self.server, case, &self.made).await?;
            }
        }
        if let Some(submission) = &self.spec.submission {
            self.jobs(submission).await?;
        }
        if self.spec.cancels_inactive {
            self.cancel_job_set().await?;
        }
        match &self.spec.queues {
            None => Ok(()),
            Some(case) => queues::check(self.server, case, &self.made).await,
        }
    }

    /// From the first submission to the last expected event.
    async fn jobs(&mut self, submission: &Submission) -> Result<(), Failure> {
        self.has_submitted = true;
        let mut batches = pin!(batches(self.server, submission, self.request(submission)));
        let mut events = pin!(watch(self.server, &self.queue, &self.job_set));
        while !(self.is_submitted && self.has_acted && self.matcher.is_complete()) {
            tokio::select! {
                batch = batches.next(), if !self.is_submitted => match batch {
                    Some(ids) => ids?.into_iter().for_each(|id| self.matcher.submitted(id)),
                    None => self.is_submitted = true,
                },
                // It ends with a failure only.
                Some(event) = events.next() => self.matcher.see(&event?)?,
            }
            if let Some(planned) = &self.spec.planned {
                self.act_when_due(planned).await?;
            }
        }
        Ok(())
    }

    async fn act_when_due(&mut self, planned: &PlannedAction) -> Result<(), Failure> {
        if self.has_acted || !self.is_submitted {
            return Ok(());
        }
        let (saw, total) = self.matcher.saw(planned.trigger);
        if saw < total {
            return Ok(());
        }
        let places = match self.matcher.places() {
            Some(places) => places,
            None if needs_places(&planned.action) => return Ok(()),
            None => BTreeSet::new(),
        };
        let target = Target { queue: &self.queue, job_set: &self.job_set, ids: self.matcher.ids(), places };
        act(self.server, &planned.action, target).await?;
        self.has_acted = true;
        Ok(())
    }

    /// The request of a batch.
    fn request(&self, submission: &Submission) -> JobSubmitRequest {
        let copies = std::iter::repeat_n(&submission.jobs, submission.batch_size.get() as usize);
        let item = |job: &JobSubmitRequestItem| {
            let mut job = job.clone();
            job.annotations.extend(self.settings.annotations.clone());
            if let Some(namespace) = self.settings.namespaces.get(&job.namespace) {
                job.namespace.clone_from(namespace);
            }
            job
        };
        JobSubmitRequest {
            queue: self.queue.clone(),
            job_set_id: self.job_set.clone(),
            job_request_items: copies.flatten().map(item).collect(),
        }
    }

    /// How it went when the time is over.
    fn late(&self) -> Result<(), Failure> {
        let seconds = self.spec.timeout.as_secs();
        let waiting = self.matcher.waiting();
        let is_endless = self.spec.submission.as_ref().is_some_and(|submission| submission.batches.is_none());
        match &self.spec.planned {
            // The time is its end; the jobs of the last moments can't have seen everything.
            None if is_endless && self.matcher.complete() > 0 => Ok(()),
            Some(planned) if !self.has_acted && self.is_submitted => {
                let (saw, total) = self.matcher.saw(planned.trigger);
                let (action, trigger) = (planned.action.word(), planned.trigger);
                Err(Failure::NotDue { seconds, action, trigger, saw, total, waiting })
            }
            _ if self.has_submitted && !self.is_submitted && !is_endless => Err(Failure::NotSubmitted { seconds }),
            _ => Err(Failure::Late { seconds, waiting }),
        }
    }

    async fn cancel_job_set(&self) -> Result<(), Failure> {
        let request = JobSetCancelRequest {
            queue: self.queue.clone(),
            job_set_id: self.job_set.clone(),
            ..JobSetCancelRequest::default()
        };
        answer("CancelJobSet", self.server.submit().cancel_job_set(request)).await.map(drop)
    }

    /// Leaves nothing behind but a queue that was there or that others may use, too.
    async fn clear(&self, notes: &mut Vec<String>) -> Result<(), Failure> {
        if self.has_submitted
            && let Err(failure) = self.cancel_job_set().await
        {
            notes.push(format!("jobs may be left in job set {}: {failure}", self.job_set));
        }
        if let Some(case) = &self.spec.queues {
            notes.extend(queues::remove(self.server, case, &self.made).await?);
        }
        Ok(())
    }
}

/// Submits batch after batch, and says the ids of each.
fn batches(
    server: &Server,
    submission: &Submission,
    request: JobSubmitRequest,
) -> impl Stream<Item = Result<Vec<String>, Failure>> + use<> {
    let (server, interval, random) = (server.clone(), submission.interval, submission.random_client_id);
    let max = submission.batches.map(NonZeroU32::get);
    stream::try_unfold(0_u32, move |count| {
        let (server, mut request) = (server.clone(), request.clone());
        async move {
            if max.is_some_and(|max| count >= max) {
                return Ok(None);
            }
            if count > 0 {
                sleep(interval).await;
            }
            if random {
                request.job_request_items.iter_mut().for_each(with_client_id);
            }
            let answered = answer("SubmitJobs", server.submit().submit_jobs(request)).await?;
            let mut ids = Vec::new();
            for (index, item) in answered.job_response_items.into_iter().enumerate() {
                if !item.error.is_empty() {
                    let item_name = format!("job {index}");
                    return Err(Failure::Item { call: "SubmitJobs", item: item_name, message: item.error });
                }
                ids.push(item.job_id);
            }
            Ok(Some((ids, count.saturating_add(1))))
        }
    })
}

fn with_client_id(job: &mut JobSubmitRequestItem) {
    if job.client_id.is_empty() {
        job.client_id = format!("{:032x}", rand::random::<u128>());
    }
}
