//! `/etc/hosts` of a pod: its own name and those of its peers under one subdomain.
//!
//! Invariant: the same peers give the same text, so that a file is rewritten only when it changes.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pumice_linux::files::read_bounded;

/// A pod as its peers name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Peer {
    /// Host name within the subdomain.
    pub hostname: String,
    pub address: Ipv4Addr,
}

/// The file of the pod `own`, given all members of its subdomain and its `hostAliases`.
pub(crate) fn render(
    own: &Peer,
    namespace: &str,
    subdomain: Option<&str>,
    members: &[Peer],
    aliases: &[(String, Vec<String>)],
) -> String {
    let mut text = String::from("# Written by pumice; rewritten when a peer appears.\n");
    text.push_str("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    let mut members: Vec<&Peer> = members.iter().filter(|peer| peer.hostname != own.hostname).chain([own]).collect();
    members.sort();
    for peer in &members {
        text.push_str(&peer.address.to_string());
        text.push('\t');
        text.push_str(&names(&peer.hostname, namespace, subdomain));
        text.push('\n');
    }
    // A headless service has an address for each member; a hosts file gives the first.
    if let (Some(subdomain), Some(first)) = (subdomain, members.first()) {
        let service = format!("{subdomain}.{namespace}.svc");
        text.push_str(&format!("{}\t{service}.cluster.local {service} {subdomain}\n", first.address));
    }
    for (address, names) in aliases {
        text.push_str(&format!("{address}\t{}\n", names.join(" ")));
    }
    text
}

fn names(hostname: &str, namespace: &str, subdomain: Option<&str>) -> String {
    match subdomain {
        Some(subdomain) => {
            let service = format!("{hostname}.{subdomain}.{namespace}.svc");
            format!("{service}.cluster.local {service} {hostname}.{subdomain} {hostname}")
        }
        None => hostname.to_owned(),
    }
}

/// Writes over a file that is mounted in containers: they see the file, not its name, so it must
/// stay the same file.
pub(crate) fn rewrite(path: &Path, text: &str) -> io::Result<()> {
    // The pod may have written it full; only what is as long as the text can be the text.
    if read_bounded(path, text.len() as u64).is_ok_and(|before| before == text.as_bytes()) {
        return Ok(());
    }
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn peer(hostname: &str, last: u8) -> Peer {
        Peer { hostname: hostname.into(), address: Ipv4Addr::new(10, 64, 0, last) }
    }

    #[test]
    fn peers_resolve_by_all_their_names() {
        let own = peer("job-worker-0", 3);
        let members = [peer("job-worker-0", 3), peer("job-ps-0", 2)];
        let text = render(&own, "ns", Some("job"), &members, &[("1.2.3.4".into(), vec!["a".into(), "b".into()])]);
        let expected = "# Written by pumice; rewritten when a peer appears.\n\
            127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
            10.64.0.2\tjob-ps-0.job.ns.svc.cluster.local job-ps-0.job.ns.svc job-ps-0.job job-ps-0\n\
            10.64.0.3\tjob-worker-0.job.ns.svc.cluster.local job-worker-0.job.ns.svc job-worker-0.job job-worker-0\n\
            10.64.0.2\tjob.ns.svc.cluster.local job.ns.svc job\n\
            1.2.3.4\ta b\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_pod_alone_resolves_itself() {
        let text = render(&peer("web", 9), "ns", None, &[], &[]);
        assert!(text.ends_with("10.64.0.9\tweb\n"), "{text}");
    }

    #[test]
    fn a_rewritten_file_stays_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        rewrite(&path, "a longer text\n").unwrap();
        let before = std::fs::metadata(&path).unwrap().ino();
        rewrite(&path, "short\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "short\n");
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), before);
    }
}
