//! What a pod records of one run of a command: how it ended, where, and what the program gave.
//!
//! Invariant: a report reads back as it was written. Bytes that are none, as other programs record them, are a result and
//! nothing else. Pure. Written by `jobctl shard exec`, read by `results`.
//!
//! A line of JSON, and after it the bytes that the program gave, if it gave any:
//!
//! ```text
//! {"pumice":1,"code":137,"signal":9,"node":"n1"}
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The variable with the path of the file that a program writes its result to.
pub const RESULT_VARIABLE: &str = "PUMICE_RESULT";
/// The variable with the node of a pod.
pub const NODE_VARIABLE: &str = "PUMICE_NODE";
/// The most bytes of a result; with its line it is within what a bundle takes as one value.
pub const RESULT_BYTES_MAX: u64 = 63 << 20;
/// What the first line says to be one of ours.
const VERSION: u32 = 1;
/// The most bytes of the line.
const LINE_BYTES_MAX: usize = 8 << 10;
/// The most characters of a node's name and of a problem.
const CHARACTERS_MAX: usize = 500;

/// How a command ended, and what it gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The exit code a shell would give; `None` if whoever recorded it told none.
    pub code: Option<u8>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Where it ran; may be empty.
    pub node: String,
    /// Why it counts as failed, if its exit code does not say so; may be empty.
    pub problem: String,
    pub result: Option<Bytes>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    pumice: u32,
    code: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    node: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    problem: String,
}

impl Report {
    /// As it is recorded. Long texts are cut.
    pub fn to_bytes(&self) -> Result<Bytes, serde_json::Error> {
        let cut = |text: &str| text.chars().take(CHARACTERS_MAX).collect();
        let line = Line {
            pumice: VERSION,
            code: self.code.unwrap_or_default(),
            signal: self.signal,
            node: cut(&self.node),
            problem: cut(&self.problem),
        };
        let mut bytes = serde_json::to_vec(&line)?;
        if let Some(result) = &self.result {
            bytes.reserve_exact(result.len() + 1);
            bytes.push(b'\n');
            bytes.extend_from_slice(result);
        }
        Ok(bytes.into())
    }

    /// Reads what was recorded, by whomever.
    pub fn read(bytes: Bytes) -> Self {
        let end = bytes.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n');
        let line = bytes.get(..end.unwrap_or(bytes.len().min(LINE_BYTES_MAX))).unwrap_or_default();
        match serde_json::from_slice::<Line>(line) {
            Ok(Line { pumice: VERSION, code, signal, node, problem }) => {
                let result = end.map(|end| bytes.slice(end + 1..));
                Report { code: Some(code), signal, node, problem, result }
            }
            _ => Report { result: Some(bytes), ..Report::default() },
        }
    }

    /// The result as text, without the end of its last line; `None` if it is no text.
    pub fn text(&self) -> Option<&str> {
        let text = std::str::from_utf8(self.result.as_deref()?).ok()?;
        Some(text.strip_suffix('\n').unwrap_or(text))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_line_stays_as_it_is() {
        let plain = Report { code: Some(0), ..Report::default() };
        assert_eq!(plain.to_bytes().unwrap(), r#"{"pumice":1,"code":0}"#);
        let killed = Report {
            code: Some(137),
            signal: Some(9),
            node: "n1".to_owned(),
            result: Some(Bytes::from_static(b"a\nb\n")),
            ..plain
        };
        assert_eq!(killed.to_bytes().unwrap(), "{\"pumice\":1,\"code\":137,\"signal\":9,\"node\":\"n1\"}\na\nb\n");
        assert_eq!(killed.text(), Some("a\nb"));
    }

    #[test]
    fn what_others_record_is_a_result() {
        let newer = "{\"pumice\":2,\"code\":0}\nx".to_owned();
        for text in ["", "42", "{\"pumice\":true}\n", "{}", &newer, &"x".repeat(20_000)] {
            let report = Report::read(Bytes::copy_from_slice(text.as_bytes()));
            assert_eq!(report, Report { result: Some(text.to_owned().into()), ..Report::default() });
        }
        assert_eq!(Report::read(Bytes::from_static(b"\x80\x04K*.")).text(), None, "a pickle");
    }

    proptest! {
        #[test]
        fn a_report_reads_back(code: u8, signal: Option<i32>, node in ".{0,40}", problem in ".{0,600}",
            result: Option<Vec<u8>>) {
            let problem = problem.chars().take(CHARACTERS_MAX).collect();
            let report = Report { code: Some(code), signal, node, problem, result: result.map(Bytes::from) };
            prop_assert_eq!(Report::read(report.to_bytes().unwrap()), report);
        }
    }
}
