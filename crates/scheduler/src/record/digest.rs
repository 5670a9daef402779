//! A digest of a plan: equal plans have equal digests on every machine.

use std::io;

use pumice_engine::Plan;

/// FNV-1a, 64 bits: simple enough to be written down, and fast enough beside the JSON that it reads.
struct Fnv(u64);

impl io::Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// FNV-1a of the plan's JSON. O(its length).
pub fn digest(plan: &Plan) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    serde_json::to_writer(&mut hash, plan).expect("a plan has text keys only, and hashing can't fail");
    hash.0
}

#[cfg(test)]
mod tests {
    use pumice_engine::TimeMs;

    use super::*;

    #[test]
    fn digests_are_what_they_were_on_other_machines() {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        io::Write::write_all(&mut hash, b"foobar").unwrap();
        assert_eq!(hash.0, 0x8594_4171_f739_67e8, "the reference value of FNV-1a");
        let empty = digest(&Plan::default());
        assert_ne!(empty, digest(&Plan { next_wakeup: Some(TimeMs(1)), ..Plan::default() }));
    }
}
