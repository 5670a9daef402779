//! Users of a directory as entries.

use std::collections::BTreeSet;

use ldap3::ldap_escape;
use pumice_machines::directory::{Entry, Reading};

use super::connection::Session;
use super::dn;
use super::error::LdapReadError;
use super::groups::{GroupIndex, Groups};
use super::record::Record;
use super::schema::Schema;

/// Active Directory's bit of an account that is disabled.
const DISABLED: i64 = 2;
/// Active Directory's rule that a member of a member is one.
const IN_CHAIN: &str = "1.2.840.113556.1.4.1941";
/// Bytes of a GUID.
const GUID_LEN: usize = 16;

/// Reads all users that are to be tenants.
pub(super) async fn read(
    session: &mut Session,
    schema: &Schema<'_>,
    groups: &Groups,
) -> Result<Reading, LdapReadError> {
    let chosen = groups.named(schema)?;
    let attributes =
        [schema.id, schema.user, schema.uid, schema.gid, schema.home, "userAccountControl", "primaryGroupID"];
    let records = session.search(schema.user_base, &filter(schema, groups, &chosen), &attributes).await?;
    let mut reading = Reading::default();
    for record in &records {
        let (entry, of) = entry(record, schema, groups)?;
        // Active Directory has looked itself, and knows groups that are elsewhere.
        if chosen.is_empty() || schema.is_active_directory || chosen.iter().any(|group| of.contains(group)) {
            reading.entries.push(entry);
        }
    }
    Ok(reading)
}

/// The filter of users: in Active Directory only those in the groups that are chosen, as there may be many others.
fn filter(schema: &Schema<'_>, groups: &Groups, chosen: &[GroupIndex]) -> String {
    let own = schema.user_filter;
    if !schema.is_active_directory || chosen.is_empty() {
        return own.to_owned();
    }
    let mut any = String::new();
    for group in chosen {
        any.push_str(&format!("(memberOf:{IN_CHAIN}:={})", ldap_escape(groups.dn(*group))));
    }
    // Nobody is listed as a member of his first group.
    for rid in groups.with_nested(chosen).into_iter().filter_map(|group| groups.rid(group)) {
        any.push_str(&format!("(primaryGroupID={rid})"));
    }
    let own = if own.starts_with('(') { own.to_owned() } else { format!("({own})") };
    format!("(&{own}(|{any}))")
}

/// A user, and the groups that he is in.
fn entry(
    record: &Record,
    schema: &Schema<'_>,
    groups: &Groups,
) -> Result<(Entry, BTreeSet<GroupIndex>), LdapReadError> {
    let no_id = || LdapReadError::NoId { dn: record.dn.clone(), attribute: schema.id.to_owned() };
    let id = record.bytes(schema.id).filter(|id| !id.is_empty()).ok_or_else(no_id)?;
    let id = if schema.id.eq_ignore_ascii_case("objectGUID") { guid(id) } else { String::from_utf8(id.to_vec()).ok() };
    let id = id.ok_or_else(no_id)?;
    let user = user(record, schema).to_owned();
    let rid =
        record.number("primaryGroupID").and_then(|rid| u32::try_from(rid).ok()).filter(|_| schema.is_active_directory);
    let gid = record.number(schema.gid).or_else(|| groups.gid_of_rid(rid?));
    let of = groups.of_user(&record.dn, &user, gid, rid);
    let gids: BTreeSet<i64> = of.iter().filter_map(|group| groups.gid(*group)).collect();
    let flags = record.number("userAccountControl").filter(|_| schema.is_active_directory);
    let entry = Entry {
        id,
        user,
        uid: record.number(schema.uid),
        gid,
        groups: gids.into_iter().collect(),
        home: record.text(schema.home).unwrap_or_default().to_owned(),
        disabled: flags.is_some_and(|flags| flags & DISABLED != 0),
    };
    Ok((entry, of))
}

/// The user's name. An entry may have several in any order: the one in its distinguished name counts, else the first by letters.
fn user<'a>(record: &'a Record, schema: &Schema<'_>) -> &'a str {
    let names = || record.texts(schema.user);
    let own = dn::first_value(&record.dn);
    names().find(|name| *name == own).or_else(|| names().min()).unwrap_or_default()
}

