//! What a simulated node has, what pods ask for, and what is used of it.
//!
//! Invariant: amounts lie in the order of the shape's resources: cpu in thousandths of a core, the rest in whole units.
//! Sums saturate. Pure; called by the fleet and by the command line.

use std::collections::BTreeMap;
use std::str::FromStr;

use pumice_units::{ParseQuantityError, Quantity};

/// Pods of a node whose shape names none, as a kubelet's.
const PODS: i64 = 110;
/// Most resources of a shape.
const RESOURCES_MAX: usize = 32;
const CPU: &str = "cpu";
const PODS_RESOURCE: &str = "pods";

/// What each simulated node offers, such as `cpu=32,memory=256Gi,pods=110,nvidia.com/gpu=8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeShape {
    resources: Vec<(String, Quantity)>,
    amounts: Vec<i64>,
    /// Where `pods` is.
    pods: usize,
}

/// Why a text is no shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeShapeError {
    /// An entry is not `resource=quantity`.
    #[error("{entry:?} is not of the form resource=quantity, such as cpu=32")]
    Entry { entry: String },
    /// An amount can't be read.
    #[error("the amount of {resource} can't be read")]
    Amount {
        /// Whose.
        resource: String,
        #[source]
        source: ParseQuantityError,
    },
    /// An amount is below zero.
    #[error("the amount of {resource} is below zero")]
    Negative {
        /// Whose.
        resource: String,
    },
    /// A resource is named twice.
    #[error("{resource} is named twice")]
    Twice { resource: String },
    /// There are too many.
    #[error("a node has at most {RESOURCES_MAX} resources")]
    TooMany,
}

impl FromStr for NodeShape {
    type Err = NodeShapeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut found = BTreeMap::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (resource, amount) = entry
                .split_once('=')
                .filter(|(resource, _)| !resource.is_empty())
                .ok_or_else(|| NodeShapeError::Entry { entry: entry.chars().take(128).collect() })?;
            let resource = resource.to_owned();
            let amount = amount
                .parse::<Quantity>()
                .map_err(|source| NodeShapeError::Amount { resource: resource.clone(), source })?;
            if amount.is_negative() {
                return Err(NodeShapeError::Negative { resource });
            }
            if found.insert(resource.clone(), amount).is_some() {
                return Err(NodeShapeError::Twice { resource });
            }
        }
        found.entry(PODS_RESOURCE.to_owned()).or_insert(Quantity::from_units(PODS));
        if found.len() > RESOURCES_MAX {
            return Err(NodeShapeError::TooMany);
        }
        let resources: Vec<(String, Quantity)> = found.into_iter().collect();
        let amounts = resources.iter().map(|(name, quantity)| whole(name, *quantity)).collect();
        let pods = resources.iter().position(|(name, _)| name == PODS_RESOURCE).unwrap_or_default();
        Ok(Self { resources, amounts, pods })
    }
}

fn whole(resource: &str, amount: Quantity) -> i64 {
    if resource == CPU { amount.cpu_milli() } else { amount.value() }
}

impl NodeShape {
    /// Resources by name, as the Node tells them.
    pub(crate) fn resources(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.resources.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// How many resources there are.
    pub(crate) fn len(&self) -> usize {
        self.amounts.len()
    }

    /// What a pod asks for that asks for `amounts`; counts as one pod.
    pub(crate) fn request(&self, amounts: &BTreeMap<String, Quantity>) -> Request {
        let mut wanted: Vec<i64> = self
            .resources
            .iter()
            .map(|(name, _)| amounts.get(name).map_or(0, |amount| whole(name, *amount).max(0)))
            .collect();
        if let Some(pods) = wanted.get_mut(self.pods) {
            *pods = 1;
        }
        let has = |resource: &String| self.resources.binary_search_by(|(name, _)| name.cmp(resource)).is_ok();
        let strange = amounts.iter().find(|(name, amount)| !has(name) && whole(name, **amount) > 0);
        Request {
            amounts: wanted.into_boxed_slice(),
            strange: strange.map(|(name, amount)| (name.as_str().into(), whole(name, *amount))),
        }
    }

    /// The first resource of which a node that has `used` is short of `request`.
    pub(crate) fn shortage(&self, request: &Request, used: &[i64]) -> Option<Shortage> {
        let short = (0..self.len()).find(|index| {
            let wanted = request.amounts[*index];
            wanted > 0 && used[*index].saturating_add(wanted) > self.amounts[*index]
        });
        if let Some(index) = short {
            return Some(Shortage {
                resource: self.resources[index].0.clone(),
                requested: request.amounts[index],
                used: used[index],
                capacity: self.amounts[index],
            });
        }
        let (resource, requested) = request.strange.as_ref()?;
        Some(Shortage { resource: resource.to_string(), requested: *requested, used: 0, capacity: 0 })
    }
}

/// What one pod asks for, in a shape's order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    amounts: Box<[i64]>,
    /// Something that the shape does not have.
    strange: Option<(Box<str>, i64)>,
}

