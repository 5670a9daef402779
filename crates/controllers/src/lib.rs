//! Thin shells around the machines.
