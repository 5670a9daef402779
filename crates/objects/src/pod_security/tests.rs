//! What each control allows and forbids, with upstream's messages; labels; the field that the fleet names.

use super::*;
use serde_json::json;

const BASELINE: VersionedProfile = VersionedProfile { profile: Profile::Baseline, version: Version::Latest };
const RESTRICTED: VersionedProfile = VersionedProfile { profile: Profile::Restricted, version: Version::Latest };

fn as_of(profile: Profile, minor: u32) -> VersionedProfile {
    VersionedProfile { profile, version: Version::Minor(minor) }
}

fn judged(rule: VersionedProfile, spec: &Value) -> String {
    violations(rule, &[&json!({ "spec": spec })]).to_string()
}

/// A pod that `restricted` allows.
fn confined() -> Value {
    json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "c",
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
    })
}

/// That pod with other fields of its own.
fn confined_with(fields: Value) -> Value {
    let mut spec = confined();
    merge(&mut spec, fields);
    spec
}

/// That pod with other fields of its container.
fn confined_container(fields: Value) -> Value {
    let mut spec = confined();
    merge(&mut spec["containers"][0], fields);
    spec
}

/// Takes fields over, objects field by field.
fn merge(into: &mut Value, fields: Value) {
    match fields {
        Value::Object(fields) if into.is_object() => {
            for (name, field) in fields {
                merge(&mut into[&name], field);
            }
        }
        fields => *into = fields,
    }
}

/// A pod whose second container has these fields.
fn second(fields: Value) -> Value {
    let mut container = json!({"name": "b"});
    merge(&mut container, fields);
    json!({"containers": [{"name": "a"}, container]})
}

fn second_context(context: Value) -> Value {
    second(json!({ "securityContext": context }))
}

#[test]
fn each_control_of_baseline_forbids_what_it_is_about() {
    let (init, ephemeral) = ("initContainers", "ephemeralContainers");
    let port = |number: u32| json!({"containerPort": 80, "hostPort": number});
    for (spec, text) in [
        (json!({"hostNetwork": true}), "host namespaces (hostNetwork=true)"),
        (
            json!({"hostIPC": true, "hostPID": true, "hostNetwork": true}),
            "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
        ),
        (json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), r#"hostPath volumes (volume "v")"#),
        (
            json!({"volumes": [{"name": "v", "hostPath": {}}, {"name": "e", "emptyDir": {}}, {"name": "w", "hostPath": {}}]}),
            r#"hostPath volumes (volumes "v", "w")"#,
        ),
        (
            second_context(json!({"privileged": true})),
            r#"privileged (container "b" must not set securityContext.privileged=true)"#,
        ),
        (
            json!({init: [{"name": "i", "securityContext": {"privileged": true}}],
                ephemeral: [{"name": "e", "securityContext": {"privileged": true}}]}),
            r#"privileged (containers "i", "e" must not set securityContext.privileged=true)"#,
        ),
        (
            second_context(json!({"capabilities": {"add": ["SYS_ADMIN", "KILL", "NET_RAW", "cap_chown"]}})),
            r#"non-default capabilities (container "b" must not include "NET_RAW", "SYS_ADMIN", "cap_chown" in securityContext.capabilities.add)"#,
        ),
        (
            second_context(json!({"procMount": "Unmasked"})),
            r#"procMount (container "b" must not set securityContext.procMount to "Unmasked")"#,
        ),
        (
            json!({"securityContext": {"windowsOptions": {"hostProcess": true}},
                init: [{"name": "i", "securityContext": {"windowsOptions": {"hostProcess": true}}}]}),
            r#"hostProcess (pod and container "i" must not set securityContext.windowsOptions.hostProcess=true)"#,
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}},
                ephemeral: [{"name": "e", "securityContext": {"seccompProfile": {"type": "None"}}}]}),
            r#"seccompProfile (pod and container "e" must not set securityContext.seccompProfile.type to "None", "Unconfined")"#,
        ),
        (
            second_context(json!({"appArmorProfile": {"type": "Unconfined"}})),
            r#"forbidden AppArmor profile (container "b" must not set AppArmor profile type to "Unconfined")"#,
        ),
        (
            json!({"securityContext": {"seLinuxOptions": {"type": "spc_t", "user": "u"}},
                "containers": [{"name": "c", "securityContext": {"seLinuxOptions": {"role": "r", "type": "spc_t"}}}]}),
            r#"seLinuxOptions (pod and container "c" set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be set; role may not be set)"#,
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}, {"name": "fs.a"}]}}),
            "forbidden sysctls (kernel.msgmax, fs.a)",
        ),
        (
            second(json!({"ports": [port(0), port(80), port(8080)]})),
            r#"hostPort (container "b" uses hostPorts 80, 8080)"#,
        ),
        (second(json!({"ports": [port(80)]})), r#"hostPort (container "b" uses hostPort 80)"#),
    ] {
        assert_eq!(judged(BASELINE, &spec), text, "{spec}");
        assert_eq!(judged(Profile::Privileged.into(), &spec), "", "{spec}");
    }
}

