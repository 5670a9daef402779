//! What will be submitted: every job of a workload, with the time that it will run.
//!
//! Invariant: it follows from the workload, the configuration and the seed alone. Jobs are in the order of the specification; those
//! of a template that are submitted together stand together.

use std::ops::Range;

use pumice_ledger::{Digest, Shape};
use pumice_translate::armada::{SpecError, wrong};

use super::draw;
use super::scheduling::Scheduling;
use super::workload::{Template, Workload};

/// All jobs of a workload, drawn before anything is scheduled: each configuration gets the same.
#[derive(Debug)]
pub(super) struct Plan {
    pub seed: u64,
    /// By job.
    pub run_ms: Vec<i64>,
    pub batches: Vec<Batch>,
    /// By template.
    pub shapes: Vec<(Digest, Shape)>,
    /// By template: the first of its batches, and at the end how many batches there are.
    first: Vec<usize>,
}

/// Jobs of one template that are submitted at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    pub template: usize,
    /// Which time it is, from 0.
    pub repeat: i64,
    pub jobs: Range<usize>,
}

/// The priority class of a template's jobs.
pub(super) fn class_of<'c>(template: &'c Template, scheduling: &'c Scheduling) -> Result<&'c str, SpecError> {
    scheduling.class(&template.class).ok_or_else(|| {
        let known: Vec<&str> = scheduling.classes.keys().map(String::as_str).collect();
        let problem = format!("there is no priority class {:?}; there are {}", template.class, known.join(", "));
        wrong(format!("{}.priorityClassName", template.path), problem)
    })
}

impl Plan {
    pub(super) fn new(workload: &Workload, scheduling: &Scheduling, seed: u64) -> Result<Self, SpecError> {
        let mut random = draw::of_workload(seed);
        let mut plan = Self { seed, run_ms: Vec::new(), batches: Vec::new(), shapes: Vec::new(), first: Vec::new() };
        for (index, template) in workload.templates.iter().enumerate() {
            let shape = template.requirements.shape(class_of(template, scheduling)?);
            let refuse = |error: serde_json::Error| wrong(format!("{}.requirements", template.path), error.to_string());
            plan.shapes.push(shape.map_err(refuse)?);
            plan.first.push(plan.batches.len());
            for repeat in 0..i64::from(template.repeats) {
                let start = plan.run_ms.len();
                // Members of a gang work together and end together.
                let alike = template.gang.as_ref().map_or(1, |gang| gang.cardinality);
                for _ in 0..template.number / alike {
                    let run_ms = template.runs.draw_ms(&mut random);
                    plan.run_ms.extend(std::iter::repeat_n(run_ms, alike as usize));
                }
                plan.batches.push(Batch { template: index, repeat, jobs: start..plan.run_ms.len() });
            }
        }
        plan.first.push(plan.batches.len());
        Ok(plan)
    }

    /// The batches of a template.
    pub(super) fn batches_of(&self, template: usize) -> Range<usize> {
        self.first[template]..self.first[template + 1]
    }

    /// The template of a job. O(log batches).
    pub(super) fn template_of(&self, job: usize) -> Option<usize> {
        let batch = self.batches.partition_point(|batch| batch.jobs.end <= job);
        self.batches.get(batch).map(|batch| batch.template)
    }
}
