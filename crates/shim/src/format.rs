//! The version of what agent and shim keep in a pod's directory.
//!
//! Invariant: a file without a version is of the first one; one of a newer version can't be read as if it were of this. Part of
//! `spec.json` and `status.json`; asked by the agent before it takes pods over.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The version that is written, and the newest that is read. Format 1 is the first.
pub const FORMAT: u32 = 1;

/// Written as [`FORMAT`]; reads it and what is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Format;

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(FORMAT)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            0 => Err(D::Error::custom("it names no format")),
            1..=FORMAT => Ok(Format),
            found => Err(D::Error::custom(format!("it has format {found}, newer than {FORMAT}"))),
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        #[serde(default)]
        format: Format,
        name: String,
    }

    // INV-61
    #[test]
    fn what_is_older_is_read_and_what_is_newer_is_not() {
        let file = File { format: Format, name: "a".into() };
        assert_eq!(serde_json::to_string(&file).unwrap(), "{\"format\":1,\"name\":\"a\"}");
        let read = |json: &str| serde_json::from_str::<File>(json);
        assert_eq!(read("{\"format\":1,\"name\":\"a\"}").unwrap(), file);
        assert_eq!(read("{\"name\":\"a\"}").unwrap(), file, "from before there were versions");
        for (text, wanted) in [("2", "newer than 1"), ("0", "names no format"), ("-1", "invalid value")] {
            let json = format!("{{\"format\":{text},\"name\":\"a\"}}");
            let error = read(&json).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
