//! Shapes of jobs, as a pool's engine is told of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_engine::{PodTemplate, Resources, Shared};
use pumice_ledger::{Shape, VolcanoTask};

use crate::constraints::Constraints;
use crate::market;
use crate::plugins::limits;

/// A shape as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedShape {
    pub template: Shared<PodTemplate>,
    pub class: Arc<str>,
    /// What it takes of resources that are on no node.
    pub floating: Resources,
    /// Its pods by part, where it is a Volcano job; `template` only asks for what they take together then.
    pub parts: Vec<Shared<PodTemplate>>,
}

impl ParsedShape {
    /// A shape's template; one that can't be read asks for its amounts and nothing else.
    pub(crate) fn read(shape: &Shape, constraints: &Constraints, is_market: bool) -> Self {
        let (mut template, floating) = template(shape, &constraints.floating);
        limits::mark(&mut template, &shape.priority_class, &floating);
        market::mark(&mut template, if is_market { shape.price_band } else { None });
        let parts = shape.volcano_job.iter().flat_map(|whole| &whole.parts).map(|part| {
            let VolcanoTask { requests, template, .. } = part.clone();
            let (priority_class, price_band) = (shape.priority_class.clone(), shape.price_band);
            let shape = Shape { priority_class, requests, template, volcano_job: None, price_band, retries: None };
            Self::read(&shape, constraints, is_market).template
        });
        let parts = parts.collect();
        Self { template: template.into(), class: shape.priority_class.as_str().into(), floating, parts }
    }
}

/// A shape's template, and what it asks for of resources that are on no node.
pub(crate) fn template(shape: &Shape, floating: &BTreeMap<String, BTreeMap<String, i64>>) -> (PodTemplate, Resources) {
    let read = serde_json::from_value::<Option<PodTemplate>>(shape.template.clone());
    let mut template = read.ok().flatten().unwrap_or_default();
    let (of_none, requests) = shape.requests.clone().into_iter().partition(|(name, _)| floating.contains_key(name));
    template.requests = requests;
    (template, of_none)
}
