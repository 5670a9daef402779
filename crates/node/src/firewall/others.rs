//! Rules of others that drop what pods send each other, or beyond this machine.

use pumice_linux::netlink::{Netlink, NetlinkError, attributes};

use super::nft;

/// The bytes before a message's attributes.
const FIXED: usize = 4;
const HOOK_FORWARD: u32 = 2;

/// Chains that drop what is sent on where no rule of theirs lets it through, as people know them.
pub(super) fn dropping() -> Result<Vec<String>, NetlinkError> {
    let mut netlink = Netlink::open(libc::NETLINK_NETFILTER)?;
    let chains = netlink.batch_dump("list chains of rules", nft::get_chains())?;
    Ok(chains.iter().filter_map(|chain| name_if_dropping(chain)).collect())
}

fn name_if_dropping(chain: &[u8]) -> Option<String> {
    let family = i32::from(*chain.first()?);
    let rest = chain.get(FIXED..)?;
    let of = |wanted| attributes(rest).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let number = |bytes: &[u8]| bytes.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
    let hook = attributes(of(4)?).find(|(kind, _)| *kind == 1)?.1;
    let drops = number(hook)? == HOOK_FORWARD && number(of(5)?)? == libc::NF_DROP as u32;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned();
    let is_ours = [libc::NFPROTO_INET, libc::NFPROTO_IPV4].contains(&family);
    (drops && is_ours).then(|| Some(format!("{} of the table {}", text(of(3)?), text(of(1)?))))?
}

#[cfg(test)]
mod tests {
    use pumice_linux::netlink::Message;

    use super::*;

    fn chain(family: i32, hook: u32, policy: u32) -> Vec<u8> {
        let message = Message::new(0, 0, &[family as u8, 0, 0, 0]).text(1, "filter").text(3, "FORWARD");
        let message = message.nest(4, |inner| inner.attribute(1, &hook.to_be_bytes()));
        message.attribute(5, &policy.to_be_bytes()).into_payload()
    }

    #[test]
    fn chains_that_drop_what_is_sent_on_are_named() {
        let (drop, accept) = (libc::NF_DROP as u32, libc::NF_ACCEPT as u32);
        assert_eq!(
            name_if_dropping(&chain(libc::NFPROTO_IPV4, 2, drop)).as_deref(),
            Some("FORWARD of the table filter")
        );
        for (family, hook, policy) in
            [(libc::NFPROTO_IPV4, 2, accept), (libc::NFPROTO_IPV4, 1, drop), (libc::NFPROTO_IPV6, 2, drop)]
        {
            assert_eq!(name_if_dropping(&chain(family, hook, policy)), None);
        }
        let whole = chain(libc::NFPROTO_IPV4, 2, drop);
        for length in 0..whole.len() {
            let _ = name_if_dropping(&whole[..length]);
        }
    }
}
