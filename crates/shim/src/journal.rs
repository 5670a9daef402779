//! What a shim says of itself: the pod's `shim.log`.

use std::io;
use std::sync::{Mutex, PoisonError};

use pumice_metrics::{LOG_LINES_LOST, LossyLines};

/// Lines of this process that standard error has not taken yet: one for the process, as standard error is.
static LINES: Mutex<LossyLines> = Mutex::new(LossyLines::new());

/// Writes a line of what the shim says of itself to standard error, which is the pod's `shim.log`.
///
/// It never fails and ends nothing, as the file lies on a disk that may be full; lines that were lost are reported in the file
/// when it takes lines again. The platform's log is another file.
pub(crate) fn journal(text: &str) {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let report = |lost| format!("{lost} lines of this log were lost, since it could not be written\n").into_bytes();
    let written = lines.write(&mut io::stderr(), format!("{text}\n").as_bytes(), report);
    LOG_LINES_LOST.add(written.lost);
}
