//! How things look in a terminal: tables, spans of time and amounts.
//!
//! Invariant: pure; cells and sentences hold nothing that a terminal would obey. Called by everything that prints.

pub mod age;
pub mod amounts;
pub mod table;
