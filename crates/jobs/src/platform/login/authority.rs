//! The authority that a server is known by: its certificate, and the fingerprint that people compare.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::digest::{SHA256, digest};

use super::LoginError;

/// What certificates in PEM stand between.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
/// Most certificates of one authority: while it is replaced there are two.
const CERTIFICATES_MAX: usize = 16;

/// Certificates that are trusted, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    pem: String,
    der: Vec<Vec<u8>>,
}

impl Authority {
    /// Reads certificates in PEM.
    ///
    /// # Errors
    /// Where there is none.
    pub fn from_pem(pem: &str) -> Result<Self, LoginError> {
        let mut der = Vec::new();
        let mut rest = pem;
        while let Some((_, after)) = rest.split_once(BEGIN) {
            let (text, left) = after.split_once(END).ok_or(LoginError::NotOneCertificate)?;
            let text: String = text.split_ascii_whitespace().collect();
            der.push(STANDARD.decode(text).map_err(|_| LoginError::NotOneCertificate)?);
            rest = left;
        }
        if der.is_empty() || der.len() > CERTIFICATES_MAX {
            return Err(LoginError::NotOneCertificate);
        }
        Ok(Self { pem: pem.to_owned(), der })
    }

    /// As it was read.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn certificates(&self) -> &[Vec<u8>] {
        &self.der
    }

    /// What people compare: of the first certificate.
    pub fn fingerprint(&self) -> String {
        self.der.first().map(|der| fingerprint(der)).unwrap_or_default()
    }

    /// Whether a fingerprint that somebody typed is of one of its certificates.
    ///
    /// # Errors
    /// Where it is none.
    pub fn has_fingerprint(&self, text: &str) -> Result<bool, LoginError> {
        let wanted = read_fingerprint(text).ok_or_else(|| LoginError::Fingerprint(super::quoted(text)))?;
        Ok(self.der.iter().any(|der| digest(&SHA256, der).as_ref() == wanted))
    }

    /// The authority of those of its certificates alone that have this fingerprint.
    pub(super) fn only(&self, text: &str) -> Result<Option<Self>, LoginError> {
        let wanted = read_fingerprint(text).ok_or_else(|| LoginError::Fingerprint(super::quoted(text)))?;
        let der: Vec<Vec<u8>> =
            self.der.iter().filter(|der| digest(&SHA256, der).as_ref() == wanted).cloned().collect();
        Ok((!der.is_empty()).then(|| Self { pem: der.iter().map(|der| to_pem(der)).collect(), der }))
    }
}

fn to_pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("{BEGIN}\n{}\n{END}\n", lines.join("\n"))
}

/// The fingerprint of a certificate (DER): `SHA256:` and its hash, as ssh shows keys.
pub fn fingerprint(der: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(digest(&SHA256, der)))
}

/// The hash of a fingerprint: base64 as ssh has it, or hexadecimal digits, with colons or without, as openssl has it.
fn read_fingerprint(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    let start = text.get(.."SHA256:".len()).filter(|start| start.eq_ignore_ascii_case("SHA256:"));
    let text = if start.is_some() { &text["SHA256:".len()..] } else { text };
    let digits: String = text.chars().filter(|letter| *letter != ':').collect();
    if digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return (0..32).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()).collect();
    }
    STANDARD_NO_PAD.decode(text.trim_end_matches('=')).ok().filter(|hash| hash.len() == 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_known_in_each_way_of_writing() {
        let authority = Authority::from_pem(&to_pem(b"certificate")).unwrap();
        let hash = digest(&SHA256, b"certificate");
        let hex: Vec<String> = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let shown = authority.fingerprint();
        for text in [&shown, &hex.join(":"), &hex.concat().to_lowercase(), &format!("sha256:{}", hex.concat())] {
            assert!(authority.has_fingerprint(text).unwrap(), "{text}");
        }
        assert!(!authority.has_fingerprint(&fingerprint(b"another")).unwrap());
        for text in ["", "SHA256:", "SHA256:abc", "é", &hex.concat()[1..]] {
            assert!(matches!(authority.has_fingerprint(text), Err(LoginError::Fingerprint(_))), "{text}");
        }
    }

    #[test]
    fn of_several_certificates_only_the_confirmed_one_is_trusted() {
        let both = format!("{}text\n{}", to_pem(b"one"), to_pem(&[7; 100]));
        let both = Authority::from_pem(&both).unwrap();
        let only = both.only(&fingerprint(&[7; 100])).unwrap().unwrap();
        assert_eq!(only.certificates(), [vec![7; 100]]);
        assert_eq!(Authority::from_pem(only.pem()).unwrap(), only);
        assert_eq!(both.only(&fingerprint(b"two")).unwrap(), None);
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        for text in ["", "x", BEGIN, &format!("{BEGIN}!{END}"), &to_pem(b"x").repeat(17)] {
            assert!(matches!(Authority::from_pem(text), Err(LoginError::NotOneCertificate)), "{text:.40}");
        }
    }
}
