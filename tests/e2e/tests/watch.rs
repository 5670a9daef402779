//! The live view of `jobctl`, on a terminal of its own.
#![allow(clippy::unwrap_used)] // a test may panic

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use pumice_testkit::{Platform, Setup, binary, eventually};

/// `jobctl watch` on a pseudo-terminal.
struct Watch {
    view: Child,
    keys: File,
    /// Kept open, so that what the view leaves behind can be looked at.
    terminal: OwnedFd,
    written: Arc<Mutex<String>>,
}

impl Watch {
    fn start(platform: &Platform) -> Watch {
        let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let mut command = Command::new(binary("jobctl"));
        command.arg("watch").env("PUMICE_DATA_DIR", platform.data_dir()).env("TERM", "xterm");
        let [stdin, stdout, stderr] = [(); 3].map(|()| pty.slave.try_clone().unwrap());
        let view = command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().unwrap();
        let keys = File::from(pty.master);
        let written = Arc::new(Mutex::new(String::new()));
        let (mut screen, kept) = (keys.try_clone().unwrap(), written.clone());
        // Ends with the last descriptor of the terminal.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                kept.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Watch { view, keys, terminal: pty.slave, written }
    }

    fn text(&self) -> String {
        self.written.lock().unwrap().clone()
    }

    fn shows(&self, word: &str) {
        eventually(&format!("{word} on the screen"), || {
            let text = self.text();
            if text.contains(word) { Ok(()) } else { Err(text) }
        });
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Whether lines are edited and echoed, as a shell has it.
    fn is_as_a_shell_has_it(&self) -> bool {
        tcgetattr(&self.terminal).unwrap().local_flags.contains(LocalFlags::ICANON | LocalFlags::ECHO)
    }

    /// Waits for its end, and checks that the terminal is as it was.
    fn end(mut self) -> ExitStatus {
        let status = self.view.wait().unwrap();
        assert!(self.is_as_a_shell_has_it());
        for restored in ["\u{1b}[?1049l", "\u{1b}[?25h"] {
            self.shows(restored);
        }
        status
    }
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

    let mut watch = Watch::start(&platform);
    watch.shows("endless");
    watch.shows("Running");
    watch.shows("ToldByATest");
    assert!(!watch.is_as_a_shell_has_it());
    watch.press("c");
    watch.shows("cancel endless? y");
    watch.press("y");
    // Only what differs is drawn, so the new state may not stand in one piece.
    platform.wait_for_phase("endless", "Terminated");
    watch.press("q");
    assert_eq!(watch.end().code(), Some(0));

    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let watch = Watch::start(&platform);
        watch.shows("endless");
        kill(Pid::from_raw(i32::try_from(watch.view.id()).unwrap()), signal).unwrap();
        assert_eq!(watch.end().code(), Some(130), "{signal}");
    }

    let mut watch = Watch::start(&platform);
    watch.shows("endless");
    watch.press("\u{3}");
    assert_eq!(watch.end().code(), Some(0), "a key like any other");
}
