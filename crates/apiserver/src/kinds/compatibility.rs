//! The compatibility table: what is served, what is not, and where behaviour differs on purpose.
//!
//! Invariant: the part about kinds comes from the registry, so the page can't claim what the server does not have; a
//! test compares the committed page with it.

use std::fmt::Write as _;

use crate::http::negotiate::WRITTEN;
use crate::kinds::GIT_VERSION;
use crate::kinds::builtin;
use crate::kinds::descriptor::VERBS;

/// What a stored kind does not do here, by its plural name.
const NOTES: &[(&str, &str)] = &[
    (
        "clusterroles",
        "`cluster-admin`, `admin`, `edit` and `view` exist from the start; `aggregationRule` adds to the rights at once, `rules` \
         stays as it was written",
    ),
    ("configmaps", "`kube-root-ca.crt` is in every namespace"),
    (
        "csidrivers",
        "nothing here makes or reads them: they are for drivers and schedulers that people bring; no node here mounts volumes of such a driver",
    ),
    ("csinodes", "nothing here makes or reads them"),
    ("csistoragecapacities", "nothing here makes or reads them"),
    ("endpointslices", "made of headless services; upstream names them at random"),
    (
        "cronjobs",
        "a time that was missed is served late, but once; a schedule of five odd words is stored, and an event says what is wrong with it; `@every 10m` is understood",
    ),
    (
        "deployments",
        "no `rollback`; pods are placed by Pumice's scheduler, which gives those of a ReplicaSet a PodGroup of one",
    ),
    (
        "deviceclasses",
        "nothing here makes or reads them; selectors are stored as they are, their expressions are not compiled",
    ),
    (
        "customresourcedefinitions",
        "versions are converted by their name, or by a webhook (ConversionReview v1); selectors look at objects as they are \
         stored; a watch keeps the webhook with which it began; admission webhooks that ask for another version \
         (`matchPolicy: Equivalent`) see it converted by its name alone, and so do owners of fields of another version",
    ),
    (
        "events",
        "the same ones in both groups; the rules for `events.k8s.io` are upstream's, those for the core group are not asked; gone an hour \
         after they were last seen; an answered write may be lost for half a second after a power loss",
    ),
    (
        "jobs",
        "a delete without `propagationPolicy` takes pods with it (upstream keeps them); failures of an index are counted by \
         its pods that are there; `status.successful` is no field selector",
    ),
    ("leases", "an answered write may be lost for half a second after a power loss"),
    ("limitranges", "defaults and bounds of containers, pods and claims, at creation (of claims at updates, too)"),
    (
        "mutatingwebhookconfigurations",
        "called after admission in process, which is asked again where they changed something; a Service leads to its pods, ExternalName to its \
         host; the name of a `generateName` is final; audit annotations are not kept; replica counts (`scale`) are judged, \
         not changed",
    ),
    (
        "namespaces",
        "`default`, `kube-node-lease`, `kube-system` and `pumice-system` exist from the start and can't be deleted; Pod Security \
         as upstream, all controls and versions but annotations of seccomp before v1.19; templates are warned of when they change, \
         those of CustomResources, too; no exemptions; a changed `enforce` looks at the first 1,000 pods (upstream: 3,000)",
    ),
    (
        "networkpolicies",
        "enforced for pods with networks of their own, which nodes have that run as root; else stored with a warning; of 4,096 pairs of \
         peers and ports in a direction, the rest is refused",
    ),
    (
        "persistentvolumeclaims",
        "a claim of the class `folder`, of any of provisioner `pumice.sh/folder`, or of one that is not defined here (upstream: it waits), becomes a folder on the node; its size \
         is not kept to, growing it changes nothing",
    ),
    (
        "persistentvolumes",
        "`hostPath`, `local` and folders are mounted, other sources are bound and not mounted; no `Recycle`; one that was \
         made by hand is not deleted with its claim (`Failed`, unless it says `Retain`)",
    ),
    (
        "poddisruptionbudgets",
        "evictions are charged to them; a controller without `scale` counts for the pods that it has (upstream: none are \
         allowed); the scheduler's victims are chosen by them and deleted, not evicted",
    ),
    (
        "pods",
        "a `priorityClassName` that does not exist gives priority 0 and a warning (upstream: 403); an eviction is a \
         delete that its disruption budget allows; exec, attach and port-forward over WebSocket and SPDY; a client that is attached and \
         does not read is sent away; no resize; the account must exist, and its token is mounted as upstream, but pods of the account `default` get \
         it only where the pod or the account says `automountServiceAccountToken: true`; system calls \
         are filtered as `seccompProfile` says, and where it says nothing by `RuntimeDefault`, with profiles of type `Localhost` from \
         `DATA_DIR/seccomp`; a pod with `hostUsers: false` has users of its own where its node is root's and its kernel has idmapped \
         mounts, else it waits; nodes have no default profile of AppArmor, and forward no ports of \
         the host: pods with an `appArmorProfile` but `Unconfined` or a loaded one of type `Localhost`, a `hostPort` without `hostNetwork`, or `sysctls` \
         that `baseline` does not allow are not started, which a warning says; `seLinuxOptions` and `windowsOptions` have no effect",
    ),
    ("priorityclasses", "`system-cluster-critical` and `system-node-critical` exist from the start"),
    (
        "replicasets",
        "pods with the label `volcano.sh/job-name` are those of Volcano's Jobs: a template with it makes none, and says so",
    ),
    ("replicationcontrollers", "stored with a warning: nothing here makes their pods; a Deployment does"),
    (
        "resourceclaims",
        "stored with a warning: nothing here gives devices to them, and a pod that refers to one does not start; requests are checked, \
         constraints and what a driver writes into the status are not",
    ),
    ("resourceclaimtemplates", "as `resourceclaims`"),
    (
        "resourceslices",
        "nothing here makes or reads them; names, pool and place are checked, attributes and capacities of devices are not",
    ),
    (
        "resourcequotas",
        "enforced when objects are made and when claims and services grow; `status.used` follows within a moment; scopes but \
         `VolumeAttributesClass`; a pod that outstays its grace counts until it is gone",
    ),
    (
        "serviceaccounts",
        "`default` is in every namespace; tokens are made on request and last at most a day; a Secret of type \
         `kubernetes.io/service-account-token` is stored and gets none",
    ),
    (
        "services",
        "only headless services (`clusterIP: None`) have an effect: peers' names; others are stored with a warning, \
         without an address; EndpointSlices are made of headless ones that select pods, Endpoints are not served",
    ),
    (
        "storageclasses",
        "`folder` is there from the start and the default; a class of another provisioner is stored with a warning, and \
         nobody makes its volumes",
    ),
    (
        "statefulsets",
        "`maxUnavailable` counts in order, too; claims that are too small are not grown; names of pods need a headless Service",
    ),
    (
        "validatingadmissionpolicies",
        "`auditAnnotations` are checked and stored, and recorded nowhere; `status.typeChecking` is empty: types are not \
         checked against the kinds that match; selectors of `authorizer` are passed over",
    ),
    (
        "validatingadmissionpolicybindings",
        "the action `Audit` records nothing; at most 100 parameters of a selector count",
    ),
    ("validatingwebhookconfigurations", "called all at once after policies; otherwise as mutating ones"),
    ("volumeattachments", "nothing here makes or reads them"),
];

