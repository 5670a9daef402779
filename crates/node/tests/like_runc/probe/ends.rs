//! How programs end: this one, by what it is told to do, and those that it or a shell starts.

use super::print;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

unsafe extern "C" {
    fn raise(signal: i32) -> i32;
    fn getppid() -> i32;
}

/// The signals that a child gets: SIGHUP, SIGINT, SIGKILL, SIGUSR1, SIGSEGV, SIGPIPE, SIGTERM, SIGXCPU.
const SIGNALS: [i32; 8] = [1, 2, 9, 10, 11, 13, 15, 24];

/// Ends this program as it is told to.
pub fn end(how: &str) -> i32 {
    match how {
        "abort" => std::process::abort(),
        "fault" => {
            // SAFETY: none: the fault is what is wanted.
            unsafe { std::ptr::null_mut::<u8>().write_volatile(0) };
            0
        }
        "orphan" => {
            let begun = std::time::Instant::now();
            // SAFETY: takes nothing and returns a number.
            while begun.elapsed().as_secs() < 2 && unsafe { getppid() } != 1 {
                std::thread::yield_now();
            }
            // SAFETY: as above.
            print("end.parent of an orphan", unsafe { getppid() });
            0
        }
        _ => match how.parse() {
            // SAFETY: takes a number; no handler is installed.
            Ok(signal) => unsafe { raise(signal) },
            Err(_) => 255,
        },
    }
}

pub fn print_all() {
    let program = std::env::args_os().next().unwrap_or_default();
    for signal in SIGNALS {
        let ended = Command::new(&program).arg(signal.to_string()).status();
        let value = ended
            .map_or_else(|error| error.to_string(), |ended| words(ended.into_raw(), |code| format!("exits {code}")));
        print(format_args!("end.child by signal {signal}"), value);
    }
    let shell = |script: &str| {
        let ended = Command::new("/bin/sh").args(["-c", script]).stderr(std::process::Stdio::null()).status();
        ended.map_or_else(|error| error.to_string(), |ended| words(ended.into_raw(), |code| format!("exits {code}")))
    };
    print("end.shell of a missing program", shell("/no-such-program; exit $?"));
    print("end.shell of a file that is no program", shell("/etc/hosts; exit $?"));
    print("end.shell of a killed child", shell("sh -c 'kill -9 $$'; exit $?"));
    print("end.shell of a terminated child", shell("sh -c 'kill -15 $$'; exit $?"));
    print("end.shell of a broken pipe", shell("trap - PIPE; (sleep 0.05; echo x; exit 7) | true; exit $?"));
    let orphan = Command::new("/bin/sh").args(["-c", "\"$0\" orphan & "]).arg(&program).output();
    print!(
        "{}",
        orphan.map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
    );
}

/// What `wait` says of a process, in words.
pub fn words(status: i32, of_code: impl Fn(i32) -> String) -> String {
    match status & 0x7f {
        0 => of_code(status >> 8 & 0xff),
        signal => format!("dies of signal {signal}{}", if status & 0x80 == 0 { "" } else { " with a core" }),
    }
}
