//! Tenants: made, listed, shown, suspended, resumed and deleted, by administrators.
//!
//! Invariant: nothing is said to be done before the controller has looked at it, or a time is over; what it refused is an error.
//! The server judges what a tenant may be, not this program. Called by the binary, which looks up what the machine knows.

pub mod import;
mod text;

use std::time::Duration;

use pumice_api::tenant::{REFUSED, STOP_RUNNING_PODS, Tenant, TenantSpec, TenantVolume};
use pumice_jobs::json::text_at;
use serde_json::{Value, json};

use crate::error::Error;
use crate::kinds::TENANT;
use crate::list::Form;
use crate::objects;
use crate::session::{Scope, Session};
use crate::table::{Column, Width, text};

/// How long is waited for what the controller makes of a Tenant.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
/// How often is looked meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Columns of `tenant list`.
pub const COLUMNS: &[Column] = &[
    Column::name(Width::Longest(3)),
    Column::new("User", Width::Longest(3), |object, _| text(object, "/spec/user")),
    Column::new("Uid", Width::Longest(3), |object, _| number(object, "/spec/uid")),
    Column::new("Gid", Width::Longest(3), |object, _| number(object, "/spec/gid")),
    Column::new("Namespace", Width::Longest(3), |object, _| text(object, "/spec/namespace")),
    Column::new("Phase", Width::Longest(3), |object, _| text(object, "/status/phase")),
    Column::wide("Groups", |object, _| text::numbers(object, "/spec/groups")),
    Column::wide("Home", |object, _| text(object, "/spec/home/mountPath")),
    Column::wide("Queues", |object, _| text::names(object, "/spec/queues")),
    Column::wide("Message", |object, _| text(object, "/status/message")),
];

/// A tenant as it is asked for. What is not said is the machine's, or left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub name: String,
    /// The name where nothing is said.
    pub user: Option<String>,
    pub uid: Option<i64>,
    pub gid: Option<i64>,
    pub groups: Option<Vec<i64>>,
    /// The name where nothing is said.
    pub namespace: Option<String>,
    /// A folder of the nodes, `FOLDER` or `FOLDER:WHERE`; empty for none.
    pub home: Option<String>,
    pub members: Vec<String>,
    pub member_groups: Vec<String>,
    pub queues: Vec<String>,
    pub roles: Vec<String>,
    pub devices: Vec<String>,
    /// `requests.cpu=64`.
    pub limits: Vec<String>,
}

/// What the machine knows of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineUser {
    pub uid: i64,
    pub gid: i64,
    /// His groups, the first one left out.
    pub groups: Vec<i64>,
    pub home: String,
}

impl Wanted {
    /// The object, with what `machine` knows of its user where nothing else is said.
    pub fn manifest(&self, machine: Option<&MachineUser>) -> Result<Value, Error> {
        let id = |flag: &str, said: Option<i64>, known: Option<i64>| {
            said.or(known).ok_or_else(|| {
                let user = self.user.as_deref().unwrap_or(&self.name);
                Error::usage(format!("this machine knows no user {user:?}: say {flag}"))
            })
        };
        let mut spec = TenantSpec {
            user: self.user.clone().unwrap_or_else(|| self.name.clone()),
            uid: id("--uid", self.uid, machine.map(|user| user.uid))?,
            gid: id("--gid", self.gid, machine.map(|user| user.gid))?,
            namespace: self.namespace.clone().unwrap_or_else(|| self.name.clone()),
            members: self.members.clone(),
            member_groups: self.member_groups.clone(),
            queues: self.queues.clone(),
            roles: self.roles.clone(),
            devices: self.devices.clone(),
            ..TenantSpec::default()
        };
        spec.groups = self.groups.clone().or_else(|| machine.map(|user| user.groups.clone())).unwrap_or_default();
        let home = self.home.as_deref().or_else(|| machine.map(|user| user.home.as_str())).unwrap_or_default();
        if !home.is_empty() {
            spec.home = Some(volume(home)?);
        }
        for limit in &self.limits {
            let (resource, amount) = pair(limit)?;
            spec.limits.insert(resource.to_owned(), serde_json::from_value(amount.into()).unwrap_or_default());
        }
        manifest(&self.name, &spec)
    }
}

