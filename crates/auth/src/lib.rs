//! Who is who and who may what.
//!
//! Identities come from client certificates that the platform's own authority signed, and from tokens of service accounts
//! that its key signed; rights come from a role-based policy built from data. The API server asks on every request; the
//! binary opens authority and key at start and hands out the administrator's kubeconfig.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod authority;
mod bundle;
mod ca;
mod cluster_roles;
mod escalation;
mod files;
mod identity;
mod identity_files;
mod installation;
mod issuer;
mod kubeconfig;
mod local_peer;
mod oidc;
mod rbac;
mod roles;
mod sec1;
mod tenants;
mod tls;
mod token_cache;
mod tokens;
mod trust;

pub use authority::{Authority, AuthorityError, Phase, Rotation, TRUST_DAYS};
pub use bundle::bundle_client_config;
pub use ca::{Ca, CaError, Issued, fingerprint, is_due};
pub use cluster_roles::{CLUSTER_ADMIN, DefaultRole, default_cluster_roles};
pub use escalation::{describe, parts, uncovered};
pub use files::{FileError, write_private};
pub use identity::{
    ANONYMOUS, AUTHENTICATED, Authenticated, Identity, IdentityError, MASTERS, NODES, SERVICE_ACCOUNTS,
    UNAUTHENTICATED, identity_of, node_of, service_account_of, valid_until,
};
pub use identity_files::{IdentityFileError, identity_files, write_identity_file};
pub use installation::{Component, Identities, installation};
pub use issuer::{Issuer, IssuerError, IssuerSettings, Unknown};
pub use kubeconfig::{credentials, kubeconfig, kubeconfig_of};
pub use local_peer::{LocalPeer, LocalPeers, PeerError};
pub use oidc::{OidcError, OidcKeys, OidcRules, OidcToken, Verified, is_reserved};
pub use rbac::{Attributes, Decision, Grant, Policy, Role, Rule, Scope, Subject, Target, named};
pub use roles::{built_in, node_rules};
pub use tenants::{Account, NoTenant, TenantFacts, Tenants};
pub use tls::{
    ClientTrust, ServingCertificate, TlsError, agent_server_config, changing_server_config, client_config,
    peer_server_config, server_config, trusting_server_config,
};
pub use token_cache::TokenKeys;
pub use tokens::{BoundTo, Claims, ISSUER, Named, TokenError, TokenKey, TokenKeyError};
pub use trust::{TrustError, authorities};
