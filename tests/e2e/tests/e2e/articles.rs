//! The manifests of the articles about Volcano are accepted and run, unchanged (requirement V13), in the images that they name.

use std::path::Path;

use pumice_testkit::{Platform, eventually, shared_fixture};

use crate::example_images::{World, serve_pages};

/// A platform that gets the articles' images from a registry.
fn world() -> World {
    World::start(&["--cpu", "16"])
}

fn article(name: &str) -> Option<String> {
    shared_fixture(&format!("articles/{name}")).map(|path| path.to_str().unwrap().to_owned())
}

#[test]
fn the_test_job_runs_with_ssh_env_svc_and_two_volumes() {
    let Some(manifest) = article("test-job.yaml") else { return };
    let world = world();
    let platform = &world.platform;
    platform.kubectl(["apply", "-f", &manifest]).ok();
    // It is nginx, which serves until it is ended.
    serve_pages(platform, "volcano.sh/job-name=test-job", 6);
    let script = "ls -d /myinput /myoutput && ls /root/.ssh && cat /etc/volcano/default_nginx.host && touch /myoutput/$(hostname)";
    let said = platform.kubectl(["exec", "test-job-default-nginx-5", "--", "sh", "-c", script]).ok();
    for word in ["/myinput", "/myoutput", "id_rsa", "authorized_keys", "test-job-default-nginx-5.test-job"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let there = platform.kubectl(["exec", "test-job-default-nginx-0", "--", "ls", "/myoutput"]).ok();
    assert_eq!(there, "test-job-default-nginx-5\n", "all of them see the claim");
    let claim = platform.get("pvc", "testvolumeclaimname").expect("its claim was made");
    assert_eq!(claim["status"]["phase"], "Bound", "{claim}");
}

#[test]
fn the_tensorflow_job_meets_and_completes() {
    let Some(manifest) = article("tensorflow-dist-mnist.yaml") else { return };
    let world = world();
    let platform = &world.platform;
    platform.kubectl(["apply", "-f", &manifest]).ok();
    platform.wait_for_phase("tensorflow-dist-mnist", "Completed");
    platform.kubectl(["delete", "-f", &manifest]).ok();
    let output = run_by_jobctl(platform, &manifest);
    for line in ["ps 0 reached tensorflow-dist-mnist-worker-1", "worker 0 of 2 got 1", "worker 1 of 2 got 1"] {
        assert!(output.contains(line), "{line}: {output}");
    }
}

#[test]
fn the_mindspore_job_runs_its_eight_pods() {
    let Some(manifest) = article("mindspore-cpu.yaml") else { return };
    let world = world();
    let platform = &world.platform;
    platform.kubectl(["apply", "-f", &manifest]).ok();
    let job = platform.wait_for_phase("mindspore-cpu", "Completed");
    assert_eq!(job["status"]["succeeded"], 8, "{}", job["status"]);
    platform.kubectl(["delete", "-f", &manifest]).ok();
    assert_eq!(run_by_jobctl(platform, &manifest).matches("epoch 1 on").count(), 8);
}

#[test]
fn the_queue_and_the_pod_group_are_accepted_and_the_queue_limits() {
    let (Some(queue), Some(group), Some(job)) =
        (article("queue-default.yaml"), article("podgroup.yaml"), article("mindspore-cpu.yaml"))
    else {
        return;
    };
    let world = world();
    let platform = &world.platform;
    platform.kubectl(["apply", "-f", &queue]).ok();
    assert_eq!(platform.get("queue", "default").unwrap()["spec"]["capability"]["cpu"], "4");
    platform.kubectl(["apply", "-f", &group]).ok();
    eventually("the pod group is admitted to its queue", || {
        let group = platform.get("podgroup", "test").ok_or("no pod group")?;
        if group["status"]["phase"] == "Inqueue" { Ok(()) } else { Err(group["status"].to_string()) }
    });
    // Eight pods of one cpu each in a queue of four.
    platform.kubectl(["apply", "-f", &job]).ok();
    platform.wait_for_phase("mindspore-cpu", "Completed");
}

/// Runs a manifest and gives what its pods printed.
fn run_by_jobctl(platform: &Platform, manifest: &str) -> String {
    eventually("the job of before is gone", || {
        let jobs = platform.list("jobs.batch.volcano.sh");
        let pods = platform.list("pods");
        if jobs.is_empty() && pods.is_empty() {
            Ok(())
        } else {
            Err(format!("{} jobs, {} pods", jobs.len(), pods.len()))
        }
    });
    assert!(Path::new(manifest).is_file());
    platform.jobctl(["run", "-f", manifest]).ok()
}
