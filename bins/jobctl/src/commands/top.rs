//! `jobctl top` and `usage`: what running pods ask for, and what they use where the cluster measures it.

use std::collections::HashMap;

use pumice_jobs::cluster::nodes;
use pumice_jobs::cluster::resource_usage::{self, By, ResourceUsage};
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
                let job = lookup::find_one(&connection, &selector).await?;
                pumice_jobs::lookup::get(&connection, &job).await?;
                (By::Pod, Some(own.as_str()), pods_of(&job).labels)
            }
        };
        let pods = resource_usage::pods(&connection, namespace, &labels).await?;
        let usage = resource_usage::usage(&connection, namespace).await?;
        let mut usage_by = resource_usage::usage_by(&pods, usage.as_ref(), by);
        if by == By::Node {
            add_capacity(&connection, &mut usage_by).await?;
        }
        let left_out = usage_by.len().saturating_sub(args.limit);
        usage_by.truncate(args.limit);
        show(&usage_by, by, args.output)?;
        if left_out > 0 {
            terminal::say(&format!("and {left_out} more; --limit shows more"));
        }
        if usage.is_none() {
            terminal::say(
                "this platform does not measure what pods use (no metrics.k8s.io): shown is what they ask for",
            );
        } else if !usage_by.is_empty() && usage_by.iter().all(|usage| usage.used.is_none()) {
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
        show(&resource_usage::usage_by(&pods, None, by), by, args.output)?;
        Ok(Exit::Success)
    })
}

/// Nodes without pods are there, too.
async fn add_capacity(connection: &Connection, usage_by: &mut Vec<ResourceUsage>) -> Result<(), Failure> {
    let nodes = nodes::list(connection).await?;
    let mut known: HashMap<String, ResourceUsage> =
        usage_by.drain(..).map(|usage| (usage.name.clone(), usage)).collect();
    usage_by.extend(nodes.iter().map(|node| {
        let fresh = || ResourceUsage { name: node.name().to_owned(), ..ResourceUsage::default() };
        ResourceUsage { capacity: Some(node.capacity()), ..known.remove(node.name()).unwrap_or_else(fresh) }
    }));
    usage_by.sort_by_key(|usage| std::cmp::Reverse((usage.requested.cpu_milli, usage.requested.memory_bytes)));
    Ok(())
}

fn show(usage_by: &[ResourceUsage], by: By, form: Form) -> Result<(), Failure> {
    match form {
        Form::Json | Form::Yaml => output::object(&json!(usage_by), form),
        Form::Name => output::text(&usage_by.iter().map(|usage| format!("{}\n", usage.name)).collect::<String>()),
        Form::Table | Form::Wide if usage_by.is_empty() => {
            terminal::say("nothing runs");
            Ok(())
        }
        Form::Table | Form::Wide => output::text(&resource_usage::table(usage_by, by).render(false)),
    }
}
