//! Registries: how they are reached, and what opens them.

mod challenge;
pub mod credentials;
mod error;
pub mod pull;
pub mod push;
pub(crate) mod session;
pub mod settings;
pub(crate) mod transport;

pub use error::RegistryError;
pub use session::{Patience, Right};
