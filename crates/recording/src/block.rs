//! Blocks: stretches of lines, compressed, with a length and a checksum. Pure; used by `segment`.
//!
//! ```text
//!   packed length  u32 ─┐
//!   plain length   u32  ├ little endian
//!   CRC-32 of the packed bytes  u32 ─┘
//!   packed bytes (raw deflate)
//! ```
//! A block of no bytes ends a segment in good order.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// Longest block, in plain bytes.
pub(crate) const PLAIN_MAX: usize = 64 << 20;
/// Length of what stands before the packed bytes.
pub(crate) const HEAD: usize = 12;
/// Of miniz_oxide: beyond it entries get hardly shorter.
const LEVEL: u8 = 6;

/// What is wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Its lengths can't be.
    #[error("its lengths can't be right")]
    Lengths,
    /// The checksum is another.
    #[error("its checksum is wrong")]
    Checksum,
    /// It does not unpack to what it says.
    #[error("it can't be unpacked")]
    Packing,
}

/// What stands before the packed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) packed: usize,
    plain: usize,
    checksum: u32,
}

impl Head {
    /// Reads the head and checks that its lengths can be true.
    pub(crate) fn read(bytes: &[u8; HEAD]) -> Result<Self, Damage> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (packed, plain) = (word(0) as usize, word(4) as usize);
        // Deflate makes what it can't compress little longer.
        if plain > PLAIN_MAX || packed > PLAIN_MAX + PLAIN_MAX / 8 || (packed == 0) != (plain == 0) {
            return Err(Damage::Lengths);
        }
        let head = Self { packed, plain, checksum: word(8) };
        // Nothing comes after the last one that would be unpacked.
        if head.is_end() && head.checksum != crc32(&[]) {
            return Err(Damage::Checksum);
        }
        Ok(head)
    }

    /// The segment ends here in good order.
    pub(crate) fn is_end(self) -> bool {
        self.packed == 0
    }

    /// Unpacks what followed the head, if it is whole and as long as the head says.
    pub(crate) fn unpack(self, packed: &[u8]) -> Result<Vec<u8>, Damage> {
        if crc32(packed) != self.checksum {
            return Err(Damage::Checksum);
        }
        let plain = decompress_to_vec_with_limit(packed, self.plain).map_err(|_| Damage::Packing)?;
        if plain.len() == self.plain { Ok(plain) } else { Err(Damage::Packing) }
    }
}

/// A block of these bytes, at most [`PLAIN_MAX`]; the end of a segment if there are none.
pub(crate) fn pack(plain: &[u8]) -> Vec<u8> {
    assert!(plain.len() <= PLAIN_MAX, "the writer keeps blocks short");
    let packed = if plain.is_empty() { Vec::new() } else { compress_to_vec(plain, LEVEL) };
    let word = |length: usize| u32::try_from(length).expect("below the limits").to_le_bytes();
    let mut block = Vec::with_capacity(HEAD + packed.len());
    block.extend(word(packed.len()));
    block.extend(word(plain.len()));
    block.extend(crc32(&packed).to_le_bytes());
    block.extend(packed);
    block
}

/// CRC-32 as in zip and Ethernet.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { (value >> 1) ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0_u32, |crc, byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(block: &[u8]) -> (Result<Head, Damage>, &[u8]) {
        (Head::read(block[..HEAD].try_into().unwrap()), &block[HEAD..])
    }

    #[test]
    fn blocks_give_back_what_was_packed() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926, "the check value of CRC-32");
        for plain in [b"".to_vec(), b"x".to_vec(), b"line\n".repeat(10_000), (0..=255).collect()] {
            let block = pack(&plain);
            let (head, packed) = parts(&block);
            let head = head.unwrap();
            assert_eq!((head.packed, head.is_end()), (packed.len(), plain.is_empty()));
            assert_eq!(head.unpack(packed).unwrap_or_default(), plain);
        }
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        let block = pack(&b"some lines\n".repeat(50));
        for at in 0..block.len() * 8 {
            let mut block = block.clone();
            block[at / 8] ^= 1 << (at % 8);
            let (head, packed) = parts(&block);
            let same_length = |head: &Head| head.packed == packed.len();
            let good = head.ok().filter(same_length).and_then(|head| head.unpack(packed).ok());
            assert_eq!(good, None, "bit {at}");
        }
        // The last block has a head alone, in which no length can be true but none.
        let end = pack(b"");
        for at in 0..HEAD * 8 {
            let mut end = end.clone();
            end[at / 8] ^= 1 << (at % 8);
            assert!(parts(&end).0.is_err(), "bit {at}");
        }
    }

    #[test]
    fn a_block_that_says_it_is_huge_is_refused_before_anything_is_read() {
        let head = [0xff; HEAD];
        assert_eq!(Head::read(&head), Err(Damage::Lengths));
    }
}
