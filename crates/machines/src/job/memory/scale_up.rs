//! The rule by which memory is raised, read from a policy or from an annotation.
//!
//! Invariant: amounts are whole bytes, follow from the template's amount and the number of raises alone, never shrink and
//! never pass the ceiling. What can't be read is no rule; admission refuses it with the words of [`ScaleUpError`]. Called by
//! `memory`, and by admission.

use std::collections::BTreeMap;

use pumice_api::batch::MemoryScaleUp;
use pumice_units::Quantity;

/// The word that turns a rule, or learning, off.
pub(in crate::job) const OFF: &str = "off";
/// The factor of a rule that has neither factor nor step.
const FACTOR: &str = "2";
const FACTOR_MAX: i64 = 100;
/// The tries of a rule that doesn't say.
const TRIES: i32 = 3;
const TRIES_MAX: i32 = 100;
/// Longest text of the annotation, in bytes.
const TEXT_MAX: usize = 256;
/// Amounts that are multiplied are rounded up to whole MiB.
const MEBI: i128 = 1 << 20;
const NANOS: i128 = 1_000_000_000;

/// A rule that can be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleUp {
    growth: Growth,
    ceiling: Option<i64>,
    tries: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Growth {
    /// Billionths; more than 1.
    Factor { nanos: i128 },
    /// Bytes; more than 0.
    Step { bytes: i64 },
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleUpError {
    /// Two ways to grow.
    #[error("factor and step exclude each other; leave one of them out")]
    TwoWays,
    /// No number, or not between 1 and the largest.
    #[error("factor {0} is no number above 1 and up to {FACTOR_MAX}; write for example 1.5")]
    Factor(String),
    /// No amount above zero.
    #[error("{name} {text} is no amount of memory above 0; write for example 2Gi")]
    Amount {
        /// `step` or `ceiling`.
        name: &'static str,
        text: String,
    },
    /// Not between 1 and the most.
    #[error("tries {0} is no number from 1 to {TRIES_MAX}")]
    Tries(String),
    /// A word of an annotation that means nothing.
    #[error(
        "{0:?} is none of factor=, step=, ceiling= and tries=; write for example factor=1.5,ceiling=64Gi,tries=3, or off"
    )]
    Word(String),
    /// A word that is there twice.
    #[error("{0} is there twice")]
    Twice(&'static str),
    /// Nothing, or far too much.
    #[error("write a rule of at most {TEXT_MAX} characters, for example factor=1.5,ceiling=64Gi,tries=3")]
    Length,
}

impl ScaleUp {
    /// Reads `scaleUp` of a policy; an absent one has every default.
    ///
    /// # Errors
    /// When a member is out of its range or excludes another.
    pub fn of_policy(said: Option<&MemoryScaleUp>) -> Result<Self, ScaleUpError> {
        let Some(said) = said else { return Self::new(None, None, None, None) };
        let factor = said.factor.as_ref().map(ToString::to_string);
        let tries = said.tries.map(|tries| tries.to_string());
        let amount = |text: &Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
            text.as_ref().map(|quantity| quantity.0.clone())
        };
        Self::new(factor, amount(&said.step), amount(&said.ceiling), tries)
    }

    /// Reads an annotation; `None` where it says `off`.
    ///
    /// # Errors
    /// When a word is none of the rule's, is there twice, or is out of its range.
    pub fn of_annotation(text: &str) -> Result<Option<Self>, ScaleUpError> {
        if text.trim() == OFF {
            return Ok(None);
        }
        if text.trim().is_empty() || text.len() > TEXT_MAX {
            return Err(ScaleUpError::Length);
        }
        let mut said: BTreeMap<&'static str, String> = BTreeMap::new();
        for part in text.split(',').map(str::trim) {
            let pair = part.split_once('=').and_then(|(word, value)| Some((known(word.trim())?, value.trim())));
            let Some((word, value)) = pair else { return Err(ScaleUpError::Word(part.to_owned())) };
            if said.insert(word, value.to_owned()).is_some() {
                return Err(ScaleUpError::Twice(word));
            }
        }
        let mut take = |word| said.remove(word);
        Self::new(take("factor"), take("step"), take("ceiling"), take("tries")).map(Some)
    }

    fn new(
        factor: Option<String>,
        step: Option<String>,
        ceiling: Option<String>,
        tries: Option<String>,
    ) -> Result<Self, ScaleUpError> {
        let growth = match (factor, step) {
            (Some(_), Some(_)) => return Err(ScaleUpError::TwoWays),
            (None, Some(step)) => Growth::Step { bytes: amount("step", step)? },
            (factor, None) => Growth::Factor { nanos: read_factor(factor.unwrap_or_else(|| FACTOR.to_owned()))? },
        };
        let tries = match tries {
            None => TRIES,
            Some(text) => match text.parse() {
                Ok(tries) if (1..=TRIES_MAX).contains(&tries) => tries,
                _ => return Err(ScaleUpError::Tries(text)),
            },
        };
        Ok(Self { growth, ceiling: ceiling.map(|text| amount("ceiling", text)).transpose()?, tries })
    }

    /// How often the memory of one pod index is raised.
    pub fn tries(&self) -> i32 {
        self.tries
    }

    /// Most bytes of a container.
    pub fn ceiling(&self) -> Option<i64> {
        self.ceiling
    }

    /// Bytes after so many raises. What lies above the ceiling from the start stays as it is.
    pub fn raised(&self, bytes: i64, times: i64) -> i64 {
        let times = times.clamp(0, i64::from(TRIES_MAX));
        let grown = match self.growth {
            Growth::Step { bytes: step } => bytes.saturating_add(step.saturating_mul(times)),
            Growth::Factor { nanos } => (0..times).fold(bytes, |amount, _| multiplied(amount, nanos)),
        };
        self.ceiling.map_or(grown, |ceiling| grown.min(ceiling)).max(bytes)
    }
}

