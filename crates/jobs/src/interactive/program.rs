//! What an interactive job runs while nobody is in it, and what a person gets who comes.

use std::time::Duration;

/// How long an interactive job may run where nobody says: one that was forgotten, or whose `jobctl` was killed, ends by itself.
pub const TIME_MAX: Duration = Duration::from_secs(12 * 3600);

/// Waits until it is ended, and then ends at once.
///
/// No program but the shell is needed. The right side of the pipe has both its ends, so its `read` waits for ever; `wait`, unlike a
/// program in the foreground, gives way to the signal. The child gets a signal that can't be lost: one that reaches it between its fork
/// and its first step still meets the shell's own handler, and the child would wait on.
const HOLDER: &str = "trap 'kill -9 $! 2>/dev/null; exit 143' TERM INT HUP\n: | { exec 3<>/proc/self/fd/0; read -r _ <&3; } &\nwait $!\n";

/// The pod's best shell; `$1` is the kind of terminal, where there is one.
const BEST_SHELL: &str = "[ -z \"$1\" ] || export TERM=\"$1\"\ncommand -v bash >/dev/null 2>&1 && exec bash\nexec sh\n";

/// The program of a job that only holds a place.
pub fn holder() -> Vec<String> {
    words(&["sh", "-c", HOLDER])
}

/// A shell, `bash` if there is one, on a kind of terminal as `$TERM` names it.
pub fn shell(terminal: Option<&str>) -> Vec<String> {
    words(&["sh", "-c", BEST_SHELL, "sh", terminal.unwrap_or_default()])
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};

    #[test]
    fn the_holder_waits_and_ends_at_once_when_told() {
        // Often, as its child may be anywhere in its first steps.
        for _ in 0..50 {
            hold_and_end();
        }
    }

    fn hold_and_end() {
        // Nothing but the shell: no PATH.
        let mut holder = Command::new("/bin/sh")
            .args(["-c", &format!("{HOLDER}echo it ended by itself")])
            .env_clear()
            .env("PATH", "/nonexistent")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", holder.id());
        // Its child is there once the trap is set.
        while std::fs::read_to_string(&children).unwrap().split_whitespace().count() == 0 {
            assert_eq!(holder.try_wait().unwrap(), None);
            std::thread::yield_now();
        }
        let ended = Command::new("kill").arg(holder.id().to_string()).status().unwrap();
        assert!(ended.success());
        let mut said = String::new();
        // The child, too: else its end of the pipe would stay open.
        holder.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        holder.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((holder.wait().unwrap().code(), said.as_str()), (Some(143), ""));
    }

    #[test]
    fn a_shell_knows_its_terminal() {
        for (terminal, wanted) in
            [(Some("xterm-256color"), "xterm-256color"), (None, "before"), (Some("a'$(b)"), "a'$(b)")]
        {
            let words = shell(terminal);
            let mut shell = Command::new(&words[0]);
            let mut shell = shell
                .args(&words[1..])
                .env("TERM", "before")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            std::io::Write::write_all(&mut shell.stdin.take().unwrap(), b"echo $TERM\n").unwrap();
            let mut line = String::new();
            BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line.trim_end(), wanted);
            assert!(shell.wait().unwrap().success());
        }
    }
}
