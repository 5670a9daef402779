//! More memory for the next try of a job: by how much a policy's rule lets it grow, and what a job has grown by so far.
//!
//! Invariant: a job grows in one way, by a factor or by an amount, because what it has grown by has to be put on what was
//! submitted as one. A rule that wants the other way changes nothing.

use serde::{Deserialize, Serialize};

use crate::ids::Digest;
use crate::memory_bump::MemoryBump;
use crate::shape::Shape;

/// The resource by which failed jobs grow, as requests name it.
pub(crate) const MEMORY: &str = "memory";
/// A job grows by no more than this, however often it is tried.
const FACTOR_MAX: f64 = 1e6;

/// By how much a job has grown since it was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Grown {
    /// By so many bytes.
    Static(i64),
    /// By this factor.
    Factor(f64),
}

impl Grown {
    /// With one more bump; none where the job has grown in the other way.
    pub(crate) fn and(before: Option<Grown>, bump: MemoryBump) -> Option<Grown> {
        match (before, bump) {
            (None, MemoryBump::Static(amount)) => Some(Grown::Static(amount.value())),
            (Some(Grown::Static(bytes)), MemoryBump::Static(amount)) => {
                Some(Grown::Static(bytes.saturating_add(amount.value())))
            }
            (None, MemoryBump::Factor(factor)) => Some(Grown::Factor(factor.min(FACTOR_MAX))),
            (Some(Grown::Factor(before)), MemoryBump::Factor(factor)) => {
                Some(Grown::Factor((before * factor).min(FACTOR_MAX)))
            }
            (Some(Grown::Static(_)), MemoryBump::Factor(_)) | (Some(Grown::Factor(_)), MemoryBump::Static(_)) => None,
        }
    }
}

/// A job after a bump.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Growth {
    /// By how much it has grown in all.
    pub memory: Grown,
    /// The digest of its shape from now on, which comes with the entry.
    pub shape: Digest,
}

/// What becomes of a job of this shape; nothing where it asks for no memory, has grown in the other way, or is volcano_job: which of
/// its pods wants more is not known.
pub(crate) fn grow(digest: Digest, shape: &Shape, before: Option<Grown>, bump: MemoryBump) -> Option<(Growth, Shape)> {
    if shape.volcano_job.is_some() {
        return None;
    }
    let memory = Grown::and(before, bump)?;
    let bytes = *shape.requests.get(MEMORY).filter(|bytes| **bytes > 0)?;
    let more = match bump {
        MemoryBump::Static(amount) => bytes.saturating_add(amount.value()),
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "casts of floats saturate")]
        MemoryBump::Factor(factor) => (bytes as f64 * factor).ceil() as i64,
    };
    let mut grown = shape.clone();
    grown.requests.insert(MEMORY.to_owned(), more);
    Some((Growth { memory, shape: digest_with(digest, more) }, grown))
}

/// The digest of a shape that differs in memory alone from that of `digest`. Two amounts never have one digest, since every
/// step can be taken back.
fn digest_with(digest: Digest, bytes: i64) -> Digest {
    // SplitMix64's last steps.
    let mix = |value: u64| {
        let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    };
    let low = mix(bytes.cast_unsigned().wrapping_add(0x9e37_79b9_7f4a_7c15));
    let high = mix(low.wrapping_add(0x9e37_79b9_7f4a_7c15));
    Digest(digest.0 ^ (u128::from(high) << 64 | u128::from(low)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use pumice_units::Quantity;

    use super::*;
    use crate::volcano_job::VolcanoJob;

    #[test]
    fn a_bump_is_an_amount_or_a_factor() {
        let read = |value: Value| serde_json::from_value::<MemoryBump>(value).map_err(|error| error.to_string());
        for (value, bump) in [
            (json!({"static": "1Gi"}), MemoryBump::Static(Quantity::from_bytes(1 << 30))),
            (json!({"factor": 1.5}), MemoryBump::Factor(1.5)),
        ] {
            assert_eq!(read(value.clone()), Ok(bump));
            assert_eq!(serde_json::to_value(bump).unwrap(), value);
        }
        for (value, wanted) in [
            (json!({}), "set one of static and factor"),
            (json!({"static": "1Gi", "factor": 2}), "set one of static and factor"),
            (json!({"static": "0"}), "static: 0 adds nothing: name an amount above 0, such as 1Gi"),
            (json!({"static": "-1Mi"}), "static: -1Mi adds nothing: name an amount above 0, such as 1Gi"),
            (json!({"factor": 1}), "factor: 1 is not above 1"),
            (json!({"static": "much"}), "quantities must match"),
        ] {
            let error = read(value.clone()).unwrap_err();
            assert!(error.contains(wanted), "{value}: {error}");
        }
    }

    #[test]
    fn bumps_add_up_in_one_way() {
        let amount = MemoryBump::Static(Quantity::from_bytes(100));
        let factor = MemoryBump::Factor(1.5);
        let mut shape = Shape {
            priority_class: "c".to_owned(),
            requests: [("memory".to_owned(), 101), ("cpu".to_owned(), 1)].into(),
            template: Value::Null,
            volcano_job: None,
            price_band: None,
            retries: None,
        };
        for (before, bump, grown, bytes) in [
            (None, amount, Some(Grown::Static(100)), 201),
            (Some(Grown::Static(100)), amount, Some(Grown::Static(200)), 201),
            (None, factor, Some(Grown::Factor(1.5)), 152),
            (Some(Grown::Factor(1.5)), factor, Some(Grown::Factor(2.25)), 152),
            (Some(Grown::Factor(9e5)), factor, Some(Grown::Factor(FACTOR_MAX)), 152),
            (Some(Grown::Factor(1.5)), amount, None, 0),
            (Some(Grown::Static(1)), factor, None, 0),
        ] {
            let found = grow(Digest(7), &shape, before, bump);
            let found = found.map(|(growth, shape)| (growth.memory, shape.requests["memory"]));
            assert_eq!(found, grown.map(|grown| (grown, bytes)), "{before:?} {bump:?}");
        }
        shape.volcano_job = Some(VolcanoJob { least: 1, parts: Vec::new() });
        assert_eq!(grow(Digest(7), &shape, None, factor), None);
        shape.volcano_job = None;
        shape.requests.remove("memory");
        assert_eq!(grow(Digest(7), &shape, None, factor), None);
        let digests = [0, 1, 2, i64::MAX].map(|bytes| digest_with(Digest(7), bytes).0);
        let others: std::collections::BTreeSet<u128> = digests.into_iter().chain([7]).collect();
        assert_eq!(others.len(), 5);
    }
}
