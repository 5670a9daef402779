//! When a certificate ends, so that its holder is told before.
//!
//! Invariant: pure; what is no certificate has no end. Only as much of X.509 is read as leads to that field.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Tags of DER: a sequence, the version of a certificate, and the two forms of time.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// How long before its end somebody is told, in days.
const TOLD_BEFORE_DAYS: i64 = 30;

/// What is said of a certificate that ends soon; nothing of one that does not.
pub fn notice(until: Timestamp, now: Timestamp) -> Option<String> {
    let days = until.duration_since(now).as_hours() / 24;
    match days {
        _ if until <= now => Some(format!("your certificate has ended at {until}: ask for a new kubeconfig")),
        0..TOLD_BEFORE_DAYS => {
            Some(format!("your certificate ends in {days} days, at {until}: ask for a new kubeconfig"))
        }
        _ => None,
    }
}

/// When a certificate (DER) ends.
pub(super) fn not_after(certificate: &[u8]) -> Option<Timestamp> {
    let mut whole = Reader(certificate).enter(SEQUENCE)?;
    let mut signed = whole.enter(SEQUENCE)?;
    if signed.0.first() == Some(&VERSION) {
        signed.next()?;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        signed.next()?;
    }
    let mut validity = signed.enter(SEQUENCE)?;
    validity.next()?;
    let (tag, text) = validity.next()?;
    let text = std::str::from_utf8(text).ok()?;
    let text = match tag {
        UTC_TIME if text.as_bytes().first()? < &b'5' => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", &text).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// What is left of a text in DER.
struct Reader<'d>(&'d [u8]);

impl<'d> Reader<'d> {
    /// The next value and its tag.
    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match *first {
            short @ ..0x80 => (usize::from(short), rest),
            long => {
                let (bytes, rest) =
                    rest.split_at_checked(usize::from(long & 0x7f)).filter(|(bytes, _)| bytes.len() <= 4)?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, value))
    }

    /// The inside of the next value, which has this tag.
    fn enter(&mut self, wanted: u8) -> Option<Reader<'d>> {
        let (tag, value) = self.next()?;
        (tag == wanted).then_some(Reader(value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use pumice_auth::Ca;

    use super::*;

    fn now() -> Timestamp {
        "2026-12-01T04:00:00Z".parse().unwrap()
    }

    #[test]
    fn the_end_of_a_certificate_is_found() {
        let ca = Ca::passing(now()).unwrap();
        let issued = ca.issue_client("ann", &["team"], now()).unwrap();
        assert_eq!(not_after(&issued.certificate), Some(issued.not_after));
        assert_eq!(not_after(ca.certificate()), Some(ca.not_after()));
        assert_eq!(not_after(&issued.certificate[1..]), None);
    }

    #[test]
    fn it_is_told_a_month_before() {
        let after = |days: i64| now() + jiff::SignedDuration::from_hours(days * 24 + 1);
        assert_eq!(notice(after(31), now()), None);
        assert!(notice(after(29), now()).unwrap().contains("ends in 29 days, at 2026-12-30"));
        assert!(notice(after(-1), now()).unwrap().contains("has ended"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..400_usize, at in 0..400_usize, to: u8) {
            not_after(&bytes);
            let mut certificate = Ca::passing(now()).unwrap().certificate().to_vec();
            certificate.truncate(cut);
            if let Some(byte) = certificate.get_mut(at) {
                *byte = to;
            }
            not_after(&certificate);
        }
    }
}
