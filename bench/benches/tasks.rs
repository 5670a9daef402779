//! Overhead of a task of Python and of a program, beside a pool of processes and HyperQueue in the same run.

use std::process::ExitCode;

fn main() -> ExitCode {
    pumice_bench::python::measure("tasks", &pumice_testkit::binary("pumice"))
}
