//! Quantities and durations as Kubernetes writes them, and the hash of names that last.
//!
//! Owns the two scalar grammars of the wire: [`Quantity`] (`1500m`, `2Gi`) and [`GoDuration`]
//! (`1h30m0s`), and [`stable_hash`]. Invariant: arithmetic is exact and integer, nothing here panics or allocates more
//! than its printed text. Every crate that reads or writes objects uses it.

mod go_duration;
mod quantity;
mod stable_hash;

pub use go_duration::{GoDuration, ParseDurationError};
pub use quantity::{ParseQuantityError, Quantity};
pub use stable_hash::{StableHasher, stable_hash};
