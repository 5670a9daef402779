//! Flags of admission: Volcano's beside ours.
//!
//! Invariant: every flag of Volcano's webhook manager is accepted. What has no meaning here is said to have none, by a warning
//! that names what takes its place.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args};
use pumice_admission::policies::{Mutating, Policies};
use pumice_admission::server::{CertificateFiles, Endpoint, Rotation, Route, Source, enabled};
use pumice_admission::{QUEUE_DEPTH_MAX, Rules};
use pumice_api::names::{
    ADMISSION_SECRET, NAMESPACE_SYSTEM, SCHEDULERS_CLUSTER, SERVICE_ACCOUNT_CONTROLLERS, USER_CONTROLLERS,
    service_account_user,
};

use super::cluster::{ClusterArgs, duration};
use super::meaningless::meaningless;
use super::serving::HealthArgs;

/// Where the API server finds us, unless it is told otherwise; Volcano's name.
const SERVICE: &str = "volcano-admission-service";

/// `pumice admission run`.
#[derive(Debug, Args)]
pub struct AdmissionArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Address to listen on [default: every address of this machine]
    #[arg(long, value_name = "IP", default_value = "", hide_default_value = true)]
    pub listen_address: String,
    /// Port to listen on
    #[arg(long, value_name = "PORT", default_value_t = 8443)]
    pub port: u16,
    /// Service that the API server reaches this server by
    #[arg(long, value_name = "NAME", default_value = SERVICE)]
    pub webhook_service_name: String,
    /// Namespace of the service, of the Secret, and of this server
    #[arg(long, value_name = "NAMESPACE", default_value = NAMESPACE_SYSTEM)]
    pub webhook_namespace: String,
    /// Address that the API server reaches this server at, instead of a service, such as https://10.0.0.1:8443
    #[arg(long, value_name = "URL")]
    pub webhook_url: Option<String>,
    /// Paths that are answered and registered, between commas [default: all]
    #[arg(long, value_name = "PATHS", default_value = "", hide_default_value = true)]
    pub enabled_admission: String,
    /// Resource groups: what pods of some namespaces or annotations are given; changes are taken while it runs
    #[arg(long, value_name = "FILE")]
    pub admission_conf: Option<PathBuf>,
    /// Certificate to show, PEM, in place of one that is made here; read again when it changes
    #[arg(long, value_name = "FILE", value_parser = file())]
    tls_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", value_parser = file())]
    tls_private_key_file: Option<PathBuf>,
    /// Authority that API servers shall trust for it [default: the certificate itself]
    #[arg(long, value_name = "FILE", value_parser = file())]
    ca_cert_file: Option<PathBuf>,
    /// Secret of the certificate that all instances share
    #[arg(long, value_name = "NAME", default_value = ADMISSION_SECRET)]
    pub certificate_secret: String,
    /// Age at which the certificate is replaced
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = duration)]
    pub certificate_every: Duration,
    /// Time within which all API servers have heard of a new certificate
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub certificate_settle: Duration,
    /// How long requests under way may take when this server is stopped
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub graceful_shutdown_time: Duration,
    /// /healthz and /metrics are always on --port, over TLS; this is for a plain listener beside it
    #[command(flatten)]
    pub health: HealthArgs,
    #[command(flatten)]
    pub rules: RulesArgs,
    #[command(flatten)]
    meaningless: MeaninglessArgs,
}

/// `pumice admission policies`.
#[derive(Debug, Args)]
pub struct PoliciesArgs {
    /// What they are for: pods, objects (jobs, queues and the like), tenants (what is in their namespaces), or all
    #[arg(value_name = "FOR", default_value = "all", value_parser = ["pods", "objects", "tenants", "all"])]
    pub what: String,
    /// Version of MutatingAdmissionPolicy for tenants: v1 (Kubernetes 1.36), v1beta1 (1.34), or none, where the webhook fills in
    #[arg(long, value_name = "VERSION", default_value = "v1", value_parser = ["v1", "v1beta1", "none"])]
    pub mutating: String,
    /// Schedulers whose pods are ours; the first is that of jobs that name none; repeatable [default: volcano and pumice]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub scheduler_name: Vec<String>,
    /// User of the controllers, who make jobs in the name of others, beside system:pumice:controllers and the service account
    /// pumice-controllers of --webhook-namespace; repeatable
    #[arg(long, value_name = "USER")]
    pub controller_user: Vec<String>,
    /// Namespace of the components, where nothing is judged
    #[arg(long, value_name = "NAMESPACE", default_value = NAMESPACE_SYSTEM)]
    pub webhook_namespace: String,
}

