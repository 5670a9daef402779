//! Work as large as researchers have: 10,000 days, 100,000 rows of 1 kB, 1,000 calls with packages of their own.

use std::process::ExitCode;

fn main() -> ExitCode {
    pumice_bench::python::measure("large", &pumice_testkit::binary("pumice"))
}