#[test]
fn each_way_to_name_a_host_of_a_probe_is_forbidden() {
    let get = |host: &str| json!({"httpGet": {"port": 1, "host": host}});
    let connect = |host: &str| json!({"tcpSocket": {"port": 1, "host": host}});
    let spec = json!({
        "initContainers": [{"name": "i", "startupProbe": connect("a")}],
        "containers": [
            {"name": "quiet", "livenessProbe": {"httpGet": {"port": 1}}, "readinessProbe": get(""),
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}}},
            {"name": "c", "livenessProbe": get("b"), "readinessProbe": get("c"),
                "lifecycle": {"postStart": get("d"), "preStop": connect("e")}},
        ],
    });
    let text = r#"probe or lifecycle host (containers "c", "i" use probe or lifecycle hosts "a", "b", "c", "d", "e")"#;
    assert_eq!(judged(BASELINE, &spec), text);
    assert_eq!(probe_hosts(&[&json!({ "spec": spec })]).to_string(), text);
    assert_eq!(judged(as_of(Profile::Baseline, 33), &spec), "", "it came with v1.34");
    for nothing in [json!({}), json!({"containers": [{"name": "c", "lifecycle": null}]}), json!({"containers": [7]})] {
        assert!(probe_hosts(&[&json!({ "spec": nothing })]).is_empty(), "{nothing}");
    }
}

#[test]
fn annotations_of_app_armor_count() {
    let pod = |value: &str| {
        let annotations = json!({"container.apparmor.security.beta.kubernetes.io/c": value, "other": "unconfined"});
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}})
    };
    for allowed in ["", "runtime/default", "localhost/mine"] {
        assert!(violations(BASELINE, &[&pod(allowed)]).is_empty(), "{allowed}");
    }
    let mut unconfined = pod("unconfined");
    assert_eq!(
        violations(BASELINE, &[&unconfined]).to_string(),
        "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
         \"container.apparmor.security.beta.kubernetes.io/c=\"unconfined\"\")"
    );
    unconfined["spec"]["securityContext"] = json!({"appArmorProfile": {"type": "Unconfined"}});
    let both = violations(BASELINE, &[&unconfined]);
    assert_eq!(both.0[0].reason, "forbidden AppArmor profiles");
    assert!(both.0[0].detail.starts_with("pod and annotation must not set"), "{both}");
}

#[test]
fn baseline_allows_what_stays_in_the_container() {
    for spec in [
        json!({}),
        json!({"hostNetwork": false, "volumes": [{"configMap": {"name": "a"}}, 7],
            "containers": [7, {"ports": [{"containerPort": 80}]}]}),
        json!({"securityContext": {"runAsUser": 0, "sysctls": [{"name": "net.ipv4.tcp_syncookies"}]}}),
        second_context(
            json!({"privileged": false, "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}, "procMount": "Default",
            "seccompProfile": {"type": "Localhost"}, "seLinuxOptions": {"type": "container_engine_t", "level": "s0"},
            "appArmorProfile": {"type": "RuntimeDefault"}}),
        ),
    ] {
        assert_eq!(judged(BASELINE, &spec), "", "{spec}");
        assert_eq!(first_forbidden_field(&spec, |_| false), None, "{spec}");
    }
    // In a user namespace of its own a pod may see its /proc; clusters of a fleet may have none.
    let own_users = json!({"hostUsers": false, "containers": [{"securityContext": {"procMount": "Unmasked"}}]});
    assert_eq!(judged(BASELINE, &own_users), "");
    assert!(!judged(as_of(Profile::Baseline, 34), &own_users).is_empty());
    assert_eq!(
        first_forbidden_field(&own_users, |_| false).as_deref(),
        Some("containers[0].securityContext.procMount")
    );
}

