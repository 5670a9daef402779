//! Gangs: jobs that start together or not at all, told by annotations.
//!
//! Invariant: all jobs of a request that name the same gang agree on what it is.

use std::collections::BTreeMap;

use pumice_objects::names;
use serde::{Deserialize, Serialize};

use super::annotations::{FAIL_FAST, GANG_CARDINALITY, GANG_ID, GANG_UNIFORMITY};
use super::spec;
use super::{Item, ItemError, RequestedJob, Rules, SubmitError};

/// The gang of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gang {
    pub id: String,
    /// How many jobs it has: at least two.
    pub cardinality: u32,
    /// The label that all of its nodes share; empty for none.
    pub uniformity_label: String,
    /// Whether a returned lease is the end of its jobs: always.
    pub fail_fast: bool,
}

/// What jobs of a gang must have in common.
struct Common<'i> {
    index: usize,
    cardinality: String,
    priority_class: &'i str,
    uniformity: &'i str,
}

/// Checks that gangs are well told and agree with themselves. What is asked for again agrees with its first time.
pub fn check(items: &[RequestedJob], rules: &Rules) -> Result<(), SubmitError> {
    let mut gangs: BTreeMap<String, Common<'_>> = BTreeMap::new();
    for (index, asked) in items.iter().enumerate() {
        let RequestedJob::Item(item) = asked else { continue };
        let refuse = |cause| SubmitError::Item { index, cause };
        let Some(cardinality) = cardinality(item, rules).map_err(refuse)? else { continue };
        let id = &item.annotations[GANG_ID];
        let here = Common {
            index,
            cardinality: cardinality.to_string(),
            priority_class: priority_class(item, rules),
            uniformity: uniformity(item, rules),
        };
        match gangs.get(id) {
            Some(first) => agree(id, &here, first).map_err(refuse)?,
            None => drop(gangs.insert(id.clone(), here)),
        }
    }
    Ok(())
}

fn agree(id: &str, here: &Common<'_>, first: &Common<'_>) -> Result<(), ItemError> {
    let differing = [
        ("annotations[armadaproject.io/gangCardinality]", here.cardinality.as_str(), first.cardinality.as_str()),
        ("podSpec.priorityClassName", here.priority_class, first.priority_class),
        ("annotations[armadaproject.io/gangNodeUniformityLabel]", here.uniformity, first.uniformity),
    ];
    match differing.into_iter().find(|(_, here, first)| here != first) {
        Some((field, here, there)) => Err(ItemError::GangDiffers {
            field,
            id: id.to_owned(),
            here: here.to_owned(),
            first: there.to_owned(),
            first_index: first.index,
        }),
        None => Ok(()),
    }
}

/// The cardinality that a job tells, and none where it names no gang.
fn cardinality(item: &Item, rules: &Rules) -> Result<Option<u32>, ItemError> {
    let Some(id) = item.annotations.get(GANG_ID) else { return Ok(None) };
    if id.is_empty() {
        return Err(ItemError::GangId);
    }
    if rules.add_gang_id_label && names::check_label_value(id).is_err() {
        return Err(ItemError::GangIdLabel { id: id.clone() });
    }
    let text = item.annotations.get(GANG_CARDINALITY);
    let text = text.ok_or_else(|| ItemError::GangCardinalityMissing { id: id.clone() })?;
    let number = text.parse::<u32>().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| ItemError::GangCardinality { text: text.clone() })?;
    match item.annotations.get(FAIL_FAST) {
        Some(text) if number > 1 && text != "true" => Err(ItemError::GangFailFast { text: text.clone() }),
        _ => Ok(Some(number)),
    }
}

fn priority_class<'i>(item: &'i Item, rules: &'i Rules) -> &'i str {
    let named = item.pod_spec.iter().chain(&item.pod_specs).map(|spec| spec::text(spec, "priorityClassName"));
    named.into_iter().find(|name| !name.is_empty()).unwrap_or(&rules.default_priority_class_name)
}

fn uniformity<'i>(item: &'i Item, rules: &'i Rules) -> &'i str {
    item.annotations.get(GANG_UNIFORMITY).unwrap_or(&rules.default_gang_node_uniformity_label)
}

/// The gang of a job that was checked, with its annotations and label made complete. A gang of one is none.
pub fn complete(
    item: &Item,
    rules: &Rules,
    labels: &mut BTreeMap<String, String>,
    annotations: &mut BTreeMap<String, String>,
) -> Result<Option<Gang>, ItemError> {
    let Some(cardinality) = cardinality(item, rules)?.filter(|cardinality| *cardinality > 1) else { return Ok(None) };
    let (id, uniformity_label) = (item.annotations[GANG_ID].clone(), uniformity(item, rules).to_owned());
    annotations.insert(GANG_UNIFORMITY.to_owned(), uniformity_label.clone());
    annotations.insert(FAIL_FAST.to_owned(), "true".to_owned());
    if rules.add_gang_id_label {
        labels.insert(GANG_ID.to_owned(), id.clone());
    }
    Ok(Some(Gang { id, cardinality, uniformity_label, fail_fast: true }))
}

#[cfg(test)]
mod tests;
