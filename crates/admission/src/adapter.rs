//! The rules behind the API server's admission seam.
//!
//! The first phase fills in, and judges deletes; the second judges the object as it would be stored. Objects of other
//! kinds, and subresources, pass. Refusals look as if Volcano's webhook of that name had sent them: tools and people know
//! that text.

use jiff::tz::TimeZone;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pumice_api::batch::{CronJob, Job, JobTemplateSpec};
use pumice_api::colocation::ColocationConfiguration;
use pumice_api::flow::{JobFlow, JobTemplate};
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_api::tenant::Tenant;
use pumice_api::topology::HyperNode;
use pumice_apiserver::{Admission, AdmissionRequest, Admitted, ObjectReader, Operation};
use pumice_objects::status::Status;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Findings, LiveRules, Rules, View, cron_job, hyper_node, job, job_flow, pod, pod_group, queue, tenant, user,
};

/// Resource name of queues in the store.
const QUEUES: &str = "scheduling.volcano.sh/queues";
/// Resource name of Tenants in the store.
const TENANTS: &str = "pumice.sh/tenants";
/// Resource name of namespaces in the store.
const NAMESPACES: &str = "namespaces";

/// What is said of a kind that Volcano's controllers list and nothing of ours acts on.
const IDLE: &str =
    "nothing here acts on a ColocationConfiguration: it is stored, and the memory of pods is treated as before";

/// Volcano's admission, in process.
#[derive(Clone, Debug, Default)]
pub struct VolcanoAdmission {
    rules: LiveRules,
    owners: tenant::Owners,
}

impl VolcanoAdmission {
    /// Admission by these rules.
    pub fn new(rules: Rules) -> Self {
        Self { rules: LiveRules::new(rules), owners: tenant::Owners::default() }
    }

    /// The rules, to change them while they are applied.
    pub fn rules(&self) -> LiveRules {
        self.rules.clone()
    }
}

/// The kinds there are rules for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ColocationConfiguration,
    CronJob,
    HyperNode,
    Job,
    JobFlow,
    JobTemplate,
    Pod,
    Queue,
    PodGroup,
    Tenant,
}

/// A kind as requests name it.
struct Row {
    kind: Kind,
    group: &'static str,
    resource: &'static str,
    /// Name of Volcano's webhook that judges it.
    webhook: &'static str,
}

const fn row(kind: Kind, group: &'static str, resource: &'static str, webhook: &'static str) -> Row {
    Row { kind, group, resource, webhook }
}

const ROWS: &[Row] = &[
    row(Kind::Pod, Pod::GROUP, Pod::URL_PATH_SEGMENT, "validatepod.volcano.sh"),
    row(Kind::Job, Job::GROUP, Job::URL_PATH_SEGMENT, "validatejob.volcano.sh"),
    row(Kind::PodGroup, PodGroup::GROUP, PodGroup::URL_PATH_SEGMENT, "validatepodgroup.volcano.sh"),
    row(Kind::Queue, Queue::GROUP, Queue::URL_PATH_SEGMENT, "validatequeue.volcano.sh"),
    row(Kind::CronJob, CronJob::GROUP, CronJob::URL_PATH_SEGMENT, "validatecronjob.volcano.sh"),
    row(Kind::JobFlow, JobFlow::GROUP, JobFlow::URL_PATH_SEGMENT, "validatejobflows.volcano.sh"),
    // Volcano has no rules for these, nor for the last ones; the name is of its kind.
    row(Kind::JobTemplate, JobTemplate::GROUP, JobTemplate::URL_PATH_SEGMENT, "validatejobtemplates.volcano.sh"),
    row(Kind::HyperNode, HyperNode::GROUP, HyperNode::URL_PATH_SEGMENT, "validatehypernode.volcano.sh"),
    row(Kind::Tenant, Tenant::GROUP, Tenant::URL_PATH_SEGMENT, "validatetenant.pumice.sh"),
    row(
        Kind::ColocationConfiguration,
        ColocationConfiguration::GROUP,
        ColocationConfiguration::URL_PATH_SEGMENT,
        "validatecolocationconfigurations.volcano.sh",
    ),
];

impl Kind {
    fn of(request: &AdmissionRequest<'_>) -> Option<Self> {
        let is_it = |row: &&Row| {
            row.group == request.group && row.resource == request.resource && request.subresource.is_empty()
        };
        ROWS.iter().find(is_it).map(|row| row.kind)
    }

    /// Name of Volcano's webhook that judges the kind.
    fn webhook(self) -> &'static str {
        ROWS.iter().find(|row| row.kind == self).map_or("", |row| row.webhook)
    }
}

