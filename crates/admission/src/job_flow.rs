//! The rules of JobFlows: what each Job waits for is in the flow, and the waiting ends.

use std::collections::BTreeSet;

use pumice_api::flow::JobFlow;
use pumice_api::names::FLOW_RETRIES;
use pumice_machines::job_flow::read_retries;

use crate::Findings;
use crate::order::{self, Disorder};

/// Judges a flow as it would be stored.
pub fn validate(flow: &JobFlow, findings: &mut Findings) {
    let flows = &flow.spec.flows;
    let names: Vec<&str> = flows.iter().map(|flow| flow.name.as_str()).collect();
    let targets = |index: usize| flows[index].depends_on.iter().flat_map(|on| &on.targets).map(String::as_str);
    match order::check(&names, targets) {
        Ok(()) => {}
        Err(Disorder::Undefined(name)) => {
            findings.refuse(format!("jobflow Flow is not DAG: vertex is not defined: {name}"));
        }
        Err(Disorder::Circle) => findings.refuse("jobflow Flow is not DAG"),
    }
    retries(flow, &names, findings);
    let mut seen = BTreeSet::new();
    for flow in flows {
        if !seen.insert(&flow.name) {
            findings.warn(format!("flow {} is there twice: the first counts", flow.name));
        }
        let probe = flow.depends_on.as_ref().and_then(|on| on.probe.as_ref());
        if probe.is_some_and(|probe| !probe.http_get_list.is_empty() || !probe.tcp_socket_list.is_empty()) {
            let name = &flow.name;
            findings.warn(format!(
                "flow {name} starts when its targets have completed: httpGetList and tcpSocketList are not probed"
            ));
        }
    }
}

fn retries(flow: &JobFlow, names: &[&str], findings: &mut Findings) {
    let Some(text) = flow.metadata.annotations.as_ref().and_then(|all| all.get(FLOW_RETRIES)) else { return };
    for (name, number) in read_retries(text) {
        if !names.contains(&name) || number.is_none() {
            findings.refuse(format!(
                "annotation {FLOW_RETRIES}: {name:?} is no flow of this JobFlow with a number from 0 to 10; write NAME=COUNT,.."
            ));
        }
    }
}
