//! The clients that are attached to one run of a container, and the container's input.
//!
//! Invariant: what the container writes goes to all of them, from when each came, and nothing of it is left out. So while one is
//! behind, the container's output is left unread; but a client may be behind for [`BEHIND_MAX`] in each [`PACE_BYTES`] that it
//! takes, and is sent away after that, so that it can hold up a container and its log no longer. Nothing here blocks, and of each
//! client one reading is buffered at most until the run's end. Owned by a [`Process`](super::process::Process).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use super::attach::{self, ATTACHED, DATA_BYTES_MAX, ENDED, INPUT_ENDED, REFUSED, RESIZE, STDIN};
use super::terminal;

/// How long a client may be behind before it has taken [`PACE_BYTES`].
pub(crate) const BEHIND_MAX: Duration = Duration::from_secs(5);
/// What a client has to take in that time.
const PACE_BYTES: usize = 64 << 10;
/// What is buffered for a client at the end of a run, in bytes.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Clients of one container at most.
const CLIENTS_MAX: usize = 64;
/// Messages taken from a client at once, so that one does not starve the others.
const MESSAGES_MAX: usize = 16;

/// A client that is attached.
pub(crate) struct Client {
    socket: OwnedFd,
    /// What it has not taken yet, by channels.
    waiting: VecDeque<(u8, Vec<u8>)>,
    /// Since when it is behind, if it is.
    behind_since: Option<Instant>,
    /// How long it was before that, and what it has taken, since these were counted anew.
    behind: Duration,
    taken: usize,
    /// Whether it has said that it types.
    types: bool,
    /// Whether it has gone; what it has typed may still be there.
    gone: bool,
}

impl Client {
    fn new(socket: OwnedFd) -> Self {
        Client {
            socket,
            waiting: VecDeque::new(),
            behind_since: None,
            behind: Duration::ZERO,
            taken: 0,
            types: false,
            gone: false,
        }
    }

    /// Whether there is something that it has not taken.
    pub(crate) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Polled for being ready to take more.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// When it is sent away unless it takes something.
    pub(crate) fn patience_ends(&self) -> Option<Instant> {
        self.behind_since.map(|since| since + BEHIND_MAX.saturating_sub(self.behind))
    }

    fn send(&mut self, channel: u8, data: &[u8], at: Instant) {
        if self.gone {
            return;
        }
        if self.waiting.is_empty() {
            match attach::send(&self.socket, channel, data) {
                Ok(()) => return self.count(data.len(), at),
                Err(errno) if is_full(errno) => self.behind_since = Some(at),
                Err(_) => return self.gone = true,
            }
        }
        let waiting: usize = self.waiting.iter().map(|(_, data)| data.len()).sum();
        if waiting + data.len() > WAITING_BYTES_MAX {
            self.gone = true;
            return self.waiting.clear();
        }
        self.waiting.push_back((channel, data.to_vec()));
    }

    /// Sends what waits, as far as it goes; whether the client may stay.
    pub(crate) fn flush(&mut self, at: Instant) -> bool {
        while let Some((channel, data)) = self.waiting.front() {
            match attach::send(&self.socket, *channel, data) {
                Ok(()) => {
                    let length = data.len();
                    self.waiting.pop_front();
                    self.count(length, at);
                }
                Err(errno) if is_full(errno) => break,
                Err(_) => {
                    self.gone = true;
                    self.waiting.clear();
                }
            }
        }
        if self.waiting.is_empty() {
            self.behind += self.behind_since.take().map_or(Duration::ZERO, |since| at.saturating_duration_since(since));
            return true;
        }
        self.patience_ends().is_none_or(|end| at < end)
    }

    fn count(&mut self, bytes: usize, at: Instant) {
        self.taken += bytes;
        if self.taken >= PACE_BYTES {
            (self.taken, self.behind) = (0, Duration::ZERO);
            self.behind_since = self.behind_since.map(|_| at);
        }
    }
}

fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM)
}

