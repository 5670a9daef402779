//! The paths of the webhook server: one for each kind and phase, as Volcano's.
//!
//! Invariant: this table is the only place that says what is answered and what the API server is asked to send.

/// What a path does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Fills in; the answer is a patch.
    Mutate,
    /// Judges; the answer is yes or no.
    Validate,
}

/// What happens to a request when no admission answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// It is refused: the kind is ours and nothing but our objects waits.
    Refused,
    /// It passes: it may be anybody's.
    Passes,
}

/// Which objects are sent, beside the kind: a part of `server::configuration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    /// All new ones; of changed ones those whose spec or annotations change, so that metadata such as finalizers can be
    /// written, and a job be deleted, while no admission is there.
    Changed,
    /// Pods that the rules for new pods may change.
    PodsToMutate,
    /// Pods of our schedulers with a disruption budget.
    PodsWithBudget,
}

/// A path of the webhook server: which objects are sent there, and what is done with them.
#[derive(Debug)]
pub struct Route {
    pub path: &'static str,
    pub(crate) phase: Phase,
    /// Name of the webhook, which people see in refusals.
    pub(crate) webhook: &'static str,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) operations: &'static [&'static str],
    pub(crate) unanswered: Unanswered,
    pub(crate) sent: Sent,
}

/// The API that a route's objects are of.
#[derive(Debug, Clone, Copy)]
struct GroupVersion {
    group: &'static str,
    version: &'static str,
}

const BATCH: GroupVersion = GroupVersion { group: "batch.volcano.sh", version: "v1alpha1" };
const FLOW: GroupVersion = GroupVersion { group: "flow.volcano.sh", version: "v1alpha1" };
const SCHEDULING: GroupVersion = GroupVersion { group: "scheduling.volcano.sh", version: "v1beta1" };
const TOPOLOGY: GroupVersion = GroupVersion { group: "topology.volcano.sh", version: "v1alpha1" };
const OURS: GroupVersion = GroupVersion { group: "pumice.sh", version: "v1alpha1" };
const CORE: GroupVersion = GroupVersion { group: "", version: "v1" };

const CREATE: &[&str] = &["CREATE"];
const WRITE: &[&str] = &["CREATE", "UPDATE"];
const WRITE_AND_DELETE: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// Every path. What is sent beyond Volcano's: changed jobs, flows, templates and schedules to be filled in, because a manifest applied
/// again drops what was filled in, and because who submitted them is written down.
pub const ROUTES: &[Route] = &[
    ours("/jobs/mutate", Phase::Mutate, "mutatejob.volcano.sh", BATCH, "jobs", WRITE, Sent::Changed),
    ours("/jobs/validate", Phase::Validate, "validatejob.volcano.sh", BATCH, "jobs", WRITE, Sent::Changed),
    ours("/queues/mutate", Phase::Mutate, "mutatequeue.volcano.sh", SCHEDULING, "queues", CREATE, Sent::All),
    ours(
        "/queues/validate",
        Phase::Validate,
        "validatequeue.volcano.sh",
        SCHEDULING,
        "queues",
        WRITE_AND_DELETE,
        Sent::All,
    ),
    ours("/podgroups/mutate", Phase::Mutate, "mutatepodgroup.volcano.sh", SCHEDULING, "podgroups", CREATE, Sent::All),
    ours(
        "/podgroups/validate",
        Phase::Validate,
        "validatepodgroup.volcano.sh",
        SCHEDULING,
        "podgroups",
        CREATE,
        Sent::All,
    ),
    pods("/pods/mutate", Phase::Mutate, "mutatepod.volcano.sh", Sent::PodsToMutate),
    pods("/pods/validate", Phase::Validate, "validatepod.volcano.sh", Sent::PodsWithBudget),
    ours(
        "/hypernodes/validate",
        Phase::Validate,
        "validatehypernode.volcano.sh",
        TOPOLOGY,
        "hypernodes",
        WRITE,
        Sent::Changed,
    ),
    ours("/cronjobs/mutate", Phase::Mutate, "mutatecronjob.volcano.sh", BATCH, "cronjobs", WRITE, Sent::Changed),
    ours("/cronjobs/validate", Phase::Validate, "validatecronjob.volcano.sh", BATCH, "cronjobs", WRITE, Sent::Changed),
    ours("/jobflows/mutate", Phase::Mutate, "mutatejobflows.volcano.sh", FLOW, "jobflows", WRITE, Sent::Changed),
    ours("/jobflows/validate", Phase::Validate, "validatejobflows.volcano.sh", FLOW, "jobflows", WRITE, Sent::Changed),
    ours(
        "/jobtemplates/mutate",
        Phase::Mutate,
        "mutatejobtemplates.volcano.sh",
        FLOW,
        "jobtemplates",
        WRITE,
        Sent::Changed,
    ),
    ours(
        "/tenants/validate",
        Phase::Validate,
        "validatetenant.pumice.sh",
        OURS,
        "tenants",
        WRITE_AND_DELETE,
        Sent::All,
    ),
];

const fn ours(
    path: &'static str,
    phase: Phase,
    webhook: &'static str,
    api: GroupVersion,
    resource: &'static str,
    operations: &'static [&'static str],
    sent: Sent,
) -> Route {
    let GroupVersion { group, version } = api;
    Route { path, phase, webhook, group, version, resource, operations, unanswered: Unanswered::Refused, sent }
}

const fn pods(path: &'static str, phase: Phase, webhook: &'static str, sent: Sent) -> Route {
    let route = ours(path, phase, webhook, CORE, "pods", CREATE, sent);
    Route { unanswered: Unanswered::Passes, ..route }
}

/// The route of a path.
pub fn route(path: &str) -> Option<&'static Route> {
    ROUTES.iter().find(|route| route.path == path)
}

/// The routes of `--enabled-admission`: paths between commas. Nothing means all.
pub fn enabled(list: &str) -> Result<Vec<&'static Route>, UnknownPath> {
    let paths = list.split(',').map(str::trim).filter(|path| !path.is_empty());
    let chosen: Vec<_> =
        paths.map(|path| route(path).ok_or_else(|| UnknownPath(path.to_owned()))).collect::<Result<_, _>>()?;
    Ok(if chosen.is_empty() { ROUTES.iter().collect() } else { chosen })
}

/// A path that there is nothing behind.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no admission {0:?}; there are {known}", known = known())]
pub struct UnknownPath(String);

fn known() -> String {
    ROUTES.iter().map(|route| route.path).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_path_and_a_webhook_are_one_routes_alone() {
        let paths: BTreeSet<_> = ROUTES.iter().map(|route| route.path).collect();
        let names: BTreeSet<_> = ROUTES.iter().map(|route| route.webhook).collect();
        assert_eq!((paths.len(), names.len()), (ROUTES.len(), ROUTES.len()));
    }

    #[test]
    fn routes_are_chosen_by_volcanos_flag() {
        let paths = |list| enabled(list).map(|chosen| chosen.iter().map(|route| route.path).collect::<Vec<_>>());
        assert_eq!(paths("/jobs/mutate, /queues/validate"), Ok(vec!["/jobs/mutate", "/queues/validate"]));
        assert_eq!(paths("").map(|all| all.len()), Ok(ROUTES.len()));
        let error = paths("/jobs/mutate,/jobs/judge").expect_err("no such path").to_string();
        assert!(error.contains("\"/jobs/judge\"") && error.contains("/jobs/validate"), "{error}");
    }
}
