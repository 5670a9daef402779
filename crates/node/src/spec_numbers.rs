//! The numbers of a pod's specification as the kernel's types, or a refusal that names the field.
//!
//! Invariant: no number becomes another one: what isn't a user is never user 0, and what is no limit is never "no limit". The
//! API server refuses such pods; one may have been stored before it did, or by another server. Called before a pod is started.

use k8s_openapi::api::core::v1::{Container, KeyToPath, Pod, PodSpec, Probe, Volume, VolumeProjection};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::downward_api;

/// Largest user and group: upstream leaves the half out in which -1 means "none".
const IDENTITY_MAX: i64 = 2_147_483_647;
const IDENTITY: &str = "must be between 0 and 2147483647, inclusive";
const PORT: &str = "must be between 1 and 65535, inclusive";
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const QUANTITY: &str = "must be a quantity that is not negative";

/// A number that a pod can't be started with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: Invalid value: {value}: {detail}")]
pub(crate) struct NumberError {
    path: String,
    value: String,
    detail: &'static str,
}

/// A user or a group.
pub(crate) fn identity(path: &str, id: i64) -> Result<u32, NumberError> {
    within(path, id, 0..=IDENTITY_MAX, IDENTITY)?;
    u32::try_from(id).map_err(|_| wrong(path, id, IDENTITY))
}

/// The permissions of a file.
pub(crate) fn file_mode(path: &str, mode: i32) -> Result<u32, NumberError> {
    within(path, mode.into(), 0..=0o777, FILE_MODE)?;
    u32::try_from(mode).map_err(|_| wrong(path, mode, FILE_MODE))
}

/// Checks all numbers of `pod` that come to count on a node.
pub(crate) fn check(pod: &Pod) -> Result<(), NumberError> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    pod_wide(spec)?;
    let lists = [("initContainers", spec.init_containers.as_deref()), ("containers", Some(&*spec.containers))];
    for (list, containers) in lists {
        for (index, found) in containers.unwrap_or_default().iter().enumerate() {
            container(&format!("spec.{list}[{index}]"), found)?;
        }
    }
    for (index, found) in spec.volumes.iter().flatten().enumerate() {
        volume(&format!("spec.volumes[{index}]"), found)?;
    }
    Ok(())
}

