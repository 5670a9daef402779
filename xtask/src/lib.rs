//! The project's own tools: code generation and the checks of its rules.
//!
//! Run by people and by `make lint` as `cargo xtask <verb>`; the same functions are the freshness tests of generated files.

pub mod codegen;
pub mod quick;
pub mod tidy;
