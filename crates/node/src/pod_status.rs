//! A pod's status as the API shows it, made from what its shim says.
//!
//! Invariant: pure; a condition's time changes only with its status. What others wrote into the
//! conditions (the scheduler's `PodScheduled`, a job's own) is kept.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as WireState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus as WireStatus, EphemeralContainer, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::pod_images::{PodImages, id_by_name};
use crate::pod_spec::ephemeral;
use crate::pod_spec::resolve::is_sidecar;
use pumice_shim::status::{ContainerState, ContainerStatus, Exit, ShimPhase, ShimStatus};

/// Condition of a pod that wrote files which are gone with it; jobctl and the library tell of it.
const FILES_DISCARDED: &str = "pumice.sh/FilesDiscarded";

/// What the agent knows beside the shim's status.
pub(crate) struct Facts<'a> {
    pub pod: &'a Pod,
    /// Of its containers that are attended to.
    pub gates: BTreeMap<&'a str, Gate>,
    /// Of containers that are added to it, what the shim does not say.
    pub ephemeral: BTreeMap<&'a str, AddedFacts<'a>>,
    /// What its containers run; none where the agent found them running.
    pub images: Option<&'a PodImages>,
    /// The status written before, or found at the start.
    pub before: &'a PodStatus,
    pub host_ip: Ipv4Addr,
    /// The pod's address, when it has one.
    pub pod_ip: Option<Ipv4Addr>,
    /// When the agent took the pod on.
    pub started_at: Timestamp,
    pub now: Timestamp,
}

/// What attendance has found about a container that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gate {
    /// Its first hook and its startup probe are done.
    pub started: bool,
    pub ready: bool,
}

/// What the agent knows of a container that is added to a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AddedFacts<'a> {
    /// As a pod's status says it, empty while that is not known.
    pub image_id: &'a str,
    /// Why it waits, with reason and text, while the shim does not know it.
    pub waits: Option<(&'a str, &'a str)>,
}

/// What there is to tell.
pub(crate) enum View<'a> {
    /// Its containers wait for something, with reason and text.
    Waiting(&'a str, Option<&'a str>),
    /// The node does not run it.
    Rejected(&'a str, &'a str),
    /// Its shim's word.
    Shim(&'a ShimStatus),
    /// Its shim died without a word; the last one there is.
    Lost(Option<&'a ShimStatus>),
}

/// Why a pod whose shim died is failed.
pub(crate) const SHIM_LOST: &str = "ShimLost";
/// The message beside [`SHIM_LOST`].
pub(crate) const SHIM_LOST_MESSAGE: &str =
    "the pod's shim ended without writing down how its containers ended (power loss, or it was killed)";

/// The status to show.
pub(crate) fn render(facts: &Facts<'_>, view: &View<'_>) -> PodStatus {
    let (phase, reason, message) = match view {
        View::Waiting(..) => ("Pending", None, None),
        View::Rejected(reason, message) => ("Failed", Some((*reason).to_owned()), Some((*message).to_owned())),
        View::Lost(_) => ("Failed", Some(SHIM_LOST.to_owned()), Some(SHIM_LOST_MESSAGE.to_owned())),
        View::Shim(shim) => (phase(shim), shim.reason.clone(), shim.message.clone()),
    };
    let init = container_statuses(facts, view, true);
    let main = container_statuses(facts, view, false);
    let ready = phase == "Running" && init.iter().chain(&main).all(|container| container.ready);
    let initialized = match view {
        View::Shim(shim) => shim.init_containers.iter().all(|container| is_passed(facts, container)),
        View::Waiting(..) => {
            facts.pod.spec.as_ref().is_some_and(|spec| spec.init_containers.iter().flatten().count() == 0)
        }
        View::Rejected(..) | View::Lost(_) => false,
    };
    let unready = match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => Some("ContainersNotReady"),
    };
    let mut conditions = conditions(facts, initialized, ready, unready);
    if let Some(message) = files_discarded(view) {
        let before = conditions.iter().position(|condition| condition.type_ == FILES_DISCARDED);
        let since = before.and_then(|at| conditions.remove(at).last_transition_time);
        conditions.push(PodCondition {
            type_: FILES_DISCARDED.to_owned(),
            status: "True".to_owned(),
            reason: Some("WrittenOutsideVolumes".to_owned()),
            message: Some(message),
            last_transition_time: since.or(Some(Time(facts.now))),
            ..PodCondition::default()
        });
    }
    PodStatus {
        phase: Some(phase.to_owned()),
        reason,
        message,
        conditions: Some(conditions),
        init_container_statuses: (!init.is_empty()).then_some(init),
        container_statuses: (!main.is_empty()).then_some(main),
        ephemeral_container_statuses: ephemeral_statuses(facts, view),
        host_ip: Some(facts.host_ip.to_string()),
        host_ips: Some(vec![HostIP { ip: facts.host_ip.to_string() }]),
        pod_ip: facts.pod_ip.map(|ip| ip.to_string()),
        pod_ips: facts.pod_ip.map(|ip| vec![PodIP { ip: ip.to_string() }]),
        start_time: Some(Time(facts.started_at)),
        ..PodStatus::default()
    }
}

