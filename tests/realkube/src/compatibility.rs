//! What clients of others do on an API server: the rows of `docs/clients.md`.
//!
//! A behaviour is tried as its client's users would, in a namespace of its own, and ends in a [`Verdict`]. What is known not to work,
//! or has nothing to run on, stands in [`known`]; anything else that fails is a failure of the test.
//!
//! Invariant: a cell of the page is only written by a run that saw it.

mod kube_rs;
mod kubectl;
mod page;
mod programs;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

pub use kube_rs::kube_rs;
use kubectl::BEHAVIOURS;
pub use page::{Column, settle};
pub use programs::{client_go, fabric8, python};
use pumice_testkit::Clients;

use crate::operators::Server;

/// Behaviours that are tried at the same time.
const SIDE_BY_SIDE: usize = 3;

/// What a client does.
pub struct Behaviour {
    /// As a user of the client would name it.
    pub name: &'static str,
    /// What it takes beside an API server.
    pub needs: Needs,
    /// Does it, and panics where it does not work.
    pub run: fn(&Clients),
}

/// What a behaviour takes beside an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Objects are enough, or nodes that simulate pods.
    Api,
    /// Processes in pods, which a node has to run.
    Processes,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub name: String,
    /// `None` when it works, else the first line of what went wrong.
    pub wrong: Option<String>,
}

/// Why a behaviour is not expected to work, if it is not. `minor` is that of kubectl.
fn known(server: Server, minor: u32, behaviour: &Behaviour) -> Option<&'static str> {
    if server == Server::Kubernetes && behaviour.needs == Needs::Processes {
        return Some("no kubelet in the test");
    }
    match (server, behaviour.name) {
        (_, "auth whoami") if minor < 28 => Some("asks for v1beta1, which Kubernetes no longer serves"),
        (_, "wait --for=create") if minor < 31 => Some("unknown to this kubectl"),
        (Server::Ours, "autoscale") => Some("no HorizontalPodAutoscaler"),
        _ => None,
    }
}

/// One `kubectl` on one server.
pub struct Kubectl {
    /// Where it is tried.
    pub server: Server,
    pub program: PathBuf,
    pub minor: u32,
}

impl Kubectl {
    /// The one that these clients have.
    ///
    /// # Panics
    /// When it does not say its version.
    pub fn at_hand(server: Server, clients: &Clients) -> Kubectl {
        let text = clients.kubectl(["version", "--client", "-o", "json"]).ok();
        let version: serde_json::Value = serde_json::from_str(&text).expect("kubectl prints JSON");
        let minor = version["clientVersion"]["minor"].as_str().expect("a minor version").trim_end_matches('+');
        Kubectl { server, program: clients.kubectl_program().to_owned(), minor: minor.parse().expect("a number") }
    }

    /// Tries every behaviour, each in a namespace that `place` makes of its name.
    ///
    /// # Panics
    /// When one fails that should work, with all of these; and when one works that is known not to.
    pub fn try_all(&self, place: impl Fn(&str) -> Clients + Sync) -> Column {
        let (next, surprises) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..SIDE_BY_SIDE {
                scope.spawn(|| {
                    while let Some(behaviour) = BEHAVIOURS.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let surprise = self.try_one(behaviour, &place);
                        surprises.lock().unwrap_or_else(PoisonError::into_inner).extend(surprise);
                    }
                });
            }
        });
        let surprises = surprises.into_inner().unwrap_or_else(PoisonError::into_inner);
        assert!(surprises.is_empty(), "kubectl 1.{} on {:?}:\n{}", self.minor, self.server, surprises.join("\n"));
        let verdicts = BEHAVIOURS.iter().map(|behaviour| Verdict {
            name: format!("`{}`", behaviour.name),
            wrong: known(self.server, self.minor, behaviour).map(str::to_owned),
        });
        Column::new("kubectl", &["1.27", "1.33"], &format!("1.{}", self.minor), self.server, verdicts.collect())
    }

    /// What is not as it is known to be.
    fn try_one(&self, behaviour: &Behaviour, place: impl Fn(&str) -> Clients) -> Option<String> {
        let known = known(self.server, self.minor, behaviour);
        if known.is_some() && self.server == Server::Kubernetes && behaviour.needs == Needs::Processes {
            return None;
        }
        let name: String = behaviour.name.chars().filter(char::is_ascii_alphanumeric).collect();
        let clients = place(&format!("m{}-{}", self.minor, name.to_lowercase())).with_kubectl(&self.program);
        let wrong = catch_unwind(AssertUnwindSafe(|| (behaviour.run)(&clients))).err().map(words_of);
        match (wrong, known) {
            (None, Some(known)) => Some(format!("{} works, and is known not to: {known}", behaviour.name)),
            (Some(wrong), None) => Some(format!("{}: {wrong}", behaviour.name)),
            _ => None,
        }
    }
}

fn words_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
