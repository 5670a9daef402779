//! The last word of those by which this process was started, as lists of processes show it.
//!
//! Invariant: it is written over by a word of the same length only, so what lies around it stays.

use std::fs;
use std::ptr;

/// Where the kernel and everybody else find it.
#[derive(Debug, Clone, Copy)]
pub struct LastArgument {
    first: usize,
    length: usize,
}

impl LastArgument {
    /// Finds it; nothing where the kernel does not say.
    pub fn find() -> Option<LastArgument> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(45);
        // Fields 48 and 49: where the words begin, and what is behind the zero of the last.
        let (start, end): (usize, usize) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let words: usize = std::env::args_os().map(|word| word.len() + 1).sum();
        let length = std::env::args_os().next_back()?.len();
        // A process may have put its words elsewhere.
        let is_there = start > 0 && start.checked_add(words) == Some(end);
        is_there.then(|| LastArgument { first: end - 1 - length, length })
    }

    /// Writes another word over it, if that is as long. Needs a process with one thread.
    #[allow(unsafe_code)]
    pub fn replace(self, word: &[u8]) {
        if word.len() == self.length {
            // SAFETY: the kernel has put the words of this process at `first`, in memory that stays and may be written, and they are
            // `length` bytes up to the zero. No other thread reads them meanwhile, and nobody has a reference to them.
            unsafe { ptr::copy_nonoverlapping(word.as_ptr(), self.first as *mut u8, word.len()) };
        }
    }
}
