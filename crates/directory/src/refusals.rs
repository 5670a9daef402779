//! What no Tenant may be, as a directory has to know it beforehand: everything else is refused at the write.

use pumice_api::tenant::TenantSpec;

/// Ids below are the system's.
const SYSTEM_IDS: i64 = 1_000;
/// The user and group of nobody.
const NOBODY: i64 = 65_534;
/// The last id; the one above stands for none.
const LAST: i64 = 4_294_967_294;

/// Whether no tenant may have this group.
pub(crate) fn refuses_group(group: i64) -> bool {
    !(SYSTEM_IDS..=LAST).contains(&group) || group == NOBODY
}

/// Why no tenant may be like this.
pub(crate) fn refusal(spec: &TenantSpec) -> Option<String> {
    if refuses_group(spec.uid) {
        return Some(format!("uid {} is the system's, and tenants have {SYSTEM_IDS} or more", spec.uid));
    }
    if refuses_group(spec.gid) {
        return Some(format!("gid {} is the system's, and tenants have {SYSTEM_IDS} or more", spec.gid));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_system_are_refused() {
        let spec = |uid, gid| TenantSpec { uid, gid, ..TenantSpec::default() };
        assert_eq!(refusal(&spec(1_000, 4_294_967_294)), None);
        for (uid, gid) in [
            (0, 5_000),
            (999, 5_000),
            (65_534, 5_000),
            (5_000, 0),
            (5_000, 65_534),
            (4_294_967_295, 5_000),
            (-1, 5_000),
        ] {
            assert!(refusal(&spec(uid, gid)).is_some(), "{uid} {gid}");
        }
    }
}
