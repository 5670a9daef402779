//! Researchers' verbs.
fn main() {}
