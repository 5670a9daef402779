//! Code generation and tidiness checks.
fn main() {}
