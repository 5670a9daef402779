//! Running one more program in a container: the helper process that enters it, and its streams.
//!
//! Called by the kubelet API's exec, and by probes and hooks.

pub(crate) mod helper;
pub(crate) mod once;
pub(crate) mod stream;

use std::time::Duration;

/// Read from a program at a time, in bytes.
pub(crate) const READ_BYTES: usize = 32 << 10;
/// How long output is waited for when the program has ended but somebody that it left behind holds its streams.
pub(crate) const DRAIN: Duration = Duration::from_millis(250);