#[test]
fn each_control_of_restricted_forbids_what_it_is_about() {
    let context = |context: Value| confined_container(json!({ "securityContext": context }));
    let volumes = |volumes: Value| confined_with(json!({ "volumes": volumes }));
    let of_pod = |context: Value| confined_with(json!({ "securityContext": context }));
    for (spec, text) in [
        (
            context(json!({"allowPrivilegeEscalation": null})),
            r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)"#,
        ),
        (
            context(json!({"allowPrivilegeEscalation": true})),
            r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)"#,
        ),
        (
            context(json!({"capabilities": null})),
            r#"unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"])"#,
        ),
        (
            context(json!({"capabilities": {"drop": ["KILL"], "add": ["NET_BIND_SERVICE", "CHOWN"]}})),
            r#"unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]; container "c" must not include "CHOWN" in securityContext.capabilities.add)"#,
        ),
        (
            volumes(json!([{"name": "v", "hostPath": {"path": "/"}}])),
            r#"restricted volume types (volume "v" uses restricted volume type "hostPath")"#,
        ),
        (
            volumes(json!([{"name": "v", "nfs": {}}, {"name": "w", "iscsi": {}}, {"name": "x", "secret": {}}])),
            r#"restricted volume types (volumes "v", "w" use restricted volume types "iscsi", "nfs")"#,
        ),
        // Two sources are no way around it.
        (
            volumes(json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}])),
            r#"restricted volume types (volume "v" uses restricted volume type "hostPath")"#,
        ),
        (
            of_pod(json!({"runAsNonRoot": null})),
            r#"runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)"#,
        ),
        (
            of_pod(json!({"runAsNonRoot": false})),
            "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)",
        ),
        (
            context(json!({"runAsNonRoot": false})),
            r#"runAsNonRoot != true (container "c" must not set securityContext.runAsNonRoot=false)"#,
        ),
        (of_pod(json!({"runAsUser": 0})), "runAsUser=0 (pod must not set runAsUser=0)"),
        (context(json!({"runAsUser": -0.0})), r#"runAsUser=0 (container "c" must not set runAsUser=0)"#),
        (
            of_pod(json!({"seccompProfile": null})),
            r#"seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
        ),
        (
            of_pod(json!({"seccompProfile": {"type": "Unconfined"}})),
            r#"seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")"#,
        ),
        (
            context(json!({"seccompProfile": {"type": "Unconfined"}})),
            r#"seccompProfile (container "c" must not set securityContext.seccompProfile.type to "Unconfined")"#,
        ),
        (
            context(json!({"procMount": "Unmasked"})),
            r#"procMount (container "c" must not set securityContext.procMount to "Unmasked")"#,
        ),
        (
            confined_with(json!({"hostNetwork": true, "securityContext": {"runAsUser": 0}})),
            "host namespaces (hostNetwork=true), runAsUser=0 (pod must not set runAsUser=0)",
        ),
    ] {
        assert_eq!(judged(RESTRICTED, &spec), text, "{spec}");
    }
    let bare = json!({"containers": [{"name": "c"}], "initContainers": [{"name": "i"}], "ephemeralContainers": [{"name": "e"}]});
    assert_eq!(
        judged(RESTRICTED, &bare),
        r#"allowPrivilegeEscalation != false (containers "i", "c", "e" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers "i", "c", "e" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or containers "i", "c", "e" must set securityContext.runAsNonRoot=true), seccompProfile (pod or containers "i", "c", "e" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#
    );
}

#[test]
fn restricted_allows_who_says_that_he_needs_no_rights() {
    let by_container = confined_container(json!({"securityContext": {
        "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "Localhost", "localhostProfile": "p"},
        "capabilities": {"add": ["NET_BIND_SERVICE"]},
    }}));
    let mut without_context = by_container.clone();
    without_context["securityContext"] = json!({});
    let sources = "configMap csi downwardAPI emptyDir ephemeral image persistentVolumeClaim projected secret";
    let sources: Vec<Value> = sources.split(' ').map(|source| json!({"name": source, source: {}})).collect();
    for spec in [
        confined(),
        by_container,
        without_context,
        confined_with(json!({ "volumes": sources })),
        confined_with(json!({ "volumes": [{"name": "made-by-default"}] })),
        // A user namespace of its own makes root nobody.
        confined_with(json!({"hostUsers": false, "securityContext": {"runAsNonRoot": false, "runAsUser": 0}})),
        // Pods of Windows can't say it.
        json!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}, "containers": [{"name": "c"}]}),
    ] {
        assert_eq!(judged(RESTRICTED, &spec), "", "{spec}");
    }
    let unmasked = json!({"hostUsers": false, "containers": [{"securityContext": {"procMount": "Unmasked"}}]});
    assert!(
        judged(RESTRICTED, &confined_with(unmasked)).contains("procMount"),
        "a user namespace excuses nothing here"
    );
}

