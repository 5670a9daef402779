//! Recordings of the scheduler: all that the engine's decisions follow from, beside the decisions, in a folder of segments.
//!
//! Invariant: what is in a recording between two breaks, played into a World, gives every plan again, bit for bit.
//!
//! ```text
//!   entry (a line) ──> block (packed, checked) ──> segment (a file) ──> read ──> player ──> replay
//!                                                                         └────> cut ──> case
//! ```
//! The scheduler's recorder writes segments; `pumice scheduler replay`, `record cut` and `check` read them. `redact` gives
//! what is cut pseudonyms.

mod block;
mod case;
mod cut;
mod digest;
mod entry;
mod flags;
mod player;
mod read;
mod redact;
mod replay;
pub mod segment;
#[cfg(test)]
mod tests;

pub use block::Damage;
pub use case::{Case, CaseError, ENTRIES_MAX, is_case};
pub use cut::{CutError, Stretch, cut, job, time};
pub use digest::digest;
pub use entry::{Beginning, Bound, Cycle, Entry, Evicted, Feedback};
pub use flags::Flags;
pub use player::{EXTENDER, PlayError, Player, config_of, saved_world};
pub use pumice_engine::TimeMs;
pub use read::{Break, Entries, Item, ReadError, Recording};
pub use replay::{Difference, Range, Replay, ReplayError, replay};
pub use segment::{About, FORMAT};
