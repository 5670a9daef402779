//! Running one more program in a container: the helper process that enters it, and its streams.
//!
//! Called by the kubelet API's exec, and by probes and hooks.

pub(crate) mod helper;
pub(crate) mod once;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Read from a program at a time, in bytes.
pub(crate) const READ_BYTES: usize = 32 << 10;
/// How long output is waited for when the program has ended but somebody that it left behind holds its streams.
pub(crate) const DRAIN: Duration = Duration::from_millis(250);
/// What a pipe of a program holds at most, in bytes, unless it makes it larger.
pub(crate) const PIPE_BYTES_MAX: usize = 64 << 10;

/// Our end of a program's stream: a pipe or the keyboard's side of a terminal.
pub(crate) struct Stream {
    file: AsyncFd<File>,
}

impl Stream {
    /// Takes an end over, and makes it non-blocking. Needs a runtime.
    #[allow(unsafe_code)]
    pub(crate) fn new(end: OwnedFd) -> io::Result<Stream> {
        let flags = OFlag::from_bits_retain(fcntl(&end, FcntlArg::F_GETFL)?);
        fcntl(&end, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        // SAFETY: a `File` owns its one descriptor, keeps it open as long as it lives, and always names the same one.
        let file = unsafe { AsyncFd::register(File::from(end)) }.map_err(|error| error.into_parts().1)?;
        Ok(Stream { file })
    }

    /// Reads what is there, 0 at the end. Cancel safe.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.async_io(Interest::READABLE, |mut file| file.read(buffer)).await;
        match read {
            // How a terminal says that nobody has it open any more.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(0),
            other => other,
        }
    }

    /// Reads what is there now; 0 where there is nothing.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> usize {
        let mut file: &File = self.file.get_ref();
        file.read(buffer).unwrap_or(0)
    }

    /// Writes all of it, waiting for a program that is slow to read.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.file.async_io(Interest::WRITABLE, |mut file| file.write(bytes)).await?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Tells the terminal how large its window is, in characters.
    #[allow(unsafe_code)]
    pub(crate) fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the descriptor is open, and `size` is what this request reads, alive until it returns.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TIOCSWINSZ, &size) };
        Ok(Errno::result(result).map(drop)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;

    #[tokio::test]
    async fn a_terminal_has_the_size_it_was_given_and_ends_with_its_last_user() {
        let pair = openpty(None, None).unwrap();
        let keyboard = Stream::new(pair.master).unwrap();
        keyboard.resize(132, 43).unwrap();
        let found = size(&pair.slave);
        assert_eq!(found, (132, 43));
        keyboard.write_all(b"typed\n").await.unwrap();
        let mut buffer = [0; 64];
        // A terminal shows what is typed.
        let read = keyboard.read(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..read], b"typed\r\n");
        drop(pair.slave);
        assert_eq!(keyboard.read(&mut buffer).await.unwrap(), 0);
    }

    #[allow(unsafe_code)]
    fn size(terminal: &OwnedFd) -> (u16, u16) {
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: as in `resize`; the kernel writes one `winsize`.
        let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
        assert_eq!(result, 0);
        (size.ws_col, size.ws_row)
    }

    #[tokio::test]
    async fn what_is_there_is_read_whether_it_was_told_or_not() {
        let (read, write) = nix::unistd::pipe().unwrap();
        let reader = Stream::new(read).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(reader.read_now(&mut buffer), 0);
        File::from(write.try_clone().unwrap()).write_all(b"said").unwrap();
        assert_eq!((reader.read_now(&mut buffer), &buffer[..4]), (4, &b"said"[..]));
        assert_eq!(reader.read_now(&mut buffer), 0, "others hold it open");
    }

    #[tokio::test]
    async fn a_pipe_takes_more_than_it_holds() {
        let (read, write) = nix::unistd::pipe().unwrap();
        let (reader, writer) = (Stream::new(read).unwrap(), Stream::new(write).unwrap());
        let sent = vec![7_u8; 300_000];
        let expected = sent.clone();
        let writing = async move {
            writer.write_all(&sent).await.unwrap();
        };
        let reading = async {
            let (mut found, mut buffer) = (Vec::new(), vec![0; 32 << 10]);
            loop {
                match reader.read(&mut buffer).await.unwrap() {
                    0 => return found,
                    read => found.extend_from_slice(&buffer[..read]),
                }
            }
        };
        let ((), found) = tokio::join!(writing, reading);
        assert_eq!(found, expected);
    }
}
