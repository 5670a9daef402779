//! The machine's own users, by `getent`: also those that sssd or another service brings, as this program may be static and
//! can't ask them itself.
//!
//! Invariant: a group that is not there is an error, and a member who can't be found is doubtful: a service that is away makes
//! nobody leave. A user's id is his name, so that one who is deleted and made anew has another uid under the same id, which the
//! machine refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use pumice_api::directory::SystemDirectory;
use pumice_machines::directory::{Entry, Reading};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

/// Wait for an answer of `getent`.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Names in one call.
const NAMES_MAX: usize = 500;
/// Where programs are; nothing else of this process's environment is theirs.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// What `getent` ends with when something was not found.
const NOT_FOUND: i32 = 2;

/// Why the machine's users could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SystemReadError {
    #[error("{program} can't be run: install it, it belongs to the C library", program = program.display())]
    Run { program: PathBuf, source: std::io::Error },
    #[error("getent {database} gave no answer in time")]
    TooSlow { database: &'static str },
    #[error("getent {database} answers more than {ANSWER_BYTES_MAX} bytes")]
    TooLong { database: &'static str },
    #[error("getent {database} failed ({status}): {text}")]
    Failed { database: &'static str, status: std::process::ExitStatus, text: String },
    #[error("this machine has no group {group:?}, which spec.system.groups names")]
    NoGroup { group: String },
}

/// The program that knows all users.
pub(crate) struct Getent {
    program: PathBuf,
    answer_within: Duration,
}

impl Default for Getent {
    fn default() -> Self {
        Self { program: PathBuf::from("getent"), answer_within: ANSWER_WITHIN }
    }
}

/// A line of `getent group`.
struct Group<'a> {
    gid: Option<i64>,
    members: Vec<&'a str>,
}

/// A line of `getent passwd`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    user: String,
    uid: Option<i64>,
    gid: Option<i64>,
    home: String,
}

impl Getent {
    /// Reads all members of the groups.
    pub async fn read(&self, directory: &SystemDirectory) -> Result<Reading, SystemReadError> {
        let names: Vec<&str> = directory.groups.iter().map(String::as_str).collect();
        let text = self.ask("group", &names).await?;
        let groups: BTreeMap<&str, Group<'_>> = text.lines().filter_map(group).collect();
        if let Some(group) = names.iter().find(|name| !groups.contains_key(**name)) {
            return Err(SystemReadError::NoGroup { group: (*group).to_owned() });
        }
        let gids: BTreeSet<i64> = groups.values().filter_map(|group| group.gid).collect();
        let mut members: BTreeSet<String> =
            groups.values().flat_map(|group| &group.members).map(|member| (*member).to_owned()).collect();
        let text = self.ask("passwd", &[]).await?;
        let mut accounts: BTreeMap<String, Account> = accounts(&text).collect();
        // Those whose first group it is are in no list.
        let first = accounts.values().filter(|account| account.gid.is_some_and(|gid| gids.contains(&gid)));
        members.extend(first.map(|account| account.user.clone()));
        // Services that have many users list none of them, and find each.
        let unlisted: Vec<&str> =
            members.iter().map(String::as_str).filter(|member| !accounts.contains_key(*member)).collect();
        let mut found = BTreeMap::new();
        for names in unlisted.chunks(NAMES_MAX) {
            let text = self.ask("passwd", names).await?;
            found.extend(self::accounts(&text));
        }
        accounts.extend(found);
        let known: Vec<&str> =
            members.iter().map(String::as_str).filter(|member| accounts.contains_key(*member)).collect();
        let mut others: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for names in known.chunks(NAMES_MAX) {
            let text = self.ask("initgroups", names).await?;
            others.extend(text.lines().filter_map(groups_of));
        }
        let mut reading = Reading::default();
        for member in members {
            let Some(Account { user, uid, gid, home }) = accounts.remove(&member) else {
                reading.doubtful.insert(member);
                continue;
            };
            let groups = others.remove(&member).unwrap_or_default();
            reading.entries.push(Entry { id: member, user, uid, gid, groups, home, disabled: false });
        }
        Ok(reading)
    }

    /// Asks for these keys of a database, or for all there is; what is not found is missing from the answer.
    async fn ask(&self, database: &'static str, keys: &[&str]) -> Result<String, SystemReadError> {
        let mut command = Command::new(&self.program);
        command.arg(database);
        if !keys.is_empty() {
            command.arg("--").args(keys);
        }
        command.env_clear().env("PATH", PATH).env("LC_ALL", "C").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |source| SystemReadError::Run { program: self.program.clone(), source };
        let mut child = command.spawn().map_err(failed)?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let answer = async {
            let (mut text, mut said) = (Vec::new(), Vec::new());
            let read_out = async {
                match out {
                    Some(out) => out.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut text).await,
                    None => Ok(0),
                }
            };
            let read_err = async {
                match err {
                    Some(err) => err.take(4_096).read_to_end(&mut said).await,
                    None => Ok(0),
                }
            };
            let (read, _) = futures::join!(read_out, read_err);
            read.map_err(failed)?;
            if text.len() as u64 > ANSWER_BYTES_MAX {
                return Err(SystemReadError::TooLong { database });
            }
            let status = child.wait().await.map_err(failed)?;
            if !status.success() && status.code() != Some(NOT_FOUND) {
                let text = String::from_utf8_lossy(&said).trim().to_owned();
                return Err(SystemReadError::Failed { database, status, text });
            }
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        match tokio::time::timeout(self.answer_within, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(SystemReadError::TooSlow { database }),
        }
    }
}

/// `name:password:gid:member,member`.
fn group(line: &str) -> Option<(&str, Group<'_>)> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, gid, members] = fields[..] else { return None };
    let members = members.split(',').map(str::trim).filter(|member| !member.is_empty()).collect();
    Some((name, Group { gid: gid.parse().ok(), members }))
}

/// `name:password:uid:gid:comment:home:shell`. Of two with one name the first one counts, as for the machine.
fn accounts(text: &str) -> impl Iterator<Item = (String, Account)> {
    let mut seen = BTreeSet::new();
    text.lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [user, _, uid, gid, _, home, _] = fields[..] else { return None };
        let account =
            Account { user: user.to_owned(), uid: uid.parse().ok(), gid: gid.parse().ok(), home: home.to_owned() };
        seen.insert(user.to_owned()).then(|| (user.to_owned(), account))
    })
}

/// `name   gid gid gid`.
fn groups_of(line: &str) -> Option<(String, Vec<i64>)> {
    let mut words = line.split_whitespace();
    let user = words.next()?.to_owned();
    Some((user, words.filter_map(|word| word.parse().ok()).collect()))
}

#[cfg(test)]
mod tests;
