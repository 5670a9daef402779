//! What scheduling reads of a job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::price_band::PriceBand;
use crate::retries::OwnRetries;
use crate::volcano_job::VolcanoJob;

/// What scheduling reads of a job. Jobs with equal shapes can't be told apart by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shape {
    /// The priority class of the fleet, not of Kubernetes.
    pub priority_class: String,
    /// What a run takes: cpu in milli-cores, everything else in whole units.
    pub requests: BTreeMap<String, i64>,
    /// What placing a pod reads, as the scheduler's own JSON; the ledger only carries it.
    #[serde(default)]
    pub template: serde_json::Value,
    /// Its pods, where it is a Volcano job of several; `requests` are those of all together then, and `template` is nothing.
    #[serde(rename = "whole", default, skip_serializing_if = "Option::is_none")]
    pub volcano_job: Option<VolcanoJob>,
    /// Its band in market pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_band: Option<PriceBand>,
    /// What the job says of its failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<OwnRetries>,
}
