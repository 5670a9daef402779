//! What helps after a failure, where that depends on the platform that was talked to.

use super::target::Target;
use crate::error::{Error, Remedy};

/// What helps next, a command where there is one. `target` is what the command talked to, if it got that far.
pub fn next_command(error: &Error, target: Option<&Target>) -> Option<String> {
    match error.remedy() {
        Remedy::Unknown => None,
        Remedy::Do(text) => Some(text),
        Remedy::Reach { answers } => target.map(|target| target.help_command(answers)),
        Remedy::OtherUser if matches!(target, Some(Target::Fleet(_))) => None,
        Remedy::OtherUser => Some("jobctl --kubeconfig FILE ... with a user that may do this".to_owned()),
    }
}
