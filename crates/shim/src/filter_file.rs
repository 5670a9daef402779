//! Filters of system calls as files: the agent writes them, shims read them.
//!
//! Invariant: a shim reads one before it enters the container, and installs it as the last thing before the program.

use std::io;
use std::path::Path;

use pumice_linux::files::read_bounded;
use seccompiler::{BpfProgram, sock_filter};

/// How a file begins; the number is that of its format.
const MAGIC: &[u8; 8] = b"seccomp1";
/// Bytes of an instruction, which are the kernel's `struct sock_filter`.
const INSTRUCTION_BYTES: usize = 8;
/// Longest file of filters in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The content of a file with these programs.
pub fn encode(programs: &[BpfProgram]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for program in programs {
        let instructions = u32::try_from(program.len()).unwrap_or(u32::MAX);
        bytes.extend(instructions.to_le_bytes());
        for one in program {
            bytes.extend(one.code.to_le_bytes());
            bytes.extend([one.jt, one.jf]);
            bytes.extend(one.k.to_le_bytes());
        }
    }
    bytes
}

/// Reads the programs of a file.
///
/// # Errors
/// When it can't be read, or is no file of filters.
pub fn read(path: &Path) -> io::Result<Vec<BpfProgram>> {
    let bytes = read_bounded(path, FILE_BYTES_MAX)?;
    decode(&bytes)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{} has no filter", path.display())))
}

fn decode(bytes: &[u8]) -> Option<Vec<BpfProgram>> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let mut programs = Vec::new();
    while !rest.is_empty() {
        let (count, behind) = rest.split_first_chunk::<4>()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let (program, behind) = behind.split_at_checked(count.checked_mul(INSTRUCTION_BYTES)?)?;
        let (instructions, _) = program.as_chunks::<INSTRUCTION_BYTES>();
        programs.push(instructions.iter().map(instruction).collect());
        rest = behind;
    }
    Some(programs)
}

fn instruction(bytes: &[u8; INSTRUCTION_BYTES]) -> sock_filter {
    let [code_low, code_high, jt, jf, k @ ..] = *bytes;
    sock_filter { code: u16::from_le_bytes([code_low, code_high]), jt, jf, k: u32::from_le_bytes(k) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_filter_is_refused() {
        for bytes in
            [&b""[..], b"seccomp2", b"seccomp1\x01", b"seccomp1\x01\0\0\0", b"seccomp1\xff\xff\xff\xff12345678"]
        {
            assert!(decode(bytes).is_none(), "{bytes:?}");
        }
        assert_eq!(decode(b"seccomp1").map(|programs| programs.len()), Some(0));
    }
}
