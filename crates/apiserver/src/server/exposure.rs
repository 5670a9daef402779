//! Whether somebody who is no administrator could make himself one: then other machines are not served.
//!
//! Invariant: asked by the rights that requests are judged by, of those whom everybody can be: nobody in particular, anybody with
//! credentials, any tenant's user, any service account. Asked by `pumice up --listen`, at the start and as long as it serves.

use std::fmt;

use pumice_api::names::GROUP_TENANTS;
use pumice_auth::{Attributes, Decision, Identity, SERVICE_ACCOUNTS, Target};

use crate::server::ApiServer;

/// Rights in all namespaces, each of which is enough: verb, group, resource, subresource.
const ENOUGH: [(&str, &str, &str, Option<&str>); 10] = [
    ("*", "*", "*", None),
    ("impersonate", "", "users", None),
    ("impersonate", "", "groups", None),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles", None),
    ("bind", "rbac.authorization.k8s.io", "clusterroles", None),
    // Tokens of others, and programs in pods of others.
    ("get", "", "secrets", None),
    ("create", "", "serviceaccounts", Some("token")),
    ("create", "", "pods", None),
    ("create", "", "pods", Some("exec")),
    // Who a user is.
    ("update", "pumice.sh", "tenants", None),
];

/// Who has a right by which he could become administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    who: &'static str,
    right: String,
    by: String,
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, right, by } = self;
        write!(f, "{who} may {right} in all namespaces, by {by}, and so become administrator")
    }
}

impl ApiServer {
    /// The first such right, if there is one.
    pub fn exposure(&self) -> Option<Exposure> {
        let nobody: [&str; 0] = [];
        let somebody = "somebody";
        let everybody = [
            ("who shows no credentials", Identity::anonymous()),
            ("everybody with credentials", Identity::new(somebody, nobody)),
            ("every tenant", Identity::new(somebody, [GROUP_TENANTS])),
            ("every service account", Identity::new(somebody, [SERVICE_ACCOUNTS])),
        ];
        let rights = self.state.storage.rights.load(&self.state.storage.store);
        everybody.into_iter().find_map(|(who, identity)| {
            ENOUGH.into_iter().find_map(|(verb, group, resource, subresource)| {
                let target = Target::Resource { group, resource, subresource, namespace: None, name: None };
                match rights.decide(&identity, &Attributes { verb, target }) {
                    Decision::Allow { by } => {
                        let below = subresource.map(|name| format!("/{name}")).unwrap_or_default();
                        Some(Exposure { who, right: format!("{verb} {resource}{below}"), by })
                    }
                    Decision::Deny { .. } => None,
                }
            })
        })
    }
}
