//! Who the platform takes the user for, and what his pods are there.
//!
//! Asked by Kubernetes' own review of oneself, which everybody may make: its answer has what our API server knows of tenants beside
//! the name, and is good on any other cluster without that. Nothing is stored.

use pumice_api::names::{TENANT, TENANT_GID, TENANT_GROUPS, TENANT_UID};
use serde::Serialize;
use serde_json::{Value, json};

use crate::json::text_at;
use crate::platform::call::{self, CallError};
use crate::platform::connection::Connection;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// What the API server says of a caller beside what annotations of namespaces say of tenants.
const IDENTIFIED_BY: &str = "pumice.sh/identified-by";
const IDENTIFIED_UNTIL: &str = "pumice.sh/identified-until";
const TENANT_NAMESPACE: &str = "pumice.sh/tenant-namespace";

/// Who somebody is on a platform.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Whoami {
    pub user: String,
    pub groups: Vec<String>,
    /// What shows it, such as `certificate`; nothing where the platform does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identified_by: Option<String>,
    /// Until when that is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The tenants that he works for, his own first.
    pub tenants: Vec<OwnTenant>,
}

/// A tenant that somebody works for, and what its pods are on the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnTenant {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub gid: String,
    pub groups: Vec<String>,
}

impl Whoami {
    /// The namespace of commands that name none, where he is a tenant.
    pub fn namespace(&self) -> Option<&str> {
        self.tenants.first().map(|tenant| tenant.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }
}

/// Asks the platform who uses this connection.
pub async fn of(connection: &Connection) -> Result<Whoami, CallError> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = call::create(connection, REVIEWS, &review, "ask the platform who you are").await?;
    Ok(read(answer.pointer("/status/userInfo").unwrap_or(&Value::Null)))
}

fn read(user: &Value) -> Whoami {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = |key: &str| texts(&user["extra"][key]);
    let [namespaces, uids, gids, groups] = [TENANT_NAMESPACE, TENANT_UID, TENANT_GID, TENANT_GROUPS].map(extra);
    let at = |all: &[String], index: usize| all.get(index).cloned().unwrap_or_default();
    let tenants = extra(TENANT).into_iter().enumerate().map(|(index, name)| OwnTenant {
        name,
        namespace: at(&namespaces, index),
        uid: at(&uids, index),
        gid: at(&gids, index),
        groups: at(&groups, index).split(',').filter(|group| !group.is_empty()).map(str::to_owned).collect(),
    });
    Whoami {
        user: text_at(user, "/username").to_owned(),
        groups: texts(&user["groups"]),
        identified_by: extra(IDENTIFIED_BY).pop(),
        until: extra(IDENTIFIED_UNTIL).pop(),
        tenants: tenants.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_platform_says_is_read_and_what_it_does_not_say_is_not_missed() {
        let user = json!({"username": "alice", "groups": ["pumice:tenants"], "extra": {
            "pumice.sh/identified-by": ["local socket"], "pumice.sh/tenant": ["alice", "desk"],
            "pumice.sh/tenant-namespace": ["alice", "trading"], "pumice.sh/tenant-uid": ["4001", "5000"],
            "pumice.sh/tenant-gid": ["4001", "5000"], "pumice.sh/tenant-groups": ["5000,5001", ""],
        }});
        let who = read(&user);
        assert_eq!(who.namespace(), Some("alice"));
        assert_eq!((who.identified_by.as_deref(), who.until.as_deref()), (Some("local socket"), None));
        let tenant = |index: usize| {
            let OwnTenant { name, namespace, uid, gid, groups } = &who.tenants[index];
            (name.as_str(), namespace.as_str(), uid.as_str(), gid.as_str(), groups.join(" "))
        };
        assert_eq!(tenant(0), ("alice", "alice", "4001", "4001", "5000 5001".to_owned()));
        assert_eq!(tenant(1), ("desk", "trading", "5000", "5000", String::new()));
        let plain = read(&json!({"username": "kube-admin"}));
        assert_eq!(plain, Whoami { user: "kube-admin".to_owned(), ..Whoami::default() });
        assert_eq!(plain.namespace(), None);
    }
}
