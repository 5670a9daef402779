//! How many files this process may have open.
//!
//! Invariant: the limit is raised before anything listens, so whoever sizes itself by it sees the final one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What is assumed where the system doesn't say.
const FALLBACK: u64 = 1024;

/// Allows as many as the system lets this process have: connections, pods and files each take some.
pub fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(error) = raised {
        tracing::warn!(%error, "the number of open files can't be raised");
    }
}

/// How many are allowed now.
pub fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(FALLBACK, |(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_goes() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, soft / 2, hard).unwrap();
        raise_limit();
        assert_eq!(limit(), hard);
    }
}
