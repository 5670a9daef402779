//! A digest of a plan: equal plans have equal digests on every machine.

use std::io;

use pumice_engine::Plan;
use pumice_units::StableHasher;

/// Takes in what is written to it.
#[derive(Default)]
struct Fnv(StableHasher);

impl io::Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes.iter().copied());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// FNV-1a of the plan's JSON. O(its length).
pub fn digest(plan: &Plan) -> u64 {
    let mut hash = Fnv::default();
    serde_json::to_writer(&mut hash, plan).expect("a plan has text keys only, and hashing can't fail");
    hash.0.finish()
}

#[cfg(test)]
mod tests {
    use pumice_engine::TimeMs;

    use super::*;

    #[test]
    fn digests_are_what_they_were_on_other_machines() {
        let mut hash = Fnv::default();
        io::Write::write_all(&mut hash, b"foobar").unwrap();
        assert_eq!(hash.0.finish(), 0x8594_4171_f739_67e8, "the reference value of FNV-1a");
        let empty = digest(&Plan::default());
        assert_ne!(empty, digest(&Plan { next_wakeup: Some(TimeMs(1)), ..Plan::default() }));
    }
}
