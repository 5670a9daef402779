//! `pumice fleet doctor`: looks at a server, or at an executor's side, and says what to do.
//!
//! Invariant: it changes nothing. Exit codes as of `pumice status`: 0 all works, 1 something does not, 3 no server answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, PostParams};
use pumice_api::names::USER_EXECUTOR;
use pumice_auth::{Identity, Subject, built_in, identity_of, valid_until};
use pumice_clock::now;
use pumice_cluster::Client;
use pumice_cluster::connect::client_from;
use pumice_fleet_server::doctor::{self, Check, Diagnosis};
use pumice_fleet_server::gateway::EXECUTORS;
use rustls::ClientConfig;

use super::runtime;
use crate::args::fleet::FleetDoctorArgs;
use crate::output;

const FAILED: i32 = 1;
const UNREACHABLE: i32 = 3;
/// What to do about a certificate of the fleet that ends.
const RENEW: &str = "make another with `pumice fleet identity` on the server";

/// Looks, prints, and ends the process where something does not work.
pub fn run(args: &FleetDoctorArgs) -> Result<()> {
    let credentials = super::credentials(&args.identity)?;
    let unread = || format!("{} is no identity", args.identity.display());
    let identity = identity_of(&credentials.certificate).with_context(unread)?;
    let left = valid_until(&credentials.certificate).with_context(unread)? - now().as_second();
    let (diagnosis, reached) = runtime()?.block_on(look(args, &identity, left, credentials.tls));
    let text = match args.json {
        true => serde_json::to_string_pretty(&diagnosis).context("write JSON")? + "\n",
        false => diagnosis.to_string(),
    };
    output::print(&text)?;
    match (reached, diagnosis.ok) {
        (true, true) => Ok(()),
        // All is said, and nothing runs that would have to end.
        (true, false) => std::process::exit(FAILED),
        (false, _) => std::process::exit(UNREACHABLE),
    }
}

/// All checks, of somebody whose certificate is good for `left` seconds; and whether a server answers.
async fn look(args: &FleetDoctorArgs, who: &Identity, left: i64, tls: Arc<ClientConfig>) -> (Diagnosis, bool) {
    let is_executor = who.is_in(EXECUTORS);
    let mut checks = vec![doctor::certificate("certificate", &format!("that of {}", who.user), left, RENEW)];
    let answer = doctor::ask(&args.server, tls).await;
    let reached = answer.is_ok();
    let mut classes = BTreeSet::new();
    match answer {
        Ok(answer) => {
            checks.push(Check::ok("server", format!("{} answers, release {}", args.server, answer.health.release)));
            let remedy = "start the server anew: it makes another at each start";
            checks.push(doctor::certificate("TLS", "the server's certificate", answer.certificate_seconds, remedy));
            checks.push(doctor::clock("clock", "the server's clock", answer.ahead_ms));
            let standing = &answer.health;
            checks.extend(if is_executor { doctor::executor(standing) } else { doctor::server(standing) });
            classes = answer.health.priority_classes;
        }
        Err(error) => {
            let remedy = "look whether it runs there, at its --name and --bind-address, and at walls between";
            checks.push(Check::failed("server", format!("{}: {}", args.server, sentence(error)), remedy));
        }
    }
    if is_executor {
        cluster(args, &classes, &mut checks).await;
    }
    (Diagnosis::of(checks), reached)
}

/// The executor's cluster: whether it answers, what it allows, and which priority classes it has.
async fn cluster(args: &FleetDoctorArgs, classes: &BTreeSet<String>, checks: &mut Vec<Check>) {
    let remedy = "give --kubeconfig FILE or --master URL, as the executor gets it";
    let client = match client_from(args.kubeconfig.as_deref(), args.master.as_deref()).await {
        Ok(client) => client,
        Err(error) => return checks.push(Check::failed("cluster", format!("{error:#}"), remedy)),
    };
    match client.apiserver_version().await {
        Ok(version) => checks.push(Check::ok("cluster", format!("its API server answers, {}", version.git_version))),
        Err(error) => return checks.push(Check::failed("cluster", sentence(error), remedy)),
    }
    rights(&client, checks).await;
    priority_classes(&client, classes, checks).await;
}

/// Asks for each right of the role that `pumice roles executor` prints.
async fn rights(client: &Client, checks: &mut Vec<Check>) {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = BTreeSet::new();
    let mut asked = 0;
    for (verb, group, resource) in wanted() {
        let (of, subresource) = resource.split_once('/').map_or((&*resource, None), |(of, sub)| (of, Some(sub)));
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.clone()),
                group: Some(group.clone()),
                resource: Some(of.to_owned()),
                subresource: subresource.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        match reviews.create(&PostParams::default(), &review).await {
            Ok(answer) if answer.status.as_ref().is_some_and(|status| status.allowed) => {}
            Ok(_) => drop(missing.insert(format!("{verb} {resource}"))),
            Err(error) => {
                let remedy = "look at the API server: everybody may ask for their own rights";
                return checks.push(Check::failed("rights", sentence(error), remedy));
            }
        }
        asked += 1;
    }
    checks.push(if missing.is_empty() {
        Check::ok("rights", format!("all {asked} are there"))
    } else {
        let names: Vec<String> = missing.into_iter().collect();
        let remedy = "run `pumice roles executor | kubectl apply -f -`, and let the executor be who has that role";
        Check::failed("rights", format!("it may not {}", names.join(", ")), remedy)
    });
}

/// Verb, group and resource of each right that an executor needs.
fn wanted() -> Vec<(String, String, String)> {
    let mine = |subject: &Subject| matches!(subject, Subject::User(user) if user == USER_EXECUTOR);
    let mut wanted = Vec::new();
    for rule in built_in().iter().filter(|grant| mine(&grant.subject)).flat_map(|grant| &grant.role.rules) {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                wanted.extend(rule.verbs.iter().map(|verb| (verb.clone(), group.clone(), resource.clone())));
            }
        }
    }
    wanted
}

/// A pod of a class that the cluster does not have is refused there.
async fn priority_classes(client: &Client, classes: &BTreeSet<String>, checks: &mut Vec<Check>) {
    let there: Api<PriorityClass> = Api::all(client.clone());
    let mut missing = Vec::new();
    for class in classes {
        match there.get_metadata_opt(class).await {
            Ok(Some(_)) => {}
            Ok(None) => missing.push(class.as_str()),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let remedy = "look with `kubectl get priorityclasses`: there have to be those of the fleet's jobs";
                return checks.push(Check::warning("priority classes", "the executor may not read them", remedy));
            }
            Err(error) => {
                return checks.push(Check::failed("priority classes", sentence(error), "look at the API server"));
            }
        }
    }
    if !missing.is_empty() {
        let remedy = "make them in the cluster: pods of such jobs are refused until then";
        let found = format!("the cluster has none called {}", missing.join(", "));
        checks.push(Check::failed("priority classes", found, remedy));
    } else if !classes.is_empty() {
        checks.push(Check::ok("priority classes", format!("all {} of the fleet are there", classes.len())));
    }
}

/// An error and its causes.
fn sentence(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::new(error))
}
