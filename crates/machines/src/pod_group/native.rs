//! PodGroups and Workloads of Kubernetes' own (`scheduling.k8s.io`), as far as they say how pods are placed.
//!
//! Invariant: all of this is written alike in every version that has PodGroups: v1alpha2 of Kubernetes 1.36, v1alpha3 and v1beta1
//! of 1.37. What a PodGroup says itself comes before what its template says. Read by the shell from its watches.

use std::collections::BTreeMap;

use pumice_api::names;
use serde::Deserialize;

/// What a PodGroup, or the template that it was made of, says of its pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Placing {
    scheduling_policy: Option<Policy>,
    scheduling_constraints: Option<Constraints>,
    priority_class_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Policy {
    basic: Option<Basic>,
    gang: Option<Gang>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Basic {}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Gang {
    #[serde(default)]
    min_count: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Constraints {
    topology: Option<Vec<Topology>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Topology {
    #[serde(default)]
    key: String,
}

impl Placing {
    fn min_member(&self) -> Option<i32> {
        let policy = self.scheduling_policy.as_ref()?;
        let gang = policy.gang.as_ref().map(|gang| gang.min_count.max(0));
        gang.or_else(|| policy.basic.as_ref().map(|Basic {}| 1))
    }

    fn priority_class(&self) -> Option<&str> {
        self.priority_class_name.as_deref().filter(|class| !class.is_empty())
    }

    fn topology_key(&self) -> Option<&str> {
        let all = self.scheduling_constraints.as_ref()?.topology.as_ref()?;
        all.first().map(|one| one.key.as_str()).filter(|key| !key.is_empty())
    }
}

/// The `spec` of a PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NativeSpec {
    #[serde(flatten)]
    placing: Placing,
    /// In v1alpha2.
    pod_group_template_ref: Option<TemplateReference>,
    workload_ref: Option<WorkloadReference>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct TemplateReference {
    workload: Option<WorkloadReference>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WorkloadReference {
    workload_name: String,
    #[serde(alias = "podGroupTemplateName")]
    template_name: String,
}

/// A PodGroup of Kubernetes' own API, of which a group of ours is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeGroup {
    queue: Option<String>,
    placing: Placing,
    template: Option<WorkloadReference>,
}

impl NativeGroup {
    /// Reads what it says.
    pub fn new(annotations: &BTreeMap<String, String>, spec: NativeSpec) -> Self {
        let of_template = spec.pod_group_template_ref.and_then(|reference| reference.workload);
        Self {
            queue: annotations.get(names::SCHEDULING_QUEUE_NAME).cloned(),
            placing: spec.placing,
            template: of_template.or(spec.workload_ref),
        }
    }

    /// Name of the Workload that it refers to.
    pub fn workload(&self) -> Option<&str> {
        self.template.as_ref().map(|template| template.workload_name.as_str())
    }
}

/// The `spec` of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    pod_group_templates: Option<Vec<NamedTemplate>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct NamedTemplate {
    name: String,
    #[serde(flatten)]
    placing: Placing,
}

/// A Workload: templates of PodGroups. By itself it groups no pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    templates: BTreeMap<String, Placing>,
}

impl From<WorkloadSpec> for Workload {
    fn from(spec: WorkloadSpec) -> Self {
        let all = spec.pod_group_templates.into_iter().flatten();
        Self { templates: all.map(|template| (template.name, template.placing)).collect() }
    }
}

/// A PodGroup with what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Native<'a> {
    /// `apiVersion` of what was read.
    pub api_version: &'a str,
    pub uid: &'a str,
    pub group: &'a NativeGroup,
    /// The Workload that it refers to, if that is there.
    pub workload: Option<&'a Workload>,
}

impl<'a> Native<'a> {
    fn template(&self) -> Option<&'a Placing> {
        let reference = self.group.template.as_ref()?;
        self.workload?.templates.get(&reference.template_name)
    }

    /// Whether it refers to a template that is not there.
    pub(super) fn lacks_template(&self) -> bool {
        self.group.template.is_some() && self.template().is_none()
    }

    fn field<T>(&self, field: impl Fn(&'a Placing) -> Option<T>) -> Option<T> {
        field(&self.group.placing).or_else(|| self.template().and_then(field))
    }

    /// How many pods start together.
    pub(super) fn min_member(&self) -> i32 {
        self.field(Placing::min_member).unwrap_or(1)
    }

    pub(super) fn priority_class(&self) -> Option<&'a str> {
        self.field(Placing::priority_class)
    }

    /// The label of nodes of whose values all its pods must share one.
    pub(super) fn topology_key(&self) -> Option<&'a str> {
        self.field(Placing::topology_key)
    }

    /// The queue that its annotation names.
    pub(super) fn queue(&self) -> Option<&'a str> {
        self.group.queue.as_deref()
    }
}
