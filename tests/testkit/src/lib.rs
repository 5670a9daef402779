//! A platform in a temporary directory, driven through the real binaries as a user would.
//!
//! Everything waits on a condition with a deadline ([`eventually`]), never on a guess, and a
//! [`Platform`] takes all it started with it when it is dropped.

mod binaries;
mod certificate;
mod clients;
mod domain_controller;
mod fixtures;
mod fleet;
pub mod grpc;
mod oidc_issuer;
mod ordinary_user;
mod peer;
mod platform;
mod postgres;
mod process;
mod python;
mod realkube;
mod registry;
mod remains;
mod screen;
mod slapd;
mod small_disk;
mod test_image;
mod wait;

pub use binaries::binary;
pub use clients::{Clients, Output, shard_words, words};
pub use domain_controller::DomainController;
pub use fixtures::shared_fixture;
pub use fleet::Fleet;
pub use oidc_issuer::OidcIssuer;
pub use ordinary_user::{FIRST_SUBORDINATE_ID, OrdinaryUser};
pub use peer::{Peer, TlsStream};
pub use platform::{Platform, Setup};
pub use postgres::Postgres;
pub use process::Process;
pub use python::python_client;
pub use realkube::{RealKube, Tenant};
pub use registry::Registry;
pub use remains::{Marks, Remains};
pub use screen::Screen;
pub use slapd::{Slapd, SlapdSetup, group_of_names, posix_account, posix_group};
pub use small_disk::{Full, SmallDisk};
pub use test_image::{Files, Layer, TestImage};
pub use wait::{DEADLINE, eventually, eventually_within};
