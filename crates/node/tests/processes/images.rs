//! What images bring into a pod: volumes that are images, and folders that an image declares as volumes.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use pumice_shim::spec::{IdRange, ImageVolume, MountSpec, RestartPolicy, RootKind, Users};

use crate::harness::{NOBODY, TestPod, is_root};

/// A shell and small programs in one file that needs no library.
const BUSYBOX: &str = "/bin/busybox";
/// The first id that the machine has for the pods of these tests.
const FIRST: u32 = 0x7ff2_0000;

fn own_users() -> Option<Users> {
    let range = IdRange { inside: 0, outside: FIRST, count: 65_536 };
    Some(Users { uids: vec![range], gids: vec![range] })
}

/// Whose users a pod has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Whose {
    Machines,
    Own,
    /// Of the user without rights that the platform is.
    Rootless,
}

fn with_users(mut pod: TestPod, whose: Whose) -> TestPod {
    match whose {
        Whose::Machines => {}
        Whose::Own => pod.spec.users = own_users(),
        Whose::Rootless => {
            pod.spec.isolation.user = true;
            pod.spec.isolation.root = RootKind::OverlayByFolder;
            pod.spec.cgroup = None;
        }
    }
    pod
}

/// A layer with these files, each with its name as its text, below a folder that everybody may enter.
fn layer(dir: &Path, name: &str, files: &[&str]) -> PathBuf {
    let layer = dir.join(name);
    for file in files {
        let path = layer.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("{name}/{file}\n")).unwrap();
    }
    fs::create_dir_all(&layer).unwrap();
    layer
}

