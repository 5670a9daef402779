//! Private keys as `openssl ecparam` and Go write them: "EC PRIVATE KEY", by RFC 5915.
//!
//! Invariant: the same key in another form, its curve named. Java's fabric8 client takes a key in PKCS#8 for one of RSA, and
//! can't load ours then. Used for every certificate that is handed out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData};

/// What the library writes around a key of the curve P-256 in PKCS#8: in front of the secret, and between that and the point.
const HEAD: [u8; 36] = [
    0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
    0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x6d, 0x30, 0x6b, 0x02, 0x01, 0x01, 0x04, 0x20,
];
const SECRET_BYTES: usize = 32;
const POINT_BYTES: usize = 65;
/// The same in RFC 5915: version 1 and the secret; the curve P-256; the point.
const SECRET: [u8; 7] = [0x30, 0x77, 0x02, 0x01, 0x01, 0x04, 0x20];
const CURVE: [u8; 12] = [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const POINT: [u8; 5] = [0xa1, 0x44, 0x03, 0x42, 0x00];
/// Letters of one line of PEM.
const LINE: usize = 64;

/// The key in PEM. One of another curve stays in PKCS#8.
pub(crate) fn pem(key: &KeyPair) -> String {
    let (form, point) = (key.serialized_der(), key.der_bytes());
    let secret = form.strip_prefix(&HEAD).and_then(|rest| rest.get(..SECRET_BYTES));
    let Some(secret) = secret else { return key.serialize_pem() };
    if point.len() != POINT_BYTES {
        return key.serialize_pem();
    }
    let text = STANDARD.encode([&SECRET, secret, &CURVE, &POINT, point].concat());
    let mut pem = "-----BEGIN EC PRIVATE KEY-----\n".to_owned();
    for line in text.as_bytes().chunks(LINE) {
        pem.extend(line.iter().map(|letter| char::from(*letter)));
        pem.push('\n');
    }
    pem.push_str("-----END EC PRIVATE KEY-----\n");
    pem
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn a_key_is_the_same_in_its_other_form() {
        let key = KeyPair::generate().unwrap();
        let pem = pem(&key);
        assert!(pem.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{pem}");
        let read = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert!(matches!(read, PrivateKeyDer::Sec1(_)));
        let signer = rustls::crypto::ring::sign::any_ecdsa_type(&read).unwrap();
        let point = signer.public_key().unwrap();
        assert!(point.ends_with(key.der_bytes()), "the library takes it, for the same public key");
    }

    #[test]
    fn a_key_of_another_curve_stays_as_it_is() {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        assert_eq!(pem(&key), key.serialize_pem());
    }
}
