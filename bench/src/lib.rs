//! What all measurements share; the measurements themselves live in `benches/`, one file or folder each.
//!
//! Invariant: a figure is never written without what it was measured on ([`machine`]), and is judged against a baseline of
//! the same run, never against a number from another day ([`figures`], `ranges.json`).

pub mod cluster;
pub mod figures;
pub mod http2;
pub mod load;
pub mod loads;
pub mod machine;
pub mod objects;
pub mod python;
pub mod setting;
pub mod unreliable;
pub mod verbs;
pub mod watching;
