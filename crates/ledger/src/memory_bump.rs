//! By how much a policy's rule lets the memory of a job grow for its next try.

use pumice_units::Quantity;
use serde::{Deserialize, Serialize};

/// By how much memory the next try has more than the last one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Bump", into = "Bump")]
pub enum MemoryBump {
    /// So much is added.
    Static(Quantity),
    /// It is taken so often: above 1.
    Factor(f64),
}

/// What a bump of memory can't be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BumpError {
    /// There is none, or there are two.
    #[error("set one of static and factor")]
    One,
    /// Nothing would be added.
    #[error("static: {0} adds nothing: name an amount above 0, such as 1Gi")]
    Static(Quantity),
    /// It would not grow.
    #[error("factor: {0} is not above 1")]
    Factor(f64),
}

/// As it is written.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Bump {
    #[serde(rename = "static", skip_serializing_if = "Option::is_none")]
    amount: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<f64>,
}

impl MemoryBump {
    /// One of the two.
    ///
    /// # Errors
    /// Both or none, and what would not grow.
    pub fn new(amount: Option<Quantity>, factor: Option<f64>) -> Result<Self, BumpError> {
        match (amount, factor) {
            (Some(amount), None) if amount.is_zero() || amount.is_negative() => Err(BumpError::Static(amount)),
            (Some(amount), None) => Ok(Self::Static(amount)),
            (None, Some(factor)) if factor.is_finite() && factor > 1.0 => Ok(Self::Factor(factor)),
            (None, Some(factor)) => Err(BumpError::Factor(factor)),
            _ => Err(BumpError::One),
        }
    }
}

impl TryFrom<Bump> for MemoryBump {
    type Error = BumpError;

    fn try_from(Bump { amount, factor }: Bump) -> Result<Self, BumpError> {
        Self::new(amount, factor)
    }
}

impl From<MemoryBump> for Bump {
    fn from(bump: MemoryBump) -> Self {
        match bump {
            MemoryBump::Static(amount) => Self { amount: Some(amount), factor: None },
            MemoryBump::Factor(factor) => Self { amount: None, factor: Some(factor) },
        }
    }
}
