//! Quantities and durations as Kubernetes writes them, the hash of names that last, pauses between tries, and errors in one line.
//!
//! Owns the two scalar grammars of the wire: [`Quantity`] (`1500m`, `2Gi`) and [`GoDuration`]
//! (`1h30m0s`), [`stable_hash`], [`Backoff`] and [`with_causes`]. Invariant: arithmetic is exact and integer, nothing here panics or allocates more
//! than its printed text. Every crate that reads or writes objects uses it.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod backoff;
mod causes;
mod go_duration;
mod quantity;
mod stable_hash;

pub use backoff::Backoff;
pub use causes::with_causes;
pub use go_duration::{GoDuration, ParseDurationError};
pub use quantity::{ParseQuantityError, Quantity};
pub use stable_hash::{StableHasher, stable_hash};
