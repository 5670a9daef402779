//! A platform for who has none yet: where nothing says which one to talk to, work brings up the one of this machine.
//!
//! Invariant: never where a flag, a variable or a context names a platform, never in a pod, and never two: `pumice up
//! --background` sees to that. Blocks until jobs can be submitted. Called by what submits, before it connects.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::NAME_ONE;
use crate::error::{Failure, Remedy};
use crate::exit_code::Exit;
use crate::platform::target::{Environment, RunFile, Target, read_run_file};

/// The program, beside ours or on the `PATH`.
const PROGRAM: &str = "pumice";
/// How long a platform of this machine may take to accept a connection before it counts as busy.
const ACCEPT_WITHIN: Duration = Duration::from_secs(1);

/// What a platform that can't start for want of room on its disk says to do.
pub const MAKE_ROOM: &str = "make room there and start it again";

/// Why there is still no platform.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is nothing that could be started.
    #[error(
        "no platform is running in {}, and there is no program {PROGRAM} to start one, neither beside this one nor on the \
         PATH",
        data_dir.display()
    )]
    NoProgram {
        /// Where one would run.
        data_dir: PathBuf,
    },
    /// The system runs no such program.
    #[error("no platform is running in {}, and {} can't be run to start one", data_dir.display(), program.display())]
    Run {
        /// Where one would run.
        data_dir: PathBuf,
        /// What was to start it.
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It didn't come up.
    #[error("no platform is running in {}, and none could be started: {output}", data_dir.display())]
    Ended {
        /// Where one would run.
        data_dir: PathBuf,
        /// What it said, with the end of its log.
        output: String,
    },
}

impl Failure for StartError {
    fn exit(&self) -> Exit {
        Exit::Unreachable
    }

    fn remedy(&self) -> Remedy {
        match self {
            StartError::NoProgram { .. } => Remedy::from_text(NAME_ONE),
            // Its sentence says what to do.
            StartError::Ended { output, .. } if output.contains(MAKE_ROOM) => Remedy::Unknown,
            StartError::Run { .. } | StartError::Ended { .. } => Remedy::from_text("pumice up"),
        }
    }
}

/// Brings up the platform of this machine if no other is meant and it doesn't run. Gives the line that says what was
/// started and how to end it, `None` where nothing was. `beside` is the directory of the user's own programs, which is looked
/// in before the `PATH`.
pub fn ensure(target: &Target, environment: &Environment, beside: Option<&Path>) -> Result<Option<String>, StartError> {
    let Some(data_dir) = startable(target, environment).filter(|data_dir| !runs(data_dir)) else { return Ok(None) };
    let output = start(data_dir, beside)?;
    // Nothing, if another command has started it meanwhile.
    Ok(Some(output).filter(|output| !output.is_empty()))
}

/// The directory of a platform that may be started: the user's own one, if nobody said anything.
fn startable<'t>(target: &'t Target, environment: &Environment) -> Option<&'t Path> {
    match target {
        Target::Local { data_dir, context: None, by_default: true } => {
            let output = environment.data_dir.is_some() || environment.in_pod || environment.autostart_off;
            (!output).then_some(data_dir)
        }
        _ => None,
    }
}

/// Whether a platform runs there. What can't be read is for who connects to report.
fn runs(data_dir: &Path) -> bool {
    match read_run_file(data_dir) {
        Ok(None) => false,
        Ok(Some(run)) => !is_gone(&run),
        Err(_) => true,
    }
}

