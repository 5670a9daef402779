//! What people type, each as stock kubectl does it.

mod changes;
mod pods;
mod reads;
mod workloads;

use pumice_testkit::{Clients, Output, words};
use serde_json::Value;

use super::{Behaviour, Needs};

/// All that is tried.
pub const BEHAVIOURS: &[Behaviour] = &[
    api("get", reads::get),
    api("get -o wide", reads::wide),
    api("get -o yaml", reads::yaml),
    api("get -o jsonpath", reads::jsonpath),
    api("get -l, --field-selector, -A", reads::selected),
    api("get -w", reads::watched),
    api("get --chunk-size", reads::chunks),
    api("describe", reads::describe),
    api("explain", reads::explain),
    api("api-resources, api-versions", reads::resources),
    api("version, cluster-info, get --raw", reads::about),
    api("events", reads::events),
    api("auth can-i", reads::can_i),
    api("auth whoami", reads::who_am_i),
    api("create token: no binding, 403", reads::token),
    api("create -f", changes::create),
    api("create KIND", changes::create_by_words),
    api("apply", changes::apply),
    api("apply --server-side", changes::apply_on_the_server),
    api("apply -k", changes::kustomization),
    api("apply --dry-run=server", changes::dry_run),
    api("--validate", changes::validate),
    api("diff", changes::diff),
    api("diff --server-side", changes::diff_on_the_server),
    api("edit", changes::edit),
    api("patch --type=strategic", changes::patch_strategic),
    api("patch --type=merge", changes::patch_merge),
    api("patch --type=json", changes::patch_json),
    api("patch --subresource=status", changes::patch_status),
    api("replace", changes::replace),
    api("label, annotate", changes::label),
    api("taint, cordon, uncordon", changes::taint),
    api("delete", changes::delete),
    api("delete --cascade", changes::cascade),
    api("delete namespace", changes::namespace),
    api("auth reconcile", changes::reconcile),
    api("rollout status", workloads::status),
    api("rollout history, undo", workloads::undo),
    api("rollout pause, resume, restart", workloads::restart),
    api("set image, set env, set resources", workloads::set),
    api("scale", workloads::scale),
    api("autoscale", workloads::autoscale),
    api("expose", workloads::expose),
    api("create job --from=cronjob", workloads::from_cron_job),
    api("wait --for=condition, jsonpath, delete", workloads::wait),
    api("wait --for=create", workloads::wait_for_create),
    api("drain", workloads::drain),
    node("get endpointslices", workloads::endpoints),
    node("run", pods::run),
    node("logs", pods::logs),
    node("logs -f", pods::follow),
    node("logs --previous", pods::previous),
    node("exec", pods::exec),
    node("cp", pods::copy),
    node("port-forward", pods::port_forward),
    node("attach", pods::attach),
    node("run -i --rm", pods::run_and_remove),
    node("debug", pods::debug),
    node("top", pods::top),
];

const fn api(name: &'static str, run: fn(&Clients)) -> Behaviour {
    Behaviour { name, needs: Needs::Api, run }
}

const fn node(name: &'static str, run: fn(&Clients)) -> Behaviour {
    Behaviour { name, needs: Needs::Processes, run }
}

/// Runs a line, whose words in single quotes may hold spaces.
fn run(clients: &Clients, line: &str) -> Output {
    clients.kubectl(words(line))
}

/// Output of a line that must succeed.
#[track_caller]
fn ok(clients: &Clients, line: &str) -> String {
    let output = run(clients, line);
    assert_eq!(output.code, 0, "kubectl {line}: {output:?}");
    output.stdout
}

/// Runs a line that must print this.
#[track_caller]
fn says(clients: &Clients, line: &str, wanted: &str) {
    let output = run(clients, line);
    let found = squeeze(&format!("{}{}", output.stdout, output.stderr));
    assert!(output.code == 0 && found.contains(wanted), "kubectl {line}: no {wanted:?} in {output:?}");
}

/// Runs a line that must fail with these words.
#[track_caller]
fn fails(clients: &Clients, line: &str, wanted: &str) {
    let output = run(clients, line);
    assert!(output.code != 0 && output.stderr.contains(wanted), "kubectl {line}: no {wanted:?} in {output:?}");
}

/// Feeds a manifest to a line that must succeed.
#[track_caller]
fn fed(clients: &Clients, line: &str, manifest: &str) -> String {
    let output = clients.kubectl_with_input(words(line), manifest);
    assert_eq!(output.code, 0, "kubectl {line}: {output:?}");
    output.stdout
}

fn object(clients: &Clients, kind: &str, name: &str) -> Value {
    clients.get(kind, name).unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

/// The namespace that the clients are in.
fn namespace(clients: &Clients) -> String {
    ok(clients, "config view --minify -o jsonpath={..namespace}")
}

/// One blank between words.
fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A map with one label and one key.
fn map(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{tier: x}}}}\ndata: {{a: \"{value}\"}}\n"
    )
}

/// A pod that no node takes.
fn unplaced(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{tier: x}}}}\nspec:\n  schedulerName: volcano\n  nodeSelector: \
         {{nowhere: at-all}}\n  containers: [{{name: main, image: none}}]\n"
    )
}

/// A job that no node takes.
fn waiting_job(name: &str) -> String {
    format!(
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  schedulerName: volcano\n  minAvailable: \
         1\n  queue: default\n  tasks:\n  - name: w\n    replicas: 1\n    template: {{spec: {{restartPolicy: Never, nodeSelector: {{nowhere: \
         at-all}}, containers: [{{name: main, image: none}}]}}}}\n"
    )
}
