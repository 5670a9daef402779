//! News from shims: their status files change, their logs grow, their processes end.
//!
//! Invariant: a change that happens while nobody looks is found when somebody does, because whoever
//! gets a notice reads the file, and whoever starts watching reads it first.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use pumice_linux::pidfd;
use pumice_shim::control::ShimProcess;
use pumice_shim::status::STATUS_FILE;

/// Watches the status files of all pods by one descriptor.
pub(crate) struct StatusWatch {
    inotify: AsyncFd<InotifyFd>,
}

struct InotifyFd(Inotify);

impl AsRawFd for InotifyFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Hands a descriptor to the runtime's poller.
#[allow(unsafe_code)]
fn readable<T: AsRawFd>(inner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: called with `InotifyFd` and `OwnedFd` only, which own their one descriptor, keep it open
    // as long as they live, and always name the same one.
    unsafe { AsyncFd::register_with_interest(inner, Interest::READABLE) }.map_err(|error| error.into_parts().1)
}

impl StatusWatch {
    /// A watch of nothing yet.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(StatusWatch { inotify: inotify()? })
    }

    /// Watches a pod's directory; the descriptor comes back with its news and ends with the directory.
    pub(crate) fn add(&self, dir: &Path) -> io::Result<WatchDescriptor> {
        Ok(self.inotify.get_ref().0.add_watch(dir, AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONLYDIR)?)
    }

    /// Waits for news and returns which directories have some; `None` among them means: look at all.
    /// Cancel safe.
    pub(crate) async fn changed(&self) -> io::Result<Vec<Option<WatchDescriptor>>> {
        let news = next_events(&self.inotify).await?.into_iter().filter_map(|event| {
            if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                return Some(None);
            }
            (event.name.as_deref() == Some(STATUS_FILE.as_ref())).then_some(Some(event.wd))
        });
        Ok(news.collect())
    }
}

/// Watches one log that is followed.
pub(crate) struct LogWatch {
    inotify: AsyncFd<InotifyFd>,
}

impl LogWatch {
    /// Watches the folder of a log and the pod's own, where its end is written down. What happens from now on is news.
    pub(crate) fn new(log_dir: &Path, pod_dir: &Path) -> io::Result<Self> {
        let inotify = inotify()?;
        let growth = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        for dir in [log_dir, pod_dir] {
            inotify.get_ref().0.add_watch(dir, growth | AddWatchFlags::IN_ONLYDIR)?;
        }
        Ok(LogWatch { inotify })
    }

    /// Waits until something happened, be it the end of the folders. Cancel safe.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        next_events(&self.inotify).await.map(drop)
    }
}

fn inotify() -> io::Result<AsyncFd<InotifyFd>> {
    readable(InotifyFd(Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?))
}

async fn next_events(inotify: &AsyncFd<InotifyFd>) -> io::Result<Vec<InotifyEvent>> {
    loop {
        let mut ready = inotify.readable().await?;
        match inotify.get_ref().0.read_events() {
            Ok(events) => return Ok(events),
            Err(nix::Error::EAGAIN) => ready.clear_ready(),
            Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A handle on one process, whatever becomes of its pid.
pub(crate) struct ProcessHandle {
    fd: AsyncFd<OwnedFd>,
}

impl ProcessHandle {
    /// The process, if it still is the one that was meant.
    pub(crate) fn open(process: ShimProcess) -> io::Result<Option<ProcessHandle>> {
        let fd = match pidfd::open(process.pid) {
            Ok(fd) => fd,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !process.is_current() {
            return Ok(None);
        }
        Ok(Some(ProcessHandle { fd: readable(fd)? }))
    }

    /// Waits until the process has ended. Cancel safe.
    pub(crate) async fn ended(self) -> io::Result<()> {
        self.fd.readable().await.map(drop)
    }

    /// Kills the process with SIGKILL; one that has ended, or whose pid is another's by now, is left alone.
    pub(crate) fn kill(process: ShimProcess) -> io::Result<()> {
        let fd = match pidfd::open(process.pid) {
            Ok(fd) if process.is_current() => fd,
            _ => return Ok(()),
        };
        pidfd::kill(fd.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use pumice_linux::files::{Durability, write_atomic};
    use pumice_linux::procfs;

    #[tokio::test]
    async fn a_replaced_status_file_is_news() {
        let dir = tempfile::tempdir().unwrap();
        let watch = StatusWatch::new().unwrap();
        let descriptor = watch.add(dir.path()).unwrap();
        write_atomic(&dir.path().join("other.json"), b"{}", Durability::Process).unwrap();
        write_atomic(&dir.path().join(STATUS_FILE), b"{}", Durability::Process).unwrap();
        let mut news = Vec::new();
        while news.is_empty() {
            news = watch.changed().await.unwrap();
        }
        assert_eq!(news, [Some(descriptor)]);
    }

    #[tokio::test]
    async fn a_log_that_grows_and_a_pod_that_goes_are_news() {
        let dir = tempfile::tempdir().unwrap();
        let (pod, logs) = (dir.path().join("pod"), dir.path().join("pod/logs"));
        std::fs::create_dir_all(&logs).unwrap();
        std::fs::write(logs.join("0.log"), "a").unwrap();
        let watch = LogWatch::new(&logs, &pod).unwrap();
        let quiet = tokio::time::timeout(std::time::Duration::from_millis(1), watch.changed()).await;
        assert!(quiet.is_err(), "what was there before is no news");
        std::fs::OpenOptions::new()
            .append(true)
            .open(logs.join("0.log"))
            .and_then(|mut log| log.write_all(b"b"))
            .unwrap();
        watch.changed().await.unwrap();
        write_atomic(&pod.join(STATUS_FILE), b"{}", Durability::Process).unwrap();
        watch.changed().await.unwrap();
        std::fs::remove_dir_all(&pod).unwrap();
        watch.changed().await.unwrap();
    }

    #[tokio::test]
    async fn a_process_ends_once_and_is_not_mistaken() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        let process = ShimProcess { pid, start_ticks: procfs::start_ticks(pid).unwrap() };
        let another = ShimProcess { pid, start_ticks: process.start_ticks + 1 };
        assert!(ProcessHandle::open(another).unwrap().is_none());
        ProcessHandle::kill(another).unwrap();
        let handle = ProcessHandle::open(process).unwrap().unwrap();
        ProcessHandle::kill(process).unwrap();
        handle.ended().await.unwrap();
        child.wait().unwrap();
        assert!(ProcessHandle::open(process).unwrap().is_none());
    }
}