/// Whether an init container holds up nobody: it has succeeded, or is a sidecar that is up.
fn is_passed(facts: &Facts<'_>, container: &ContainerStatus) -> bool {
    if let Some(exit) = container.exit() {
        return exit.code == 0;
    }
    let init = facts.pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecar = init.into_iter().any(|init| init.name == container.name && is_sidecar(init));
    let up = facts.gates.get(container.name.as_str()).is_none_or(|gate| gate.started);
    sidecar && container.is_running() && up
}

fn phase(shim: &ShimStatus) -> &'static str {
    let exits = || shim.containers.iter().map(ContainerStatus::exit);
    let succeeded = exits().all(|exit| exit.is_some_and(|exit| exit.code == 0));
    match shim.phase {
        ShimPhase::Done if succeeded && shim.reason.is_none() => "Succeeded",
        ShimPhase::Done => "Failed",
        ShimPhase::Initializing => "Pending",
        ShimPhase::Stopping
            if exits().all(|exit| exit.is_none()) && shim.containers.iter().all(|c| !c.is_running()) =>
        {
            "Pending"
        }
        ShimPhase::Running | ShimPhase::Stopping => "Running",
    }
}

fn container_statuses(facts: &Facts<'_>, view: &View<'_>, init: bool) -> Vec<WireStatus> {
    let spec = facts.pod.spec.as_ref();
    let containers = match init {
        true => spec.and_then(|spec| spec.init_containers.as_ref()),
        false => spec.map(|spec| &spec.containers),
    };
    let shim = match view {
        View::Shim(shim) | View::Lost(Some(shim)) => Some(*shim),
        _ => None,
    };
    let status_of = |name: &str| {
        let list = shim.map(|shim| if init { &shim.init_containers } else { &shim.containers });
        list.into_iter().flatten().find(|status| status.name == name)
    };
    if matches!(view, View::Rejected(..)) {
        return Vec::new();
    }
    let one = |container: &Container| {
        let found = status_of(&container.name);
        let id = container_id(facts.pod, &container.name, found.map_or(0, |status| status.restart_count));
        let state = state(found, view, &id, facts.now, init);
        let running = state.running.is_some();
        let gate = facts.gates.get(container.name.as_str()).copied().unwrap_or(Gate { started: true, ready: true });
        let done = init && state.terminated.as_ref().is_some_and(|end| end.exit_code == 0);
        WireStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            image_id: if found.is_some() { image_id(facts, container) } else { String::new() },
            container_id: if found.is_some() && state.waiting.is_none() { Some(id.clone()) } else { None },
            ready: (running && gate.ready) || done,
            started: Some(running && gate.started),
            restart_count: found.map_or(0, |status| i32::try_from(status.restart_count).unwrap_or(i32::MAX)),
            last_state: found.and_then(|status| status.last.as_ref()).map(|exit| terminated(exit, &id)),
            state: Some(state),
            ..WireStatus::default()
        }
    };
    containers.into_iter().flatten().map(one).collect()
}

/// Those of containers that are added to the pod. They are neither ready nor not: nothing of the pod depends on them.
fn ephemeral_statuses(facts: &Facts<'_>, view: &View<'_>) -> Option<Vec<WireStatus>> {
    let added = ephemeral::of(facts.pod);
    if added.is_empty() || matches!(view, View::Rejected(..)) {
        return None;
    }
    let shim = match view {
        View::Shim(shim) | View::Lost(Some(shim)) => Some(*shim),
        _ => None,
    };
    let one = |container: &EphemeralContainer| {
        let name = container.name.as_str();
        let known = facts.ephemeral.get(name).copied().unwrap_or_default();
        let found = shim.and_then(|shim| shim.ephemeral_containers.iter().flatten().find(|one| one.name == name));
        let id = container_id(facts.pod, name, 0);
        let view = match (known.waits, view) {
            (Some((reason, message)), View::Shim(_)) if found.is_none() => &View::Waiting(reason, Some(message)),
            _ => view,
        };
        let state = state(found, view, &id, facts.now, true);
        WireStatus {
            name: name.to_owned(),
            image: container.image.clone().unwrap_or_default(),
            image_id: if found.is_some() { known.image_id.to_owned() } else { String::new() },
            container_id: if found.is_some() && state.waiting.is_none() { Some(id) } else { None },
            state: Some(state),
            ..WireStatus::default()
        }
    };
    Some(added.iter().map(one).collect())
}

