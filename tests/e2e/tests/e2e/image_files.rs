//! Images without a network: of a folder, into a file, out of it.

use std::fs;
use std::os::unix::fs::symlink;

use pumice_testkit::{Platform, Setup, eventually};
use serde_json::json;

#[test]
fn an_image_of_a_folder_goes_through_a_file_and_runs() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    symlink("busybox", root.join("bin/cat")).unwrap();
    fs::write(root.join("word"), "of a folder\n").unwrap();
    let platform = Platform::start(Setup { flags: vec!["--images=registry".to_owned()] });
    let data = platform.data_dir().display().to_string();
    let image = |words: &[&str]| {
        let words: Vec<&str> = ["image"].iter().chain(words).chain(&["--data-dir", &data]).copied().collect();
        platform.run(&pumice_testkit::binary("pumice"), words, None)
    };
    let path = |name: &str| directory.path().join(name).display().to_string();
    let name = "localhost/folder:1";
    assert_eq!(image(&["from-root", &path("root"), name]).ok().trim(), name);
    image(&["save", "-O", &path("file"), name]).ok();
    image(&["rm", name]).ok();
    assert!(image(&["save", "-O", &path("other"), name]).stderr.contains("pumice image ls"));
    assert_eq!(image(&["load", &path("file"), "--name", "localhost/file:1"]).ok().trim(), "localhost/file:1");
    let container = json!({"name": "c", "image": "localhost/file:1", "command": ["cat", "/word"]});
    let spec = json!({"restartPolicy": "Never", "containers": [container]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loaded"}, "spec": spec});
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
    eventually("the pod has ended", || match platform.get("pod", "loaded") {
        Some(pod) if pod["status"]["phase"] == "Succeeded" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(platform.kubectl(["logs", "loaded"]).ok(), "of a folder\n");
    fs::write(directory.path().join("file"), "no archive").unwrap();
    let refused = image(&["load", &path("file")]);
    assert!(refused.code != 0 && refused.stderr.contains("can't be read"), "{refused:?}");
    let left = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 2, "what was not saved leaves no file");
}
