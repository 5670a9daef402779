//! The numbers of the rules about pods and the node's disk.

use std::time::Duration;

/// A pod with a limit is measured again after this time, so that one over it is ended within ten seconds.
pub(crate) const LIMITED_EVERY: Duration = Duration::from_secs(5);
/// The same where the kernel counts, and lets nobody go far beyond.
pub(crate) const BY_PROJECT_EVERY: Duration = Duration::from_secs(2);
/// The same for a pod without a limit, whose use is only shown.
pub(crate) const UNLIMITED_EVERY: Duration = Duration::from_secs(30);
/// Measuring rests so many times as long as it works, in the mean.
pub(crate) const REST_PER_WORK: u32 = 20;
/// Rest that may be made up for later: after an idle time, so much divided by [`REST_PER_WORK`] is measured at once.
pub(crate) const REST_OWED_MAX: Duration = Duration::from_secs(5);
/// Time between two looks at how much of the disk is free.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Pods are ended when less than this share of the disk is free, in percent.
pub(crate) const FREE_MIN_PERCENT: u64 = 5;
/// There is room again when this share is free, in percent.
pub(crate) const FREE_AGAIN_PERCENT: u64 = 7;
/// The share of the disk that pods may use together before one of them is ended, in percent.
pub(crate) const WORTH_PERCENT: u64 = 1;
/// What pods may use together before one of them is ended, on a disk of which [`WORTH_PERCENT`] is less.
pub(crate) const WORTH_BYTES: u64 = 64 << 20;
/// On a disk that is smaller still, the part of it that they may use.
pub(crate) const WORTH_PART: u64 = 8;
/// How long there must be room, or nothing worth ending, until pods start again.
pub(crate) const RELIEF_FOR: Duration = Duration::from_secs(10);
/// How long after a pod's end its room may take to be free before another pod is ended.
pub(crate) const FREED_WITHIN: Duration = Duration::from_secs(3);
/// All pods are measured at once when the free part of a disk that is nearly full has shrunk by this part since they were last.
pub(crate) const SHRUNK_PART: u64 = 10;
