//! The machine of a Directory: what becomes of Tenants when LDAP, Active Directory or the machine's users were read.
//!
//! Invariant: no Tenant is ever deleted; the uid, gid, namespace and entry of one never change, and none of them goes to another
//! entry; Tenants of other directories and of people are left alone. After a reading that counts, each Tenant of the directory
//! that is in use stands for an entry with its uid and its user's name. A reading that is empty, or that would suspend too many,
//! changes nothing. Called by the component `directory` after each complete reading.
//!
//! ```text
//!   entries ──> by id ──> those with a Tenant ──> rename, other groups, suspend, resume   (existing)
//!                    └──> those without one ──> create, or refuse                          (arrivals)
//! ```

mod arrivals;
mod existing;
mod names;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use pumice_api::directory::DirectorySpec;
use pumice_api::tenant::{Tenant, TenantSpec};

pub use names::namespace_of;

/// Percent of a directory's tenants that one reading may suspend, where its spec says nothing.
pub const SUSPENDED_PERCENT: i32 = 20;
/// Tenants that one reading may suspend whatever the percentage is.
pub const SUSPENDED_ALWAYS: usize = 10;
/// Longest message of a status, in bytes.
const MESSAGE_BYTES_MAX: usize = 4_000;
/// Most groups that a Tenant may have besides its first.
const GROUPS_MAX: usize = 256;

/// A user as a directory has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// What stays when the user is renamed.
    pub id: String,
    /// The name that he logs in by.
    pub user: String,
    /// Nothing where the directory does not say it, or says no number.
    pub uid: Option<i64>,
    /// His first group; nothing as with the uid.
    pub gid: Option<i64>,
    pub groups: Vec<i64>,
    /// His home, as the directory has it.
    pub home: String,
    /// Whether the directory does not let him in.
    pub disabled: bool,
}

/// All users of a directory, read to the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub entries: Vec<Entry>,
    /// Ids of entries of which it is not known whether they are there: nothing is changed about them.
    pub doubtful: BTreeSet<String>,
}

/// What a step looks at.
pub struct DirectoryView<'a> {
    pub name: &'a str,
    pub spec: &'a DirectorySpec,
    pub reading: &'a Reading,
    /// Every Tenant by name, whosever it is.
    pub tenants: &'a BTreeMap<String, Tenant>,
    /// Why no tenant may be like this, if none may.
    pub refusal: &'a dyn Fn(&TenantSpec) -> Option<String>,
    /// Whether no tenant may have this group.
    pub refuses_group: &'a dyn Fn(i64) -> bool,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum TenantEffect {
    /// Make it. Its namespace has the same name.
    Create {
        name: String,
        spec: Box<TenantSpec>,
    },
    Change(Box<TenantChange>),
}

/// A change of a Tenant that is there.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantChange {
    pub name: String,
    pub uid: String,
    /// Guards what somebody wrote meanwhile.
    pub resource_version: String,
    pub spec: TenantSpec,
    pub kind: ChangeKind,
    /// Why, for people.
    pub message: String,
}

/// What kind of change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Another name, or other groups.
    Updated,
    Suspended,
    Resumed,
}

/// Whether a reading counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Counts,
    /// There were no entries at all.
    Empty,
    /// It would have suspended more than may be at once.
    TooManyGone,
}

/// Changes to make, and what people should know.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectoryPlan {
    pub outcome: Outcome,
    pub effects: Vec<TenantEffect>,
    /// Entries that were read.
    pub users: usize,
    /// Of those, the ones that no Tenant is made of.
    pub refused: usize,
    /// What is wrong, for people; empty if nothing is.
    pub message: String,
}

/// What people should know, as it comes together.
#[derive(Default)]
struct Remarks {
    /// A sentence for each user.
    sentences: Vec<String>,
    refused: usize,
    /// How many have left and are suspended since.
    away: usize,
    /// Groups that no tenant may have, and how many go without each.
    groups_left_out: BTreeMap<i64, usize>,
}