/// What a container runs: an image by its digest, the image map's entry, or this machine's programs.
fn image_id(facts: &Facts<'_>, container: &Container) -> String {
    if let Some(id) = facts.images.and_then(|images| images.ids.get(&container.name)) {
        return id.clone();
    }
    let lists = [&facts.before.init_container_statuses, &facts.before.container_statuses];
    let before = lists.into_iter().flatten().flatten().find(|before| before.name == container.name);
    let said = before.map(|before| before.image_id.as_str()).filter(|id| !id.is_empty());
    said.or_else(|| id_by_name(container)).unwrap_or_default().to_owned()
}

fn state(found: Option<&ContainerStatus>, view: &View<'_>, id: &str, now: Timestamp, init: bool) -> WireState {
    let waiting = |reason: &str, message: Option<&str>| WireState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message: message.map(str::to_owned) }),
        ..WireState::default()
    };
    match (found.map(|status| &status.state), view) {
        (Some(ContainerState::Terminated(exit)), _) => terminated(exit, id),
        // Nobody knows how it ended.
        (Some(ContainerState::Running { started_at, .. }), View::Lost(_)) => terminated(&lost(*started_at, now), id),
        (None, View::Lost(_)) if !init => terminated(&lost(now, now), id),
        (Some(ContainerState::Running { started_at, .. }), _) => WireState {
            running: Some(ContainerStateRunning { started_at: Some(Time(*started_at)) }),
            ..WireState::default()
        },
        (Some(ContainerState::Waiting { reason, message }), _) => waiting(reason, message.as_deref()),
        (None, View::Waiting(reason, message)) => waiting(reason, *message),
        (None, _) => waiting("ContainerCreating", None),
    }
}

fn lost(started_at: Timestamp, now: Timestamp) -> Exit {
    Exit {
        code: 137,
        signal: None,
        reason: SHIM_LOST.into(),
        message: None,
        started_at,
        finished_at: now,
        discarded: None,
    }
}

fn terminated(exit: &Exit, id: &str) -> WireState {
    WireState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(id.to_owned()),
            exit_code: exit.code,
            signal: exit.signal,
            reason: Some(exit.reason.clone()),
            message: exit.message.clone(),
            started_at: Some(Time(exit.started_at)),
            finished_at: Some(Time(exit.finished_at)),
        }),
        ..WireState::default()
    }
}

/// How a run of a container is called.
pub(crate) fn container_id(pod: &Pod, name: &str, attempt: u32) -> String {
    format!("pumice://{}/{name}/{attempt}", pod.metadata.uid.as_deref().unwrap_or_default())
}

/// A sentence about what the pod's containers wrote that is gone with them, once all is over.
fn files_discarded(view: &View<'_>) -> Option<String> {
    let View::Shim(shim) = view else { return None };
    if shim.phase != ShimPhase::Done {
        return None;
    }
    let containers = shim.init_containers.iter().chain(&shim.containers);
    let mut ends = containers.flat_map(|container| container.exit().into_iter().chain(&container.last));
    let mut all = ends.by_ref().find_map(|exit| exit.discarded.clone())?;
    ends.filter_map(|exit| exit.discarded.as_ref()).for_each(|found| all.add(found));
    Some(all.sentence())
}

