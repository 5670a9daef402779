//! Parameters and pickles of a job, and what came out of them, as small content-addressed objects.
//!
//! A *bundle* is a tree of chunks, each named by its SHA-256: numbered records (parameters) and named attachments (a
//! function, a zip of modules). Its root's name stands for all of it. *Results* are an append-only log for each shard, whose
//! entries a run with a key marks.
//! Both live in a [`Store`]: a folder that the pods see too, or ConfigMaps.
//!
//! Invariants: equal content has equal roots; nothing is held in memory beyond a few chunks and the one record at hand;
//! every read is checked against its hash; a record's first success is never replaced. The format (docs/bundles.md) is
//! pure ([`chunk`], [`tree`], [`pack`], [`entry`], [`mark`]); only the places have I/O. Called by `jobctl` and Python.

pub mod chunk;
pub mod collect;
pub mod config_maps;
pub mod entry;
pub mod error;
pub mod folder;
pub mod location;
pub mod mark;
pub mod pack;
pub mod parameters;
pub mod read;
pub mod record;
pub mod store;
pub mod tree;
mod wire;
pub mod write;

pub use chunk::{Chunk, ChunkId};
pub use collect::{Missing, Origin, Row, collect, collect_if, collect_shard, history, missing, statuses};
pub use config_maps::ConfigMaps;
pub use entry::{Outcome, Status};
pub use error::{BundleError, FormatError};
pub use folder::Folder;
pub use location::{Location, LocationError, StoreAddress};
pub use mark::{Mark, RunKey, RunKeyError};
pub use read::{Bundle, Reader, Record};
pub use record::{Flushed, Recorder, Slice};
pub use store::{EntryName, Made, Memory, Name, NullStore, RunId, Store, StoreError, random_name};
pub use write::{BundleWriter, Packed};
