//! Errands on their way to the sessions of their clusters. Their answers do not come this way.

use pumice_wire::executor::{self as wire, to_executor};

use super::{OUT_MAX, Term};
use crate::sessions::Unreached;

/// Messages to a session that may wait when an errand joins them: what the ledger has to say goes before.
const WAITING_MAX: usize = OUT_MAX / 2;

impl Term {
    pub(super) fn errand(&mut self, cluster: &str, errand: wire::Errand) -> Result<(), Unreached> {
        let session = self.sessions.errand_session(cluster)?;
        let (_, out) = self.outs.get(cluster).filter(|(number, _)| *number == session).ok_or(Unreached::Away)?;
        if out.capacity() < WAITING_MAX {
            return Err(Unreached::Slow);
        }
        self.tell(cluster, session, to_executor::Message::Errand(errand));
        Ok(())
    }
}