/// Says to who wanted to be attached that this can't be.
pub(crate) fn refuse(client: &OwnedFd, text: &str) {
    // One that is gone needs no word.
    let _ = attach::send(client, REFUSED, text.as_bytes());
}

/// All clients of a run, and its input.
pub(crate) struct Attached {
    clients: Vec<Client>,
    /// What is typed goes in here; none where the container has no input, or none any more.
    input: Option<File>,
    /// What was typed and is not taken by the container yet. No more is taken from anybody meanwhile.
    typed: Vec<u8>,
    /// Whether the input ends with that of the first client that typed.
    once: bool,
    terminal: OnTerminal,
}

/// Whether the container is on a terminal.
enum OnTerminal {
    No,
    /// It makes one; who types has to wait.
    Soon {
        is_input: bool,
    },
    Yes(File),
}

impl Attached {
    /// Nobody, and what can be typed into.
    pub(crate) fn new(input: Option<File>, once: bool) -> Self {
        Attached { clients: Vec::new(), input, typed: Vec::new(), once, terminal: OnTerminal::No }
    }

    /// Of a container on a terminal, which comes later by [`Attached::set_terminal`]. A terminal's input never ends, as with containerd.
    pub(crate) fn of_terminal(is_input: bool) -> Self {
        Attached { terminal: OnTerminal::Soon { is_input }, ..Attached::new(None, false) }
    }

    /// The terminal is there, or will never be.
    pub(crate) fn set_terminal(&mut self, keyboard: Option<&File>) -> io::Result<()> {
        let is_input = matches!(self.terminal, OnTerminal::Soon { is_input: true });
        self.terminal = OnTerminal::No;
        if let Some(keyboard) = keyboard {
            self.input = if is_input { Some(keyboard.try_clone()?) } else { None };
            self.terminal = OnTerminal::Yes(keyboard.try_clone()?);
        }
        Ok(())
    }

    /// Whether nothing is taken from clients for now.
    fn is_blocked(&self) -> bool {
        !self.typed.is_empty() || matches!(self.terminal, OnTerminal::Soon { .. })
    }

    pub(crate) fn add(&mut self, socket: OwnedFd, at: Instant) {
        if self.clients.len() >= CLIENTS_MAX {
            return refuse(&socket, "too many clients are attached to this container; end one, or try again later");
        }
        let mut client = Client::new(socket);
        client.send(ATTACHED, &[], at);
        self.clients.push(client);
    }

    /// Whether somebody has to read before more of the output is taken.
    pub(crate) fn holds_up(&self) -> bool {
        self.clients.iter().any(Client::is_behind)
    }

    /// Copies output to all.
    pub(crate) fn write(&mut self, channel: u8, bytes: &[u8], at: Instant) {
        for client in &mut self.clients {
            bytes.chunks(DATA_BYTES_MAX).for_each(|chunk| client.send(channel, chunk, at));
        }
    }

