//! How entries look: POSIX accounts, or Active Directory, with what the spec has otherwise.

use pumice_api::directory::{ACTIVE_DIRECTORY, LdapDirectory};

/// Where users and groups are, and what their attributes are called.
pub(super) struct Schema<'a> {
    pub is_active_directory: bool,
    pub user_base: &'a str,
    pub user_filter: &'a str,
    pub group_base: &'a str,
    pub group_filter: &'a str,
    /// Names of the groups whose members are tenants.
    pub groups: &'a [String],
    pub id: &'a str,
    pub user: &'a str,
    pub uid: &'a str,
    pub gid: &'a str,
    pub home: &'a str,
    pub group: &'a str,
    /// Members of groups: distinguished names, or names of users.
    pub members: Vec<&'a str>,
}

fn or<'a>(own: &'a str, default: &'a str) -> &'a str {
    if own.is_empty() { default } else { own }
}

impl<'a> Schema<'a> {
    pub fn of(directory: &'a LdapDirectory) -> Schema<'a> {
        let LdapDirectory { user_base, user_filter, group_base, group_filter, groups, attributes, .. } = directory;
        let is_active_directory = directory.schema == ACTIVE_DIRECTORY;
        let by_schema = |posix: &'a str, active: &'a str| if is_active_directory { active } else { posix };
        let members = match attributes.member.as_str() {
            "" if is_active_directory => vec!["member"],
            // RFC 2307 has names of users, RFC 2307bis has distinguished names.
            "" => vec!["memberUid", "member"],
            own => vec![own],
        };
        Schema {
            is_active_directory,
            user_base,
            user_filter: or(
                user_filter,
                by_schema("(objectClass=posixAccount)", "(&(objectCategory=person)(objectClass=user))"),
            ),
            group_base: or(group_base, user_base),
            group_filter: or(group_filter, by_schema("(objectClass=posixGroup)", "(objectClass=group)")),
            groups,
            id: or(&attributes.id, by_schema("entryUUID", "objectGUID")),
            user: or(&attributes.user, by_schema("uid", "sAMAccountName")),
            uid: or(&attributes.uid, "uidNumber"),
            gid: or(&attributes.gid, "gidNumber"),
            home: or(&attributes.home, by_schema("homeDirectory", "unixHomeDirectory")),
            group: or(&attributes.group, "cn"),
            members,
        }
    }
}
