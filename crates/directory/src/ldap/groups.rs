//! Groups of a directory, and who is in which, also through other groups.
//!
//! Invariant: a group that is in itself, by whatever way, ends no search and is no failure.

use std::collections::{BTreeSet, HashMap};

use super::connection::Session;
use super::dn::normalized;
use super::error::LdapReadError;
use super::record::Record;
use super::schema::Schema;

/// The last member that is asked for at first: Active Directory gives no more at once.
const RANGE_LAST: u32 = 1_499;
/// Most answers that the members of one group come in.
const RANGES_MAX: usize = 1_000;

/// Which group, by its number here.
pub(super) type GroupIndex = usize;

struct Group {
    dn: String,
    name: String,
    gid: Option<i64>,
    /// The last part of its SID in Active Directory: what users name their first group by.
    rid: Option<u32>,
}

/// All groups, and who is in them.
#[derive(Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
    /// Distinguished names of users and groups, to the groups that have them as members.
    by_dn: HashMap<String, Vec<GroupIndex>>,
    by_user: HashMap<String, Vec<GroupIndex>>,
    by_gid: HashMap<i64, Vec<GroupIndex>>,
    by_rid: HashMap<u32, GroupIndex>,
}

impl Groups {
    /// Reads all groups with all their members.
    pub async fn read(session: &mut Session, schema: &Schema<'_>) -> Result<Groups, LdapReadError> {
        let mut attributes = vec![schema.group, schema.gid, "objectSid"];
        let ranges: Vec<String> =
            schema.members.iter().map(|member| format!("{member};range=0-{RANGE_LAST}")).collect();
        if schema.is_active_directory {
            // Without a range it is the server's to say whether a long list comes in parts, and how.
            attributes.extend(ranges.iter().map(String::as_str));
        } else {
            attributes.extend(&schema.members);
        }
        let records = session.search(schema.group_base, schema.group_filter, &attributes).await?;
        let mut groups = Groups::default();
        for record in records {
            let mut members: Vec<String> = Vec::new();
            for attribute in &schema.members {
                members.extend(record.texts(attribute).map(str::to_owned));
                members.extend(rest(session, &record, attribute).await?);
            }
            groups.add(&record, schema, members);
        }
        Ok(groups)
    }

    pub fn add(&mut self, record: &Record, schema: &Schema<'_>, members: Vec<String>) {
        let index = self.groups.len();
        let gid = record.number(schema.gid);
        let rid = record.bytes("objectSid").and_then(last_of_sid);
        for member in members {
            if member.contains('=') {
                self.by_dn.entry(normalized(&member)).or_default().push(index);
            } else {
                self.by_user.entry(member).or_default().push(index);
            }
        }
        if let Some(gid) = gid {
            self.by_gid.entry(gid).or_default().push(index);
        }
        if let Some(rid) = rid {
            self.by_rid.insert(rid, index);
        }
        let name = record.text(schema.group).unwrap_or_default().to_owned();
        self.groups.push(Group { dn: record.dn.clone(), name, gid, rid });
    }

    /// The groups of these names; an error names the first that is not there.
    pub fn named(&self, schema: &Schema<'_>) -> Result<Vec<GroupIndex>, LdapReadError> {
        let mut found = Vec::new();
        for name in schema.groups {
            let before = found.len();
            let fits = |group: &Group| group.name.eq_ignore_ascii_case(name);
            found.extend((0..self.groups.len()).filter(|index| fits(&self.groups[*index])));
            if found.len() == before {
                return Err(LdapReadError::NoGroup { group: name.clone(), base: schema.group_base.to_owned() });
            }
        }
        Ok(found)
    }

    /// Every group that a user is in. His first one is named by `gid`, or by `rid` in Active Directory.
    pub fn of_user(&self, dn: &str, user: &str, gid: Option<i64>, rid: Option<u32>) -> BTreeSet<GroupIndex> {
        let by_dn = self.by_dn.get(&normalized(dn)).into_iter().flatten();
        let by_user = self.by_user.get(user).into_iter().flatten();
        let by_gid = gid.and_then(|gid| self.by_gid.get(&gid)).into_iter().flatten();
        let by_rid = rid.and_then(|rid| self.by_rid.get(&rid));
        let direct = by_dn.chain(by_user).chain(by_gid).chain(by_rid).copied();
        closed(direct.collect(), |index| self.by_dn.get(&normalized(&self.groups[index].dn)).into_iter().flatten())
    }

    /// These groups and all that are in them.
    pub fn with_nested(&self, groups: &[GroupIndex]) -> BTreeSet<GroupIndex> {
        let inner = |of: GroupIndex| {
            let is_inner = move |index: &GroupIndex| {
                self.by_dn.get(&normalized(&self.groups[*index].dn)).is_some_and(|outer| outer.contains(&of))
            };
            (0..self.groups.len()).filter(is_inner)
        };
        let mut found: BTreeSet<GroupIndex> = groups.iter().copied().collect();
        let mut open: Vec<GroupIndex> = groups.to_vec();
        while let Some(group) = open.pop() {
            open.extend(inner(group).filter(|index| found.insert(*index)));
        }
        found
    }

