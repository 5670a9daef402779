//! What a simulated node must know of a pod to play it, and what it says about it.
//!
//! Invariant: pods that are alike share one template, so that a million of them stay small; templates that no pod uses
//! are forgotten. Pure; made by the reader of pods, kept by the fleet.

use std::collections::HashSet;
use std::sync::Arc;

use super::capacity::Request;

/// Templates kept before those without a pod are swept out.
const TEMPLATES_FIRST: usize = 1024;

/// A container as its status names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Container {
    pub name: Box<str>,
    pub image: Box<str>,
}

/// What pods of one kind have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Template {
    pub containers: Box<[Container]>,
    pub request: Request,
}

/// How a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Milliseconds that it runs; none runs until it is deleted.
    pub duration_ms: Option<u64>,
    /// Milliseconds that it takes to stop, at most its grace.
    pub stop_ms: u64,
    /// The exit code of its first container at the end of the duration.
    pub exit_code: i32,
    /// Whether that end is one for want of memory.
    pub oom: bool,
}

/// A pod that a node is to run.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub namespace: String,
    pub name: String,
    pub template: Template,
    pub plan: Plan,
    /// The conditions that others wrote, as JSON text.
    pub conditions: Box<str>,
}

/// One copy of each template.
#[derive(Debug)]
pub(crate) struct Templates {
    known: HashSet<Arc<Template>>,
    sweep_at: usize,
}

impl Templates {
    pub(crate) fn new() -> Self {
        Self { known: HashSet::new(), sweep_at: TEMPLATES_FIRST }
    }

    /// The one copy of `template`. O(1) amortised.
    pub(crate) fn share(&mut self, template: Template) -> Arc<Template> {
        if let Some(found) = self.known.get(&template) {
            return Arc::clone(found);
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|template| Arc::strong_count(template) > 1);
            self.sweep_at = (self.known.len() * 2).max(TEMPLATES_FIRST);
        }
        let shared = Arc::new(template);
        self.known.insert(Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::capacity::NodeShape;

    fn template(image: &str) -> Template {
        let shape: NodeShape = "cpu=1".parse().unwrap();
        let container = Container { name: "main".into(), image: image.into() };
        Template { containers: [container].into(), request: shape.request(&[].into()) }
    }

    #[test]
    fn equal_templates_are_one_and_unused_ones_go() {
        let mut templates = Templates::new();
        let (first, second) = (templates.share(template("a")), templates.share(template("a")));
        assert!(Arc::ptr_eq(&first, &second));
        for index in 0..10 * TEMPLATES_FIRST {
            templates.share(template(&format!("image-{index}")));
        }
        assert!(templates.known.len() <= TEMPLATES_FIRST, "{} kept", templates.known.len());
        assert!(Arc::ptr_eq(&first, &templates.share(template("a"))), "one in use stays");
    }
}