/// `FOLDER` or `FOLDER:WHERE`.
fn volume(text: &str) -> Result<TenantVolume, Error> {
    let (folder, at) = text.split_once(':').unwrap_or((text, text));
    if !folder.starts_with('/') || !at.starts_with('/') {
        return Err(Error::usage(format!(
            "home {text:?} is no folder: say /srv/homes/alice, or /srv/homes/alice:/home/alice"
        )));
    }
    Ok(TenantVolume { host_path: folder.to_owned(), mount_path: at.to_owned(), ..TenantVolume::default() })
}

fn pair(limit: &str) -> Result<(&str, &str), Error> {
    let (resource, amount) = limit.split_once('=').unwrap_or((limit, ""));
    if resource.is_empty() || amount.parse::<pumice_units::Quantity>().is_err() {
        return Err(Error::usage(format!(
            "limit {limit:?} is not of the form RESOURCE=AMOUNT, such as requests.cpu=64"
        )));
    }
    Ok((resource, amount))
}

/// The Tenant of a spec, without what is empty.
fn manifest(name: &str, spec: &TenantSpec) -> Result<Value, Error> {
    let spec = serde_json::to_value(spec).map_err(|error| Error::Written {
        what: format!("tenant {name}"),
        form: "JSON",
        detail: error.to_string(),
    })?;
    Ok(json!({
        "apiVersion": TENANT.api_version(), "kind": TENANT.title, "metadata": {"name": name}, "spec": spec,
    }))
}

/// Makes a Tenant, and waits for what becomes of it.
pub async fn create(
    session: &mut Session<'_>,
    wanted: &Wanted,
    machine: Option<&MachineUser>,
    form: Option<Form>,
) -> Result<(), Error> {
    let manifest = wanted.manifest(machine)?;
    let made = session.create(TENANT, "", &manifest).await?;
    let settled = settled(session, made).await?;
    refused(&settled)?;
    let said = format!("tenant {} is made: {}", wanted.name, text::identity(&settled));
    session.done(TENANT, settled, form, &said)
}

/// Lists all of them.
pub async fn list(session: &mut Session<'_>, form: Form) -> Result<(), Error> {
    let listing =
        objects::Listing { kind: TENANT, columns: COLUMNS, scope: &Scope::Namespace(String::new()), keep: &|_| true };
    objects::list(session, listing, form).await
}

/// Shows all of one.
pub async fn show(session: &mut Session<'_>, name: &str, form: Form) -> Result<(), Error> {
    let object = session.get(TENANT, "", name).await?;
    match form {
        Form::Table | Form::Wide => {
            for line in text::lines(&object) {
                session.say(&line)?;
            }
            Ok(())
        }
        form => objects::show(session, TENANT, COLUMNS, object, form),
    }
}

/// Takes the rights of a Tenant's users away; its running pods stay, or end where `stop` or the Tenant says so.
pub async fn suspend(session: &mut Session<'_>, name: &str, stop: bool, form: Option<Form>) -> Result<(), Error> {
    let mut spec = json!({"suspended": true});
    if stop {
        spec["runningPods"] = STOP_RUNNING_PODS.into();
    }
    let changed = session.merge(TENANT, "", name, &json!({"spec": spec})).await?;
    let settled = settled(session, changed).await?;
    let pods = if text_at(&settled, "/spec/runningPods") == STOP_RUNNING_PODS { "end" } else { "stay" };
    let said = format!("tenant {name} is suspended: nobody submits or asks for anything; its running pods {pods}");
    session.done(TENANT, settled, form, &said)
}

/// Gives a Tenant's users their rights again.
pub async fn resume(session: &mut Session<'_>, name: &str, form: Option<Form>) -> Result<(), Error> {
    let changed = session.merge(TENANT, "", name, &json!({"spec": {"suspended": false}})).await?;
    if changed.pointer("/spec/directory/suspended") == Some(&true.into()) {
        let directory = text_at(&changed, "/spec/directory/name");
        session.note(&format!("its entry is gone from the directory {directory}, which suspends it again; take spec.directory away to keep it"));
    }
    let settled = settled(session, changed).await?;
    refused(&settled)?;
    session.done(TENANT, settled, form, &format!("tenant {name} works again"))
}

/// Deletes a Tenant that is suspended, and nothing else.
pub async fn delete(session: &mut Session<'_>, name: &str, form: Option<Form>) -> Result<(), Error> {
    let object = session.get(TENANT, "", name).await?;
    let namespace = text_at(&object, "/spec/namespace").to_owned();
    let deleted = session.delete(TENANT, "", name, form).await?;
    let said = format!(
        "tenant {name} is deleted; its namespace {namespace} with its claims and all data stays, and takes no new pods. To delete that, \
         too: kubectl delete namespace {namespace}"
    );
    session.done(TENANT, deleted, form, &said)
}