impl Admission for VolcanoAdmission {
    fn admit(&self, request: &AdmissionRequest<'_>, object: Option<&mut Value>) -> Result<Admitted, Status> {
        let Some(kind) = Kind::of(request) else { return Ok(Admitted::untouched()) };
        let rules = self.rules.get();
        let mut findings = Findings::default();
        let Some(object) = object else {
            match (kind, request.operation, request.old) {
                (Kind::Queue, Operation::Delete, Some(old)) => {
                    queue::validate_delete(&typed(old)?, &Stored(request.objects), &rules, &mut findings);
                }
                (Kind::Tenant, Operation::Delete, Some(old)) => {
                    tenant::validate_delete(&typed(old)?, &mut findings);
                }
                _ => {}
            }
            return verdict(kind, findings);
        };
        let created = request.operation == Operation::Create;
        if matches!(kind, Kind::HyperNode | Kind::ColocationConfiguration | Kind::Tenant)
            || !created && matches!(kind, Kind::Pod | Kind::Queue | Kind::PodGroup)
        {
            return Ok(Admitted::untouched());
        }
        let mut status = None;
        match kind {
            Kind::Job => {
                if created {
                    job::mutate(object, &rules);
                    job::inherit_queue_rule(object, &Stored(request.objects));
                    status = Some(job::first_status(object, Time(request.now)));
                } else {
                    job::mutate_again(object, &rules);
                }
                user::stamp(object, request.old, &request.identity.user, &rules, &mut findings);
            }
            Kind::CronJob | Kind::JobFlow | Kind::JobTemplate => {
                user::stamp(object, request.old, &request.identity.user, &rules, &mut findings);
                // No more than a warning: what a flow adds to its Job may mend it.
                if kind == Kind::JobTemplate
                    && let Ok(template) = typed::<JobTemplate>(object)
                {
                    let name = template.metadata.name.as_deref().unwrap_or_default();
                    let described = JobTemplateSpec { spec: template.spec, ..JobTemplateSpec::default() };
                    let found = job::later::judge(name, &described, &rules);
                    let refused = found.refusals.iter().map(|text| format!("a Job made of this is refused: {text}"));
                    refused.chain(found.warnings).for_each(|warning| findings.warn(warning));
                }
            }
            Kind::Pod if !pod::mutate(object, request.namespace, &rules) => return Ok(Admitted::untouched()),
            Kind::ColocationConfiguration | Kind::HyperNode | Kind::Pod | Kind::Tenant => {}
            Kind::Queue => queue::mutate(object),
            Kind::PodGroup => pod_group::mutate(object, request.namespace, &Stored(request.objects)),
        }
        verdict(kind, findings).map(|admitted| Admitted { status, ..admitted })
    }

    fn validate(&self, request: &AdmissionRequest<'_>, object: Option<&Value>) -> Result<Admitted, Status> {
        let Some(kind) = Kind::of(request) else { return Ok(Admitted::default()) };
        let view = Stored(request.objects);
        let mut findings = Findings::default();
        match (kind, request.operation, object, request.old) {
            (Kind::Job, Operation::Create, Some(new), _) => {
                job::validate_create(&typed(new)?, &view, &self.rules.get(), &mut findings);
            }
            (Kind::Job, Operation::Update, Some(new), Some(old)) => {
                job::validate_update(&typed(new)?, &typed(old)?, &view, &mut findings);
            }
            (Kind::CronJob, Operation::Create | Operation::Update, Some(new), old) => {
                let old = old.map(typed).transpose()?;
                let knows_zone = |zone: &str| TimeZone::get(zone).is_ok();
                cron_job::validate(&typed(new)?, old.as_ref(), &self.rules.get(), knows_zone, &mut findings);
            }
            (Kind::JobFlow, Operation::Create | Operation::Update, Some(new), _) => {
                job_flow::validate(&typed(new)?, &mut findings);
            }
            (Kind::HyperNode, Operation::Create | Operation::Update, Some(new), _) => {
                hyper_node::validate(&typed(new)?, &mut findings);
            }
            (Kind::Tenant, Operation::Create | Operation::Update, Some(new), old) => {
                let old = old.map(typed).transpose()?;
                let others: (_, &dyn tenant::Tenants) = (&self.owners, &view);
                let forbidden = &self.rules.get().forbidden_tenants;
                tenant::validate(&typed(new)?, old.as_ref(), forbidden, others, &mut findings);
            }
            (Kind::ColocationConfiguration, Operation::Create, ..) => findings.warn(IDLE),
            (Kind::Pod, Operation::Create, Some(new), _) => pod::validate(new, &self.rules.get(), &mut findings),
            (Kind::Queue, Operation::Create | Operation::Update, Some(new), old) => {
                let old = old.map(typed).transpose()?;
                queue::validate(&typed(new)?, old.as_ref(), &view, &self.rules.get(), &mut findings);
            }
            (Kind::PodGroup, Operation::Create, Some(new), _) => {
                pod_group::validate(&typed(new)?, &view, &mut findings)
            }
            _ => {}
        }
        verdict(kind, findings)
    }
}

fn verdict(kind: Kind, findings: Findings) -> Result<Admitted, Status> {
    match findings.refusal() {
        None => Ok(Admitted { warnings: findings.warnings, ..Admitted::default() }),
        Some(refusal) => {
            let webhook = kind.webhook();
            Err(Status::bad_request(format!("admission webhook \"{webhook}\" denied the request: {refusal}")))
        }
    }
}

fn typed<T: DeserializeOwned>(object: &Value) -> Result<T, Status> {
    T::deserialize(object).map_err(|error| Status::bad_request(format!("the object cannot be read: {error}")))
}

/// The store, seen by the rules.
struct Stored<'a>(&'a dyn ObjectReader);

impl View for Stored<'_> {
    fn queue(&self, name: &str) -> Option<Queue> {
        serde_json::from_value(self.0.get(QUEUES, "", name)?).ok()
    }

    /// A queue that can't be read has no say about others.
    fn queues(&self) -> Vec<Queue> {
        self.0.list(QUEUES, None).into_iter().filter_map(|queue| serde_json::from_value(queue).ok()).collect()
    }

    fn namespace_annotation(&self, namespace: &str, key: &str) -> Option<String> {
        let namespace = self.0.get(NAMESPACES, "", namespace)?;
        namespace.get("metadata")?.get("annotations")?.get(key)?.as_str().map(str::to_owned)
    }
}

impl tenant::Tenants for Stored<'_> {
    fn tenant(&self, name: &str) -> Option<Tenant> {
        serde_json::from_value(self.0.get(TENANTS, "", name)?).ok()
    }

    /// One that can't be read has nothing.
    fn tenants(&self) -> Vec<Tenant> {
        self.0.list(TENANTS, None).into_iter().filter_map(|tenant| serde_json::from_value(tenant).ok()).collect()
    }
}
