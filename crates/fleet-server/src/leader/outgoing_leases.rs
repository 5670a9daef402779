//! What executors are told, with what was submitted.

use std::collections::{BTreeMap, BTreeSet};

use pumice_fleet_model::submission::annotations::VOLCANO_JOB;
use pumice_ledger::{Away, AwayToleration, Digest, GangView, RunId};
use pumice_wire::executor::{self as wire, to_executor};
use serde_json::{Value, json};

mod memory;

use super::{Ended, Term};
use crate::api::JobSpec;
use crate::database::Database;
use crate::sessions::{Order, Outgoing, cut_off_ms};

/// Messages that a session is sent in one go at most.
const MESSAGES_AT_ONCE: usize = 3;

impl Term {
    /// Sends what is due, once it is written. Who is slow to take it is told the rest later, when there is room; whose stream
    /// has ended is told nothing.
    pub(super) async fn send(&mut self, log: &Database) -> Result<(), Ended> {
        let outs = &self.outs;
        let has_room = |name: &str| outs.get(name).is_some_and(|(_, out)| out.capacity() >= MESSAGES_AT_ONCE);
        let due = self.sessions.outgoing(&self.ledger, has_room);
        if due.is_empty() {
            return Ok(());
        }
        let leased = due.iter().flat_map(|outgoing| &outgoing.orders).filter_map(|order| match order {
            Order::Lease(run) => self.ledger.job(run.job).map(|job| job.spec),
            Order::Stop(..) => None,
        });
        let digests: BTreeSet<Digest> = leased.collect();
        let digests: Vec<Digest> = digests.into_iter().collect();
        let specs = if digests.is_empty() { Vec::new() } else { log.specs(&digests).await? };
        let specs: BTreeMap<Digest, Vec<u8>> = specs.into_iter().collect();
        for outgoing in due {
            let Outgoing { cluster, session, orders, answer } = outgoing;
            let mut leases = Vec::new();
            let mut stops = Vec::new();
            for order in orders {
                match order {
                    Order::Lease(run) => leases.extend(self.lease(run, &specs)),
                    Order::Stop(run, kind, reason) => {
                        stops.push(wire::StopRun { run_id: run.to_string(), reason, kind: kind.into() });
                    }
                }
            }
            let messages: [_; MESSAGES_AT_ONCE] = [
                answer.map(to_executor::Message::Acknowledge),
                (!stops.is_empty()).then_some(to_executor::Message::Stop(wire::Stop { runs: stops })),
                (!leases.is_empty()).then_some(to_executor::Message::Leases(wire::Leases { leases })),
            ];
            for message in messages.into_iter().flatten() {
                self.tell(&cluster, session, message);
            }
        }
        Ok(())
    }

    pub(super) fn tell(&mut self, cluster: &str, session: u64, message: to_executor::Message) {
        let Some(sequence) = self.sessions.next_sequence(cluster, session) else { return };
        let message = wire::ToExecutor { sequence, message: Some(message) };
        let sent = self
            .outs
            .get(cluster)
            .filter(|(number, _)| *number == session)
            .map(|(_, out)| out.try_send(message).is_ok());
        if sent != Some(true) {
            tracing::warn!(executor = cluster, "it takes no messages; its session ends");
            self.close(cluster, session);
        }
    }

    /// A lease of a run with what was submitted; none where the job has ended meanwhile.
    fn lease(&self, run: RunId, specs: &BTreeMap<Digest, Vec<u8>>) -> Option<wire::Lease> {
        let (job, row) = (self.ledger.job(run.job)?, self.ledger.run(run)?);
        let spec = specs.get(&job.spec).and_then(|body| JobSpec::read(body).ok());
        let Some(mut spec) = spec else {
            tracing::error!(%run, spec = %job.spec, "what was submitted can't be read; the run is not started");
            return None;
        };
        drop_floating(&mut spec.pod_spec, &self.constraints.floating);
        drop_floating_of_whole(&mut spec.annotations, &self.constraints.floating);
        if let Some(away) = &row.away {
            tolerate(&mut spec.pod_spec, away);
        }
        if let Some(grown) = job.grown.as_deref() {
            memory::grow(&mut spec.pod_spec, *grown);
        }
        let (queue, job_set) = self.ledger.owner(job);
        let lease = spec.lease(run, queue, job_set, &row.at.node).inspect_err(|error| {
            tracing::error!(%run, %error, "its pod spec has no form on the wire; the run is not started");
        });
        let mut lease = lease.ok()?;
        if let Some(GangView { uniformity: label, .. }) = self.ledger.gang(job)
            && !label.is_empty()
            && let Some(value) = self.sessions.node_label(&row.at, label)
        {
            lease.labels.insert(label.to_owned(), value.to_owned());
        }
        let definition = self.ledger.queue(queue).and_then(|queue| queue.definition);
        Some(wire::Lease { cut_off_ms: cut_off_ms(self.retries.heartbeat_timeout(definition)), ..lease })
    }
}

/// A pod away from home tolerates what keeps it off its node.
fn tolerate(pod_spec: &mut Value, away: &Away) {
    let Some(fields) = pod_spec.as_object_mut() else { return };
    let tolerations = fields.entry("tolerations").or_insert_with(|| Value::Array(Vec::new()));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for AwayToleration { key, value, effect } in &away.tolerations {
        let mut toleration = match value {
            Some(value) => json!({ "key": key, "operator": "Equal", "value": value }),
            None => json!({ "key": key, "operator": "Exists" }),
        };
        if let Some(effect) = effect {
            toleration["effect"] = effect.as_str().into();
        }
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
}

/// No cluster knows of resources that are on no node.
fn drop_floating(pod_spec: &mut Value, floating: &BTreeMap<String, BTreeMap<String, i64>>) {
    if floating.is_empty() {
        return;
    }
    let strip = |resources: &mut Value| {
        for of in ["requests", "limits"] {
            if let Some(amounts) = resources.get_mut(of).and_then(Value::as_object_mut) {
                amounts.retain(|name, _| !floating.contains_key(name));
            }
        }
    };
    if let Some(resources) = pod_spec.get_mut("resources") {
        strip(resources);
    }
    for list in ["containers", "initContainers"] {
        let containers = pod_spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        containers.filter_map(|container| container.get_mut("resources")).for_each(strip);
    }
}

/// The same of the templates of a Volcano job.
fn drop_floating_of_whole(
    annotations: &mut BTreeMap<String, String>,
    floating: &BTreeMap<String, BTreeMap<String, i64>>,
) {
    if floating.is_empty() {
        return;
    }
    let Some(text) = annotations.get_mut(VOLCANO_JOB) else { return };
    // It was read when it was submitted.
    let Ok(mut job) = serde_json::from_str::<Value>(text) else { return };
    for task in job["spec"]["tasks"].as_array_mut().into_iter().flatten() {
        drop_floating(&mut task["template"]["spec"], floating);
    }
    *text = job.to_string();
}

#[cfg(test)]
mod tests;