/// What clients ask for and do not get.
const NOT_SERVED: &[(&str, &str)] = &[
    (
        "Impersonation of a uid or of extra fields (`Impersonate-Uid`, `Impersonate-Extra-*`)",
        "400; users, groups and service accounts can be acted for (`kubectl --as`, `--as-group`)",
    ),
    ("Tokens' keys at `/openid/v1/jwks`, tokens bound to nodes", "404, 400"),
    (
        "Protobuf request bodies (`application/vnd.kubernetes.protobuf`) of kinds that definitions add",
        "415, as upstream; those of built-in kinds, of their subresources and of deletions are read, fields that are not \
         known are left out without a warning",
    ),
    ("CBOR request bodies", "415"),
    ("Protobuf, CBOR and YAML answers", "406, unless JSON is accepted too"),
    (
        "Strategic merge patch (`application/strategic-merge-patch+json`) of kinds that definitions add",
        "415, as upstream; use `--type=merge`",
    ),
    (
        "Pages of a list whose revision is gone (100,000 changes of the kind later, of events and leases 10,000)",
        "410 with a `continue` token that goes on in what is there now, as upstream",
    ),
    (
        "The static estimate of what a rule of a definition costs",
        "not made: what takes more than 2 million steps or two seconds for one write fails when it is evaluated",
    ),
    ("CEL macros over two variables, `cel.bind`", "422: undeclared reference"),
    ("MutatingAdmissionPolicy", "404"),
    (
        "`null` in place of a list that nobody gave (`rules` of a Role, `endpoints` of an EndpointSlice, `spec.drivers` of a CSINode), \
         as Go writes it",
        "the field is left out, or an empty list where it must be there",
    ),
    (
        "The order of an object's fields, and `apiVersion` and `kind` of the items of a list",
        "fields are in the order of the alphabet; items say what they are (upstream: not in JSON lists of its own kinds)",
    ),
    (
        "Values that Go leaves out though they were given: an empty text, list or `false` of a field that need not be there (`env[].value: \"\"`, `caBundle: \"\"`), and those behind gates that are off (`clusterTrustBundle`)",
        "written as they were given",
    ),
    (
        "What upstream adds to a pod or a node beside defaults: `serviceAccount`, the tolerations of 300 s for `not-ready` and `unreachable`, the taint `not-ready` of a new node",
        "not added; `serviceAccountName` says the account",
    ),
    ("The deprecated fields of an `events.k8s.io` Event that nobody gave", "left out"),
    ("Descriptions of a table's columns", "short, or none"),
    ("`overhead` of a pod without a RuntimeClass", "counted (upstream: 403); there are no RuntimeClasses"),
    ("The fields of `inlineVolumeSpec` of a VolumeAttachment", "not checked"),
    (
        "`resource.k8s.io` in versions before `v1`, which clients of Kubernetes 1.33 and before ask for",
        "404, as a Kubernetes of this release answers where nobody switched them on",
    ),
    ("`/openapi/v2`", "a document without kinds; they are in `/openapi/v3`"),
    ("Server-side apply of `scale`", "415; apply to the object, or patch its scale"),
    (
        "`managedFields` of objects to which nobody has applied",
        "not recorded; the first server-side apply gives what is there to the manager `before-first-apply`",
    ),
    ("Every kind that is not in the table and not defined by a CustomResourceDefinition", "404"),
];