/// A Tenant once its controller has looked at it as it is now. Where none does, it is as it was, and that is noted.
async fn settled(session: &mut Session<'_>, tenant: Value) -> Result<Value, Error> {
    let name = text_at(&tenant, "/metadata/name").to_owned();
    let generation = generation(&tenant, "/metadata/generation");
    let looking = async {
        loop {
            let now = session.get(TENANT, "", &name).await?;
            if self::generation(&now, "/status/observedGeneration") >= generation {
                return Ok(now);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    match tokio::time::timeout(SETTLED_WITHIN, looking).await {
        Ok(found) => found,
        Err(_) => {
            session.note("the controllers have not looked at it yet: nothing is made of it before they do");
            Ok(tenant)
        }
    }
}

/// What the controller would not make, as an error.
fn refused(tenant: &Value) -> Result<(), Error> {
    if text_at(tenant, "/status/phase") != REFUSED {
        return Ok(());
    }
    let (name, why) = (text_at(tenant, "/metadata/name"), text_at(tenant, "/status/message"));
    Err(Error::usage(format!("nothing is made of tenant {name}: {why}")))
}

fn generation(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

fn number(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_i64).map_or_else(String::new, |number| number.to_string())
}

/// The spec of a Tenant that was read.
fn spec_of(object: &Value) -> TenantSpec {
    serde_json::from_value::<Tenant>(object.clone()).map(|tenant| tenant.spec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> Wanted {
        Wanted { name: "alice".into(), uid: Some(4001), gid: Some(4001), ..Wanted::default() }
    }

    #[test]
    fn the_least_that_is_said_is_enough() {
        let manifest = alice().manifest(None).unwrap();
        assert_eq!(manifest["spec"], json!({"user": "alice", "uid": 4001, "gid": 4001, "namespace": "alice"}));
        assert_eq!((&manifest["kind"], &manifest["metadata"]["name"]), (&json!("Tenant"), &json!("alice")));
    }

    #[test]
    fn what_the_machine_knows_counts_where_nothing_is_said() {
        let machine = MachineUser { uid: 1001, gid: 1002, groups: vec![1003], home: "/home/alice".into() };
        let wanted = Wanted { name: "alice".into(), ..Wanted::default() };
        let spec = wanted.manifest(Some(&machine)).unwrap()["spec"].clone();
        let home = json!({"mountPath": "/home/alice", "hostPath": "/home/alice"});
        let expected = json!({
            "user": "alice", "uid": 1001, "gid": 1002, "groups": [1003], "namespace": "alice", "home": home,
        });
        assert_eq!(spec, expected);
        let wanted = Wanted {
            uid: Some(4001),
            groups: Some(Vec::new()),
            home: Some("/srv/homes/alice:/home/a".into()),
            namespace: Some("research".into()),
            ..wanted
        };
        let spec = wanted.manifest(Some(&machine)).unwrap()["spec"].clone();
        let home = json!({"mountPath": "/home/a", "hostPath": "/srv/homes/alice"});
        assert_eq!(spec, json!({"user": "alice", "uid": 4001, "gid": 1002, "namespace": "research", "home": home}));
        let none = Wanted { home: Some(String::new()), ..wanted };
        assert!(none.manifest(Some(&machine)).unwrap()["spec"].get("home").is_none());
    }

    #[test]
    fn what_makes_no_sense_is_said_before_anything_is_sent() {
        let cases = [
            (Wanted { uid: None, ..alice() }, "this machine knows no user \"alice\": say --uid"),
            (Wanted { gid: None, user: Some("ann".into()), ..alice() }, "no user \"ann\": say --gid"),
            (Wanted { home: Some("homes/alice".into()), ..alice() }, "is no folder"),
            (Wanted { limits: vec!["requests.cpu".into()], ..alice() }, "requests.cpu=64"),
            (Wanted { limits: vec!["pods=many".into()], ..alice() }, "requests.cpu=64"),
        ];
        for (wanted, expected) in cases {
            let error = wanted.manifest(None).unwrap_err();
            assert!(matches!(error, Error::Usage { .. }) && error.to_string().contains(expected), "{error}");
        }
        let limited = Wanted { limits: vec!["requests.cpu=64".into(), "pods=10".into()], ..alice() };
        let spec = limited.manifest(None).unwrap()["spec"].clone();
        assert_eq!(spec["limits"], json!({"requests.cpu": "64", "pods": "10"}));
    }
}
