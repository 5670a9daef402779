//! The firewall is told of the pods of this node.

use crate::agent::pods::Pods;
use crate::agent::pods::entry::Presence;

impl Pods {
    /// Tells of a pod as it is now. What is known of one that is gone from the API server holds until it has ended.
    pub(super) fn tell_firewall(&self, uid: &str) {
        let Some(entry) = self.pods.get(uid).filter(|entry| !entry.has_ended() && !entry.on_host_network()) else {
            return;
        };
        let Some(address) = entry.address.filter(|address| *address != self.context.host_ip) else { return };
        match &entry.presence {
            Presence::Present(pod) => self.context.firewall.tell_of_pod(uid, pod, address),
            Presence::Unknown => self.context.firewall.tell_of_found_pod(uid, &entry.namespace, address),
            Presence::Gone => {}
        }
    }
}