impl PoliciesArgs {
    /// The policies, YAML.
    pub fn text(&self) -> String {
        let policies = Policies {
            schedulers: schedulers(&self.scheduler_name),
            trusted: controllers(&self.webhook_namespace, &self.controller_user),
            namespace: self.webhook_namespace.clone(),
        };
        let mutating = match self.mutating.as_str() {
            "none" => Mutating::Absent,
            "v1beta1" => Mutating::V1Beta1,
            _ => Mutating::V1,
        };
        match self.what.as_str() {
            "pods" => policies.pods(),
            "objects" => policies.objects(),
            "tenants" => policies.tenants(mutating),
            _ => format!("{}---\n{}---\n{}", policies.pods(), policies.objects(), policies.tenants(mutating)),
        }
    }
}

/// A file, or nothing: what a deployment gives for a flag that it does not use.
fn file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Those given, or the ones of a cluster.
fn schedulers(given: &[String]) -> Vec<String> {
    match given {
        [] => SCHEDULERS_CLUSTER.iter().map(|name| (*name).to_owned()).collect(),
        names => names.to_vec(),
    }
}

/// Ours, as a user and as the service account that `pumice roles` makes, and those given.
fn controllers(namespace: &str, given: &[String]) -> Vec<String> {
    let ours = [USER_CONTROLLERS.to_owned(), service_account_user(namespace, SERVICE_ACCOUNT_CONTROLLERS)];
    ours.into_iter().chain(given.iter().cloned()).collect()
}

/// What is refused, and filled in.
#[derive(Debug, Args)]
pub struct RulesArgs {
    /// Schedulers whose pods are ours; the first is that of jobs that name none; repeatable [default: volcano and pumice]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub scheduler_name: Vec<String>,
    /// User of the controllers, who make jobs in the name of others, beside system:pumice:controllers and the service account
    /// pumice-controllers of --webhook-namespace; repeatable
    #[arg(long, value_name = "USER")]
    pub controller_user: Vec<String>,
    /// Most queues on a path below root
    #[arg(long, value_name = "N", default_value_t = QUEUE_DEPTH_MAX)]
    pub max_queue_depth: usize,
    /// Refuse to delete a queue whose pods hold resources
    #[arg(long, value_name = "true|false", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub enable_queue_allocated_pods_check: bool,
    /// Refuse to change the amounts of the queue root
    #[arg(long, value_name = "true|false", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub enable_root_queue_protection: bool,
}

impl RulesArgs {
    /// The rules that these flags describe, where the components are in `namespace`.
    pub fn rules(&self, namespace: &str) -> Rules {
        Rules {
            scheduler_names: schedulers(&self.scheduler_name),
            controller_users: controllers(namespace, &self.controller_user),
            queue_depth_max: self.max_queue_depth,
            root_queue_protected: self.enable_root_queue_protection,
            queue_with_pods_protected: self.enable_queue_allocated_pods_check,
            ..Rules::default()
        }
    }
}

impl AdmissionArgs {
    /// The paths that are answered.
    pub fn routes(&self) -> Result<Vec<&'static Route>, String> {
        enabled(&self.enabled_admission).map_err(|error| format!("--enabled-admission: {error}"))
    }

    /// Where the API server finds us.
    pub fn endpoint(&self) -> Endpoint {
        match self.webhook_url.as_ref().filter(|url| !url.is_empty()) {
            Some(url) => Endpoint::Url(url.clone()),
            None => {
                Endpoint::Service { namespace: self.webhook_namespace.clone(), name: self.webhook_service_name.clone() }
            }
        }
    }

    /// The certificate to show.
    pub fn certificate(&self) -> Result<Source, String> {
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        match (given(&self.tls_cert_file), given(&self.tls_private_key_file)) {
            (Some(certificate), Some(key)) => {
                Ok(Source::Files(CertificateFiles { certificate, key, authority: given(&self.ca_cert_file) }))
            }
            (None, None) => Ok(Source::Secret {
                namespace: self.webhook_namespace.clone(),
                name: self.certificate_secret.clone(),
                rotation: self.rotation()?,
            }),
            _ => Err(
                "--tls-cert-file and --tls-private-key-file go together; give both, or neither for a certificate that \
                is made here"
                    .to_owned(),
            ),
        }
    }

    /// When there is a new certificate.
    fn rotation(&self) -> Result<Rotation, String> {
        let (every, settle) = (self.certificate_every, self.certificate_settle);
        if settle.is_zero() || every <= settle {
            return Err("--certificate-settle must be more than nothing and less than --certificate-every".to_owned());
        }
        Ok(Rotation { every, settle })
    }

    /// Says what has no meaning.
    pub fn warn(&self) {
        self.meaningless.warn();
        if self.ca_cert_file.is_some() && self.tls_cert_file.is_none() {
            crate::output::note(
                "pumice: --ca-cert-file has no effect without --tls-cert-file: the authority is made here",
            );
        }
    }
}

