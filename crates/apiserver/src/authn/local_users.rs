//! Users of this machine who come over the local socket: the kernel says who connects, tenants say who that is.
//!
//! Invariant: who somebody is follows from what is stored when he asks, so a tenant that is suspended ends with the next request;
//! which user of the machine connected is found once. Names come from the machine's name service, by programs that end in time.
//! Called by the listener.

use std::os::fd::BorrowedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pumice_api::tenant::Tenant;
use pumice_auth::{Account, Identity, LocalPeer, LocalPeers, NoTenant, PeerError, TenantFacts, Tenants};
use pumice_objects::status::Status;
use pumice_store::Store;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Semaphore;

/// The store's name of tenants.
const TENANTS: &str = "pumice.sh/tenants";
/// How long the name service may take, and how many answers are waited for at once.
const NAMES_WITHIN: Duration = Duration::from_secs(5);
const NAMES_AT_ONCE: usize = 4;
/// Most of its answer that is read.
const NAMES_BYTES_MAX: u64 = 256 << 10;
/// Where its programs are, whatever the platform was started with.
const NAMES_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// User ids that stand for nobody in particular.
const NOBODY: [u32; 3] = [65534, 65535, u32::MAX];

/// All tenants as they are stored now, for those who ask who somebody is.
#[derive(Default)]
pub(crate) struct TenantUsersCell(Mutex<Option<(u64, Arc<Tenants>)>>);

impl TenantUsersCell {
    /// Reads the objects again where one of them has changed.
    pub(crate) fn load(&self, store: &Store) -> Arc<Tenants> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken before the objects are read: what changes in between is read again at the next look.
        let [changed] = store.changed([TENANTS]);
        if let Some((of, tenants)) = &*current
            && *of == changed
        {
            return Arc::clone(tenants);
        }
        let facts = store.list(TENANTS, None).items.into_iter().filter_map(|object| {
            let tenant: Tenant = serde_json::from_slice(&object.body).ok()?;
            Some(TenantFacts::of(tenant))
        });
        let tenants = Arc::new(Tenants::new(facts));
        *current = Some((changed, Arc::clone(&tenants)));
        tenants
    }
}

/// Why somebody at the local socket is nobody.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unidentified {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Tenant(#[from] NoTenant),
}

impl Unidentified {
    /// What his requests are answered.
    pub(crate) fn status(&self) -> Status {
        Status { message: format!("the local socket does not let you in: {self}"), ..Status::unauthorized() }
    }
}

/// Who is at the other end of a connection of the local socket.
#[derive(Clone, Debug)]
pub(crate) enum LocalUser {
    /// Root, or whom the platform runs as: he could read its keys anyway.
    Administrator(Identity),
    /// A user of the machine, with what the name service says of him where that matters.
    User { uid: u32, account: Option<Account> },
}

/// Finds out who connects.
pub(crate) struct LocalUsers {
    peers: LocalPeers,
    own_uid: u32,
    administrator: Identity,
    turns: Semaphore,
}

impl LocalUsers {
    /// `administrator` is who root and the user `own_uid` are, whom the platform runs as.
    pub(crate) fn new(peers: LocalPeers, own_uid: u32, administrator: Identity) -> Self {
        Self { peers, own_uid, administrator, turns: Semaphore::new(NAMES_AT_ONCE) }
    }

    /// The process at the other end of a socket.
    pub(crate) fn peer(&self, socket: BorrowedFd<'_>) -> Result<LocalPeer, PeerError> {
        self.peers.identify(socket)
    }

    /// The user that it was when it connected.
    pub(crate) async fn user(&self, peer: LocalPeer, tenants: &Tenants) -> Result<LocalUser, NoTenant> {
        let uid = peer.uid;
        if uid == 0 || uid == self.own_uid {
            return Ok(LocalUser::Administrator(self.administrator.clone()));
        }
        if NOBODY.contains(&uid) {
            return Err(NoTenant::Unknown { who: format!("nobody (uid {uid})"), uid });
        }
        let account = if tenants.depends_on_account(uid) { self.account(uid).await } else { None };
        Ok(LocalUser::User { uid, account })
    }

    /// What the machine's name service says of a user; nothing where it does not know him, or not in time.
    async fn account(&self, uid: u32) -> Option<Account> {
        let _turn = self.turns.acquire().await.ok()?;
        let entry = ask("getent", &["passwd", &uid.to_string()]).await?;
        let mut fields = entry.split(':');
        let (name, of) = (fields.next()?.to_owned(), fields.nth(1)?);
        if name.is_empty() || name.starts_with('-') || of.trim().parse() != Ok(uid) {
            return None;
        }
        let groups = ask("id", &["-Gnz", "--", &name]).await.unwrap_or_default();
        let groups = groups.split(['\0', '\n']).filter(|group| !group.is_empty()).map(str::to_owned).collect();
        Some(Account { name, groups })
    }
}

impl LocalUser {
    /// Who he is by the tenants of now.
    pub(crate) fn identity(&self, tenants: &Tenants) -> Result<Identity, NoTenant> {
        match self {
            Self::Administrator(identity) => Ok(identity.clone()),
            Self::User { uid, account } => tenants.identity_of(*uid, account.as_ref()),
        }
    }
}

/// What a program of the name service prints, if it ends well and in time.
async fn ask(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", NAMES_PATH).env("LC_ALL", "C").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let answered = tokio::time::timeout(NAMES_WITHIN, async {
        let mut child = command.spawn()?;
        let mut text = String::new();
        if let Some(output) = child.stdout.take() {
            output.take(NAMES_BYTES_MAX).read_to_string(&mut text).await?;
        }
        Ok::<_, std::io::Error>(child.wait().await?.success().then_some(text))
    });
    match answered.await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => {
            tracing::warn!(program, %error, "the name service can't be asked");
            None
        }
        Err(_) => {
            tracing::warn!(program, "the name service does not answer in time");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_name_service_says_whom_an_id_is_of() {
        let users = LocalUsers::new(LocalPeers::of_this_process().expect("/proc"), 1, Identity::anonymous());
        let root = users.account(0).await.expect("root is known everywhere");
        assert_eq!(root.name, "root");
        assert!(root.groups.contains(&"root".to_owned()), "{root:?}");
        assert_eq!(users.account(3_999_999_999).await, None);
        assert_eq!(ask("sh", &["-c", "exit 3"]).await, None);
        assert_eq!(ask("no-such-program", &[]).await, None);
    }

    #[tokio::test]
    async fn nobody_and_everybody_is_no_administrator() {
        let users = LocalUsers::new(LocalPeers::of_this_process().expect("/proc"), 1234, Identity::new("a", ["b"]));
        let tenants = Tenants::default();
        for (uid, is_administrator) in [(0, true), (1234, true), (4001, false), (65534, false), (u32::MAX, false)] {
            let user = users.user(LocalPeer { uid, pid: 1 }, &tenants).await;
            assert_eq!(matches!(user, Ok(LocalUser::Administrator(_))), is_administrator, "{uid}");
            assert_eq!(user.and_then(|user| user.identity(&tenants)).is_ok(), is_administrator, "{uid}");
        }
    }
}
