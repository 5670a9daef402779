//! `jobctl whoami`: who the platform takes the user for.

use std::fmt::Write as _;

use pumice_jobs::Exit;
use pumice_jobs::platform::whoami::{self, Whoami};

use super::Session;
use crate::args::{Form, WhoamiArgs};
use crate::failure::Failure;
use crate::output;

/// Asks the platform, and prints what it says.
pub fn run(session: &Session, args: &WhoamiArgs) -> Result<Exit, Failure> {
    let form = args.output;
    session.talk(|connection| async move {
        let who = whoami::of(&connection).await?;
        match form {
            Form::Json | Form::Yaml => {
                let who = serde_json::to_value(&who).map_err(|error| Failure::Machine(error.into()))?;
                output::object(&who, form)?;
            }
            Form::Name => output::text(&format!("{}\n", who.user))?,
            Form::Table | Form::Wide => output::text(&text(&who, connection.url(), connection.namespace()))?,
        }
        Ok(Exit::Success)
    })
}

/// For people: a line for each thing.
fn text(who: &Whoami, url: &str, namespace: &str) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            // Writing to a string can't fail.
            let _ = writeln!(text, "{name:<14} {value}");
        }
    };
    line("user", &who.user);
    line("groups", &who.groups.join(", "));
    line("identified by", who.identified_by.as_deref().unwrap_or_default());
    line("until", who.until.as_deref().unwrap_or_default());
    line("platform", url);
    line("namespace", namespace);
    for tenant in &who.tenants {
        let groups =
            if tenant.groups.is_empty() { String::new() } else { format!(", groups {}", tenant.groups.join(" ")) };
        let pods = format!(
            "{} (namespace {}): pods run as uid {}, gid {}{groups}",
            tenant.name, tenant.namespace, tenant.uid, tenant.gid
        );
        line("tenant", &pods);
    }
    text
}

#[cfg(test)]
mod tests {
    use pumice_jobs::platform::whoami::OwnTenant;

    use super::*;

    #[test]
    fn it_says_who_somebody_is_and_what_his_pods_are() {
        let tenant = OwnTenant {
            name: "alice".into(),
            namespace: "alice".into(),
            uid: "4001".into(),
            gid: "4002".into(),
            groups: vec!["5000".into(), "5001".into()],
        };
        let who = Whoami {
            user: "alice".into(),
            groups: vec!["pumice:tenants".into(), "system:authenticated".into()],
            identified_by: Some("local socket".into()),
            until: None,
            tenants: vec![tenant],
        };
        let wanted = "user           alice\ngroups         pumice:tenants, system:authenticated\n\
            identified by  local socket\nplatform       unix:/run/pumice/api.sock\nnamespace      alice\n\
            tenant         alice (namespace alice): pods run as uid 4001, gid 4002, groups 5000 5001\n";
        assert_eq!(text(&who, "unix:/run/pumice/api.sock", "alice"), wanted);
    }
}