/// Gives layers to the user that the platform is: without root it unpacks them as itself.
fn give_to_platform(layers: &Path, whose: Whose) {
    if whose == Whose::Rootless {
        let owner = format!("{NOBODY}:{NOBODY}");
        assert!(Command::new("chown").args(["-R", &owner]).arg(layers).status().unwrap().success());
    }
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn mount(source: &Path, sub_path: Option<&str>, target: &str) -> MountSpec {
    MountSpec { source: source.into(), sub_path: sub_path.map(str::to_owned), target: target.into(), read_only: true }
}

#[test]
fn a_volume_that_is_an_image_shows_its_layers_and_takes_no_writes() {
    if !is_root() {
        return;
    }
    for whose in [Whose::Machines, Whose::Own, Whose::Rootless] {
        let images = folder();
        let low = layer(images.path(), "low", &["a", "b", "gone", "deep/c"]);
        let high = layer(images.path(), "high", &["b", "deep/d"]);
        if whose != Whose::Rootless {
            chown(low.join("a"), Some(1000), Some(1001)).unwrap();
            mknod(&high.join("gone"), SFlag::S_IFCHR, Mode::empty(), makedev(0, 0)).unwrap();
        }
        give_to_platform(images.path(), whose);
        let script = "cd /tmp/image; cat a b deep/c deep/d; stat -c '%u %g' a; cat gone 2>/dev/null || echo none; \
            for at in /tmp/image /tmp/deep; do ( echo x > $at/new ) 2>/dev/null || echo refused; done; \
            chmod 0777 a 2>/dev/null || echo refused; cat /tmp/file; ls /tmp/deep; ls -A /tmp/single /tmp/nothing";
        let mut pod = with_users(TestPod::sh(script), whose);
        let volume = |name: &str, layers: &[&PathBuf]| ImageVolume {
            path: pod.path().join("volumes").join(name),
            layers: layers.iter().map(|&layer| layer.clone()).collect(),
        };
        let volumes = [volume("image", &[&low, &high]), volume("single", &[&high]), volume("nothing", &[])];
        let [image, single, nothing] = volumes.clone().map(|volume| volume.path);
        pod.spec.containers[0].mounts = vec![
            mount(&image, None, "/tmp/image"),
            mount(&image, Some("deep"), "/tmp/deep"),
            mount(&image, Some("b"), "/tmp/file"),
            mount(&single, None, "/tmp/single"),
            mount(&nothing, None, "/tmp/nothing"),
        ];
        pod.spec.image_volumes = volumes.into();
        let exit = pod.start().exit();
        let (owner, gone) = match whose {
            Whose::Rootless => ("0 0", "low/gone"),
            _ => ("1000 1001", "none"),
        };
        let expected = format!(
            "low/a\nhigh/b\nlow/deep/c\nhigh/deep/d\n{owner}\n{gone}\nrefused\nrefused\nrefused\nhigh/b\nc\nd\n\
             /tmp/nothing:\n\n/tmp/single:\nb\ndeep\n"
        );
        assert_eq!((exit.code, pod.log()), (0, expected), "{whose:?} {exit:?}");
        assert_eq!(fs::read_to_string(low.join("a")).unwrap(), "low/a\n", "a layer is never written to");
    }
}

#[test]
fn a_part_that_an_image_lacks_is_named() {
    if !is_root() {
        return;
    }
    let images = folder();
    let mut pod = TestPod::sh("true");
    let path = pod.path().join("volumes/image");
    pod.spec.image_volumes = vec![ImageVolume { path: path.clone(), layers: vec![layer(images.path(), "l", &["a"])] }];
    pod.spec.containers[0].mounts = vec![mount(&path, Some("none/b"), "/tmp/image")];
    let exit = pod.start().exit();
    let message = exit.message.unwrap();
    assert!(
        exit.reason == "StartError" && message.contains("volumes/image/none/b to mount it: No such file"),
        "{message}"
    );
}

/// A pod in an image of two layers, whose root takes no writes.
fn in_image(dir: &Path, script: &str) -> TestPod {
    let low = layer(dir, "low", &["data/given", "data/own/file", "etc/passwd"]);
    let programs = low.join("bin");
    fs::create_dir(&programs).unwrap();
    fs::copy(BUSYBOX, programs.join("busybox")).unwrap();
    for name in ["sh", "cat", "ls", "stat", "touch", "mkdir", "test", "rm"] {
        symlink("busybox", programs.join(name)).unwrap();
    }
    let high = layer(dir, "high", &["data/more"]);
    let mut pod = TestPod::sh(script);
    let container = &mut pod.spec.containers[0];
    container.env = vec![("PATH".into(), "/bin".into())];
    container.image_layers = Some(vec![low, high]);
    container.read_only_root = true;
    pod
}

#[test]
fn what_an_image_declares_as_a_volume_takes_writes_in_a_root_that_takes_none() {
    if !is_root() {
        return;
    }
    for whose in [Whose::Machines, Whose::Own, Whose::Rootless] {
        let images = folder();
        let script = "cat data/given data/more; stat -c '%a %u' data/own data/made; \
            for file in data/new data/own/new made/new data/made/new out/new whole/new etc/new bin/new; do \
            ( echo x > $file ) 2>/dev/null && echo $file; done; ls data; true";
        let mut pod = with_users(in_image(images.path(), script), whose);
        let low = images.path().join("low");
        if whose != Whose::Rootless {
            chown(low.join("data/own"), Some(1000), Some(1001)).unwrap();
        }
        fs::set_permissions(low.join("data/own"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink("../../../../../../made", low.join("out")).unwrap();
        symlink("/", low.join("whole")).unwrap();
        give_to_platform(images.path(), whose);
        let container = &mut pod.spec.containers[0];
        container.declared_volumes = ["/data", "/data/made", "/out", "/whole"].map(PathBuf::from).into();
        let exit = pod.start().exit();
        assert_eq!(exit.code, 0, "{exit:?} {}", pod.log());
        let owner = if whose == Whose::Rootless { 0 } else { 1000 };
        let expected = format!(
            "low/data/given\nhigh/data/more\n700 {owner}\n755 0\ndata/new\ndata/own/new\nmade/new\ndata/made/new\nout/new\n\
             given\nmade\nmore\nnew\nown\n"
        );
        assert_eq!(pod.log(), expected, "{whose:?}");
        assert_eq!(fs::read_dir(low.join("data")).unwrap().count(), 2, "a layer is never written to");
        assert!(!Path::new("/made").exists(), "no link leads out of the root");
    }
}

#[test]
fn a_restarted_container_begins_with_what_its_image_declares() {
    if !is_root() {
        return;
    }
    let images = folder();
    let mut pod =
        in_image(images.path(), "ls data; touch data/new; test -e /once/done || { touch /once/done; exit 1; }");
    let volume = folder();
    let container = &mut pod.spec.containers[0];
    container.declared_volumes = vec!["/data".into()];
    let once = volume.path().to_owned();
    container.mounts = vec![MountSpec { source: once, sub_path: None, target: "/once".into(), read_only: false }];
    pod.spec.restart_policy = RestartPolicy::OnFailure;
    assert_eq!(pod.start().exit().code, 0, "{}", pod.log());
    let second = fs::read_to_string(pod.path().join("logs/main/1.log")).unwrap();
    assert!(second.contains("given") && !second.contains("new"), "{second}");
    let upper = pod.path().join("c/main/1/upper/data/new");
    assert_eq!(fs::metadata(upper).unwrap().uid(), 0, "it counts in the container's layer");
}

/// What people's programs ask of a user that the image does not know.
const ASKS: &str = "import getpass, os, pathlib, tempfile
home = pathlib.Path('~').expanduser()
(home / '.cache/pip').mkdir(parents=True)
print(getpass.getuser(), home, oct(home.stat().st_mode & 0o777), os.path.isdir(tempfile.mkdtemp()))
print(oct(os.umask(0)), oct(os.stat('/tmp').st_mode & 0o7777), oct(os.stat('/var/tmp').st_mode & 0o7777))
";

#[test]
fn a_user_that_the_image_does_not_know_has_a_name_and_a_home() {
    if !is_root() {
        return;
    }
    for whose in [Whose::Machines, Whose::Own] {
        let mut pod = with_users(TestPod::sh(""), whose);
        let container = &mut pod.spec.containers[0];
        container.argv = ["python3", "-c", ASKS].map(str::to_owned).into();
        container.env.push(("HOME".into(), "/home/4001".into()));
        // It has Python.
        container.image_layers = Some(vec!["/".into()]);
        container.unlisted_home = Some("/home/4001".into());
        (container.uid, container.gid, container.groups) = (4001, 7, vec![7]);
        let exit = pod.start().exit();
        assert_eq!((exit.code, &exit.discarded), (0, &None), "{whose:?} {exit:?} {}", pod.log());
        assert_eq!(pod.log(), "4001 /home/4001 0o700 True\n0o22 0o1777 0o1777\n", "{whose:?}");
        let list = fs::read_to_string(pod.path().join("c/main/0/upper/etc/passwd")).unwrap();
        let known = fs::read_to_string("/etc/passwd").unwrap();
        assert_eq!(list, format!("{known}4001:x:4001:7::/home/4001:/bin/sh\n"));
    }
}

#[test]
fn an_image_without_folders_for_temporary_files_gets_some() {
    if !is_root() {
        return;
    }
    let images = folder();
    let mut pod = in_image(images.path(), "stat -c '%a %u' tmp var/tmp; touch tmp/a var/tmp/b; cat etc/passwd");
    let container = &mut pod.spec.containers[0];
    (container.uid, container.gid, container.read_only_root) = (4001, 4001, false);
    // A list that is no file is left alone.
    container.unlisted_home = Some("/data/given".into());
    let list = images.path().join("low/etc/passwd");
    fs::remove_file(&list).unwrap();
    symlink("../data", &list).unwrap();
    let exit = pod.start().exit();
    assert_eq!(exit.code, 1, "{exit:?}");
    assert_eq!(pod.log(), "1777 0\n1777 0\ncat: read error: Is a directory\n");
}