/// The page `docs/api-compatibility.md` as the registry would have it. A test compares it with what is committed.
pub fn compatibility_table() -> String {
    let mut page = format!(
        "# Compatibility of the embedded Kubernetes API\n\n\
         Generated from the server's registry; `UPDATE=1 cargo test --workspace --lib compatibility` rewrites it.\n\n\
         The server calls itself `{GIT_VERSION}` and answers `{WRITTEN}`. Every kind below has the verbs {}.\n\
         Definitions add kinds with the same verbs, and with `status` and `scale` where they declare them.\n\n\
         ## Kinds\n\n\
         | Group and version | Kind | Resource | Scope | Subresources | Field selectors | Notes |\n\
         |---|---|---|---|---|---|---|\n",
        VERBS.join(", "),
    );
    let (reviews, stored): (Vec<_>, Vec<_>) = builtin::descriptors().into_iter().partition(|one| one.review.is_some());
    for one in stored {
        let subresources: Vec<&str> = one.subresources.iter().map(|below| below.name()).collect();
        let note = NOTES.iter().find(|(plural, _)| *plural == one.plural).map_or("", |(_, note)| note);
        // Writing to a String can't fail.
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {note} |",
            one.api_version(),
            one.kind,
            one.plural,
            if one.namespaced { "namespaced" } else { "cluster" },
            subresources.join(", "),
            one.selectable.join(", "),
        );
    }
    page.push_str(
        "\nEvery kind can be selected by labels and by `metadata.name` and `metadata.namespace`. `bindings` can be \
         created in a namespace.\n\n## Reviews\n\nThey can be created, which answers them; nothing is stored.\n\n\
         | Group and version | Kind | Resource | Scope |\n|---|---|---|---|\n",
    );
    for one in reviews {
        let scope = if one.namespaced { "namespaced" } else { "cluster" };
        let _ = writeln!(page, "| {} | {} | {} | {scope} |", one.api_version(), one.kind, one.plural);
    }
    page.push_str("\n## Not served\n\n| What | Answer |\n|---|---|\n");
    for (what, answer) in NOT_SERVED {
        let _ = writeln!(page, "| {what} | {answer} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    // INV-7
    #[test]
    fn the_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api-compatibility.md");
        #[allow(clippy::disallowed_methods)]
        if std::env::var("UPDATE").is_ok() {
            std::fs::write(path, compatibility_table()).expect("write");
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(committed, compatibility_table(), "run UPDATE=1 cargo test --workspace --lib compatibility");
    }

    #[test]
    fn every_note_is_about_a_kind() {
        let kinds = builtin::descriptors();
        for (plural, _) in NOTES {
            assert!(kinds.iter().any(|kind| kind.plural == *plural), "{plural}");
        }
    }
}
