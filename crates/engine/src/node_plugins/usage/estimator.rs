//! What a pod will use that no measurement shows yet: between its requests and its limits.

use std::collections::BTreeMap;

use crate::config::{Fault, Field};
use crate::facts::PodTemplate;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Estimate {
    pub(super) cpu_milli: i64,
    pub(super) memory_bytes: i64,
}

impl Estimate {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }
}

/// How requests and limits of a pod make its estimated use. Ratios are in thousandths.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Estimator {
    request: i64,
    burst: i64,
    risk_from: i64,
    risk: i64,
    /// What a pod that asks for nothing is taken to use.
    unasked: Estimate,
}

impl Default for Estimator {
    fn default() -> Self {
        let unasked = Estimate { cpu_milli: 250, memory_bytes: 200 << 20 };
        Self { request: 700, burst: 0, risk_from: 600, risk: 1_200, unasked }
    }
}

impl Estimator {
    pub(super) fn new(field: Option<Field<'_>>) -> Result<Self, Fault> {
        let fields = field.map_or(Ok(BTreeMap::new()), |field| field.entries())?;
        let default = Self::default();
        let milli = |name, default| fields.get(name).map_or(Ok(default), |field: &Field<'_>| field.milli());
        let quantity =
            |name, cpu, default| fields.get(name).map_or(Ok(default), |field: &Field<'_>| field.quantity(cpu));
        Ok(Self {
            request: milli("request_ratio", default.request)?,
            burst: milli("burst_ratio", default.burst)?,
            risk_from: milli("risk_threshold", default.risk_from)?,
            risk: milli("risk_factor", default.risk)?,
            unasked: Estimate {
                cpu_milli: quantity("be_cpu", true, default.unasked.cpu_milli)?,
                memory_bytes: quantity("be_mem", false, default.unasked.memory_bytes)?,
            },
        })
    }

    /// Whether a node that is busy so much makes estimates count for more.
    pub(super) fn is_risky(&self, busy_per_mille: i64) -> bool {
        busy_per_mille > self.risk_from
    }

    pub(super) fn of(&self, template: &PodTemplate, risky: bool) -> Estimate {
        let amount = |map: &BTreeMap<String, i64>, name: &str| map.get(name).copied().unwrap_or(0).max(0);
        let one = |name: &str| {
            let (request, limit) = (amount(&template.requests, name), amount(&template.limits, name));
            self.between(request, limit, risky)
        };
        let (cpu_milli, memory_bytes) = (one("cpu"), one("memory"));
        let asks = amount(&template.requests, "cpu") > 0 || amount(&template.requests, "memory") > 0;
        if asks { Estimate { cpu_milli, memory_bytes } } else { self.unasked }
    }

    /// `(request × ratio + (limit − request) × burst) × risk`, at most the limit where there is one.
    fn between(&self, request: i64, limit: i64, risky: bool) -> i64 {
        let burst = i128::from(limit.saturating_sub(request).max(0)) * i128::from(self.burst);
        let plain = i128::from(request) * i128::from(self.request) + burst;
        let risk = if risky { i128::from(self.risk) } else { 1_000 };
        let estimate = plain.saturating_mul(risk) / 1_000_000;
        let most = if limit > 0 { i128::from(limit) } else { i128::from(i64::MAX) };
        i64::try_from(estimate.clamp(0, most)).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_taken_to_use_something_between_request_and_limit() {
        let plain = Estimator::default();
        let bursty = Estimator { burst: 500, ..Estimator::default() };
        let pod = |cpu: i64, limit: i64| {
            let named = |amount: i64| if amount > 0 { [("cpu".to_owned(), amount)].into() } else { BTreeMap::new() };
            PodTemplate { requests: named(cpu), limits: named(limit), ..PodTemplate::default() }
        };
        for (name, estimator, pod, risky, cpu_milli) in [
            ("seven tenths of the request", &plain, pod(1_000, 2_000), false, 700),
            ("more on a busy node", &plain, pod(1_000, 2_000), true, 840),
            ("half of the burst, too", &bursty, pod(1_000, 2_000), false, 1_200),
            ("never above the limit", &bursty, pod(1_000, 1_000), true, 840),
            ("capped", &Estimator { request: 2_000, ..Estimator::default() }, pod(1_000, 1_500), false, 1_500),
            ("no limit is no cap", &Estimator { request: 2_000, ..Estimator::default() }, pod(1_000, 0), false, 2_000),
            ("asks for nothing", &plain, pod(0, 0), true, 250),
        ] {
            assert_eq!(estimator.of(&pod, risky).cpu_milli, cpu_milli, "{name}");
        }
    }

    #[test]
    fn busy_starts_above_the_threshold() {
        assert!(!Estimator::default().is_risky(600));
        assert!(Estimator::default().is_risky(601));
    }
}
