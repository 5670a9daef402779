//! `pumice tenant`, and what this machine knows of a user.
//!
//! Invariant: users are looked up by the machine's own programs, which know of LDAP and the like where this program, which is linked
//! for itself, does not. Such a look-up has bounds of time and size, and one that fails is no user.

use std::io::Read as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use pumice_vcctl::tenant::{self, MachineUser};
use pumice_vcctl::{Error, Session};

use crate::args::tenant::{TenantArgs, Verb};
use crate::vcctl::talk;

/// How long the machine is asked about a user.
const ASKED_WITHIN: Duration = Duration::from_secs(10);
/// Smallest id of people's groups: those of the system below are no tenant's.
const ID_MIN: i64 = 1000;
/// What is read of what it says.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Does what the verb says.
pub fn run(args: TenantArgs) -> ExitCode {
    let TenantArgs { api, verb } = args;
    let words = match &verb {
        Verb::Create(_) => "create tenant",
        Verb::List { .. } => "list tenants",
        Verb::Show(_) => "show tenant",
        Verb::Suspend(_) => "suspend tenant",
        Verb::Resume(_) => "resume tenant",
        Verb::Delete(_) => "delete tenant",
        Verb::Import { .. } => "import tenants",
    };
    talk(&api, words, async |session| on_tenants(session, verb).await)
}

async fn on_tenants(session: &mut Session<'_>, verb: Verb) -> Result<(), Error> {
    match verb {
        Verb::Create(args) => {
            let wanted = args.wanted().map_err(Error::usage)?;
            let machine = machine_user(args.user());
            if let Some(user) = &machine {
                let groups: Vec<String> = user.groups.iter().map(i64::to_string).collect();
                let (name, groups) = (args.user(), groups.join(","));
                session.note(&format!(
                    "this machine knows {name}: uid {}, gid {}, other groups {groups:?}, home {}",
                    user.uid, user.gid, user.home
                ));
            }
            tenant::create(session, &wanted, machine.as_ref(), args.output.form()).await
        }
        Verb::List { output } => tenant::list(session, output.or_table()).await,
        Verb::Show(named) => tenant::show(session, &named.name, named.output.or_table()).await,
        Verb::Suspend(args) => tenant::suspend(session, &args.name, args.stop, args.output.form()).await,
        Verb::Resume(named) => tenant::resume(session, &named.name, named.output.form()).await,
        Verb::Delete(named) => tenant::delete(session, &named.name, named.output.form()).await,
        Verb::Import { file } => tenant::import::import(session, &file, &mut std::io::stdin()).await,
    }
}

/// What this machine knows of a user.
fn machine_user(name: &str) -> Option<MachineUser> {
    // A number would be looked up as a uid, and what begins with a dash is no name.
    if name.is_empty() || name.starts_with('-') || name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut user = account(&answer("getent", &["passwd", name])?, name)?;
    let groups = answer("id", &["-G", name])?;
    let first = user.gid;
    let groups = groups.split_whitespace().filter_map(|gid| gid.parse::<i64>().ok());
    user.groups = groups.filter(|gid| *gid != first && *gid >= ID_MIN).collect();
    Some(user)
}

/// A line in the form of `/etc/passwd`.
fn account(line: &str, name: &str) -> Option<MachineUser> {
    let fields: Vec<&str> = line.lines().next()?.split(':').collect();
    let [found, _, uid, gid, _, home, ..] = fields[..] else { return None };
    if found != name {
        return None;
    }
    Some(MachineUser { uid: uid.parse().ok()?, gid: gid.parse().ok()?, groups: Vec::new(), home: home.to_owned() })
}

/// What a program of the machine says, if it says something in time.
fn answer(program: &str, args: &[&str]) -> Option<String> {
    let mut asked = Command::new(program);
    asked.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut asked = asked.spawn().ok()?;
    let mut out = asked.stdout.take()?;
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = out.by_ref().take(ANSWER_BYTES_MAX).read_to_string(&mut text);
        let _ = tell.send(read.is_ok().then_some(text));
    });
    let text = told.recv_timeout(ASKED_WITHIN).ok().flatten();
    if text.is_none() {
        let _ = asked.kill();
    }
    let ended = asked.wait().ok()?;
    text.filter(|_| ended.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_as_the_machine_writes_it() {
        let line = "alice:x:1001:1002:Alice A.,,,:/home/alice:/bin/bash\n";
        let user = MachineUser { uid: 1001, gid: 1002, groups: Vec::new(), home: "/home/alice".into() };
        assert_eq!(account(line, "alice"), Some(user));
        for (line, name) in [(line, "bob"), ("alice:x:1:2", "alice"), ("alice:x:u:2::/h:", "alice"), ("", "alice")] {
            assert_eq!(account(line, name), None, "{line}");
        }
    }

    #[test]
    fn the_machine_knows_root_and_nobody_who_is_not_there() {
        assert_eq!(machine_user("root").map(|user| (user.uid, user.gid)), Some((0, 0)));
        for name in ["no-such-user-here", "-h", "0", ""] {
            assert_eq!(machine_user(name), None, "{name}");
        }
    }
}
