//! ServiceAccounts: what is kept of the secrets that one names.

use serde_json::Value;

use super::Strategy;

/// The store's name of service accounts.
pub(crate) const SERVICE_ACCOUNTS: &str = "serviceaccounts";
/// The account of pods that name none.
pub(crate) const DEFAULT: &str = "default";
/// The ConfigMap with the authority's certificate.
pub(crate) const ROOT_CERTIFICATE: &str = "kube-root-ca.crt";

pub(crate) struct ServiceAccount;

impl Strategy for ServiceAccount {
    /// They are of the account's namespace, so that only their names count.
    fn defaults(&self, object: &mut Value) {
        for secret in object
            .get_mut("secrets")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            secret.retain(|field, _| field == "name");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_secret_only_the_name_is_kept() {
        let mut account =
            json!({"secrets": [{"name": "a", "namespace": "b", "kind": "Secret"}], "imagePullSecrets": []});
        ServiceAccount.defaults(&mut account);
        assert_eq!(account, json!({"secrets": [{"name": "a"}], "imagePullSecrets": []}));
        let mut bare = json!({"metadata": {}});
        ServiceAccount.defaults(&mut bare);
        assert_eq!(bare, json!({"metadata": {}}));
    }
}
