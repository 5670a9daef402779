//! The resolver's file of pods, and whom it names.

use std::fs;
use std::net::Ipv4Addr;

/// The host's resolver; a name server on the host's loopback can't be reached from a pod.
pub(crate) fn text() -> String {
    let own = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    if !own.contains("127.0.0.53") {
        return own;
    }
    fs::read_to_string("/run/systemd/resolve/resolv.conf").unwrap_or(own)
}

/// The servers that such a text names.
pub(crate) fn name_servers(text: &str) -> Vec<Ipv4Addr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok()).flatten()
    });
    servers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read() {
        let text = "# nameserver 192.0.2.9\nsearch a\nnameserver 192.0.2.1\n nameserver\t192.0.2.2 # x\nnameserver fd00::1\nnameserver\n";
        assert_eq!(name_servers(text), [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)]);
    }
}
