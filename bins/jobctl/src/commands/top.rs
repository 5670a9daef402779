//! `jobctl top` and `usage`: what running pods ask for, and what they use where the cluster measures it.

use std::collections::HashMap;

use pumice_jobs::cluster::nodes;
use pumice_jobs::cluster::resource_usage::{self, By, Load};
use pumice_jobs::job::Selector;
use pumice_jobs::lookup::pods::pods_of;
use pumice_jobs::{Connection, Exit, lookup};
use serde_json::json;

use super::Session;
use crate::args::{Form, TopArgs, UsageArgs, UsageBy};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Prints the largest loads.
pub fn top(session: &Session, args: &TopArgs) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        let own = connection.namespace().to_owned();
        let (by, namespace, labels) = match args.of.as_deref() {
            None => (By::Job, Some(own.as_str()), String::new()),
            Some("queue" | "queues") => (By::Queue, None, String::new()),
            Some("node" | "nodes") => (By::Node, None, String::new()),
            Some(job) => {
                let selector = job.parse::<Selector>().map_err(pumice_jobs::Error::from)?;
                let job = lookup::pick_one(&connection, &selector).await?;
                pumice_jobs::lookup::get(&connection, &job).await?;
                (By::Pod, Some(own.as_str()), pods_of(&job).labels)
            }
        };
        let pods = resource_usage::pods(&connection, namespace, &labels).await?;
        let usage = resource_usage::usage(&connection, namespace).await?;
        let mut loads = resource_usage::loads(&pods, usage.as_ref(), by);
        if by == By::Node {
            add_capacity(&connection, &mut loads).await?;
        }
        let left_out = loads.len().saturating_sub(args.limit);
        loads.truncate(args.limit);
        show(&loads, by, args.output)?;
        if left_out > 0 {
            terminal::say(&format!("and {left_out} more; --limit shows more"));
        }
        if usage.is_none() {
            terminal::say(
                "this platform does not measure what pods use (no metrics.k8s.io): shown is what they ask for",
            );
        } else if !loads.is_empty() && loads.iter().all(|load| load.used.is_none()) {
            terminal::say("what these pods use is not measured, or not yet: shown is what they ask for");
        }
        Ok(Exit::Success)
    })
}

/// Prints what running pods hold.
pub fn usage(session: &Session, args: &UsageArgs) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        let (by, namespace) = match args.by {
            UsageBy::Queue => (By::Queue, None),
            UsageBy::Namespace => (By::Namespace, None),
            UsageBy::Job => (By::Job, Some(connection.namespace())),
        };
        let pods = resource_usage::pods(&connection, namespace, "").await?;
        show(&resource_usage::loads(&pods, None, by), by, args.output)?;
        Ok(Exit::Success)
    })
}

/// Nodes without pods are there, too.
async fn add_capacity(connection: &Connection, loads: &mut Vec<Load>) -> Result<(), Failure> {
    let nodes = nodes::list(connection).await?;
    let mut known: HashMap<String, Load> = loads.drain(..).map(|load| (load.name.clone(), load)).collect();
    loads.extend(nodes.iter().map(|node| {
        let fresh = || Load { name: node.name().to_owned(), ..Load::default() };
        Load { capacity: Some(node.capacity()), ..known.remove(node.name()).unwrap_or_else(fresh) }
    }));
    loads.sort_by_key(|load| std::cmp::Reverse((load.requested.cpu_milli, load.requested.memory_bytes)));
    Ok(())
}

fn show(loads: &[Load], by: By, form: Form) -> Result<(), Failure> {
    match form {
        Form::Json | Form::Yaml => output::object(&json!(loads), form),
        Form::Name => output::text(&loads.iter().map(|load| format!("{}\n", load.name)).collect::<String>()),
        Form::Table | Form::Wide if loads.is_empty() => {
            terminal::say("nothing runs");
            Ok(())
        }
        Form::Table | Form::Wide => output::text(&resource_usage::table(loads, by).render(false)),
    }
}
