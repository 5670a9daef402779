//! Changes that arrive together are taken together, so that one turn of a loop serves them all.
//!
//! Invariant: a burst has an end, however fast changes come. It waits for nothing: what is not there yet belongs to the next one.

use futures::{FutureExt as _, Stream, StreamExt as _};

/// The change that woke a loop, and those that wait behind it, in their order.
pub struct Burst<T> {
    first: Option<T>,
    left: usize,
}

impl<T> Burst<T> {
    /// A burst that begins with `first` and takes at most `others_max` changes more.
    pub fn new(first: T, others_max: usize) -> Self {
        Self { first: Some(first), left: others_max }
    }

    /// The next change; none when nothing waits in `stream`, when it has ended, or when the burst is full.
    pub fn next(&mut self, stream: &mut (impl Stream<Item = T> + Unpin)) -> Option<T> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        self.left = self.left.checked_sub(1)?;
        stream.next().now_or_never().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    fn all(mut burst: Burst<u32>, stream: &mut (impl Stream<Item = u32> + Unpin)) -> Vec<u32> {
        std::iter::from_fn(|| burst.next(stream)).collect()
    }

    #[test]
    fn what_waits_is_taken_in_order_up_to_the_most() {
        let mut waiting = stream::iter(1..7);
        assert_eq!(all(Burst::new(0, 3), &mut waiting), [0, 1, 2, 3]);
        assert_eq!(all(Burst::new(10, 9), &mut waiting), [10, 4, 5, 6], "a stream that ends, ends the burst");
        assert_eq!(all(Burst::new(20, 9), &mut waiting.chain(stream::pending())), [20]);
        assert_eq!(all(Burst::new(30, 0), &mut stream::repeat(31)), [30]);
    }

    #[test]
    fn what_is_not_there_yet_is_not_waited_for() {
        let mut waiting = stream::iter([1]).chain(stream::pending());
        assert_eq!(all(Burst::new(0, 9), &mut waiting), [0, 1]);
    }
}
