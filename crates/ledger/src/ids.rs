//! Names that last: of jobs, runs and specifications, which are parsed at the edge and are plain numbers within; of nodes and
//! pods of clusters, which are texts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The letters of an id, in order of their value: those of Crockford's base 32, lower case.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The value of each byte that is a letter, and none.
const VALUES: [u8; 256] = {
    let mut values = [NO_LETTER; 256];
    let mut value = 0;
    while value < LETTERS.len() {
        values[LETTERS[value] as usize] = value as u8;
        value += 1;
    }
    values
};
const NO_LETTER: u8 = u8::MAX;
/// Letters of a job's id.
const JOB_LETTERS: usize = 26;

/// Milliseconds since 1970, as the server's clock has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimeMs(pub i64);

impl TimeMs {
    /// The time that much later.
    pub fn plus(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to here; never negative, as clocks may jump.
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

/// A text that is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not the id of a job.
    #[error("{0:?} is no job id: 26 letters and digits are wanted, as `submit` answered")]
    Job(String),
    /// Not the id of a run.
    #[error("{0:?} is no run id: a job id, `-` and the attempt are wanted")]
    Run(String),
    /// Not a digest.
    #[error("{0:?} is no digest: 32 hexadecimal digits are wanted")]
    Digest(String),
}

/// A job's id: 48 bits of time and 80 random ones (a ULID), so ids of later requests are larger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u128);

impl JobId {
    /// An id of a time and randomness, of which the lower 80 bits count.
    pub fn new(at: TimeMs, random: u128) -> Self {
        let time = u128::try_from(at.0).unwrap_or(0) & ((1 << 48) - 1);
        Self(time << 80 | random & ((1 << 80) - 1))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; JOB_LETTERS];
        for (place, letter) in text.iter_mut().rev().enumerate() {
            *letter = LETTERS[(self.0 >> (5 * place) & 31) as usize];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for JobId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError::Job(text.chars().take(80).collect());
        // 26 letters of 5 bits are 130: the first has only three of them.
        if text.len() != JOB_LETTERS || text.as_bytes()[0] > b'7' {
            return Err(wrong());
        }
        text.bytes()
            .try_fold(0, |id, letter| match VALUES[usize::from(letter)] {
                NO_LETTER => Err(wrong()),
                value => Ok(id << 5 | u128::from(value)),
            })
            .map(Self)
    }
}

/// One attempt to run a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    pub job: JobId,
    /// Which attempt, from 1.
    pub attempt: u32,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.job, self.attempt)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RunId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError::Run(text.chars().take(80).collect());
        let (job, attempt) = text.split_once('-').ok_or_else(wrong)?;
        let attempt = attempt.parse().ok().filter(|attempt| *attempt > 0).ok_or_else(wrong)?;
        Ok(Self { job: job.parse().map_err(|_| wrong())?, attempt })
    }
}

/// What names a specification or a shape by its content: equal ones have equal content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub u128);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError::Digest(text.chars().take(80).collect());
        if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| wrong())
    }
}

/// Written as text, read from text.
macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an id")
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    )*};
}
as_text!(JobId, RunId, Digest);

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRef {
    /// The cluster, which is the name of its executor.
    pub cluster: String,
    /// The node's name in it.
    pub node: String,
}

/// The pod of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        for id in [JobId(0), JobId(1), JobId(u128::MAX), JobId::new(TimeMs(1_764_000_000_000), u128::MAX)] {
            assert_eq!(id.to_string().len(), 26);
            assert_eq!(id.to_string().parse(), Ok(id));
            let run = RunId { job: id, attempt: 3 };
            assert_eq!(run.to_string().parse(), Ok(run));
        }
        assert_eq!(JobId::new(TimeMs(1_469_918_176_385), 0).to_string(), "01aryz6s410000000000000000".to_owned());
        assert_eq!(Digest(7).to_string().parse(), Ok(Digest(7)));
    }

    #[test]
    fn later_ids_are_larger_as_text_too() {
        let (early, late) = (JobId::new(TimeMs(5), u128::MAX), JobId::new(TimeMs(6), 0));
        assert!(early < late && early.to_string() < late.to_string());
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "x", "81arykzmkh0000000000000000", "01ARYKZMKH0000000000000000", "01arykzmkh000000000000000u"]
        {
            assert!(text.parse::<JobId>().is_err(), "{text}");
            assert!(format!("{text}-1").parse::<RunId>().is_err(), "{text}");
        }
        let id = JobId(1);
        for text in
            [format!("{id}"), format!("{id}-"), format!("{id}-0"), format!("{id}--1"), format!("{id}-99999999999")]
        {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
        assert!("+0000000000000000000000000000007".parse::<Digest>().is_err());
    }
}
