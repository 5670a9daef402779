//! How one object is written: revision, checksum, body.
//!
//! Invariant: a record that decodes is the one that was encoded under the same key. The storage
//! library checks its pages only when it repairs, so each record carries its own sum.

use bytes::Bytes;

use crate::key::Key;
use crate::object::Object;

const REVISION_BYTES: usize = 8;
const HEADER_BYTES: usize = REVISION_BYTES + 8;

/// The bytes stored for `object` under `key`.
pub(super) fn encode(key: &[u8], object: &Object) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + object.body.len());
    out.extend_from_slice(&object.revision.to_le_bytes());
    out.extend_from_slice(&checksum(key, object.revision, &object.body).to_le_bytes());
    out.extend_from_slice(&object.body);
    out
}

/// The object stored as `value` under `key`; an error says what is wrong with it.
pub(super) fn decode(key: &[u8], value: &[u8]) -> Result<Object, String> {
    let Some(parsed) = Key::decode(key) else {
        return Err(format!("key {:?} is malformed", String::from_utf8_lossy(key)));
    };
    let parts = value
        .split_first_chunk::<REVISION_BYTES>()
        .and_then(|(revision, rest)| Some((revision, rest.split_first_chunk::<8>()?)));
    let Some((revision, (sum, body))) = parts else {
        return Err(format!("record of {parsed} is {} bytes short", HEADER_BYTES - value.len()));
    };
    let revision = u64::from_le_bytes(*revision);
    if checksum(key, revision, body) != u64::from_le_bytes(*sum) {
        return Err(format!("checksum of {parsed} does not match"));
    }
    Ok(Object { key: parsed, revision, body: Bytes::copy_from_slice(body) })
}

/// FNV-1a over eight bytes at a time: meant to catch damage, not an attacker.
pub(crate) fn checksum(key: &[u8], revision: u64, body: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(PRIME).rotate_left(23);
    let mut sum = mix(mix(OFFSET, revision), body.len() as u64);
    for part in [key, body] {
        let mut words = part.chunks_exact(8);
        for word in &mut words {
            let word: [u8; 8] = word.try_into().expect("chunks_exact(8) gives eight bytes");
            sum = mix(sum, u64::from_le_bytes(word));
        }
        for byte in words.remainder() {
            sum = mix(sum, u64::from(*byte));
        }
    }
    sum ^ (sum >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_single_damaged_byte_is_found() {
        let key = Key::new("pods", "default", "a");
        let object = Object { key: key.clone(), revision: 77, body: Bytes::from("{\"a\":\"bcdefgh\"}") };
        let value = encode(&key.encode(), &object);
        assert_eq!(decode(&key.encode(), &value).unwrap(), object);
        for at in 0..value.len() {
            let mut damaged = value.clone();
            damaged[at] ^= 0x40;
            assert!(decode(&key.encode(), &damaged).is_err(), "byte {at}");
        }
        for cut in 0..value.len() {
            assert!(decode(&key.encode(), &value[..cut]).is_err(), "cut at {cut}");
        }
        assert!(decode(b"pods\0default\0b", &value).is_err());
    }
}
