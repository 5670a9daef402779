//! A hash for names and notes that outlive the program.
//!
//! Invariant: the same in every version, unlike the standard library's. Not for what somebody may want to collide.

/// FNV-1a of 64 bits (RFC 9923).
pub fn stable_hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mut hasher = StableHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// The same of bytes that come one part after the other.
#[derive(Debug, Clone)]
pub struct StableHasher(u64);

impl Default for StableHasher {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl StableHasher {
    /// Takes in more bytes; how they are cut into parts makes no difference.
    pub fn write(&mut self, bytes: impl IntoIterator<Item = u8>) {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.0 = bytes.into_iter().fold(self.0, mix);
    }

    /// The hash of all that was taken in.
    pub fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_the_published_values() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(stable_hash(text.bytes()), expected, "{text}");
        }
    }
}
