//! How records become pods: `chunk` records each, in order.
//!
//! Invariant: the slices of pods 0 to `pods() - 1` cover every record once, and only the last may be shorter. Called by
//! `jobctl` and Python to submit, by `jobctl shard` in the pod.

use std::ops::Range;

use super::{Bundled, RECORDS_MAX, Shards};
use crate::job::REPLICAS_MAX;

/// Records, and how many of them a pod gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    shards: Shards,
    chunk: u32,
}

/// Records that make no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("there is no record, so there is nothing to run; check the input")]
    Empty,
    /// Over the bound of records.
    #[error("{records} records are more than {RECORDS_MAX}; submit them in several jobs")]
    TooManyRecords { records: u32 },
    /// No records a pod.
    #[error("a pod gets at least 1 record; ask for 1 or more a task")]
    NoChunk,
    /// Over the bound of pods.
    #[error(
        "{records} records, {chunk} a task, are {pods} pods and at most {REPLICAS_MAX} may be; ask for at least {least} records a task"
    )]
    TooManyPods {
        records: u32,
        /// How many a pod.
        chunk: u32,
        /// How many pods that would be.
        pods: u32,
        /// The least records a pod that would do.
        least: u32,
    },
}

impl Plan {
    /// Puts `chunk` records in each pod.
    pub fn new(shards: Shards, chunk: u32) -> Result<Self, PlanError> {
        let records = shards.len();
        if records == 0 {
            return Err(PlanError::Empty);
        }
        if records > RECORDS_MAX {
            return Err(PlanError::TooManyRecords { records });
        }
        if chunk == 0 {
            return Err(PlanError::NoChunk);
        }
        let pods = records.div_ceil(chunk);
        if pods > REPLICAS_MAX {
            return Err(PlanError::TooManyPods { records, chunk, pods, least: records.div_ceil(REPLICAS_MAX) });
        }
        Ok(Self { shards, chunk })
    }

    /// The records that the pods share, in order.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// How many records a pod gets, at most.
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// How many pods there are, at least 1.
    pub fn pods(&self) -> u32 {
        self.shards.len().div_ceil(self.chunk)
    }

    /// The records of a pod by its index; `None` beyond the last pod.
    pub fn slice(&self, pod: u32) -> Option<Range<u32>> {
        let start = pod.checked_mul(self.chunk).filter(|start| *start < self.shards.len())?;
        Some(start..start.saturating_add(self.chunk).min(self.shards.len()))
    }

    /// What pods need to be told of the bundle, where they can't compute their records; `None` where they can.
    pub fn bundle(&self) -> Option<&Bundled> {
        match &self.shards {
            Shards::Bundled(bundled) => Some(bundled),
            _ => None,
        }
    }

    /// The same plan with its records in a bundle.
    pub fn bundled(&self) -> Self {
        Self { shards: Shards::Bundled(self.shards.bundled()), chunk: self.chunk }
    }
}