    /// What to poll, and for what.
    pub(crate) fn pollable(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let (is_blocked, is_typed) = (self.is_blocked(), !self.typed.is_empty());
        let clients = self.clients.iter().filter_map(move |client| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, !is_blocked);
            flags.set(PollFlags::POLLOUT, client.is_behind());
            // One that is asked for nothing would wake us for ever once it is gone.
            (!flags.is_empty()).then(|| (client.socket.as_fd(), flags))
        });
        let input = self.input.as_ref().filter(|_| is_typed).map(|input| (input.as_fd(), PollFlags::POLLOUT));
        clients.chain(input)
    }

    /// When somebody is sent away although nothing happens.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        self.clients.iter().filter_map(Client::patience_ends).min()
    }

    /// Descriptors that no container may have a copy of: somebody waits for their end.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let sockets = self.clients.iter().map(|client| client.socket.as_raw_fd());
        let keyboard = if let OnTerminal::Yes(keyboard) = &self.terminal { Some(keyboard) } else { None };
        sockets.chain(self.input.iter().chain(keyboard).map(AsRawFd::as_raw_fd))
    }

    /// Takes what was typed, gives out what waits, and parts from who is gone or too slow.
    pub(crate) fn turn(&mut self, at: Instant) {
        self.pass_on();
        let mut clients = std::mem::take(&mut self.clients);
        clients.retain_mut(|client| {
            let stays = self.hear(client) && client.flush(at);
            if !stays && client.types {
                self.end_input();
            }
            stays
        });
        self.clients = clients;
    }

    /// The run is over: all are told, behind what they have not taken yet. Gives those that have some of it left to take.
    pub(crate) fn end(mut self, at: Instant) -> Vec<Client> {
        self.clients.iter_mut().for_each(|client| client.send(ENDED, &[], at));
        self.clients.retain_mut(|client| client.flush(at) && client.is_behind());
        self.clients
    }

    /// Takes messages of a client; whether it may have more to say.
    fn hear(&mut self, client: &mut Client) -> bool {
        let mut buffer = [0; DATA_BYTES_MAX];
        for _ in 0..MESSAGES_MAX {
            if self.is_blocked() {
                return true;
            }
            match attach::receive(&client.socket, &mut buffer) {
                Ok(Some((STDIN, length))) => {
                    client.types = true;
                    if self.input.is_some() {
                        self.typed.extend_from_slice(&buffer[..length]);
                        self.pass_on();
                    }
                }
                Ok(Some((INPUT_ENDED, _))) => self.end_input(),
                Ok(Some((RESIZE, length))) => self.resize(&buffer[..length]),
                // Of a later agent.
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(Errno::EAGAIN) => return true,
                Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn pass_on(&mut self) {
        while let (Some(input), false) = (&mut self.input, self.typed.is_empty()) {
            match input.write(&self.typed) {
                Ok(written) => drop(self.typed.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A program that closed its input goes on without.
                Err(_) => self.input = None,
            }
        }
        if self.input.is_none() {
            self.typed.clear();
        }
    }

    /// Ends the input where it is the first client's only.
    fn end_input(&mut self) {
        if self.once {
            self.input = None;
        }
    }

    fn resize(&self, data: &[u8]) {
        if let (OnTerminal::Yes(keyboard), Some((columns, rows))) = (&self.terminal, attach::window_of(data)) {
            // A program that has just ended has no window.
            let _ = terminal::resize(keyboard, columns, rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use pumice_clock as clock;
    use std::io::{PipeReader, Read};

    const OUT: u8 = attach::STDOUT;

    fn client(attached: &mut Attached) -> OwnedFd {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        attached.add(theirs, clock::monotonic());
        assert_eq!(next(&ours), Some((ATTACHED, Vec::new())));
        ours
    }

    fn next(client: &OwnedFd) -> Option<(u8, Vec<u8>)> {
        let mut buffer = [0; DATA_BYTES_MAX];
        let received = attach::receive(client, &mut buffer).unwrap_or(None);
        received.map(|(channel, length)| (channel, buffer[..length].to_vec()))
    }

    fn with_input(once: bool) -> (Attached, PipeReader) {
        let (read, write) = io::pipe().unwrap();
        for end in [read.as_fd(), write.as_fd()] {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        }
        (Attached::new(Some(File::from(OwnedFd::from(write))), once), read)
    }

    fn read(input: &mut PipeReader) -> Option<usize> {
        let mut buffer = vec![0; 1 << 20];
        input.read(&mut buffer).ok()
    }

    #[test]
    fn all_get_what_is_written_from_when_they_came() {
        let now = clock::monotonic();
        let mut attached = Attached::new(None, false);
        attached.write(OUT, b"before", now);
        let (one, two) = (client(&mut attached), client(&mut attached));
        attached.write(OUT, &[b'x'; DATA_BYTES_MAX + 1], now);
        for client in [&one, &two] {
            assert_eq!([next(client), next(client)].map(|found| found.unwrap().1.len()), [DATA_BYTES_MAX, 1]);
        }
        drop(one);
        attached.turn(now);
        assert_eq!(attached.clients.len(), 1);
        assert!(attached.end(now).is_empty());
        assert_eq!(next(&two), Some((ENDED, Vec::new())));
    }

    #[test]
    fn who_is_behind_holds_the_output_up_for_a_while_and_is_sent_away() {
        let now = clock::monotonic();
        let mut attached = Attached::new(None, false);
        let (slow, quick) = (client(&mut attached), client(&mut attached));
        while !attached.holds_up() {
            attached.write(OUT, &[b'x'; DATA_BYTES_MAX], now);
            next(&quick);
        }
        let end = now + BEHIND_MAX;
        assert_eq!(attached.next_turn(), Some(end));
        // A little is not enough: one message for each pause makes no pace.
        let mut at = now;
        for second in 1..5 {
            at = now + Duration::from_secs(second);
            attached.turn(at);
            assert_eq!(attached.clients.len(), 2, "after {second} s");
        }
        next(&slow);
        attached.turn(at);
        assert!(!attached.holds_up());
        attached.write(OUT, b"small", at);
        attached.write(OUT, &[b'x'; DATA_BYTES_MAX - 5], at);
        attached.turn(at);
        // It has taken what makes a pace, so it is counted anew.
        for _ in 0..4 {
            next(&slow);
            attached.write(OUT, &[b'x'; DATA_BYTES_MAX], at);
            attached.turn(at);
        }
        while !attached.holds_up() {
            attached.write(OUT, &[b'x'; DATA_BYTES_MAX], at);
        }
        let end = attached.next_turn().unwrap();
        assert!(end > at, "it has time again");
        attached.turn(end);
        assert!(attached.clients.len() < 2 && !attached.holds_up(), "it is sent away");
    }

    #[test]
    fn what_is_typed_arrives_whole_and_waits_for_the_program() {
        let now = clock::monotonic();
        let (mut attached, mut input) = with_input(false);
        let typist = client(&mut attached);
        let mut sent = 0;
        while attach::send(&typist, STDIN, &[b'k'; DATA_BYTES_MAX]).is_ok() {
            sent += DATA_BYTES_MAX;
            attached.turn(now);
        }
        assert!(!attached.typed.is_empty() && attached.typed.len() <= DATA_BYTES_MAX);
        assert_eq!(attached.pollable().count(), 1, "the input is polled, and who types is not");
        drop(typist);
        let mut arrived = 0;
        while arrived < sent {
            arrived += read(&mut input).unwrap();
            attached.turn(now);
        }
        assert_eq!((arrived, attached.clients.len()), (sent, 0), "also what was typed before it went");
        assert_eq!(read(&mut input), None, "the input goes on");
    }

    #[test]
    fn once_ends_the_input_with_the_first_who_typed() {
        let now = clock::monotonic();
        for ends in [true, false] {
            let (mut attached, mut input) = with_input(true);
            let (onlooker, typist) = (client(&mut attached), client(&mut attached));
            drop(onlooker);
            attach::send(&typist, STDIN, b"last").unwrap();
            attached.turn(now);
            assert_eq!(read(&mut input), Some(4));
            assert_eq!(read(&mut input), None, "an onlooker ends nothing");
            if ends {
                attach::send(&typist, INPUT_ENDED, b"").unwrap();
            } else {
                drop(typist);
            }
            attached.turn(now);
            assert_eq!(read(&mut input), Some(0));
        }
    }

    #[test]
    fn a_program_without_input_goes_on() {
        let now = clock::monotonic();
        for input in [None, Some(with_input(false))] {
            let (mut attached, _) = match input {
                Some((attached, input)) => (attached, drop(input)),
                None => (Attached::new(None, true), ()),
            };
            let typist = client(&mut attached);
            for (channel, data) in [(STDIN, &b"nobody reads it"[..]), (RESIZE, b"xx"), (99, b"?"), (INPUT_ENDED, b"")] {
                attach::send(&typist, channel, data).unwrap();
            }
            attached.turn(now);
            assert!(attached.typed.is_empty() && attached.clients.len() == 1);
            attached.write(OUT, b"goes on", now);
            assert_eq!(next(&typist), Some((OUT, b"goes on".to_vec())));
        }
    }
}