/// Whether nobody listens where the note says: it outlives a crash, and a machine that was switched off.
fn is_gone(run: &RunFile) -> bool {
    let address = run.url.strip_prefix("https://").and_then(|address| address.parse::<SocketAddr>().ok());
    let refused = |address| {
        TcpStream::connect_timeout(&address, ACCEPT_WITHIN)
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    address.is_some_and(refused)
}

fn start(data_dir: &Path, beside: Option<&Path>) -> Result<String, StartError> {
    let here = beside.map(|directory| directory.join(PROGRAM)).filter(|program| program.is_file());
    let program = here.unwrap_or_else(|| PathBuf::from(PROGRAM));
    let failed = |source: std::io::Error| {
        let (data_dir, program) = (data_dir.to_owned(), program.clone());
        match source.kind() {
            ErrorKind::NotFound => StartError::NoProgram { data_dir },
            _ => StartError::Run { data_dir, program, source },
        }
    };
    let output = Command::new(&program)
        // A free port: another user of the machine may have the usual one.
        .args(["up", "--background", "--port", "0", "--data-dir"])
        .arg(std::path::absolute(data_dir).map_err(failed)?)
        // It must not hold on to the directory that somebody happened to be in.
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let output = text(&output.stderr);
    let output = output.strip_prefix("pumice: ").unwrap_or(&output).to_owned();
    Err(StartError::Ended { data_dir: data_dir.to_owned(), output })
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::platform::target::{Flags, RUN_FILE, choose};

    #[test]
    fn only_where_nobody_has_said_which_platform() {
        let home = Environment { home: Some("/home/ada".into()), ..Environment::default() };
        let none = Flags::default();
        let named = Some("east".to_owned());
        for (what, flags, environment, wanted) in [
            ("nothing said", none.clone(), home.clone(), true),
            ("a kubeconfig", Flags { kubeconfig: Some("/k".into()), ..none.clone() }, home.clone(), false),
            ("a context", Flags { context: named.clone(), ..none.clone() }, home.clone(), false),
            ("a directory", Flags { data_dir: Some("/d".into()), ..none.clone() }, home.clone(), false),
            ("$PUMICE_CONTEXT", none.clone(), Environment { context: named, ..home.clone() }, false),
            ("$PUMICE_DATA_DIR", none.clone(), Environment { data_dir: Some("/d".into()), ..home.clone() }, false),
            ("$XDG_DATA_HOME", none.clone(), Environment { xdg_data_home: Some("/x".into()), ..home.clone() }, true),
            ("switched off", none.clone(), Environment { autostart_off: true, ..home.clone() }, false),
            ("in a pod", none, Environment { in_pod: true, ..home }, false),
        ] {
            let target = choose(&flags, &environment).unwrap();
            assert_eq!(startable(&target, &environment).is_some(), wanted, "{what}");
        }
    }

    /// A home with a script in place of the program.
    /// By a child: what this process has open for writing, the children of other tests have too until they are
    /// programs of their own, and a file that is open for writing can't be run.
    fn write_program(path: &Path, text: &str) {
        let script = "printf %s \"$2\" > \"$1\" && chmod 755 \"$1\"";
        let mut shell = Command::new("sh");
        let written = shell.args(["-c", script, "sh"]).arg(path).arg(text).status().unwrap();
        assert!(written.success(), "{written}");
    }

    /// A machine with a `pumice` that is a script.
    struct Machine {
        home: tempfile::TempDir,
        target: Target,
        environment: Environment,
    }

    fn machine(script: &str) -> Machine {
        let home = tempfile::tempdir().unwrap();
        write_program(&home.path().join(PROGRAM), &format!("#!/bin/sh\n{script}\n"));
        let environment = Environment { home: Some(home.path().to_owned()), ..Environment::default() };
        let target = choose(&Flags::default(), &environment).unwrap();
        Machine { home, target, environment }
    }

    #[test]
    fn what_the_program_says_is_passed_on() {
        for (script, wanted) in [
            ("echo up in \"$PWD\" by \"$1 $2 $3 $4\"", Ok(Some("up in / by up --background --port 0"))),
            ("echo it was up already >&2", Ok(None)),
            ("echo pumice: no right >&2; exit 1", Err("none could be started: no right")),
        ] {
            let Machine { home, target, environment } = machine(script);
            let output = ensure(&target, &environment, Some(home.path()));
            match (output, wanted) {
                (Ok(output), Ok(wanted)) => assert_eq!(output.as_deref(), wanted, "{script}"),
                (Err(error), Err(wanted)) => assert!(error.to_string().ends_with(wanted), "{error}"),
                (output, wanted) => panic!("{script}: {output:?} instead of {wanted:?}"),
            }
        }
    }

    #[test]
    fn a_note_counts_while_somebody_listens_where_it_says() {
        let Machine { home, target, environment } = machine("echo started");
        let data_dir = startable(&target, &environment).unwrap();
        std::fs::create_dir_all(data_dir).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let write_note = |address: SocketAddr| {
            let url = format!("https://{address}");
            let note = serde_json::json!({"pid": 1, "url": url, "kubeconfig": "k", "started": "2026-01-01T00:00:00Z"});
            std::fs::write(data_dir.join(RUN_FILE), note.to_string()).unwrap();
        };
        let ensured = || ensure(&target, &environment, Some(home.path())).unwrap();
        let address = listener.local_addr().unwrap();
        write_note(address);
        assert_eq!(ensured(), None);
        // Nobody can listen at a connection's own end. A listener that is closed may still be held by another
        // test's child that isn't a program of its own yet.
        let connection = TcpStream::connect(address).unwrap();
        write_note(connection.local_addr().unwrap());
        assert_eq!(ensured().as_deref(), Some("started"), "after a crash the note stays");
        std::fs::write(data_dir.join(RUN_FILE), "{").unwrap();
        assert_eq!(ensured(), None, "what is wrong with it is said by who connects");
    }
}
