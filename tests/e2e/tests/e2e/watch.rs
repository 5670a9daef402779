//! The live view of `jobctl`, on a terminal of its own.

use std::process::Command;

use nix::sys::signal::Signal;
use pumice_testkit::{Platform, Screen, Setup, binary};

/// `jobctl watch` on a terminal of its own.
fn watch(platform: &Platform) -> Screen {
    Screen::start(Command::new(binary("jobctl")).arg("watch").env("PUMICE_DATA_DIR", platform.data_dir()))
}

/// Its exit code, once it ended; the terminal must be as it was, with its own screen and cursor back.
fn end(mut watch: Screen) -> i32 {
    let code = watch.end();
    for restored in ["\u{1b}[?1049l", "\u{1b}[?25h"] {
        watch.shows(restored);
    }
    code
}

#[test]
fn the_live_view_shows_jobs_and_gives_the_terminal_back() {
    let flags = ["--simulated-nodes", "1", "--local-node=false"];
    let platform = Platform::start(Setup { flags: flags.iter().map(|flag| (*flag).to_owned()).collect() });
    platform.jobctl(["submit", "--name", "endless", "--image", "host", "--", "sleep"]).ok();
    platform.wait_for_phase("endless", "Running");

    let event = "apiVersion: v1\nkind: Event\nmetadata: {name: told}\nreason: ToldByATest\nmessage: of it\ntype: Normal\n\
        lastTimestamp: 2026-01-01T12:34:56Z\ninvolvedObject: {apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: endless, namespace: default}\n";
    platform.kubectl_with_input(["create", "-f", "-"], event).ok();

    let mut view = watch(&platform);
    view.shows("endless");
    view.shows("Running");
    view.shows("ToldByATest");
    assert!(!view.is_as_a_shell_has_it());
    view.press("c");
    view.shows("cancel endless? y");
    view.press("y");
    // Only what differs is drawn, so the new state may not stand in one piece.
    platform.wait_for_phase("endless", "Terminated");
    view.press("q");
    assert_eq!(end(view), 0);

    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let view = watch(&platform);
        view.shows("endless");
        view.signal(signal);
        assert_eq!(end(view), 130, "{signal}");
    }

    let mut view = watch(&platform);
    view.shows("endless");
    view.press("\u{3}");
    assert_eq!(end(view), 0, "a key like any other");
}
