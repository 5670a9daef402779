//! Questions to the running scheduler, answered from the World by the task that owns it.

use pumice_engine::{Reasons, World};
use tokio::sync::{mpsc, oneshot};

/// A group that waits, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// Its namespace.
    pub namespace: String,
    /// Its Job's name, else its own.
    pub name: String,
    /// Its PodGroup's name.
    pub group: String,
    /// Its queue.
    pub queue: String,
    /// Why it waits.
    pub reasons: Reasons,
}

/// A question.
pub(crate) struct Ask {
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) reply: oneshot::Sender<Vec<Waiting>>,
}

/// Asks the scheduler; cheap to clone. After the scheduler has stopped nothing waits.
#[derive(Debug, Clone)]
pub struct Handle {
    asks: mpsc::Sender<Ask>,
}

impl Handle {
    pub(crate) fn new(waiting_max: usize) -> (Self, mpsc::Receiver<Ask>) {
        let (asks, receiver) = mpsc::channel(waiting_max);
        (Self { asks }, receiver)
    }

    /// Why a Job, or a PodGroup, waits; nothing if it does not. Cancel safe.
    pub async fn why(&self, namespace: &str, name: &str) -> Option<Waiting> {
        self.ask(Some(namespace.to_owned()), Some(name.to_owned())).await.into_iter().next()
    }

    /// All that waits, in one namespace or everywhere, by namespace and name. Cancel safe.
    pub async fn list(&self, namespace: Option<&str>) -> Vec<Waiting> {
        self.ask(namespace.map(str::to_owned), None).await
    }

    async fn ask(&self, namespace: Option<String>, name: Option<String>) -> Vec<Waiting> {
        let (reply, answer) = oneshot::channel();
        match self.asks.send(Ask { namespace, name, reply }).await {
            Ok(()) => answer.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

/// Answers one question. O(groups).
pub(crate) fn answer(world: &World, ask: Ask) {
    let mut found: Vec<Waiting> = world
        .groups()
        .filter(|group| ask.namespace.as_deref().is_none_or(|namespace| namespace == group.namespace))
        .filter_map(|group| {
            let owner = group.owner.map(|owner| owner.name.as_str());
            let asked = ask.name.as_deref().is_none_or(|name| name == group.name || owner == Some(name));
            let reasons = group.reasons.filter(|_| asked)?;
            Some(Waiting {
                namespace: group.namespace.to_owned(),
                name: owner.unwrap_or(group.name).to_owned(),
                group: group.name.to_owned(),
                queue: group.queue.to_owned(),
                reasons: reasons.clone(),
            })
        })
        .collect();
    found.sort_by(|left, right| {
        (&left.namespace, &left.name, &left.group).cmp(&(&right.namespace, &right.name, &right.group))
    });
    // Whoever asked may have gone.
    let _ = ask.reply.send(found);
}
