//! Who is at the other end of a local socket: processes that try to be somebody else.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Uid, geteuid};
use pumice_auth::{LocalPeer, LocalPeers, PeerError};

/// Connects to the path that is given to it and stays until its input ends.
const CONNECTS: &str = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
sys.stdin.read()";

struct Socket {
    folder: tempfile::TempDir,
    listener: UnixListener,
}

impl Socket {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode;
        std::fs::set_permissions(folder.path(), open(0o755)).unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        std::fs::set_permissions(folder.path().join("s"), open(0o666)).unwrap();
        Self { folder, listener }
    }

    /// What is said of a client that is started by these words, while it lives.
    fn identify(&self, words: &[&str], program: &str, path: &Path) -> Result<LocalPeer, PeerError> {
        let (stream, mut child) = self.accept(words, program, path);
        let told = LocalPeers::of_this_process().unwrap().identify(stream.as_fd());
        drop(child.stdin.take());
        child.wait().unwrap();
        told
    }

    fn accept(&self, words: &[&str], program: &str, path: &Path) -> (UnixStream, Child) {
        let mut command = Command::new("env");
        // Users of a test see neither the folder that it runs in nor the programs of who runs it.
        command.args(words).args(["/usr/bin/python3", "-c", program]).arg(path).current_dir("/").stdin(Stdio::piped());
        let child = command.spawn().unwrap();
        let mut ready = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut ready, PollTimeout::from(20_000u16)), Ok(1), "{words:?} does not connect");
        (self.listener.accept().unwrap().0, child)
    }
}

#[test]
fn a_process_of_this_machine_is_its_user() {
    let socket = Socket::new();
    let path = socket.folder.path().join("s");
    let stream = UnixStream::connect(&path).unwrap();
    let (accepted, _) = socket.listener.accept().unwrap();
    let peer = LocalPeers::of_this_process().unwrap().identify(accepted.as_fd()).unwrap();
    assert_eq!(peer, LocalPeer { uid: geteuid().as_raw(), pid: std::process::id() as i32 });
    drop(stream);
    let (accepted, mut child) = socket.accept(&[], CONNECTS, &path);
    drop(child.stdin.take());
    child.wait().unwrap();
    let told = LocalPeers::of_this_process().unwrap().identify(accepted.as_fd());
    assert!(matches!(told, Err(PeerError::Ended)), "{told:?}");
}

#[test]
fn who_is_behind_a_wall_is_nobody() {
    if !Uid::effective().is_root() {
        eprintln!("not run: needs root, to be other users and to make namespaces");
        return;
    }
    let socket = Socket::new();
    let path = socket.folder.path().join("s");
    for (words, wall) in [
        (&["unshare", "--mount"][..], "mount namespace"),
        (&["unshare", "--pid", "--fork"], "process namespace"),
        (&["unshare", "--user", "--map-root-user"], "user namespace"),
        (&["unshare", "--cgroup"], "control group namespace"),
        // All that a user can do by himself.
        (&["setpriv", "--reuid=64321", "--clear-groups", "unshare", "--user", "--map-root-user"], "user namespace"),
    ] {
        match socket.identify(words, CONNECTS, &path) {
            Err(PeerError::Elsewhere { what, .. }) if what == wall => {}
            other => panic!("{words:?}: {other:?}"),
        }
    }
    let chroot = CONNECTS.replacen('\n', &format!("; import os; os.chroot({:?})\n", socket.folder.path()), 1);
    match socket.identify(&[], &chroot, Path::new("/s")) {
        Err(PeerError::Elsewhere { what: "root folder", .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_user_who_connected_counts_whatever_becomes_of_the_connection() {
    if !Uid::effective().is_root() {
        eprintln!("not run: needs root, to be other users");
        return;
    }
    let socket = Socket::new();
    let path = socket.folder.path().join("s");
    let other = ["setpriv", "--reuid=64321", "--regid=64321", "--clear-groups"];
    assert_eq!(socket.identify(&other, CONNECTS, &path).unwrap().uid, 64321);
    // Somebody else from then on.
    let changes = CONNECTS.replace("sys.stdin", "__import__('os').setuid(64322); sys.stdin");
    assert_eq!(socket.identify(&[], &changes, &path).unwrap().uid, 0);
    // One that has only the effective id of another: it is the other one to the kernel, too.
    let effective = CONNECTS.replacen('\n', "; import os; os.seteuid(64321)\n", 1);
    assert_eq!(socket.identify(&[], &effective, &path).unwrap().uid, 64321);
    // A descriptor that its child got: who connected has ended, and nobody speaks for it.
    let passes = CONNECTS.replace("sys.stdin", "__import__('os').fork() and __import__('os')._exit(0); sys.stdin");
    let (stream, mut child) = socket.accept(&other, &passes, &path);
    let mut input = child.stdin.take().unwrap();
    child.wait().unwrap();
    let told = LocalPeers::of_this_process().unwrap().identify(stream.as_fd());
    assert!(matches!(told, Err(PeerError::Ended)), "{told:?}");
    let _ = input.write_all(b"\n");
}
