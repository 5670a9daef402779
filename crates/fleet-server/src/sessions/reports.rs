//! What an executor says of runs, as the ledger takes it.

use pumice_ledger::{Cause, ContainerEnd, Failure, PodRef, Report, ReportKind, RunId};
use pumice_wire::executor as wire;

/// Longest text that is kept of a report, in bytes.
const TEXT_MAX: usize = 2048;
/// Containers of a report that are kept.
const CONTAINERS_MAX: usize = 100;
/// Ports of a report whose addresses are kept.
const ADDRESSES_MAX: usize = 1000;

/// Nothing more follows of the run.
pub(super) fn is_over(phase: i32) -> bool {
    use wire::RunPhase::{Failed, Gone, Returned, Succeeded};
    [Succeeded, Failed, Returned, Gone].into_iter().any(|over| phase == i32::from(over))
}

/// One report, as the ledger reads it: none of a phase that says nothing new.
pub(super) fn read(cluster: &str, run: RunId, report: wire::RunReport) -> Vec<Report> {
    let pod = PodRef { namespace: cut(report.namespace), name: cut(report.pod_name), uid: cut(report.pod_uid) };
    let phase = wire::RunPhase::try_from(report.phase).unwrap_or(wire::RunPhase::Unspecified);
    let message = cut(if report.message.is_empty() { report.reason.clone() } else { report.message });
    let kind = match phase {
        wire::RunPhase::Unspecified | wire::RunPhase::Leased => return Vec::new(),
        wire::RunPhase::Pending => ReportKind::Pending(pod),
        wire::RunPhase::Running => ReportKind::Running(pod, cut(report.node)),
        wire::RunPhase::Succeeded => ReportKind::Succeeded,
        wire::RunPhase::Failed => {
            let cause = cause(report.cause);
            let containers = report.containers.into_iter().take(CONTAINERS_MAX).map(container).collect();
            let (category, subcategory) = (cut(report.category), cut(report.subcategory));
            ReportKind::Failed(Failure { message, cause, category, subcategory, containers })
        }
        wire::RunPhase::Returned => ReportKind::Returned(message, report.run_attempted),
        wire::RunPhase::Gone => ReportKind::Gone,
    };
    let ports = report.ingress_addresses.into_iter().take(ADDRESSES_MAX);
    let addresses: std::collections::BTreeMap<u32, String> =
        ports.filter_map(|(port, address)| Some((u32::try_from(port).ok()?, cut(address)))).collect();
    let said = |kind| Report { cluster: cluster.to_owned(), run, kind };
    let mut reports = Vec::new();
    // Addresses first: after an end there is no run to have any.
    if !addresses.is_empty() {
        reports.push(said(ReportKind::Ingress(addresses)));
    }
    reports.push(said(kind));
    reports
}

fn container(end: wire::RunContainer) -> ContainerEnd {
    ContainerEnd { name: cut(end.name), exit_code: end.exit_code, message: cut(end.message), reason: cut(end.reason) }
}

fn cause(number: i32) -> Cause {
    match wire::RunCause::try_from(number) {
        Ok(wire::RunCause::Evicted) => Cause::Evicted,
        Ok(wire::RunCause::OutOfMemory) => Cause::Oom,
        Ok(wire::RunCause::DeadlineExceeded) => Cause::DeadlineExceeded,
        Ok(wire::RunCause::Rejected) => Cause::Rejected,
        _ => Cause::Error,
    }
}

/// The first bytes of a text, up to the end of a letter.
pub(super) fn cut(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}
