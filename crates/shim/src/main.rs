//! `pumice-shim`: the shim as a program of its own, small and static. `pumice` carries it within itself and starts it from memory.

use std::process::ExitCode;

use nix::sys::signal::{SigHandler, Signal, signal};

/// A write beyond the largest size of a file (`ulimit -f`) fails, as one on a full disk does; else its signal would end the
/// process, be it for a line of a log. Programs of pods get the signal's default back.
#[allow(unsafe_code)]
fn fail_writes_beyond_the_limit() {
    // SAFETY: the signal is ignored, so no code of ours runs as its handler; no other thread runs yet.
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
}

fn main() -> ExitCode {
    fail_writes_beyond_the_limit();
    pumice_shim::shim_main(std::env::args_os())
}
