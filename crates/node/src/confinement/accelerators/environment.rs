//! What the environment of a container says of its accelerators.

use pumice_shim::spec::DeviceNumbers;

use std::fs;

use super::{AMD, DeviceFolders, NVIDIA, RENDERING};

impl DeviceFolders {
    /// What the environment of a container says of its devices. Where it sees no others, that is what NVIDIA's device plugin says,
    /// and those of AMD and Intel say nothing: libraries count what they can open from 0. Where it sees all of the machine's, it
    /// is told its own by names that hold whatever is seen. Not where nothing else is seen, since programs such as vLLM take
    /// only numbers in `CUDA_VISIBLE_DEVICES`.
    pub(crate) fn environment(&self, own: &DeviceNumbers, sees_all: bool) -> Vec<(&'static str, String)> {
        let mut variables = Vec::new();
        if let Some(numbers) = own.get(NVIDIA) {
            let cards = self.nvidia_cards();
            let uuid = |number: &u32| cards.iter().find(|card| card.number == *number)?.uuid.clone();
            let uuids = numbers.iter().map(uuid).collect::<Option<Vec<_>>>().map(|uuids| uuids.join(","));
            let listed = || numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            if let (Some(uuids), true) = (&uuids, sees_all) {
                variables.push(("CUDA_VISIBLE_DEVICES", uuids.clone()));
            }
            variables.push(("NVIDIA_VISIBLE_DEVICES", uuids.unwrap_or_else(listed)));
        }
        if let (Some(numbers), true) = (own.get(AMD), sees_all) {
            let unique = |number: &u32| {
                let path = self.graphics.join(format!("{RENDERING}{number}")).join("device/unique_id");
                let text = fs::read_to_string(path).ok()?;
                Some(text.trim()).filter(|id| !id.is_empty()).map(|id| format!("GPU-{id}"))
            };
            if let Some(ids) = numbers.iter().map(unique).collect::<Option<Vec<_>>>() {
                variables.push(("ROCR_VISIBLE_DEVICES", ids.join(",")));
            }
        }
        variables
    }
}
