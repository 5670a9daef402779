//! System calls by their numbers, for what no library has.

use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use libc::c_long;
use nix::errno::Errno;

/// An argument of a system call. Memory is lent for the call, so the kernel finds it valid and long enough.
pub enum Word<'a> {
    Number(c_long),
    Text(&'a CStr),
    Bytes(&'a mut [u8]),
    Words(&'a mut [u64]),
}

macro_rules! numbers {
    ($($kind:ty)*) => {
        $(impl From<$kind> for Word<'_> {
            #[allow(clippy::cast_lossless, reason = "the kernel takes words of any sign")]
            fn from(number: $kind) -> Self {
                Word::Number(number as c_long)
            }
        })*
    };
}

numbers!(i32 u32 i64 u64 usize);

impl<'a> From<&'a CStr> for Word<'a> {
    fn from(text: &'a CStr) -> Self {
        Word::Text(text)
    }
}

impl<'a> From<&'a mut [u8]> for Word<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Word::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a mut [u64; N]> for Word<'a> {
    fn from(words: &'a mut [u64; N]) -> Self {
        Word::Words(words)
    }
}

/// A system call with up to six arguments.
#[allow(unsafe_code)]
pub fn call_with<const N: usize>(number: c_long, mut words: [Word<'_>; N]) -> nix::Result<c_long> {
    let mut raw: [c_long; 6] = [0; 6];
    for (raw, word) in raw.iter_mut().zip(&mut words) {
        *raw = match word {
            Word::Number(number) => *number,
            Word::Text(text) => text.as_ptr() as c_long,
            Word::Bytes(bytes) => bytes.as_mut_ptr() as c_long,
            Word::Words(words) => words.as_mut_ptr() as c_long,
        };
    }
    // SAFETY: pointers are to memory that is lent to `words` until the end of this function; texts end with a zero byte, and
    // callers pass buffers at least as long as the call's structure or the length that they give it.
    Errno::result(unsafe { libc::syscall(number, raw[0], raw[1], raw[2], raw[3], raw[4], raw[5]) })
}

/// A call that gives a descriptor.
#[allow(unsafe_code)]
pub fn open_with<const N: usize>(number: c_long, words: [Word<'_>; N]) -> nix::Result<OwnedFd> {
    let descriptor = call_with(number, words)? as RawFd;
    // SAFETY: the kernel has just made it, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// `call!(SYS_name, arguments)`: the call's result.
macro_rules! call {
    ($name:ident $(, $word:expr)* $(,)?) => {
        $crate::attempts::syscall::call_with(libc::$name, [$($crate::attempts::syscall::Word::from($word)),*])
    };
}

/// The same for a call that gives a descriptor.
macro_rules! open {
    ($name:ident $(, $word:expr)* $(,)?) => {
        $crate::attempts::syscall::open_with(libc::$name, [$($crate::attempts::syscall::Word::from($word)),*])
    };
}

pub(crate) use {call, open};
