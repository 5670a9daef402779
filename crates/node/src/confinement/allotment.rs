//! Which of a node's accelerators each container of a pod has.
//!
//! Invariant: pure. No device belongs to two pods, nor to two containers of one that may run at the same time; the lowest numbers
//! are given first, so that the same pods in the same order have the same devices. A pod has what it was given until it is
//! released. Called by the agent's loop over pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use pumice_shim::spec::DeviceNumbers;

/// On a pod: the devices that its containers have, by the numbers in their names.
pub(crate) const ANNOTATION: &str = "pumice.sh/accelerators";

/// When a container runs beside the others of its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It ends before the next one begins.
    Init,
    /// It begins among the init containers and goes on.
    Sidecar,
    Main,
}

/// What a container asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub container: String,
    pub role: Role,
    /// More than none, by resource.
    pub amounts: BTreeMap<String, u64>,
}

/// The devices of a pod, by container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodDevices(BTreeMap<String, DeviceNumbers>);

/// Too few devices are free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub resource: String,
    /// How many more the container needs than its pod has for it already.
    pub requested: u64,
    pub available: usize,
}

/// The kubelet's words (`pkg/kubelet/cm/devicemanager/manager.go`), by which people look for help.
impl fmt::Display for Shortage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { resource, requested, available } = self;
        write!(
            out,
            "Allocate failed due to requested number of devices unavailable for {resource}. Requested: {requested}, \
             Available: {available}, which is unexpected"
        )
    }
}

/// Which devices the pods of a node have.
#[derive(Debug, Default)]
pub(crate) struct Allotments {
    pods: BTreeMap<String, PodDevices>,
}

impl PodDevices {
    pub(crate) fn of_containers(containers: impl IntoIterator<Item = (String, DeviceNumbers)>) -> PodDevices {
        PodDevices(containers.into_iter().filter(|(_, devices)| !devices.is_empty()).collect())
    }

    /// All that are there of what containers ask for.
    pub(crate) fn all_of(there: &DeviceNumbers, requests: &[Request]) -> PodDevices {
        let all = |Request { container, amounts, .. }: &Request| {
            let named = there.iter().filter(|(resource, _)| amounts.contains_key(*resource));
            (container.clone(), named.map(|(resource, numbers)| (resource.clone(), numbers.clone())).collect())
        };
        PodDevices::of_containers(requests.iter().map(all))
    }

    /// What a pod's annotation is to be, where it is not that already.
    pub(crate) fn new_annotation(&self, pod: &Pod) -> Option<String> {
        let text = self.to_string();
        let known = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
        if known == Some(&text) { None } else { Some(text) }
    }

    /// The devices of a container.
    pub(crate) fn of(&self, container: &str) -> DeviceNumbers {
        self.0.get(container).cloned().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// As an annotation shows them: `main: nvidia.com/gpu=0,3; second: nvidia.com/gpu=1`.
impl fmt::Display for PodDevices {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |numbers: &BTreeSet<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        for (index, (container, devices)) in self.0.iter().enumerate() {
            let resources: Vec<_> =
                devices.iter().map(|(resource, numbers)| format!("{resource}={}", listed(numbers))).collect();
            write!(out, "{}{container}: {}", if index == 0 { "" } else { "; " }, resources.join(" "))?;
        }
        Ok(())
    }
}

impl Allotments {
    /// What a pod has.
    pub(crate) fn of(&self, uid: &str) -> Option<&PodDevices> {
        self.pods.get(uid)
    }

    /// Gives a pod devices of those that are there: what it has already, or else those that no pod has.
    pub(crate) fn allot(
        &mut self,
        uid: &str,
        there: &DeviceNumbers,
        requests: &[Request],
    ) -> Result<&PodDevices, Shortage> {
        if !self.pods.contains_key(uid) {
            let given = share(self.free(there), requests)?;
            self.pods.insert(uid.to_owned(), given);
        }
        Ok(&self.pods[uid])
    }

    /// Notes what a pod has by an earlier word, whether another has it or not.
    pub(crate) fn restore(&mut self, uid: &str, devices: PodDevices) {
        if !devices.is_empty() {
            self.pods.insert(uid.to_owned(), devices);
        }
    }

    /// Takes their devices from all pods but these.
    pub(crate) fn retain(&mut self, holds: impl Fn(&str) -> bool) {
        self.pods.retain(|uid, _| holds(uid));
    }

