//! What no Tenant may be, asked before it is written: the list is that of `machines::tenant`.

use pumice_api::tenant::TenantSpec;
use pumice_machines::tenant::{Forbidden, ID_MIN, refusal};

/// Why no tenant may be like this.
pub(crate) fn of_spec(spec: &TenantSpec, forbidden: &Forbidden) -> Option<String> {
    refusal(spec, forbidden).map(|refusal| refusal.to_string())
}

/// Whether no tenant may have this group. What the machine says of uids is left out of it: the one that is looked at is nobody's.
pub(crate) fn of_group(group: i64, forbidden: &Forbidden) -> bool {
    let spec = TenantSpec { uid: ID_MIN, gid: ID_MIN, groups: vec![group], ..TenantSpec::default() };
    forbidden.gids.contains(&group) || refusal(&spec, &Forbidden::default()).is_some()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn groups_are_refused_one_by_one() {
        let forbidden = Forbidden { uids: BTreeSet::from([1_000, 5_000]), gids: BTreeSet::from([1_001]) };
        for group in [0, 27, 999, 65_534, 1_001, -1, 4_294_967_295] {
            assert!(of_group(group, &forbidden), "{group}");
        }
        for group in [1_000, 5_000, 100_000] {
            assert!(!of_group(group, &forbidden), "{group}");
        }
        let spec =
            |uid| TenantSpec { uid, gid: 5_001, namespace: "x".into(), user: "x".into(), ..TenantSpec::default() };
        assert!(of_spec(&spec(5_000), &forbidden).is_some_and(|why| why.starts_with("spec.uid: ")));
        assert_eq!(of_spec(&spec(5_001), &forbidden), None);
    }
}