fn multiplied(bytes: i64, nanos: i128) -> i64 {
    let exact = i128::from(bytes.max(0)).saturating_mul(nanos);
    let part = NANOS * MEBI;
    let whole = exact / part + i128::from(exact % part > 0);
    i64::try_from(whole.saturating_mul(MEBI)).unwrap_or(i64::MAX)
}

fn known(word: &str) -> Option<&'static str> {
    ["factor", "step", "ceiling", "tries"].into_iter().find(|known| *known == word)
}

fn read_factor(text: String) -> Result<i128, ScaleUpError> {
    // Quantities are exact decimals; their suffixes are none of a factor's.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match text.parse::<Quantity>() {
        Ok(factor) if is_number && factor > Quantity::from_units(1) && factor <= Quantity::from_units(FACTOR_MAX) => {
            Ok(factor.nanos())
        }
        _ => Err(ScaleUpError::Factor(text)),
    }
}

fn amount(name: &'static str, text: String) -> Result<i64, ScaleUpError> {
    match text.parse::<Quantity>().map(Quantity::value) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(ScaleUpError::Amount { name, text }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const GI: i64 = 1 << 30;

    fn of_policy(value: serde_json::Value) -> Result<ScaleUp, ScaleUpError> {
        ScaleUp::of_policy(Some(&serde_json::from_value(value).unwrap()))
    }

    #[test]
    fn both_spellings_say_the_same() {
        let cases = [
            (json!({}), "tries=3"),
            (json!({"factor": 1.5, "ceiling": "64Gi", "tries": 5}), "factor=1.5,ceiling=64Gi,tries=5"),
            (json!({"factor": 3}), " factor = 3 "),
            (json!({"step": "2Gi", "ceiling": 17179869184_i64}), "ceiling=16Gi, step=2048Mi"),
        ];
        for (policy, annotation) in cases {
            let rule = of_policy(policy.clone());
            assert!(rule.is_ok(), "{policy}: {rule:?}");
            assert_eq!(rule.map(Some), ScaleUp::of_annotation(annotation), "{annotation}");
        }
        assert_eq!(ScaleUp::of_policy(None), of_policy(json!({})));
        assert_eq!(ScaleUp::of_annotation(" off"), Ok(None));
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_write() {
        let cases = [
            ("", "write a rule of at most"),
            ("yes", "\"yes\" is none of factor=, step=, ceiling= and tries="),
            ("factor=2,factor=3", "factor is there twice"),
            ("factor=2,step=1Gi", "exclude each other"),
            ("factor=1", "factor 1 is no number above 1"),
            ("factor=2k", "factor 2k is no number"),
            ("factor=1e3", "factor 1e3 is no number"),
            ("factor=101", "factor 101 is no number above 1 and up to 100"),
            ("step=0", "step 0 is no amount of memory above 0"),
            ("ceiling=much", "ceiling much is no amount"),
            ("tries=0", "tries 0 is no number from 1 to 100"),
            ("tries=many", "tries many is no number"),
        ];
        for (text, fragment) in cases {
            let error = ScaleUp::of_annotation(text).unwrap_err().to_string();
            assert!(error.contains(fragment), "{text}: {error}");
        }
        assert_eq!(of_policy(json!({"tries": 101})), Err(ScaleUpError::Tries("101".into())));
    }

    #[test]
    fn amounts_grow_up_to_the_ceiling() {
        let amounts = |text: &str, bytes: i64| {
            let rule = ScaleUp::of_annotation(text).unwrap().unwrap();
            [0, 1, 2, 3].map(|times| rule.raised(bytes, times))
        };
        assert_eq!(amounts("factor=2", GI), [GI, 2 * GI, 4 * GI, 8 * GI]);
        assert_eq!(amounts("factor=2,ceiling=3Gi", GI), [GI, 2 * GI, 3 * GI, 3 * GI]);
        assert_eq!(amounts("step=512Mi", GI), [GI, GI + GI / 2, 2 * GI, 2 * GI + GI / 2]);
        assert_eq!(amounts("factor=1.1", 100 << 20), [100, 110, 121, 134].map(|mebi: i64| mebi << 20));
        assert_eq!(amounts("factor=2,ceiling=1Gi", 4 * GI), [4 * GI; 4], "nothing is taken away");
        assert_eq!(amounts("factor=100", i64::MAX), [i64::MAX; 4]);
    }

    proptest! {
        #[test]
        fn no_amount_shrinks_or_passes_the_ceiling(
            text in "(factor=[1-9][.][1-9]|step=[1-9]Mi)(,ceiling=[1-9]Gi)?",
            bytes in 0_i64..,
            times in any::<i64>(),
        ) {
            let rule = ScaleUp::of_annotation(&text).unwrap().unwrap();
            let (once, again) = (rule.raised(bytes, times), rule.raised(bytes, times.saturating_add(1)));
            prop_assert!(bytes <= once && once <= again);
            prop_assert!(rule.ceiling().is_none_or(|ceiling| again <= ceiling.max(bytes)));
        }

        #[test]
        fn no_text_panics(text in "[a-z0-9=., ]{0,30}") {
            let _ = ScaleUp::of_annotation(&text);
        }
    }
}
