//! Takes the rights of root from a container's process that its programs are not to have.

use caps::errors::CapsError;
use caps::{CapSet, Capability};
use nix::errno::Errno;

use crate::capability_set::retained;

/// Drops what would pass from this process to its programs beside the rights of their user.
pub(crate) fn inherit_none() -> Result<(), CapsError> {
    caps::clear(None, CapSet::Inheritable)
}

/// Drops every capability that the program is not to have from what it can ever get.
pub(crate) fn limit(add: &[String], drop: &[String]) -> nix::Result<()> {
    let retained = retained(add, drop);
    caps::all().into_iter().filter(|capability| !retained.contains(capability)).try_for_each(drop_bounding)
}

#[allow(unsafe_code)]
fn drop_bounding(capability: Capability) -> nix::Result<()> {
    let number = libc::c_ulong::from(capability.index());
    // SAFETY: takes integers only and changes this process's bounding set.
    let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    match Errno::result(result) {
        // A kernel that does not know the capability can't give it either.
        Err(Errno::EINVAL) => Ok(()),
        other => other.map(drop),
    }
}
