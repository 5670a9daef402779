//! `minSuccess` of a task, in both spellings.
//!
//! Invariant: the field counts before the annotation; what can't be read is none, admission refuses it. Called by `rules`, and
//! by admission.

use pumice_api::batch::TaskSpec;

/// `minSuccess` of a task, for clusters whose definitions are Volcano's and drop the field; annotation of its pod template.
pub const MIN_SUCCESS: &str = "pumice.sh/min-success";

/// An annotation that is no number from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MIN_SUCCESS} {0:?} is no number of pods; write a whole number from 1")]
pub struct MinSuccessError(String);

/// The number of successes that a task needs, if it says one.
///
/// # Errors
/// When the annotation can't be read and there is no field.
pub fn min_success(task: &TaskSpec) -> Result<Option<i32>, MinSuccessError> {
    if task.min_success.is_some() {
        return Ok(task.min_success);
    }
    match annotation(task) {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(wanted) if wanted >= 1 => Ok(Some(wanted)),
            _ => Err(MinSuccessError(text.to_owned())),
        },
    }
}

fn annotation(task: &TaskSpec) -> Option<&str> {
    task.template.metadata.as_ref()?.annotations.as_ref()?.get(MIN_SUCCESS).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_field_counts_before_the_annotation() {
        let of = |field: Value, text: &str| {
            let annotations = json!({MIN_SUCCESS: text});
            let task = json!({"minSuccess": field, "template": {"metadata": {"annotations": annotations}}});
            min_success(&serde_json::from_value(task).unwrap())
        };
        assert_eq!(of(Value::Null, "2"), Ok(Some(2)));
        assert_eq!(of(json!(3), "2"), Ok(Some(3)));
        for text in ["0", "-1", "all", ""] {
            assert_eq!(of(Value::Null, text), Err(MinSuccessError(text.to_owned())));
        }
        assert_eq!(min_success(&TaskSpec::default()), Ok(None));
    }
}