/// A GUID as Microsoft writes it: the first three parts have their bytes the other way round.
fn guid(bytes: &[u8]) -> Option<String> {
    let bytes: [u8; GUID_LEN] = bytes.try_into().ok()?;
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let hex: String = order.iter().map(|index: &usize| format!("{:02x}", bytes[*index])).collect();
    Some([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_api::directory::{ACTIVE_DIRECTORY, LdapAttributes, LdapDirectory};

    fn active() -> LdapDirectory {
        LdapDirectory { schema: ACTIVE_DIRECTORY.into(), groups: vec!["desk (1)".into()], ..LdapDirectory::default() }
    }

    fn sid(rid: u32) -> Vec<u8> {
        let mut sid = vec![1, 2, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0];
        sid.extend(rid.to_le_bytes());
        sid
    }

    #[test]
    fn a_posix_account_is_an_entry() {
        let directory = LdapDirectory::default();
        let schema = Schema::of(&directory);
        let attributes: &[(&str, &[&str])] = &[
            ("entryUUID", &["e-1"]),
            ("uid", &["aaa", "alice"]),
            ("uidNumber", &["4001"]),
            ("gidNumber", &["4001"]),
            ("homeDirectory", &["/home/alice"]),
            ("userAccountControl", &["2"]),
        ];
        let record = Record::with("uid=alice,dc=x", attributes);
        let (found, _) = entry(&record, &schema, &Groups::default()).unwrap();
        let (home, id) = ("/home/alice".to_owned(), "e-1".to_owned());
        let expected = Entry { id, user: "alice".into(), uid: Some(4001), gid: Some(4001), home, ..Entry::default() };
        assert_eq!(found, expected);
        let error = entry(&Record::with("uid=x", &[("uid", &["x"])]), &schema, &Groups::default()).unwrap_err();
        assert!(error.to_string().contains("spec.ldap.attributes.id"), "{error}");
    }

    #[test]
    fn attributes_are_those_that_the_spec_names() {
        let attributes =
            LdapAttributes { user: "mail".into(), uid: "number".into(), id: "key".into(), ..LdapAttributes::default() };
        let directory = LdapDirectory { attributes, ..LdapDirectory::default() };
        let record = Record::with("cn=x", &[("mail", &["m"]), ("number", &["7"]), ("key", &["k"]), ("uid", &["no"])]);
        let (found, _) = entry(&record, &Schema::of(&directory), &Groups::default()).unwrap();
        assert_eq!((found.id.as_str(), found.user.as_str(), found.uid), ("k", "m", Some(7)));
    }

    #[test]
    fn an_account_of_active_directory_is_an_entry() {
        let directory = active();
        let (schema, mut groups) = (Schema::of(&directory), Groups::default());
        let users = Record::with("cn=users,dc=x", &[("cn", &["users"]), ("gidNumber", &["5000"])]);
        groups.add(&users.with_bytes("objectSid", &sid(513)), &schema, Vec::new());
        let desk = Record::with("cn=desk (1),dc=x", &[("cn", &["desk (1)"]), ("gidNumber", &["5001"])]);
        groups.add(&desk.with_bytes("objectSid", &sid(1105)), &schema, vec!["CN=users,DC=x".into()]);
        let attributes: &[(&str, &[&str])] = &[
            ("sAMAccountName", &["alice"]),
            ("uidNumber", &["4001"]),
            ("primaryGroupID", &["513"]),
            ("userAccountControl", &["514"]),
        ];
        let record = Record::with("cn=Alice,dc=x", attributes).with_bytes("objectGUID", &(0..16).collect::<Vec<u8>>());
        let (found, _) = entry(&record, &schema, &groups).unwrap();
        assert_eq!(found.id, "03020100-0504-0706-0809-0a0b0c0d0e0f");
        assert_eq!((found.gid, &found.groups[..], found.disabled), (Some(5000), &[5000, 5001][..], true));
        // The name of the group is escaped, and its members by first group are looked for as well.
        let chosen = groups.named(&schema).unwrap();
        assert_eq!(
            filter(&schema, &groups, &chosen),
            "(&(&(objectCategory=person)(objectClass=user))(|(memberOf:1.2.840.113556.1.4.1941:=cn=desk \\281\\29,dc=x)\
             (primaryGroupID=513)(primaryGroupID=1105)))"
        );
        let missing = LdapDirectory { groups: vec!["none".into()], ..active() };
        assert!(matches!(groups.named(&Schema::of(&missing)), Err(LdapReadError::NoGroup { .. })));
    }
}
