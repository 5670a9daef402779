//! The messages of Google's that occur in Armada's.
//!
//! Invariant: JSON is as proto3 has it: a time in UTC ends in `Z` and has 0, 3, 6 or 9 digits of the second. The generated
//! messages name these types.

use jiff::Timestamp as Moment;
use prost::Message;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Timestamp {
    /// Since 1970.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Of the second, forward also before 1970.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A message without fields: `google.protobuf.Empty`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct Empty {}

impl From<Moment> for Timestamp {
    fn from(moment: Moment) -> Self {
        let nanos = moment.subsec_nanosecond();
        let seconds = moment.as_second();
        // Before 1970, both count backward.
        if nanos < 0 { Self { seconds: seconds - 1, nanos: nanos + 1_000_000_000 } } else { Self { seconds, nanos } }
    }
}

impl TryFrom<Timestamp> for Moment {
    type Error = jiff::Error;

    fn try_from(timestamp: Timestamp) -> Result<Self, Self::Error> {
        Self::new(timestamp.seconds, timestamp.nanos)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let moment = Moment::try_from(*self).map_err(ser::Error::custom)?;
        let nanos = self.nanos;
        let digits = [(1_000_000_000, 0), (1_000_000, 3), (1_000, 6)];
        let digits = digits.iter().find(|(unit, _)| nanos % unit == 0).map_or(9, |(_, digits)| *digits);
        serializer.collect_str(&format_args!("{moment:.digits$}"))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse::<Moment>().map(Self::from).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_written_in_utc_with_whole_groups_of_digits() {
        for (given, written) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T05:04:05.5+02:00", "2026-01-02T03:04:05.500Z"),
            ("2026-01-02T03:04:05.00001Z", "2026-01-02T03:04:05.000010Z"),
            ("2026-01-02T03:04:05.000000001Z", "2026-01-02T03:04:05.000000001Z"),
            ("1969-12-31T23:59:59.25Z", "1969-12-31T23:59:59.250Z"),
        ] {
            let time: Timestamp = serde_json::from_value(json!(given)).expect("reads");
            assert!((0..1_000_000_000).contains(&time.nanos), "{time:?}");
            assert_eq!(serde_json::to_value(time).expect("writes"), json!(written));
            assert_eq!(Timestamp::decode(time.encode_to_vec().as_slice()), Ok(time));
        }
        assert!(serde_json::from_value::<Timestamp>(json!("yesterday")).is_err());
        assert!(serde_json::to_value(Timestamp { seconds: i64::MAX, nanos: 0 }).is_err());
        assert_eq!(serde_json::to_value(Empty {}).expect("writes"), json!({}));
    }
}
