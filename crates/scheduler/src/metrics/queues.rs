//! The lines of queues, under Volcano's names.
//!
//! Invariant: as in Volcano, cpu is in thousandths of a core, memory in bytes, all else in thousandths.

use pumice_cluster::metrics::Page;
use pumice_engine::{QueueView, Resources};

pub(super) fn write(page: &mut Page, queues: &[QueueView]) {
    of_queues(page, "volcano_queue_weight", "Weight of a queue", queues, |queue| i64::from(queue.weight));
    let help = "The largest part that a queue holds of what it deserves";
    page.head("volcano_queue_share", "gauge", help);
    for queue in queues {
        let share = queue.share as f64 / 1e9;
        page.line("volcano_queue_share", &[("queue_name", &queue.name)], share);
    }
    let help = "1 if a queue gets nothing more for now";
    of_queues(page, "volcano_queue_overused", help, queues, |queue| i64::from(queue.overused));
    type Of = fn(&QueueView) -> Option<&Resources>;
    let amounts: [(&str, Of); 6] = [
        ("allocated", |queue| Some(&queue.allocated)),
        ("request", |queue| Some(&queue.requested)),
        ("inqueue", |queue| Some(&queue.inqueue)),
        ("deserved", |queue| queue.deserved.as_ref()),
        ("capacity", |queue| Some(&queue.capability)),
        ("real_capacity", |queue| Some(&queue.real_capability)),
    ];
    for (what, of) in amounts {
        for (resource, unit) in [("cpu", "milli_cpu"), ("memory", "memory_bytes")] {
            let amount = |queue: &QueueView| of(queue).and_then(|all| all.get(resource)).copied().unwrap_or(0);
            of_queues(page, &format!("volcano_queue_{what}_{unit}"), "Of a queue", queues, amount);
        }
        let name = format!("volcano_queue_{what}_scalar_resources");
        page.head(&name, "gauge", "Of a queue, in thousandths as in Volcano");
        for queue in queues {
            let all = of(queue).into_iter().flatten();
            for (resource, amount) in all.filter(|(resource, _)| !matches!(resource.as_str(), "cpu" | "memory")) {
                let labels = [("queue_name", queue.name.as_str()), ("resource", resource.as_str())];
                page.line(&name, &labels, amount.saturating_mul(1000));
            }
        }
    }
}

fn of_queues(page: &mut Page, name: &str, help: &str, queues: &[QueueView], value: impl Fn(&QueueView) -> i64) {
    page.head(name, "gauge", help);
    for queue in queues {
        page.line(name, &[("queue_name", &queue.name)], value(queue));
    }
}
