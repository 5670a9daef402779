//! One binary: up, every component, administrator's verbs.
fn main() {}
