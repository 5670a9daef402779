//! Who can be sent an errand.

use super::Sessions;

/// Why a cluster gets no errand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreached {
    /// Nobody speaks for it.
    #[error("its executor has no session with this server, or has only begun one: try again when it is back")]
    Away,
    /// Its executor knows of none.
    #[error("its executor is of release {0}, which knows no such requests: bring it to the server's release")]
    Old(String),
    /// So much waits to be sent to it.
    #[error("its executor is slow to take what it is told: try again")]
    Slow,
}

impl Sessions {
    /// The session in which a cluster can be sent an errand.
    ///
    /// # Errors
    /// Where there is none.
    pub fn errand_session(&self, name: &str) -> Result<u64, Unreached> {
        let cluster = self.clusters.get(name).ok_or(Unreached::Away)?;
        let session = cluster.session.as_ref().filter(|session| session.told_runs).ok_or(Unreached::Away)?;
        if session.runs_errands { Ok(session.number) } else { Err(Unreached::Old(cluster.release.clone())) }
    }

    /// Clusters that have a node of this name, as they said last. O(clusters).
    pub fn homes(&self, node: &str) -> Vec<String> {
        let homes = self.clusters.iter().filter(|(_, cluster)| cluster.nodes.has(node));
        homes.map(|(name, _)| name.clone()).collect()
    }
}