/// Decides what becomes of Tenants. `O((entries + tenants) log tenants)`.
pub fn reconcile(view: &DirectoryView<'_>) -> DirectoryPlan {
    let reading = view.reading;
    let users = reading.entries.len();
    if reading.entries.is_empty() && reading.doubtful.is_empty() {
        let message = "the directory has no users at all: nothing is changed. If that is not so, look at the bases and filters \
                       of its spec, and at what the user that it is read as may see";
        return nothing(Outcome::Empty, users, message.to_owned());
    }
    let mut remarks = Remarks::default();
    let by_id = entries_by_id(reading, &mut remarks);
    let fates = existing::fates(view, &by_id, &mut remarks);
    if let Some(message) = too_many(view, &fates) {
        return nothing(Outcome::TooManyGone, users, message);
    }
    let mut effects = existing::changes(view, &fates, &mut remarks);
    effects.extend(arrivals::creates(view, &by_id, &fates, &mut remarks));
    let refused = remarks.refused;
    DirectoryPlan { outcome: Outcome::Counts, effects, users, refused, message: remarks.message() }
}

fn nothing(outcome: Outcome, users: usize, message: String) -> DirectoryPlan {
    DirectoryPlan { outcome, effects: Vec::new(), users, refused: 0, message }
}

/// Each entry by its id; nothing stands for an id that is doubtful, or that several have.
fn entries_by_id<'a>(reading: &'a Reading, remarks: &mut Remarks) -> BTreeMap<&'a str, Option<&'a Entry>> {
    let mut by_id: BTreeMap<&str, Option<&Entry>> = reading.doubtful.iter().map(|id| (id.as_str(), None)).collect();
    for entry in &reading.entries {
        match by_id.get_mut(entry.id.as_str()) {
            None => {
                by_id.insert(&entry.id, Some(entry));
            }
            Some(known) => {
                if let Some(other) = known.take() {
                    remarks.refuse(format!(
                        "{} and {} have the same id {:?}: nothing is changed about either",
                        other.user, entry.user, entry.id
                    ));
                }
            }
        }
    }
    by_id
}

/// Why nothing may be changed, if too many would be suspended.
fn too_many(view: &DirectoryView<'_>, fates: &[existing::Fate<'_>]) -> Option<String> {
    let in_use = fates.iter().filter(|fate| !fate.tenant.spec.suspended).count();
    let gone = fates.iter().filter(|fate| fate.is_suspension()).count();
    let percent = match view.spec.suspended_percent_max {
        0 => SUSPENDED_PERCENT,
        percent => percent,
    };
    let percent = usize::try_from(percent).unwrap_or_default();
    let most = (in_use.saturating_mul(percent) / 100).max(SUSPENDED_ALWAYS);
    if gone <= most {
        return None;
    }
    let first = fates.iter().filter(|fate| fate.is_suspension()).take(3);
    let first: Vec<&str> = first.map(|fate| fate.tenant.spec.namespace.as_str()).collect();
    Some(format!(
        "{gone} of {in_use} tenants would be suspended at once ({} and others), and at most {most} may: nothing is changed. If \
         they have really left, raise spec.suspendedPercentMax until it has been read again",
        first.join(", ")
    ))
}

impl Remarks {
    fn flag(&mut self, sentence: String) {
        self.sentences.push(sentence);
    }

    fn refuse(&mut self, sentence: String) {
        self.refused += 1;
        self.sentences.push(sentence);
    }

    /// All of it, as far as there is room.
    fn message(mut self) -> String {
        if self.away > 0 {
            self.sentences.push(format!("{} who are gone or disabled stay suspended", self.away));
        }
        let left_out = self.groups_left_out.iter().take(8);
        let groups: Vec<String> = left_out.map(|(group, number)| format!("{group} ({number})")).collect();
        if !groups.is_empty() {
            let groups = groups.join(", ");
            self.sentences
                .push(format!("groups that no tenant may have are left out, with how many had them: {groups}"));
        }
        let mut message = String::new();
        for (index, sentence) in self.sentences.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            if message.len() + separator.len() + sentence.len() > MESSAGE_BYTES_MAX {
                message.push_str(&format!("{separator}and {} more", self.sentences.len() - index));
                break;
            }
            message.push_str(separator);
            message.push_str(sentence);
        }
        message
    }
}

/// The groups that a tenant has of an entry's.
fn groups(view: &DirectoryView<'_>, entry: &Entry, remarks: &mut Remarks) -> Vec<i64> {
    let mut groups: BTreeSet<i64> = entry.groups.iter().copied().filter(|group| Some(*group) != entry.gid).collect();
    groups.retain(|group| {
        let is_refused = (view.refuses_group)(*group);
        if is_refused {
            *remarks.groups_left_out.entry(*group).or_default() += 1;
        }
        !is_refused
    });
    if groups.len() > GROUPS_MAX {
        remarks.flag(format!("{} is in {} groups, and has the first {GROUPS_MAX} of them", entry.user, groups.len()));
    }
    groups.into_iter().take(GROUPS_MAX).collect()
}
