//! Container images: what a name stands for, where its content comes from, and the store that has it.
//!
//! ```text
//!  name ──► registry ──┐
//!                      ├─► manifest ─► config, layers ──► store: blobs, unpacked layers, names ──► a container's root
//!  file ──► archive ───┘
//! ```
//!
//! - what images consist of: [`digest`], [`manifest`], [`config`]
//! - where they come from: [`registry`], [`archive`]
//!
//! *Invariant*: nothing that comes from outside is believed: content is what its digest says, sizes have bounds, and a layer
//! writes nowhere but in its own folder.
//! *Called by*: the node agent, and `pumice image`.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod archive;
pub mod config;
pub mod digest;
pub mod manifest;
pub mod provide;
pub mod registry;
pub mod store;

pub use oci_spec::distribution::{ParseError as NameError, Reference};