#[test]
fn older_versions_have_the_controls_of_their_time() {
    let with_sysctl = |name: &str| json!({"securityContext": {"sysctls": [{"name": name}]}});
    let root_of_its_own = confined_with(json!({"hostUsers": false, "securityContext": {"runAsUser": 0}}));
    let windows = json!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}, "containers": [{}]});
    let adds =
        |name: &str| confined_container(json!({"securityContext": {"capabilities": {"drop": [], "add": [name]}}}));
    let engine = json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}});
    let of_restricted = Profile::Restricted;
    for (profile, spec, minor, is_allowed) in [
        (Profile::Baseline, with_sysctl("net.ipv4.tcp_wmem"), 31, false),
        (Profile::Baseline, with_sysctl("net.ipv4.tcp_wmem"), 32, true),
        (Profile::Baseline, engine.clone(), 30, false),
        (Profile::Baseline, engine, 31, true),
        (of_restricted, root_of_its_own.clone(), 34, false),
        (of_restricted, root_of_its_own.clone(), 35, true),
        (of_restricted, root_of_its_own, 999, true),
        (of_restricted, windows.clone(), 24, false),
        (of_restricted, windows, 25, true),
        (of_restricted, adds("CHOWN"), 21, true),
        (of_restricted, adds("SYS_ADMIN"), 21, false),
        (of_restricted, adds("CHOWN"), 22, false),
    ] {
        let found = judged(as_of(profile, minor), &spec);
        assert_eq!(found.is_empty(), is_allowed, "{spec} as of {minor}: {found}");
    }
}

#[test]
fn templates_of_one_object_are_told_once() {
    let template = |name: &str, volume: &str| {
        json!({"spec": {"hostPID": true, "containers": [{"name": name, "securityContext": {"privileged": true}}],
            "volumes": [{"name": volume, "hostPath": {}}]}})
    };
    let tasks = [template("main", "a"), template("main", "b"), template("other", "a")];
    let found = violations(BASELINE, &tasks.iter().collect::<Vec<_>>());
    assert_eq!(
        found.to_string(),
        "host namespaces (hostPID=true), hostPath volumes (volumes \"a\", \"b\"), privileged (containers \"main\", \"other\" must \
         not set securityContext.privileged=true)"
    );
    assert_eq!(found.reasons(), "host namespaces, hostPath volumes, privileged");
}

