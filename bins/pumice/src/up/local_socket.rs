//! The socket of a platform that users of a machine share.
//!
//! Invariant: its folder is root's and nobody else can put anything there, so who finds the socket finds the platform. One platform
//! has it at a time: what a crash has left is replaced, what another one has is refused. It goes with the platform.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tokio::net::UnixListener;

/// Everybody may connect: who he is, the kernel says.
const SOCKET_MODE: u32 = 0o666;
const FOLDER_MODE: u32 = 0o755;
/// What of a mode lets others write.
const OTHERS_WRITE: u32 = 0o022;
/// Endings of what may lie in the folder: sockets of platforms, and what says that one is in use.
const ENDINGS: [&str; 2] = [".sock", ".sock.lock"];
const CHOOSE: &str = "choose another by --socket, such as /run/pumice-2/api.sock";

/// A socket that this process has. It is removed when this is dropped.
#[derive(Debug)]
pub struct LocalSocket {
    path: PathBuf,
    folder: PathBuf,
    /// The socket's own file, so that none of another is removed.
    inode: (u64, u64),
    /// Locked for as long as the socket is this process's.
    _lock: File,
}

impl LocalSocket {
    /// Makes the socket, and its folder if there is none. Needs a runtime.
    pub fn open(path: &Path) -> Result<(LocalSocket, UnixListener)> {
        let path = std::path::absolute(path).with_context(|| format!("make {} absolute", path.display()))?;
        let shown = path.display();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        ensure!(name.ends_with(ENDINGS[0]), "the socket {shown} has to end with .sock: {CHOOSE}");
        let folder = path.parent().context("a socket is in a folder")?;
        own_folder(folder)?;
        let lock_path = folder.join(format!("{name}.lock"));
        let lock = File::options().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.with_context(|| format!("open {}", lock_path.display()))?;
        ensure!(lock.try_lock().is_ok(), "another platform has the socket {shown}: end it, or {CHOOSE}");
        match fs::symlink_metadata(&path) {
            Ok(found) if found.file_type().is_socket() => {
                fs::remove_file(&path).with_context(|| format!("remove {shown}, which nobody has any more"))?;
            }
            Ok(_) => bail!("{shown} is there and is no socket: {CHOOSE}"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("look at {shown}")),
        }
        let listener = UnixListener::bind(&path).with_context(|| format!("listen at the socket {shown}"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(SOCKET_MODE))
            .with_context(|| format!("open {shown} to the users of this machine"))?;
        let found = fs::symlink_metadata(&path).with_context(|| format!("look at {shown}"))?;
        let (folder, inode) = (folder.to_owned(), (found.dev(), found.ino()));
        Ok((LocalSocket { path, folder, inode, _lock: lock }, listener))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder, which no pod may see.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        let is_own = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.inode);
        if is_own && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(socket = %self.path.display(), %error, "the socket could not be removed");
        }
    }
}

/// Makes the folder, or sees that it is this user's alone and for sockets only: no pod sees any of it.
fn own_folder(folder: &Path) -> Result<()> {
    let shown = folder.display();
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        // The mode that was asked for is without what the umask takes.
        Ok(()) => fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE))
            .with_context(|| format!("open the folder {shown} to the users of this machine"))?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(|| format!("make the folder {shown} of the socket")),
    }
    let found = fs::symlink_metadata(folder).with_context(|| format!("look at {shown}"))?;
    ensure!(found.is_dir(), "{shown} is no folder, so the socket can't be there: {CHOOSE}");
    let (owner, mode) = (found.uid(), found.mode());
    ensure!(
        owner == nix::unistd::Uid::effective().as_raw() && mode & OTHERS_WRITE == 0,
        "others can write to the folder {shown} of the socket (owner {owner}, mode {:o}), and could put their own there: {CHOOSE}",
        mode & 0o7777
    );
    for entry in fs::read_dir(folder).with_context(|| format!("read {shown}"))? {
        let name = entry.with_context(|| format!("read {shown}"))?.file_name();
        let name = name.to_string_lossy();
        ensure!(
            ENDINGS.iter().any(|ending| name.ends_with(ending)),
            "the folder {shown} of the socket has {name} in it, and no pod may see that folder: {CHOOSE}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn a_socket_of_a_crash_is_replaced_and_a_live_one_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("pumice/api.sock");
        let (socket, listener) = LocalSocket::open(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(socket.folder())), (0o666, 0o755));
        UnixStream::connect(&path).unwrap();
        let refused = LocalSocket::open(&path).unwrap_err().to_string();
        assert!(refused.contains("another platform has the socket") && refused.contains("--socket"), "{refused}");
        drop((socket, listener));
        assert!(!path.exists(), "it goes with the platform");
        // As a crash leaves it.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        UnixStream::connect(&path).unwrap_err();
        let (socket, _listener) = LocalSocket::open(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(socket);
        assert!(path.exists(), "what is there by now is somebody else's");
        let refused = LocalSocket::open(&path).unwrap_err().to_string();
        assert!(refused.contains("is no socket"), "{refused}");
    }

    #[tokio::test]
    async fn a_folder_that_others_have_is_no_place_for_it() {
        let temporary = tempfile::tempdir().unwrap();
        let refused = |name: &str| LocalSocket::open(&temporary.path().join(name)).unwrap_err().to_string();
        assert!(refused("a/api").contains("has to end with .sock"));
        fs::create_dir(temporary.path().join("open")).unwrap();
        fs::set_permissions(temporary.path().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused("open/api.sock").contains("others can write"));
        fs::create_dir(temporary.path().join("full")).unwrap();
        fs::write(temporary.path().join("full/passwd"), "").unwrap();
        assert!(refused("full/api.sock").contains("has passwd in it"));
        std::os::unix::fs::symlink(temporary.path(), temporary.path().join("link")).unwrap();
        assert!(refused("link/api.sock").contains("is no folder"));
        fs::create_dir(temporary.path().join("two")).unwrap();
        let one = LocalSocket::open(&temporary.path().join("two/one.sock")).unwrap();
        let other = LocalSocket::open(&temporary.path().join("two/other.sock")).unwrap();
        drop((one, other));
    }
}
