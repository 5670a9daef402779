//! `--array 0-9999%200`: numbers, and how many may run at once.
//!
//! Called by `jobctl` and for `#SBATCH --array` lines.

use super::numbers::{Numbers, NumbersError, parse_number};

/// An array as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    pub numbers: Numbers,
    /// After `%`: how many may run at once.
    pub max_parallel: Option<u32>,
}

/// A text that is no array.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    #[error("--array {text:?}: {source}")]
    Numbers {
        /// What was given, cut to 80 characters.
        text: String,
        /// What is wrong with it.
        source: NumbersError,
    },
    /// What follows `%`.
    #[error("--array {text:?}: after % stands how many may run at once, at least 1, as in 0-9999%200")]
    MaxParallel {
        /// What was given, cut to 80 characters.
        text: String,
    },
}

impl std::str::FromStr for Array {
    type Err = ArrayError;

    fn from_str(text: &str) -> Result<Self, ArrayError> {
        let shown = || text.chars().take(80).collect::<String>();
        let (numbers, max_parallel) = match text.split_once('%') {
            Some((numbers, max)) => (numbers, Some(parse_number(max.trim()).filter(|max| *max > 0))),
            None => (text, None),
        };
        let max_parallel = match max_parallel {
            Some(None) => return Err(ArrayError::MaxParallel { text: shown() }),
            Some(max) => max,
            None => None,
        };
        let numbers = numbers.parse().map_err(|source| ArrayError::Numbers { text: shown(), source })?;
        Ok(Self { numbers, max_parallel })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_as_slurm_and_hyperqueue_write_them() {
        for (text, numbers, max_parallel) in [
            ("0-9999%200", "0-9999", Some(200)),
            ("1-10:2,20", "1-9:2,20", None),
            ("0-9_999%1_000", "0-9999", Some(1000)),
        ] {
            let array: Array = text.parse().unwrap();
            assert_eq!((array.numbers.to_string().as_str(), array.max_parallel), (numbers, max_parallel));
        }
        for text in ["", "%5", "0-9%", "0-9%0", "0-9%x", "0-9%1%2"] {
            assert!(text.parse::<Array>().is_err(), "{text}");
        }
    }
}
