//! The servers of a fleet, of which one leads and takes executors: they are tried in turn until it is found.
//!
//! Invariant: whoever does not lead costs no time, and when all were tried there is a pause, longer each time. Pure; the
//! component asks it where to go next, and when.

use std::time::Duration;

use pumice_units::Backoff;
use pumice_wire::client::endpoint;
use tonic::transport::Endpoint;

const PAUSES: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// Where an executor goes next.
#[derive(Debug)]
pub struct Servers {
    /// There is at least one.
    all: Vec<Endpoint>,
    /// The one of them that is next.
    turn: usize,
    /// Without success since the last pause.
    tried: usize,
    /// Where one of them said that the leader is.
    leader: Option<Endpoint>,
    /// Since one of them answered.
    pauses: u32,
}

impl Servers {
    /// Servers at these addresses.
    ///
    /// # Errors
    /// The address that is none, or not of the kind that `is_encrypted` asks for; an empty one where there are none.
    pub fn new(addresses: Vec<String>, is_encrypted: bool) -> Result<Self, String> {
        let all = addresses.into_iter().map(|address| endpoint(&address, is_encrypted).ok_or(address));
        let all: Vec<Endpoint> = all.collect::<Result<_, _>>()?;
        if all.is_empty() {
            return Err(String::new());
        }
        Ok(Self { all, turn: 0, tried: 0, leader: None, pauses: 0 })
    }

    /// Where to connect next: to the leader where it is known, else to the server whose turn it is.
    pub fn next(&self) -> Endpoint {
        self.leader.as_ref().unwrap_or(&self.all[self.turn]).clone()
    }

    /// The leader is said to be elsewhere. What is no address is passed over.
    pub fn redirected(&mut self, address: &str, is_encrypted: bool) {
        self.leader = endpoint(address, is_encrypted);
    }

    /// The one that was next has answered.
    pub fn answered(&mut self) {
        (self.tried, self.pauses) = (0, 0);
    }

    /// The connection ended, or there was none. Gives how long to wait before the next.
    pub fn lost(&mut self, has_failed: bool) -> Duration {
        if has_failed {
            // A leader that is not there any more is looked for where it was first.
            self.leader = None;
        }
        if self.leader.is_none() {
            self.turn = (self.turn + 1) % self.all.len();
            self.tried += 1;
            if self.tried < self.all.len() {
                return Duration::ZERO;
            }
        }
        self.tried = 0;
        let pause = PAUSES.pause(self.pauses);
        self.pauses = self.pauses.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(names: &[&str]) -> Servers {
        Servers::new(names.iter().map(|name| format!("http://{name}")).collect(), false).expect("addresses")
    }

    fn host(servers: &Servers) -> String {
        servers.next().uri().host().expect("a host").to_owned()
    }

    #[test]
    fn all_are_tried_before_a_pause_which_grows() {
        let mut servers = servers(&["a", "b", "c"]);
        let mut met = Vec::new();
        for _ in 0..7 {
            met.push((host(&servers), servers.lost(true).as_millis()));
        }
        let met: Vec<(&str, u128)> = met.iter().map(|(host, pause)| (host.as_str(), *pause)).collect();
        assert_eq!(met, [("a", 0), ("b", 0), ("c", 500), ("a", 0), ("b", 0), ("c", 1000), ("a", 0)]);
        servers.answered();
        assert_eq!((servers.lost(false).as_millis(), servers.lost(true).as_millis()), (0, 0));
        assert_eq!(servers.lost(true).as_millis(), 500, "it was answered: it begins anew");
    }

    #[test]
    fn one_alone_is_waited_for_and_not_for_ever() {
        let mut servers = servers(&["a"]);
        let pauses: Vec<u64> = (0..8).map(|_| servers.lost(true).as_secs()).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(host(&servers), "a");
    }

    #[test]
    fn a_leader_that_was_named_comes_first_until_it_fails() {
        let mut servers = servers(&["a", "b"]);
        servers.redirected("http://leader", false);
        assert_eq!((servers.lost(false).as_millis(), host(&servers)), (500, "leader".to_owned()));
        servers.answered();
        assert_eq!((servers.lost(true).as_millis(), host(&servers)), (0, "b".to_owned()));
        servers.redirected("no address", false);
        assert_eq!(host(&servers), "b");
    }
}