impl Request {
    /// Adds it to what is used.
    pub(crate) fn take(&self, used: &mut [i64]) {
        for (used, amount) in used.iter_mut().zip(&self.amounts) {
            *used = used.saturating_add(*amount);
        }
    }

    /// Takes it off what is used.
    pub(crate) fn give_back(&self, used: &mut [i64]) {
        for (used, amount) in used.iter_mut().zip(&self.amounts) {
            *used = used.saturating_sub(*amount);
        }
    }
}

/// Why a node refuses a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub resource: String,
    pub requested: i64,
    pub used: i64,
    pub capacity: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(list: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
        list.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect()
    }

    #[test]
    fn a_shape_is_read_with_pods_as_a_kubelet_has_them() {
        let shape: NodeShape = "cpu=32, memory=256Gi,nvidia.com/gpu=8".parse().unwrap();
        let told: Vec<_> = shape.resources().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(told, ["cpu=32", "memory=256Gi", "nvidia.com/gpu=8", "pods=110"]);
        assert_eq!(shape.amounts, [32_000, 256 << 30, 8, 110]);
    }

    #[test]
    fn what_is_no_shape_is_refused_with_the_entry() {
        let cases = [
            ("cpu", "\"cpu\" is not of the form resource=quantity, such as cpu=32"),
            ("=3", "\"=3\" is not of the form resource=quantity, such as cpu=32"),
            ("cpu=x", "the amount of cpu can't be read"),
            ("cpu=-1", "the amount of cpu is below zero"),
            ("cpu=1,cpu=2", "cpu is named twice"),
        ];
        for (text, message) in cases {
            assert_eq!(text.parse::<NodeShape>().unwrap_err().to_string(), message);
        }
        let many: Vec<String> = (0..40).map(|index| format!("r{index}=1")).collect();
        assert_eq!(many.join(",").parse::<NodeShape>(), Err(NodeShapeError::TooMany));
    }

    #[test]
    fn a_pod_over_the_rest_is_short_of_the_first_resource() {
        let shape: NodeShape = "cpu=2,memory=1Gi,pods=2".parse().unwrap();
        let mut used = vec![0; shape.len()];
        let pod = shape.request(&amounts(&[("cpu", "1500m"), ("memory", "1Mi")]));
        assert_eq!(shape.shortage(&pod, &used), None);
        pod.take(&mut used);
        let short = shape.shortage(&pod, &used).unwrap();
        assert_eq!((short.resource.as_str(), short.requested, short.used, short.capacity), ("cpu", 1500, 1500, 2000));
        let small = shape.request(&amounts(&[]));
        small.take(&mut used);
        assert_eq!(shape.shortage(&small, &used).unwrap().resource, "pods");
        pod.give_back(&mut used);
        small.give_back(&mut used);
        assert_eq!(used, [0, 0, 0]);
        let gpu = shape.request(&amounts(&[("nvidia.com/gpu", "1")]));
        assert_eq!(shape.shortage(&gpu, &used).unwrap().resource, "nvidia.com/gpu");
    }
}