fn pod_wide(spec: &PodSpec) -> Result<(), NumberError> {
    if let Some(context) = &spec.security_context {
        let at = |field: &str| format!("spec.securityContext.{field}");
        let ids =
            [("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group), ("fsGroup", context.fs_group)];
        for (field, id) in ids.into_iter().filter_map(|(field, id)| Some((field, id?))) {
            identity(&at(field), id)?;
        }
        for (index, group) in context.supplemental_groups.iter().flatten().enumerate() {
            identity(&at(&format!("supplementalGroups[{index}]")), *group)?;
        }
    }
    if let Some(seconds) = spec.termination_grace_period_seconds {
        within("spec.terminationGracePeriodSeconds", seconds, 0..=i64::MAX, NOT_NEGATIVE)?;
    }
    if let Some(seconds) = spec.active_deadline_seconds {
        let detail = "must be between 1 and 2147483647, inclusive";
        within("spec.activeDeadlineSeconds", seconds, 1..=2_147_483_647, detail)?;
    }
    Ok(())
}

fn container(path: &str, container: &Container) -> Result<(), NumberError> {
    if let Some(context) = &container.security_context {
        for (field, id) in [("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group)] {
            if let Some(id) = id {
                identity(&format!("{path}.securityContext.{field}"), id)?;
            }
        }
    }
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let at = format!("{path}.ports[{index}]");
        within(&format!("{at}.containerPort"), port.container_port.into(), 1..=65_535, PORT)?;
        within(&format!("{at}.hostPort"), port.host_port.unwrap_or(0).into(), 0..=65_535, PORT)?;
    }
    for (field, found) in [
        ("startupProbe", &container.startup_probe),
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
    ] {
        if let Some(found) = found {
            probe(&format!("{path}.{field}"), found)?;
        }
    }
    hooks(path, container)?;
    let resources = container.resources.iter();
    let amounts = resources.flat_map(|resources| [("limits", &resources.limits), ("requests", &resources.requests)]);
    for (field, (name, amount)) in amounts.flat_map(|(field, list)| list.iter().flatten().map(move |one| (field, one)))
    {
        quantity(&format!("{path}.resources.{field}[{name}]"), amount)?;
    }
    Ok(())
}

fn probe(path: &str, probe: &Probe) -> Result<(), NumberError> {
    for (field, number) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("periodSeconds", probe.period_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        within(&format!("{path}.{field}"), number.unwrap_or(0).into(), 0..=i64::MAX, NOT_NEGATIVE)?;
    }
    if let Some(seconds) = probe.termination_grace_period_seconds {
        within(&format!("{path}.terminationGracePeriodSeconds"), seconds, 1..=i64::MAX, "must be greater than 0")?;
    }
    let ports = [
        ("httpGet", probe.http_get.as_ref().map(|http| &http.port)),
        ("tcpSocket", probe.tcp_socket.as_ref().map(|tcp| &tcp.port)),
    ];
    for (action, found) in ports {
        port(&format!("{path}.{action}.port"), found)?;
    }
    port(&format!("{path}.grpc.port"), probe.grpc.as_ref().map(|grpc| IntOrString::Int(grpc.port)).as_ref())
}

fn hooks(path: &str, container: &Container) -> Result<(), NumberError> {
    let Some(lifecycle) = &container.lifecycle else { return Ok(()) };
    for (field, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
        let Some(hook) = hook else { continue };
        let at = format!("{path}.lifecycle.{field}");
        if let Some(sleep) = &hook.sleep {
            within(&format!("{at}.sleep.seconds"), sleep.seconds, 0..=i64::MAX, NOT_NEGATIVE)?;
        }
        port(&format!("{at}.httpGet.port"), hook.http_get.as_ref().map(|http| &http.port))?;
        port(&format!("{at}.tcpSocket.port"), hook.tcp_socket.as_ref().map(|tcp| &tcp.port))?;
    }
    Ok(())
}

/// A port by its number; one by its name is looked up later.
fn port(path: &str, port: Option<&IntOrString>) -> Result<(), NumberError> {
    match port {
        Some(IntOrString::Int(number)) => within(path, (*number).into(), 1..=65_535, PORT),
        _ => Ok(()),
    }
}

fn volume(path: &str, volume: &Volume) -> Result<(), NumberError> {
    if let Some(limit) = volume.empty_dir.as_ref().and_then(|source| source.size_limit.as_ref()) {
        quantity(&format!("{path}.emptyDir.sizeLimit"), limit)?;
    }
    let modes = [
        ("configMap", volume.config_map.as_ref().and_then(|source| source.default_mode)),
        ("secret", volume.secret.as_ref().and_then(|source| source.default_mode)),
        ("downwardAPI", volume.downward_api.as_ref().and_then(|source| source.default_mode)),
        ("projected", volume.projected.as_ref().and_then(|source| source.default_mode)),
    ];
    for (source, mode) in modes.into_iter().filter_map(|(source, mode)| Some((source, mode?))) {
        file_mode(&format!("{path}.{source}.defaultMode"), mode)?;
    }
    keys(&format!("{path}.configMap"), volume.config_map.as_ref().and_then(|source| source.items.as_deref()))?;
    keys(&format!("{path}.secret"), volume.secret.as_ref().and_then(|source| source.items.as_deref()))?;
    let files = volume.downward_api.iter().flat_map(|source| source.items.iter().flatten());
    modes_of(&format!("{path}.downwardAPI"), files.map(|file| file.mode))?;
    let parts = volume.projected.iter().flat_map(|source| source.sources.iter().flatten());
    for (index, part) in parts.enumerate() {
        projection(&format!("{path}.projected.sources[{index}]"), part)?;
    }
    Ok(())
}

fn projection(path: &str, part: &VolumeProjection) -> Result<(), NumberError> {
    keys(&format!("{path}.configMap"), part.config_map.as_ref().and_then(|source| source.items.as_deref()))?;
    keys(&format!("{path}.secret"), part.secret.as_ref().and_then(|source| source.items.as_deref()))?;
    let files = part.downward_api.iter().flat_map(|source| source.items.iter().flatten());
    modes_of(&format!("{path}.downwardAPI"), files.map(|file| file.mode))?;
    if let Some(seconds) = part.service_account_token.as_ref().and_then(|token| token.expiration_seconds) {
        let detail = "may not specify a duration less than 10 minutes or larger than 2^32 seconds";
        within(&format!("{path}.serviceAccountToken.expirationSeconds"), seconds, 600..=1 << 32, detail)?;
    }
    Ok(())
}

fn keys(path: &str, items: Option<&[KeyToPath]>) -> Result<(), NumberError> {
    modes_of(path, items.unwrap_or_default().iter().map(|item| item.mode))
}

fn modes_of(path: &str, modes: impl Iterator<Item = Option<i32>>) -> Result<(), NumberError> {
    for (index, mode) in modes.enumerate() {
        if let Some(mode) = mode {
            file_mode(&format!("{path}.items[{index}].mode"), mode)?;
        }
    }
    Ok(())
}

fn quantity(path: &str, amount: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Result<(), NumberError> {
    let is_amount = downward_api::parse(amount).is_some_and(|amount| !amount.is_negative());
    if is_amount { Ok(()) } else { Err(wrong(path, format_args!("{:?}", amount.0), QUANTITY)) }
}

fn within(
    path: &str,
    number: i64,
    range: std::ops::RangeInclusive<i64>,
    detail: &'static str,
) -> Result<(), NumberError> {
    if range.contains(&number) { Ok(()) } else { Err(wrong(path, number, detail)) }
}

fn wrong(path: &str, value: impl std::fmt::Display, detail: &'static str) -> NumberError {
    NumberError { path: path.to_owned(), value: value.to_string(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grace::{GRACE_SECONDS_MAX, grace};
    use serde_json::{Value, json};

    fn told(spec: Value) -> Option<String> {
        check(&serde_json::from_value(json!({"spec": spec})).unwrap()).err().map(|error| error.to_string())
    }

    #[test]
    fn numbers_are_what_they_say() {
        for (id, expected) in [
            (0, Some(0)),
            (1000, Some(1000)),
            (2_147_483_647, Some(2_147_483_647)),
            (2_147_483_648, None),
            (-1, None),
            (4_294_967_295, None),
            (4_294_967_296, None),
            (4_294_967_297, None),
            (i64::MIN, None),
            (i64::MAX, None),
        ] {
            assert_eq!(identity("id", id).ok(), expected, "{id}");
        }
        for (mode, expected) in [(0, Some(0)), (0o777, Some(0o777)), (0o1000, None), (-1, None), (i32::MIN, None)] {
            assert_eq!(file_mode("mode", mode).ok(), expected, "{mode}");
        }
        let graces = [i64::MIN, -1, 0, 30, 2_147_483_647, 2_147_483_648, i64::MAX].map(grace);
        assert_eq!(graces, [0, 0, 0, 30, GRACE_SECONDS_MAX, GRACE_SECONDS_MAX, GRACE_SECONDS_MAX]);
    }

    /// A container, an init container, the pod and its volumes: each number is refused at its path.
    #[test]
    fn a_pod_with_a_wrong_number_is_refused_at_its_field() {
        let container = |container: Value| json!({"containers": [{"name": "a"}, container]});
        let projected =
            |part: Value| json!({"containers": [], "volumes": [{"name": "v", "projected": {"sources": [part]}}]});
        let volume = |source: &str, content: Value| {
            let mut volume = json!({"name": "v"});
            volume[source] = content;
            json!({"containers": [], "volumes": [volume]})
        };
        let identity = "must be between 0 and 2147483647, inclusive";
        let cases = [
            (json!({"containers": [], "securityContext": {"runAsUser": -1}}), format!("spec.securityContext.runAsUser: Invalid value: -1: {identity}")),
            (json!({"containers": [], "securityContext": {"runAsGroup": 4_294_967_296_i64}}), format!("spec.securityContext.runAsGroup: Invalid value: 4294967296: {identity}")),
            (json!({"containers": [], "securityContext": {"fsGroup": 2_147_483_648_i64}}), format!("spec.securityContext.fsGroup: Invalid value: 2147483648: {identity}")),
            (json!({"containers": [], "securityContext": {"supplementalGroups": [1, -5]}}), format!("spec.securityContext.supplementalGroups[1]: Invalid value: -5: {identity}")),
            (json!({"containers": [], "terminationGracePeriodSeconds": -1}), "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0".into()),
            (json!({"containers": [], "activeDeadlineSeconds": 0}), "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive".into()),
            (container(json!({"name": "b", "securityContext": {"runAsUser": 4_294_967_297_i64}})), format!("spec.containers[1].securityContext.runAsUser: Invalid value: 4294967297: {identity}")),
            (json!({"containers": [], "initContainers": [{"name": "i", "securityContext": {"runAsGroup": -1}}]}), format!("spec.initContainers[0].securityContext.runAsGroup: Invalid value: -1: {identity}")),
            (container(json!({"name": "b", "ports": [{"containerPort": 65_536}]})), "spec.containers[1].ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive".into()),
            (container(json!({"name": "b", "ports": [{"containerPort": 1, "hostPort": -1}]})), "spec.containers[1].ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive".into()),
            (container(json!({"name": "b", "livenessProbe": {"periodSeconds": -1}})), "spec.containers[1].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0".into()),
            (container(json!({"name": "b", "startupProbe": {"terminationGracePeriodSeconds": 0}})), "spec.containers[1].startupProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0".into()),
            (container(json!({"name": "b", "readinessProbe": {"httpGet": {"port": 65_616}}})), "spec.containers[1].readinessProbe.httpGet.port: Invalid value: 65616: must be between 1 and 65535, inclusive".into()),
            (container(json!({"name": "b", "readinessProbe": {"grpc": {"port": 0}}})), "spec.containers[1].readinessProbe.grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive".into()),
            (container(json!({"name": "b", "lifecycle": {"preStop": {"sleep": {"seconds": -3}}}})), "spec.containers[1].lifecycle.preStop.sleep.seconds: Invalid value: -3: must be greater than or equal to 0".into()),
            (container(json!({"name": "b", "lifecycle": {"postStart": {"tcpSocket": {"port": -1}}}})), "spec.containers[1].lifecycle.postStart.tcpSocket.port: Invalid value: -1: must be between 1 and 65535, inclusive".into()),
            (container(json!({"name": "b", "resources": {"limits": {"memory": "-1Gi"}}})), "spec.containers[1].resources.limits[memory]: Invalid value: \"-1Gi\": must be a quantity that is not negative".into()),
            (container(json!({"name": "b", "resources": {"requests": {"cpu": "1e99"}}})), "spec.containers[1].resources.requests[cpu]: Invalid value: \"1e99\": must be a quantity that is not negative".into()),
            (volume("emptyDir", json!({"sizeLimit": "-1"})), "spec.volumes[0].emptyDir.sizeLimit: Invalid value: \"-1\": must be a quantity that is not negative".into()),
            (volume("configMap", json!({"defaultMode": -1})), format!("spec.volumes[0].configMap.defaultMode: Invalid value: -1: {FILE_MODE}")),
            (volume("secret", json!({"items": [{"key": "k", "path": "p", "mode": 0o4755}]})), format!("spec.volumes[0].secret.items[0].mode: Invalid value: 2541: {FILE_MODE}")),
            (volume("downwardAPI", json!({"items": [{"path": "p", "mode": -1}]})), format!("spec.volumes[0].downwardAPI.items[0].mode: Invalid value: -1: {FILE_MODE}")),
            (projected(json!({"configMap": {"items": [{"key": "k", "path": "p", "mode": 512}]}})), format!("spec.volumes[0].projected.sources[0].configMap.items[0].mode: Invalid value: 512: {FILE_MODE}")),
            (projected(json!({"serviceAccountToken": {"path": "t", "expirationSeconds": -1}})), "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: -1: may not specify a duration less than 10 minutes or larger than 2^32 seconds".into()),
        ];
        for (spec, expected) in cases {
            assert_eq!(told(spec.clone()), Some(expected), "{spec}");
        }
    }

    #[test]
    fn numbers_at_the_ends_of_their_ranges_are_taken() {
        let probe = json!({"periodSeconds": 0, "failureThreshold": 2_147_483_647, "tcpSocket": {"port": "name"},
            "terminationGracePeriodSeconds": i64::MAX});
        let spec = json!({
            "securityContext": {"runAsUser": 0, "runAsGroup": 2_147_483_647, "fsGroup": 0, "supplementalGroups": [0]},
            "terminationGracePeriodSeconds": i64::MAX, "activeDeadlineSeconds": 2_147_483_647,
            "containers": [{"name": "a", "ports": [{"containerPort": 65_535, "hostPort": 0}], "livenessProbe": probe,
                "resources": {"limits": {"memory": "1e20", "cpu": "0"}}}],
            "volumes": [{"name": "v", "secret": {"defaultMode": 0o777, "items": [{"key": "k", "path": "p", "mode": 0}]}}],
        });
        assert_eq!(told(spec), None);
        assert_eq!(check(&Pod::default()), Ok(()));
    }
}