meaningless! {
    kube_api_qps, "kube-api-qps", "queues and namespaces are watched, few calls are made";
    kube_api_burst, "kube-api-burst", "queues and namespaces are watched, few calls are made";
    feature_gates, "feature-gates", "features are not switched";
    logtostderr, "logtostderr", "use --log";
    verbosity, "v", "use --log";
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: AdmissionArgs,
    }

    fn parsed(line: &str) -> AdmissionArgs {
        Line::try_parse_from(std::iter::once("run").chain(line.split_whitespace())).unwrap().args
    }

    #[test]
    fn the_command_line_of_a_volcano_deployment_is_understood() {
        let args = parsed(
            "--enabled-admission=/jobs/mutate,/jobs/validate --tls-cert-file=/c/tls.crt --tls-private-key-file=/c/tls.key \
             --ca-cert-file=/c/ca.crt --port=8443 --webhook-url= --enable-healthz=true --healthz-address=:11251 --v=3 \
             --logtostderr --scheduler-name=volcano --scheduler-name=batch --max-queue-depth=3 \
             --enable-queue-allocated-pods-check --graceful-shutdown-time=5s --kube-api-qps=50",
        );
        assert_eq!(args.routes().unwrap().len(), 2);
        assert_eq!(args.meaningless.given().len(), 3);
        assert_eq!(args.health.address().map(|at| at.to_string()).as_deref(), Some("0.0.0.0:11251"));
        let Ok(Source::Files(files)) = args.certificate() else { panic!("{args:?}") };
        assert_eq!((files.certificate, files.authority), ("/c/tls.crt".into(), Some("/c/ca.crt".into())));
        assert_eq!(args.graceful_shutdown_time, Duration::from_secs(5));
        let rules = args.rules.rules("volcano-system");
        assert_eq!((rules.queue_depth_max, rules.queue_with_pods_protected), (3, true));
        assert!(rules.root_queue_protected);
        assert_eq!(rules.scheduler_names, ["volcano", "batch"]);
        let users = parsed("--controller-user=c").rules.rules("n").controller_users;
        assert_eq!(users, ["system:pumice:controllers", "system:serviceaccount:n:pumice-controllers", "c"]);
    }

    #[test]
    fn the_endpoint_is_a_service_unless_an_address_is_given() {
        let service =
            |namespace: &str, name: &str| Endpoint::Service { namespace: namespace.into(), name: name.into() };
        assert_eq!(parsed("").endpoint(), service("volcano-system", "volcano-admission-service"));
        assert_eq!(parsed("--webhook-namespace=n --webhook-service-name=s").endpoint(), service("n", "s"));
        assert_eq!(parsed("--webhook-url=https://h:1").endpoint(), Endpoint::Url("https://h:1".into()));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_word() {
        assert!(parsed("--enabled-admission=/jobs").routes().unwrap_err().contains("/jobs/validate"));
        assert!(parsed("--certificate-every=1m").rotation().unwrap_err().contains("--certificate-settle"));
        assert!(parsed("--certificate-settle=0s").rotation().is_err());
        assert!(matches!(parsed("").certificate(), Ok(Source::Secret { .. })));
        assert!(matches!(parsed("--tls-cert-file= --tls-private-key-file=").certificate(), Ok(Source::Secret { .. })));
        assert!(parsed("--tls-cert-file=/c").certificate().unwrap_err().contains("go together"));
        assert!(parsed("--tls-private-key-file=/k").certificate().is_err());
    }
}
