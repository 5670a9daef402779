//! `allOf`, `anyOf`, `oneOf`, `not`: schemas tried out on a value that another one describes.
//!
//! Invariant: they only validate; pruning and defaults come from the structural part. As
//! upstream, their own error has no field, only its name in the text.

use serde_json::Value;

use super::node::Junctors;
use super::walk::{Path, Walker};
use crate::field::FieldError;
use crate::quote::Quoted;

pub(super) fn check(walker: &mut Walker<'_>, junctors: &Junctors, value: &mut Value, path: &Path<'_>, depth: usize) {
    let mut try_all = |ids: &[super::node::NodeId]| -> Vec<Vec<FieldError>> {
        ids.iter().map(|id| walker.try_out(*id, value, path, depth)).collect()
    };
    let all_of = try_all(&junctors.all_of);
    let any_of = try_all(&junctors.any_of);
    let one_of = try_all(&junctors.one_of);
    let not = junctors.not.map(|id| walker.try_out(id, value, path, depth));

    let mut errors = Vec::new();
    let name = path.to_string();
    let name = Quoted(&name);
    if !any_of.is_empty() && holding(&any_of) == 0 {
        errors.push(complaint(format!("{name} must validate at least one schema (anyOf)")));
        errors.extend(fewest(any_of));
    }
    match (one_of.len(), holding(&one_of)) {
        (0, _) | (_, 1) => {}
        (_, 0) => {
            let text = "must validate one and only one schema (oneOf). Found none valid";
            errors.push(complaint(format!("{name} {text}")));
            errors.extend(fewest(one_of));
        }
        (_, count) => {
            let text = format!("must validate one and only one schema (oneOf). Found {count} valid alternatives");
            errors.push(complaint(format!("{name} {text}")));
        }
    }
    let holding_all = holding(&all_of);
    if holding_all < all_of.len() {
        let ending = if holding_all == 0 { ". None validated" } else { "" };
        errors.extend(all_of.into_iter().flatten());
        errors.push(complaint(format!("{name} must validate all the schemas (allOf){ending}")));
    }
    if not.is_some_and(|errors| errors.is_empty()) {
        errors.push(complaint(format!("{name} must not validate the schema (not)")));
    }
    for error in errors {
        walker.report(error);
    }
}

fn holding(trials: &[Vec<FieldError>]) -> usize {
    trials.iter().filter(|errors| errors.is_empty()).count()
}

/// The errors of the alternative that came closest.
fn fewest(trials: Vec<Vec<FieldError>>) -> Vec<FieldError> {
    trials.into_iter().min_by_key(Vec::len).unwrap_or_default()
}

fn complaint(detail: String) -> FieldError {
    FieldError::invalid("", "", detail)
}