#[test]
fn the_first_forbidden_field_is_named_by_its_path() {
    let container = |fields: Value| json!({"initContainers": [{}], "containers": [{}, fields]});
    let context = |fields: Value| container(json!({ "securityContext": fields }));
    for (spec, field) in [
        (json!({"hostNetwork": true}), "hostNetwork"),
        (json!({"hostPID": true}), "hostPID"),
        (json!({"hostIPC": true}), "hostIPC"),
        (json!({"volumes": [{"emptyDir": {}}, {"hostPath": {"path": "/"}}]}), "volumes[1].hostPath"),
        (
            json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
            "securityContext.windowsOptions.hostProcess",
        ),
        (json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}]}}), "securityContext.sysctls[0].name"),
        (json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}), "securityContext.seccompProfile.type"),
        (json!({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}), "securityContext.seLinuxOptions.type"),
        (context(json!({"privileged": true})), "containers[1].securityContext.privileged"),
        (
            context(json!({"capabilities": {"add": ["KILL", "SYS_ADMIN"]}})),
            "containers[1].securityContext.capabilities.add",
        ),
        (context(json!({"capabilities": {"add": ["ALL"]}})), "containers[1].securityContext.capabilities.add"),
        (context(json!({"procMount": "Unmasked"})), "containers[1].securityContext.procMount"),
        (context(json!({"seLinuxOptions": {"user": "u"}})), "containers[1].securityContext.seLinuxOptions.user"),
        (context(json!({"seLinuxOptions": {"role": "r"}})), "containers[1].securityContext.seLinuxOptions.role"),
        (
            context(json!({"appArmorProfile": {"type": "Unconfined"}})),
            "containers[1].securityContext.appArmorProfile.type",
        ),
        (container(json!({"ports": [{"hostPort": 0}, {"hostPort": 80}]})), "containers[1].ports[1].hostPort"),
        (
            json!({"initContainers": [{"securityContext": {"privileged": true}}]}),
            "initContainers[0].securityContext.privileged",
        ),
        // Of many the one of the pod, then the one that reaches farthest.
        (
            json!({"securityContext": {"seLinuxOptions": {"user": "u"}}, "initContainers": [{"securityContext": {"privileged": true}}]}),
            "securityContext.seLinuxOptions.user",
        ),
        (
            context(json!({"appArmorProfile": {"type": "Unconfined"}, "capabilities": {"add": ["ALL"]}})),
            "containers[1].securityContext.capabilities.add",
        ),
    ] {
        assert_eq!(first_forbidden_field(&spec, |_| false).as_deref(), Some(field), "{spec}");
    }
    let mounts = |paths: &[&str]| {
        let volumes = paths.iter().map(|path| json!({"hostPath": {"path": path}})).collect::<Vec<_>>();
        first_forbidden_field(&json!({ "volumes": volumes }), |path| path == "/shared")
    };
    assert_eq!((mounts(&["/shared"]), mounts(&["/shared", "/"])), (None, Some("volumes[1].hostPath".to_owned())));
    let asks_a_host = container(json!({"livenessProbe": {"httpGet": {"port": 1, "host": "h"}}}));
    assert_eq!(first_forbidden_field(&asks_a_host, |_| false), None);
}

#[test]
fn labels_choose_profiles() {
    let choose = |labels: Value, default: Profile| {
        let (policy, errors) = Policy::of_labels(&labels, default);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        (format!("{} {} {}", policy.enforce, policy.audit, policy.warn), texts.join("; "))
    };
    let (open, closed) = (Profile::Privileged, Profile::Restricted);
    let version = |mode: &str| format!("{mode}-version");
    for (labels, default, wanted) in [
        (json!(null), open, "privileged:latest privileged:latest privileged:latest"),
        (json!({"a": "b"}), closed, "restricted:latest privileged:latest restricted:latest"),
        (json!({ENFORCE: "baseline"}), open, "baseline:latest privileged:latest baseline:latest"),
        (json!({ENFORCE: "privileged"}), closed, "privileged:latest privileged:latest privileged:latest"),
        (
            json!({ENFORCE: "baseline", WARN: "restricted", AUDIT: "restricted", version(AUDIT): "v1.30"}),
            open,
            "baseline:latest restricted:v1.30 restricted:latest",
        ),
        (
            json!({ENFORCE: "baseline", version(ENFORCE): "v1.99"}),
            open,
            "baseline:v1.99 privileged:latest baseline:v1.99",
        ),
        (
            json!({ENFORCE: "restricted", WARN: "privileged", version(ENFORCE): "latest"}),
            open,
            "restricted:latest privileged:latest privileged:latest",
        ),
    ] {
        assert_eq!(choose(labels.clone(), default), (wanted.to_owned(), String::new()), "{labels}");
    }
    let unreadable =
        json!({ENFORCE: "strict", AUDIT: "Baseline", WARN: "", version(ENFORCE): "v1.07", version(WARN): "1.30"});
    assert_eq!(
        choose(unreadable, open),
        (
            "restricted:latest privileged:latest privileged:latest".to_owned(),
            [
                "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, \
                 baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: \"v1.07\": must be \"latest\" or \
                 \"v1.x\"",
                "metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: \"Baseline\": must be one of privileged, \
                 baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"\": must be one of privileged, baseline, \
                 restricted",
                "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"1.30\": must be \"latest\" or \
                 \"v1.x\"",
            ]
            .join("; ")
        )
    );
    let (policy, _) = Policy::of_labels(&json!({AUDIT: "baseline"}), open);
    assert!(!policy.is_privileged() && Policy::default().is_privileged());
}
