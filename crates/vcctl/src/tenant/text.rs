//! Tenants in words.

use pumice_api::tenant::{STOP_RUNNING_PODS, TenantVolume};
use pumice_jobs::json::text_at;
use serde_json::Value;

use super::spec_of;

/// What is said where nothing is.
const NONE: &str = "none";

/// Numbers of a list, between commas.
pub(super) fn numbers(object: &Value, pointer: &str) -> String {
    let all = object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_i64).map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

/// Names of a list, between commas.
pub(super) fn names(object: &Value, pointer: &str) -> String {
    let all = object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

/// Who its pods are, in one sentence.
pub(super) fn identity(object: &Value) -> String {
    let spec = spec_of(object);
    let groups = if spec.groups.is_empty() { NONE.to_owned() } else { numbers(object, "/spec/groups") };
    let home = spec.home.as_ref().map_or_else(|| NONE.to_owned(), volume);
    format!(
        "pods of namespace {} run as uid {}, gid {}, other groups {groups}, home {home}",
        spec.namespace, spec.uid, spec.gid
    )
}

/// All that is known of it, a line each.
pub(super) fn lines(object: &Value) -> Vec<String> {
    let spec = spec_of(object);
    let or = |text: String, otherwise: &str| if text.is_empty() { otherwise.to_owned() } else { text };
    let list = |pointer: &str, otherwise: &str| or(names(object, pointer), otherwise);
    let volumes: Vec<String> = spec.volumes.iter().map(volume).collect();
    let folders = spec.host_paths.iter().map(|folder| mode(&folder.path, folder.read_only));
    let limits = spec.limits.iter().map(|(resource, amount)| format!("{resource}={}", amount.0));
    let rate = spec.submission_rate.as_ref().map(|rate| format!("{} a minute", rate.per_minute));
    let pods = if spec.running_pods == STOP_RUNNING_PODS { "end" } else { "stay" };
    let mut rows = vec![
        ("Name", text_at(object, "/metadata/name").to_owned()),
        ("Phase", or(text_at(object, "/status/phase").to_owned(), "not looked at yet")),
        ("Message", text_at(object, "/status/message").to_owned()),
        ("User", or(spec.user.clone(), NONE)),
        ("Members", list("/spec/members", NONE)),
        ("Groups of members", list("/spec/memberGroups", NONE)),
        ("Uid", spec.uid.to_string()),
        ("Gid", spec.gid.to_string()),
        ("Other groups", or(numbers(object, "/spec/groups"), NONE)),
        ("Namespace", spec.namespace.clone()),
        ("Home", spec.home.as_ref().map_or_else(|| NONE.to_owned(), volume)),
        ("Volumes", or(volumes.join("; "), NONE)),
        ("Folders", or(folders.collect::<Vec<_>>().join("; "), NONE)),
        ("Devices", list("/spec/devices", NONE)),
        ("Queues", list("/spec/queues", "default")),
        ("Roles", list("/spec/roles", "edit")),
        ("Limits", or(limits.collect::<Vec<_>>().join(", "), NONE)),
        ("Submissions", rate.unwrap_or_else(|| "not limited".to_owned())),
        ("Pods when suspended", pods.to_owned()),
    ];
    if let Some(entry) = &spec.directory {
        rows.push(("Directory", format!("{}, entry {}", entry.name, entry.id)));
    }
    rows.retain(|(_, value)| !value.is_empty());
    let width = rows.iter().map(|(head, _)| head.len()).max().unwrap_or_default() + 3;
    rows.into_iter().map(|(head, value)| format!("{:width$}{}", format!("{head}:"), visible(&value))).collect()
}

/// A terminal must not obey what somebody wrote into a name.
fn visible(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

fn volume(volume: &TenantVolume) -> String {
    let source = match volume.host_path.as_str() {
        "" => format!("PersistentVolume {}", volume.persistent_volume),
        path => format!("folder {path}"),
    };
    mode(&format!("{} ({source})", volume.mount_path), volume.read_only)
}

fn mode(text: &str, read_only: bool) -> String {
    if read_only { format!("{text}, read only") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_of_a_tenant_is_shown() {
        let object = json!({
            "metadata": {"name": "alice"}, "status": {"phase": "Suspended", "message": "nothing can be\u{1b}[2J submitted"},
            "spec": {"user": "alice", "uid": 4001, "gid": 4002, "groups": [5000, 5001], "namespace": "a",
                "home": {"mountPath": "/home/alice", "persistentVolume": "home-alice"},
                "volumes": [{"mountPath": "/team", "hostPath": "/srv/team", "readOnly": true}],
                "limits": {"pods": "10"}, "submissionRate": {"perMinute": 60}, "runningPods": "stop"},
        });
        let told = lines(&object);
        for expected in [
            "Phase:                Suspended",
            "Message:              nothing can be [2J submitted",
            "Other groups:         5000,5001",
            "Home:                 /home/alice (PersistentVolume home-alice)",
            "Volumes:              /team (folder /srv/team), read only",
            "Queues:               default",
            "Limits:               pods=10",
            "Submissions:          60 a minute",
            "Pods when suspended:  end",
        ] {
            assert!(told.iter().any(|line| line == expected), "{expected:?} in {told:#?}");
        }
        assert_eq!(
            identity(&object),
            "pods of namespace a run as uid 4001, gid 4002, other groups 5000,5001, home /home/alice (PersistentVolume home-alice)"
        );
    }
}
