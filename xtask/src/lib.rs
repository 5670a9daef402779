//! The project's own tools: code generation and the checks of its rules.
//!
//! Run by people and by `make lint` as `cargo xtask <verb>`; the same functions are the freshness tests of generated files.

pub mod codegen;
pub mod quick;
pub mod tidy;

/// The cargo that runs this, or the one on the path.
fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