fn conditions(facts: &Facts<'_>, initialized: bool, ready: bool, unready: Option<&str>) -> Vec<PodCondition> {
    let before = facts
        .before
        .conditions
        .iter()
        .flatten()
        .chain(facts.pod.status.iter().flat_map(|status| status.conditions.iter().flatten()));
    let known: Vec<&PodCondition> = before.collect();
    let own = [
        ("PodScheduled", true, None),
        ("Initialized", initialized, Some("ContainersNotInitialized")),
        ("ContainersReady", ready, unready),
        ("Ready", ready, unready),
    ];
    let mut out: Vec<PodCondition> = own
        .into_iter()
        .map(|(kind, holds, reason)| {
            let status = if holds { "True" } else { "False" };
            let same = known.iter().find(|condition| condition.type_ == kind && condition.status == status);
            PodCondition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: if holds { None } else { reason.map(str::to_owned) },
                last_transition_time: same.and_then(|c| c.last_transition_time.clone()).or(Some(Time(facts.now))),
                ..PodCondition::default()
            }
        })
        .collect();
    let latest = facts.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    out.extend(latest.filter(|condition| !own.iter().any(|(kind, ..)| *kind == condition.type_)).cloned());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_shim::discarded::Discarded;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]},
            "status": {"conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:00:05Z"},
                {"type": "Custom", "status": "True"},
            ]},
        }))
        .unwrap()
    }

    fn shim(phase: ShimPhase, codes: &[Option<i32>]) -> ShimStatus {
        let mut status = ShimStatus::new([].into_iter(), ["a", "b"].into_iter(), at(10));
        status.phase = phase;
        for (container, code) in status.containers.iter_mut().zip(codes) {
            container.state = match code {
                Some(code) => ContainerState::Terminated(Exit {
                    code: *code,
                    signal: None,
                    reason: if *code == 137 { "OOMKilled".into() } else { "Error".into() },
                    message: None,
                    started_at: at(10),
                    finished_at: at(20),
                    discarded: None,
                }),
                None => ContainerState::Running { started_at: at(10), pid: None },
            };
        }
        status
    }

    fn rendered(view: &View<'_>) -> PodStatus {
        rendered_of(&pod(), view, at(30))
    }

    fn rendered_of(pod: &Pod, view: &View<'_>, now: Timestamp) -> PodStatus {
        let before = PodStatus::default();
        let facts = Facts {
            pod,
            images: None,
            ephemeral: BTreeMap::new(),
            gates: BTreeMap::new(),
            before: &before,
            host_ip: Ipv4Addr::LOCALHOST,
            pod_ip: Some(Ipv4Addr::new(10, 64, 0, 2)),
            started_at: at(9),
            now,
        };
        render(&facts, view)
    }

    fn condition(status: &PodStatus, kind: &str) -> (String, i64) {
        let found = status.conditions.iter().flatten().find(|condition| condition.type_ == kind).unwrap();
        (found.status.clone(), found.last_transition_time.as_ref().map_or(0, |time| time.0.as_second()))
    }

    #[test]
    fn the_phase_follows_from_the_containers() {
        let cases = [
            (shim(ShimPhase::Running, &[None, None]), "Running", "True"),
            (shim(ShimPhase::Running, &[Some(0), None]), "Running", "False"),
            (shim(ShimPhase::Done, &[Some(0), Some(0)]), "Succeeded", "False"),
            (shim(ShimPhase::Done, &[Some(0), Some(137)]), "Failed", "False"),
        ];
        for (shim, phase, ready) in cases {
            let status = rendered(&View::Shim(&shim));
            assert_eq!(status.phase.as_deref(), Some(phase));
            assert_eq!(condition(&status, "Ready").0, ready, "{phase}");
        }
    }

    #[test]
    fn an_exit_is_told_in_full() {
        let status = rendered(&View::Shim(&shim(ShimPhase::Done, &[Some(137), Some(0)])));
        let end = status.container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
        assert_eq!((end.exit_code, end.reason.as_deref()), (137, Some("OOMKilled")));
        assert_eq!(end.container_id.as_deref(), Some("pumice://u/a/0"));
        assert_eq!(status.pod_ip.as_deref(), Some("10.64.0.2"));
    }

    #[test]
    fn files_that_are_gone_are_told_once_all_is_over() {
        let some = |path: &str| Discarded { files: 1, partial: false, first: vec![path.to_owned()] };
        let mut shim = shim(ShimPhase::Running, &[Some(0), Some(0)]);
        let told = |shim: &ShimStatus| {
            let status = rendered(&View::Shim(shim));
            let found = status.conditions.unwrap().into_iter().find(|one| one.type_ == FILES_DISCARDED);
            found.and_then(|one| one.message)
        };
        for (container, path) in shim.containers.iter_mut().zip(["/a", "/b"]) {
            if let ContainerState::Terminated(exit) = &mut container.state {
                exit.discarded = Some(some(path));
            }
        }
        assert_eq!(told(&shim), None);
        shim.phase = ShimPhase::Done;
        let sentence = "2 files are gone with the pod, written where nothing is kept: /a, /b";
        assert_eq!(told(&shim).as_deref(), Some(sentence));
        // What was written is what is read back: there is nothing new to write.
        let first = rendered(&View::Shim(&shim));
        let mut pod = pod();
        pod.status = Some(first.clone());
        assert_eq!(rendered_of(&pod, &View::Shim(&shim), at(50)).conditions, first.conditions);
    }

    #[test]
    fn a_lost_shim_is_never_silent() {
        let status = rendered(&View::Lost(Some(&shim(ShimPhase::Running, &[Some(0), None]))));
        assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("ShimLost")));
        let states: Vec<_> =
            status.container_statuses.unwrap().into_iter().map(|c| c.state.unwrap().terminated.unwrap()).collect();
        assert_eq!((states[0].exit_code, states[1].exit_code), (0, 137));
        assert_eq!(states[1].reason.as_deref(), Some("ShimLost"));
    }

    #[test]
    fn conditions_of_others_are_kept_with_their_times() {
        let status = rendered(&View::Waiting("ErrImageNeverPull", Some("text")));
        assert_eq!(condition(&status, "PodScheduled"), ("True".into(), 5));
        assert_eq!(condition(&status, "Custom").0, "True");
        assert_eq!(condition(&status, "Ready"), ("False".into(), 30));
        let waiting = status.container_statuses.unwrap()[1].state.clone().unwrap().waiting.unwrap();
        assert_eq!((waiting.reason.as_deref(), waiting.message.as_deref()), (Some("ErrImageNeverPull"), Some("text")));
    }

    #[test]
    fn a_shim_that_begins_is_nothing_new() {
        let begun = ShimStatus::new([].into_iter(), ["a", "b"].into_iter(), at(10));
        assert_eq!(rendered(&View::Shim(&begun)), rendered(&View::Waiting("ContainerCreating", None)));
    }

    #[test]
    fn a_refused_pod_has_failed_with_the_reason() {
        let status = rendered(&View::Rejected("OutOfcpu", "too much"));
        assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("OutOfcpu")));
        assert_eq!(status.container_statuses, None);
    }

    #[test]
    fn what_was_added_is_told_of_and_counts_for_nothing() {
        let mut pod = pod();
        let added = ["waits", "runs", "failed"].map(|name| json!({"name": name, "image": "k"}));
        pod.spec.as_mut().unwrap().ephemeral_containers = serde_json::from_value(json!(added)).unwrap();
        let mut shim = shim(ShimPhase::Running, &[None, None]);
        let runs = ContainerState::Running { started_at: at(11), pid: None };
        let one = ContainerStatus { name: "runs".into(), state: runs, last: None, restart_count: 0 };
        shim.ephemeral_containers.get_or_insert_default().push(one);
        let before = PodStatus::default();
        let known = [
            ("runs", AddedFacts { image_id: "k@sha256:1", waits: None }),
            ("failed", AddedFacts { image_id: "", waits: Some(("ErrImagePull", "no such image")) }),
        ];
        let facts = Facts {
            pod: &pod,
            ephemeral: known.into(),
            images: None,
            gates: BTreeMap::new(),
            before: &before,
            host_ip: Ipv4Addr::LOCALHOST,
            pod_ip: None,
            started_at: at(9),
            now: at(30),
        };
        let status = render(&facts, &View::Shim(&shim));
        assert_eq!(status.phase.as_deref(), Some("Running"));
        let found = serde_json::to_value(status.ephemeral_container_statuses).unwrap();
        let waiting = |index: usize| found[index]["state"]["waiting"].clone();
        assert_eq!(waiting(0), json!({"reason": "ContainerCreating"}));
        assert_eq!(waiting(2), json!({"reason": "ErrImagePull", "message": "no such image"}));
        assert_eq!(found[1]["state"]["running"]["startedAt"], "1970-01-01T00:00:11Z");
        assert_eq!(
            (&found[1]["imageID"], &found[1]["containerID"]),
            (&json!("k@sha256:1"), &json!("pumice://u/runs/0"))
        );
        assert!(status.conditions.unwrap().iter().any(|one| one.type_ == "Ready" && one.status == "True"));
        // With the shim it is lost as the others are.
        let lost = render(&facts, &View::Lost(Some(&shim))).ephemeral_container_statuses.unwrap();
        assert_eq!(lost[1].state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 137);
        assert!(rendered(&View::Shim(&shim)).ephemeral_container_statuses.is_none());
    }
}
