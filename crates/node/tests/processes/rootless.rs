//! Pods of an ordinary user.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use pumice_shim::USERS;
use pumice_shim::own_users::{PROCESS_INSIDE, map};
use pumice_shim::spec::{IdRange, MountSpec, RootKind, Users};

use crate::harness::{NOBODY, SHIM_ARGS, TestPod, is_root};

/// A top folder of the host's.
const FOLDER: &str = "/opt";

fn pod(script: &str) -> TestPod {
    let mut pod = TestPod::sh(script);
    pod.spec.isolation.user = true;
    pod.spec.isolation.root = RootKind::OverlayByFolder;
    pod.spec.cgroup = None;
    pod
}

/// Does something where this thread, and what it starts, has mounts of its own.
fn with_own_mounts<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    const NONE: Option<&str> = None;
    std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS).unwrap();
            mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
            work()
        });
        working.join().unwrap()
    })
}

fn mount_memory(at: &str) {
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some("mode=0777")).unwrap();
    let file = Path::new(at).join("file");
    fs::write(&file, "the host's\n").unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
}

// A folder in which something is mounted was shown as it is: what a pod wrote there, the host had.
#[test]
fn a_pod_writes_to_no_folder_of_the_host_in_which_something_is_mounted() {
    if !is_root() {
        return;
    }
    let folders = [FOLDER, "/opt/within", "/opt/within/deep"];
    let pod = pod(&format!(
        "for dir in {}; do cat $dir/file; echo pod >> $dir/file; chmod 0 $dir/file; touch $dir/made; echo $dir; done; \
         touch /tmp/made; mkdir /opt/other && echo made; cat /opt/link",
        folders.join(" ")
    ));
    with_own_mounts(|| {
        for folder in folders {
            fs::create_dir_all(folder).unwrap();
            mount_memory(folder);
        }
        std::os::unix::fs::symlink("file", "/opt/link").unwrap();
        pod.start();
        let exit = pod.exit();
        assert_eq!(exit.code, 0, "{exit:?} {}", pod.log());
        let log = pod.log();
        assert_eq!(log.matches("the host's").count(), 4, "all are shown: {log}");
        // The file in each, and what is made in the deeper two.
        assert_eq!(log.matches("Read-only file system").count(), 8, "{log}");
        assert!(log.contains("made\n"), "a folder of the container's own takes writes: {log}");
        for dir in folders {
            assert_eq!(fs::read_to_string(Path::new(dir).join("file")).unwrap(), "the host's\n", "{dir}");
            assert!(!Path::new(dir).join("made").exists(), "{dir}");
        }
    });
}

// The folders of a root that is made by folder took writes all the same.
#[test]
fn a_users_read_only_root_takes_no_writes_but_in_volumes() {
    if !is_root() {
        return;
    }
    let volume = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(volume.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    for (read_only, refused, written) in [(false, 0, "wrote\nwrote\nwrote\nwrote\n"), (true, 3, "wrote\n")] {
        let mut pod =
            pod("for file in /made /tmp/made /opt/made /tmp/volume/made; do touch $file && echo wrote; done; true");
        let container = &mut pod.spec.containers[0];
        container.read_only_root = read_only;
        let source = volume.path().to_owned();
        container.mounts = vec![MountSpec { source, sub_path: None, target: "/tmp/volume".into(), read_only: false }];
        assert_eq!(pod.start().exit().code, 0, "{}", pod.log());
        assert_eq!(pod.log().matches("Read-only file system").count(), refused, "{}", pod.log());
        let lines =
            pod.log().lines().filter(|line| *line == "wrote").map(|line| format!("{line}\n")).collect::<String>();
        assert_eq!(lines, written, "{}", pod.log());
    }
}

/// The first id that the machine has for pods of these tests.
const FIRST: u32 = 0x7ff1_0000;

fn users() -> Users {
    let own = IdRange { inside: 0, outside: NOBODY, count: 1 };
    let others = IdRange { inside: 1, outside: FIRST, count: 65_535 };
    Users { uids: vec![own, others], gids: vec![own, others] }
}

/// A user namespace of the user's with these ids, as `newuidmap` makes it.
fn user_namespace(dir: &Path) -> fs::File {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(SHIM_ARGS).args([USERS.as_ref(), dir.as_os_str()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.uid(NOBODY).gid(NOBODY).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let pid = lines.find_map(|line| line.rsplit_once(PROCESS_INSIDE).map(|(_, pid)| pid.to_owned())).unwrap();
    for (name, ranges) in [("uid_map", users().uids), ("gid_map", users().gids)] {
        fs::write(format!("/proc/{pid}/{name}"), map(&ranges)).unwrap();
    }
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user")).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    namespace
}

#[test]
fn a_users_pod_has_the_ids_that_the_machine_gives_to_the_user() {
    if !is_root() {
        return;
    }
    let mut pod = pod(
        "id -u; id -g; id -G; cat /proc/self/uid_map; stat -c '%n %u %g' /data /dev/pts /proc/self/fd/1; \
         touch /data/made; chown 7:8 /data/made && stat -c '%n %u %g' /data/made; cat /etc/shadow 2>/dev/null || echo refused; \
         readlink /proc/self/ns/user",
    );
    let volume = pod.path().join("volume");
    fs::create_dir(&volume).unwrap();
    std::os::unix::fs::chown(&volume, Some(NOBODY), Some(NOBODY)).unwrap();
    pod.spec.users = Some(users());
    let namespace = user_namespace(pod.path());
    let container = &mut pod.spec.containers[0];
    container.mounts =
        vec![MountSpec { source: volume.clone(), sub_path: None, target: "/data".into(), read_only: false }];
    let mut user = container.clone();
    user.name = "user".into();
    (user.uid, user.gid, user.groups) = (1000, 2000, vec![3000, 2000]);
    user.argv[2] = "id -u; id -g; id -G; touch /data/refused || touch /tmp/made && stat -c '%u %g' /tmp/made".into();
    pod.spec.containers.push(user);
    pod.start_with(namespace.as_fd().try_clone_to_owned().unwrap());
    let status = pod.done();
    assert!(
        status.containers.iter().all(|one| one.exit().is_some_and(|exit| exit.code == 0)),
        "{status:?} {}",
        pod.log()
    );
    let log = pod.log();
    let (log, own) = log.trim_end().rsplit_once('\n').expect("lines");
    assert!(log.ends_with("\nrefused"), "{log}");
    let expected = "0\n0\n0\n         0          0          1\n         1          1      65535\n\
         /data 0 0\n/dev/pts 0 0\n/proc/self/fd/1 0 0\n/data/made 7 8\n";
    assert!(log.starts_with(expected), "{log}");
    // A pod has no rights over another, whose namespace lies beside its own.
    let given = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&namespace))).unwrap();
    assert_ne!(given.to_string_lossy(), own);
    let other = pod.log_of("user");
    // What it complains of stands before or after that.
    assert!(other.starts_with("1000\n2000\n2000 3000\n") && other.contains("\n1000 2000\n"), "{other}");
    let made = fs::metadata(volume.join("made")).unwrap();
    let ids = (std::os::unix::fs::MetadataExt::uid(&made), std::os::unix::fs::MetadataExt::gid(&made));
    assert_eq!(ids, (FIRST + 6, FIRST + 7));
}
