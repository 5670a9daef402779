//! `pumice-shim`: the shim as a program of its own, small and static. `pumice` carries it within itself and starts it from memory.

use std::process::ExitCode;

fn main() -> ExitCode {
    pumice_linux::files::fail_writes_beyond_the_limit();
    pumice_shim::shim_main(std::env::args_os())
}
