//! `pumice up --background`: starts a platform that outlives the command and its terminal, and waits until it is ready.
//!
//! Invariant: of several at once on one directory one starts a platform, and all of them return when it is ready. Standard
//! output tells what was started, so it is empty where one runs already.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use pumice_jobs::platform::target::{RunFile, read_run_file};
use pumice_store::{DirectoryLock, LockError};

use super::READY_WITHIN;
use crate::data_dir::DataDir;
use crate::{logging, output, room};

/// The flag, which what it starts doesn't get.
const FLAG: &str = "--background";
/// Held while a platform is being started in the background, so that the next one finds it.
const TURN_FILE: &str = "start.lock";
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What is shown of the log of a platform that didn't come up.
const TAIL_BYTES: u64 = 4 << 10;
const TAIL_LINES: usize = 10;

/// Has a platform run in `data`, which exists.
pub fn start(data: &DataDir) -> Result<()> {
    let turn = data.path().join(TURN_FILE);
    let turn = File::options().create(true).truncate(false).write(true).mode(0o600).open(&turn).and_then(|file| {
        file.lock()?;
        Ok(file)
    });
    let _turn = turn.with_context(|| format!("wait for others that start a platform in {}", data.path().display()))?;
    if let Some(running) = running(data)? {
        let RunFile { url, .. } = running;
        output::note(format_args!("pumice is up already at {url} (KUBECONFIG={})", data.kubeconfig().display()));
        return Ok(());
    }
    room::check_for_start(data.path())?;
    let mut platform = spawn(data)?;
    let url = ready(data, &mut platform)?;
    let down = match DataDir::choose(None) {
        Ok(own) if own.path() == data.path() => "pumice down".to_owned(),
        _ => format!("pumice down --data-dir {}", data.path().display()),
    };
    let log = data.log();
    let log = log.display();
    output::line(format_args!("pumice is up at {url} in the background; `{down}` ends it (its log: {log})"))
}

/// The platform that runs there, once it is ready. One that comes up or goes down just now is waited for.
fn running(data: &DataDir) -> Result<Option<RunFile>> {
    for _ in looks() {
        let held = match DirectoryLock::acquire(data.path()) {
            Ok(_nobody) => return Ok(None),
            Err(LockError::InUse { pid, .. }) => pid,
            Err(error) => return Err(error).context("look whether a platform runs"),
        };
        // A note by somebody else is what a crash has left.
        let note = read_run_file(data.path())?;
        if let Some(note) = note.filter(|note| note.pid.to_string() == held) {
            return Ok(Some(note));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    bail!("another process uses {}, and no platform came up there", data.path().display())
}

/// Starts the same command without the flag, out of reach of the terminal's signals.
fn spawn(data: &DataDir) -> Result<Child> {
    let log = new_log(&data.log()).with_context(|| format!("write {}", data.log().display()))?;
    let program = std::env::current_exe().context("find this program")?;
    Command::new(program)
        .args(std::env::args_os().skip(1).filter(|word| word != FLAG))
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("share the log")?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("start the platform")
}

/// An empty log; the one before it, which may tell of a crash, is kept once.
fn new_log(path: &Path) -> std::io::Result<File> {
    if path.exists() {
        fs::rename(path, logging::older(path))?;
    }
    logging::open(path)
}

/// Waits until the platform has left its note, and gives its address.
fn ready(data: &DataDir, platform: &mut Child) -> Result<String> {
    for _ in looks() {
        if let Some(note) = read_run_file(data.path())?.filter(|note| note.pid == platform.id()) {
            return Ok(note.url);
        }
        if platform.try_wait().context("wait for the platform")?.is_some() {
            let said = tail(&data.log()).unwrap_or_default();
            bail!("it ended before it was ready; {} says\n{said}", data.log().display());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    bail!("it is not ready yet; {} says\n{}", data.log().display(), tail(&data.log()).unwrap_or_default())
}

/// How often to look: a platform that isn't ready in time ends by itself, and is then seen to have ended.
fn looks() -> std::ops::Range<u128> {
    0..2 * READY_WITHIN.as_millis() / LOOK_EVERY.as_millis()
}

/// The last lines of a file, indented.
fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_new_each_time_and_the_one_before_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("up.log");
        for text in ["first", "second", "third"] {
            new_log(&path).unwrap();
            fs::write(&path, text).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "third");
        assert_eq!(fs::read_to_string(directory.path().join("up.log.1")).unwrap(), "second");
    }

    #[test]
    fn of_a_log_the_last_lines_are_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("up.log");
        for (text, wanted) in [
            (String::new(), String::new()),
            ("one\ntwo\n".into(), "  one\n  two".into()),
            (
                (0..1000).map(|line| format!("{line}\n")).collect(),
                (990..1000).map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n"),
            ),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(tail(&path).unwrap(), wanted);
        }
    }
}