    fn free(&self, there: &DeviceNumbers) -> DeviceNumbers {
        let mut free = there.clone();
        self.pods.values().flat_map(|devices| devices.0.values()).for_each(|taken| take_away(&mut free, taken));
        free
    }
}

/// Gives each container its devices, as the kubelet does: those of an init container that ends are given again to those after
/// it, before others are.
fn share(mut free: DeviceNumbers, requests: &[Request]) -> Result<PodDevices, Shortage> {
    let mut reusable = DeviceNumbers::new();
    let mut given = BTreeMap::new();
    for Request { container, role, amounts } in requests {
        let mut devices = DeviceNumbers::new();
        for (resource, amount) in amounts {
            let wanted = usize::try_from(*amount).unwrap_or(usize::MAX);
            let mut numbers = lowest(reusable.get(resource), wanted);
            let (lacking, unused) = (wanted - numbers.len(), free.get(resource));
            let new = lowest(unused, lacking);
            if new.len() < lacking {
                let requested = u64::try_from(lacking).unwrap_or(u64::MAX);
                return Err(Shortage { resource: resource.clone(), requested, available: new.len() });
            }
            numbers.extend(new);
            devices.insert(resource.clone(), numbers);
        }
        take_away(&mut free, &devices);
        take_away(&mut reusable, &devices);
        if *role == Role::Init {
            for (resource, numbers) in &devices {
                reusable.entry(resource.clone()).or_default().extend(numbers);
            }
        }
        given.insert(container.clone(), devices);
    }
    Ok(PodDevices::of_containers(given))
}

fn lowest(numbers: Option<&BTreeSet<u32>>, most: usize) -> BTreeSet<u32> {
    numbers.into_iter().flatten().copied().take(most).collect()
}

fn take_away(from: &mut DeviceNumbers, taken: &DeviceNumbers) {
    for (resource, numbers) in taken {
        if let Some(left) = from.get_mut(resource) {
            left.retain(|number| !numbers.contains(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    const GPU: &str = "nvidia.com/gpu";
    const CARD: &str = "amd.com/gpu";

    fn there(gpus: u32, cards: u32) -> DeviceNumbers {
        [(GPU.to_owned(), (0..gpus).collect()), (CARD.to_owned(), (128..128 + cards).collect())].into()
    }

    fn request(container: &str, role: Role, gpus: u64) -> Request {
        Request { container: container.to_owned(), role, amounts: [(GPU.to_owned(), gpus)].into() }
    }

    fn shared(gpus: u32, requests: &[Request]) -> String {
        share(there(gpus, 0), requests).map_or_else(|error| error.to_string(), |devices| devices.to_string())
    }

    #[test]
    fn containers_share_their_pods_devices_as_the_kubelet_has_it() {
        use Role::{Init, Main, Sidecar};
        let cases = [
            (vec![request("a", Main, 2), request("b", Main, 1)], "a: nvidia.com/gpu=0,1; b: nvidia.com/gpu=2"),
            // What an init container had goes on with those after it.
            (
                vec![request("a", Init, 3), request("b", Init, 1), request("c", Main, 2)],
                "a: nvidia.com/gpu=0,1,2; b: nvidia.com/gpu=0; c: nvidia.com/gpu=0,1",
            ),
            (vec![request("a", Init, 1), request("b", Main, 2)], "a: nvidia.com/gpu=0; b: nvidia.com/gpu=0,1"),
            // A sidecar goes on beside the others.
            (
                vec![request("a", Sidecar, 1), request("b", Init, 2), request("c", Main, 1)],
                "a: nvidia.com/gpu=0; b: nvidia.com/gpu=1,2; c: nvidia.com/gpu=1",
            ),
            (
                vec![request("a", Init, 2), request("b", Sidecar, 1), request("c", Main, 1)],
                "a: nvidia.com/gpu=0,1; b: nvidia.com/gpu=0; c: nvidia.com/gpu=1",
            ),
        ];
        for (requests, expected) in cases {
            assert_eq!(shared(4, &requests), expected);
        }
        let short = "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0, \
                     which is unexpected";
        assert_eq!(shared(2, &[request("a", Sidecar, 1), request("b", Init, 1), request("c", Main, 2)]), short);
    }

    #[test]
    fn a_pod_that_gets_nothing_takes_nothing_from_others() {
        let mut allotments = Allotments::default();
        let main = |gpus| [request("c", Role::Main, gpus)];
        assert!(allotments.allot("large", &there(2, 0), &main(3)).is_err());
        assert_eq!(allotments.allot("p", &there(2, 0), &main(2)).unwrap().to_string(), "c: nvidia.com/gpu=0,1");
        // One is gone from the machine, and another agent's word was that two pods have the same.
        allotments.restore("before", allotments.of("p").unwrap().clone());
        assert_eq!(allotments.allot("next", &there(3, 0), &main(1)).unwrap().to_string(), "c: nvidia.com/gpu=2");
        allotments.retain(|uid| uid == "p");
        let lack = allotments.allot("last", &there(1, 0), &main(1)).unwrap_err();
        assert_eq!((lack.requested, lack.available), (1, 0));
    }

    /// What may happen on a node.
    #[derive(Debug, Clone)]
    enum Step {
        Pod(u8, Vec<Request>),
        End(u8),
        /// The agent ends, and another reads the specs.
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        let role = prop_oneof![Just(Role::Init), Just(Role::Sidecar), Just(Role::Main)];
        let amounts = (1..4_u64, 0..3_u64).prop_map(|(gpus, cards)| {
            let amounts = [(GPU.to_owned(), gpus), (CARD.to_owned(), cards)].into_iter();
            amounts.filter(|(_, amount)| *amount > 0).collect::<BTreeMap<_, _>>()
        });
        let containers = prop::collection::vec((role, amounts), 1..4).prop_map(|mut containers| {
            containers.sort_by_key(|(role, _)| *role == Role::Main);
            let named = containers.into_iter().enumerate();
            named.map(|(index, (role, amounts))| Request { container: format!("c{index}"), role, amounts }).collect()
        });
        prop_oneof![
            4 => (0..12_u8, containers).prop_map(|(pod, requests)| Step::Pod(pod, requests)),
            3 => (0..12_u8).prop_map(Step::End),
            1 => Just(Step::Restart),
        ]
    }

    /// Every device with the pod that has it, by a bookkeeping of the test's own.
    fn owners(pods: &BTreeMap<u8, PodDevices>) -> BTreeMap<(String, u32), u8> {
        let mut owners = BTreeMap::new();
        for (pod, devices) in pods {
            for (resource, numbers) in devices.0.values().flatten() {
                for number in numbers {
                    let other = owners.insert((resource.clone(), *number), *pod);
                    assert!(other.is_none_or(|other| other == *pod), "{resource} {number}: pods {pod} and {other:?}");
                }
            }
        }
        owners
    }

    proptest! {
        #[test]
        fn no_device_is_of_two_pods_and_all_come_back(steps in prop::collection::vec(step(), 0..60)) {
            let there = there(6, 4);
            let mut allotments = Allotments::default();
            let mut pods: BTreeMap<u8, PodDevices> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Pod(pod, requests) => {
                        let before = owners(&pods);
                        match allotments.allot(&pod.to_string(), &there, &requests) {
                            Ok(given) => {
                                let given = given.clone();
                                if let Some(had) = pods.get(&pod) {
                                    prop_assert_eq!(had, &given, "a pod has the same until it ends");
                                } else {
                                    for request in &requests {
                                        let devices = given.of(&request.container);
                                        for (resource, amount) in &request.amounts {
                                            prop_assert_eq!(devices[resource].len() as u64, *amount);
                                            prop_assert!(devices[resource].is_subset(&there[resource]));
                                        }
                                    }
                                    let together: Vec<_> = requests.iter().filter(|request| request.role != Role::Init).collect();
                                    for (index, one) in together.iter().enumerate() {
                                        for other in &together[index + 1..] {
                                            let (one, other) = (given.of(&one.container), given.of(&other.container));
                                            let both = one.iter().any(|(resource, numbers)| {
                                                other.get(resource).is_some_and(|other| !numbers.is_disjoint(other))
                                            });
                                            prop_assert!(!both, "two containers that run together have one device");
                                        }
                                    }
                                    pods.insert(pod, given);
                                }
                            }
                            Err(lack) => {
                                let free = there[&lack.resource].len() - before.keys().filter(|(resource, _)| *resource == lack.resource).count();
                                prop_assert!(lack.available <= free && (lack.available as u64) < lack.requested);
                            }
                        }
                        owners(&pods);
                    }
                    Step::End(pod) => {
                        pods.remove(&pod);
                        allotments.retain(|uid| uid != pod.to_string());
                    }
                    Step::Restart => {
                        let mut next = Allotments::default();
                        for (pod, devices) in &pods {
                            next.restore(&pod.to_string(), devices.clone());
                        }
                        prop_assert_eq!(next.free(&there), allotments.free(&there));
                        allotments = next;
                    }
                }
            }
            allotments.retain(|_| false);
            prop_assert_eq!(allotments.free(&there), there);
        }
    }
}
