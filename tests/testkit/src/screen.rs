//! A program on a pseudo-terminal, driven by keys and judged by what it writes.
//!
//! Invariant: the program ends when its [`Screen`] is dropped.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;

use crate::clients::code;
use crate::eventually;

/// A running program on a terminal of 24 lines of 100 characters.
#[derive(Debug)]
pub struct Screen {
    program: Child,
    keys: File,
    /// Kept open, so that what the program leaves behind can be looked at.
    terminal: OwnedFd,
    written: Arc<Mutex<String>>,
}

impl Screen {
    /// Starts `command` with the terminal as its streams.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn start(command: &mut Command) -> Screen {
        let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).expect("a pseudo-terminal");
        let [stdin, stdout, stderr] = [(); 3].map(|()| pty.slave.try_clone().expect("use the terminal again"));
        command.env("TERM", "xterm").stdin(stdin).stdout(stdout).stderr(stderr);
        let program = command.spawn().expect("start a program on a terminal");
        let keys = File::from(pty.master);
        let written = Arc::new(Mutex::new(String::new()));
        let (mut screen, kept) = (keys.try_clone().expect("read the terminal"), Arc::clone(&written));
        // Ends with the last descriptor of the terminal.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Screen { program, keys, terminal: pty.slave, written }
    }

    /// All that was written so far.
    pub fn text(&self) -> String {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until something was written.
    pub fn shows(&self, word: &str) {
        eventually(&format!("{word} on the screen"), || {
            let text = self.text();
            if text.contains(word) { Ok(()) } else { Err(text) }
        });
    }

    /// Presses keys.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("press keys");
    }

    /// Makes the terminal larger or smaller, and tells the program as a terminal does.
    ///
    /// # Panics
    /// When `stty` can't do it.
    pub fn resize(&self, rows: u16, columns: u16) {
        let terminal = self.terminal.try_clone().expect("use the terminal again");
        let size = ["rows".to_owned(), rows.to_string(), "cols".to_owned(), columns.to_string()];
        let stty = Command::new("stty").args(size).stdin(terminal).status().expect("run stty");
        assert!(stty.success(), "{stty}");
        // It is not the program's controlling terminal, so nobody else would say.
        self.signal(Signal::SIGWINCH);
    }

    /// Sends the program a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.program.id() as i32), signal).expect("signal a program");
    }

    /// Whether lines are edited and echoed, as a shell has it.
    pub fn is_as_a_shell_has_it(&self) -> bool {
        let state = tcgetattr(&self.terminal).expect("look at the terminal");
        state.local_flags.contains(LocalFlags::ICANON | LocalFlags::ECHO)
    }

    /// Waits for the program's end, checks that the terminal is as it was, and gives the exit code.
    ///
    /// # Panics
    /// When it is not.
    pub fn end(&mut self) -> i32 {
        let status = self.program.wait().expect("wait for a program");
        assert!(self.is_as_a_shell_has_it(), "{}", self.text());
        code(status)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // One that has ended can't be killed.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