    pub fn dn(&self, index: GroupIndex) -> &str {
        &self.groups[index].dn
    }

    pub fn gid(&self, index: GroupIndex) -> Option<i64> {
        self.groups[index].gid
    }

    pub fn rid(&self, index: GroupIndex) -> Option<u32> {
        self.groups[index].rid
    }

    /// The gid of the group that users name by this number.
    pub fn gid_of_rid(&self, rid: u32) -> Option<i64> {
        self.by_rid.get(&rid).and_then(|index| self.groups[*index].gid)
    }
}

/// What can be reached from `start`, with it.
fn closed<'a, I>(start: BTreeSet<GroupIndex>, next: impl Fn(GroupIndex) -> I) -> BTreeSet<GroupIndex>
where
    I: Iterator<Item = &'a GroupIndex>,
{
    let mut open: Vec<GroupIndex> = start.iter().copied().collect();
    let mut found = start;
    while let Some(group) = open.pop() {
        open.extend(next(group).copied().filter(|index| found.insert(*index)));
    }
    found
}

/// The members that come in further answers, where a server gives some at a time.
async fn rest(session: &mut Session, record: &Record, attribute: &str) -> Result<Vec<String>, LdapReadError> {
    let Some(mut range) = record.range(attribute) else { return Ok(Vec::new()) };
    let mut members = std::mem::take(&mut range.values);
    for _ in 0..RANGES_MAX {
        let Some(from) = range.next else { return Ok(members) };
        let wanted = format!("{attribute};range={from}-*");
        let more = session.entry(&record.dn, &[&wanted]).await?.and_then(|record| record.range(attribute));
        let Some(more) = more.filter(|more| more.next.is_none_or(|next| next > from)) else {
            return Err(LdapReadError::Answer { what: "the members of a long group do not go on where they stopped" });
        };
        range = more;
        members.append(&mut range.values);
    }
    Err(LdapReadError::Answer { what: "the members of a group come in too many parts" })
}

/// The last four bytes of a SID, which name an account within its domain.
fn last_of_sid(sid: &[u8]) -> Option<u32> {
    // One byte of version, the number of parts, six of the authority, and four for each part.
    let (bytes, parts) = (sid.get(sid.len().checked_sub(4)?..)?, usize::from(*sid.get(1)?));
    (parts > 0 && sid.len() == 8 + 4 * parts).then_some(())?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_api::directory::LdapDirectory;

    fn groups(all: &[(&str, i64, &[&str])]) -> Groups {
        let directory = LdapDirectory::default();
        let (schema, mut groups) = (Schema::of(&directory), Groups::default());
        for (name, gid, members) in all {
            let gid = gid.to_string();
            let record = Record::with(&format!("cn={name},dc=x"), &[("cn", &[name]), ("gidNumber", &[&gid])]);
            groups.add(&record, &schema, members.iter().map(|member| (*member).to_owned()).collect());
        }
        groups
    }

    fn gids(groups: &Groups, dn: &str, user: &str, gid: i64) -> Vec<i64> {
        groups.of_user(dn, user, Some(gid), None).into_iter().filter_map(|index| groups.gid(index)).collect()
    }

    #[test]
    fn members_are_found_by_name_by_entry_and_through_other_groups() {
        let groups = groups(&[
            ("desk", 5000, &["CN = Team, dc=x"]),
            ("team", 5001, &["uid=alice,dc=x", "bob"]),
            ("own", 4001, &[]),
            ("floor", 5002, &["cn=desk,dc=x", "cn=own,dc=x"]),
            ("others", 5003, &["carol"]),
        ]);
        assert_eq!(gids(&groups, "uid=Alice, dc=x", "alice", 1), [5000, 5001, 5002]);
        assert_eq!(gids(&groups, "uid=bob,dc=x", "bob", 1), [5000, 5001, 5002]);
        assert_eq!(gids(&groups, "uid=dave,dc=x", "dave", 4001), [4001, 5002]);
        assert_eq!(groups.with_nested(&[3]), BTreeSet::from([0, 1, 2, 3]));
    }

    #[test]
    fn groups_that_are_in_each_other_end() {
        let groups = groups(&[("a", 1, &["cn=b,dc=x", "cn=a,dc=x"]), ("b", 2, &["cn=a,dc=x", "alice"])]);
        assert_eq!(gids(&groups, "uid=alice,dc=x", "alice", 9), [1, 2]);
        assert_eq!(groups.with_nested(&[0]), BTreeSet::from([0, 1]));
    }

    #[test]
    fn the_last_part_of_a_sid_names_the_group() {
        let sid = [1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x01, 0x02, 0, 0];
        assert_eq!(last_of_sid(&sid), Some(513));
        for broken in [&sid[..15], &sid[..8], &[], &[1, 0, 0, 0, 0, 0, 0, 5]] {
            assert_eq!(last_of_sid(broken), None, "{broken:?}");
        }
    }
}
