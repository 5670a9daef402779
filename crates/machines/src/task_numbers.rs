//! Numbers of a task that Volcano does not know, in both spellings: a field, and an annotation of the pod template.
//!
//! Invariant: the field counts before the annotation; what can't be read is none, admission refuses it. Called by whatever
//! counts a task's pods, and by admission.

use pumice_api::batch::TaskSpec;
use pumice_api::names;

/// A number that a task may have.
#[derive(Clone, Copy, Debug)]
pub struct TaskNumber {
    /// The field of the task.
    pub field: &'static str,
    /// The same for clusters whose definitions are Volcano's and drop the field; annotation of the task's pod template.
    pub annotation: &'static str,
    /// The smallest number that makes sense.
    least: i32,
    /// The largest, where there is one.
    most: i32,
    of: fn(&TaskSpec) -> Option<i32>,
}

/// Pods that must succeed.
pub const MIN_SUCCESS: TaskNumber = TaskNumber {
    field: "minSuccess",
    annotation: names::MIN_SUCCESS,
    least: 1,
    most: i32::MAX,
    of: |task| task.min_success,
};

/// Pods that may be unfinished at once.
pub const MAX_PARALLEL: TaskNumber = TaskNumber {
    field: "maxParallel",
    annotation: names::MAX_PARALLEL,
    least: 1,
    most: i32::MAX,
    of: |task| task.max_parallel,
};

/// How often a pod that failed is made again.
pub const RETRIES: TaskNumber = TaskNumber {
    field: "retries",
    annotation: names::RETRIES,
    least: 0,
    most: names::RETRIES_MAX,
    of: |task| task.retries,
};

/// Every number that a task may bring as a field or an annotation; admission checks them one by one.
pub const TASK_NUMBERS: &[TaskNumber] = &[MIN_SUCCESS, MAX_PARALLEL, RETRIES];

/// An annotation that is no such number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{annotation} {text:?} is no number it can be; write a whole number from {least}{}", up_to(.most))]
pub struct TaskNumberError {
    annotation: &'static str,
    text: String,
    least: i32,
    most: i32,
}

fn up_to(most: &i32) -> String {
    if *most == i32::MAX { String::new() } else { format!(" to {most}") }
}

impl TaskNumber {
    /// The number, if the task says one that can be read.
    pub fn of(&self, task: &TaskSpec) -> Option<i32> {
        self.by_field(task).or_else(|| self.annotated(task).ok().flatten())
    }

    /// What the field says.
    pub fn by_field(&self, task: &TaskSpec) -> Option<i32> {
        (self.of)(task)
    }

    /// What the annotation says.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn annotated(&self, task: &TaskSpec) -> Result<Option<i32>, TaskNumberError> {
        let annotations = task.template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
        annotations.and_then(|all| all.get(self.annotation)).map(|text| self.read(text)).transpose()
    }

    /// Reads the annotation's value.
    ///
    /// # Errors
    /// When it is no whole number in the range.
    pub fn read(&self, text: &str) -> Result<i32, TaskNumberError> {
        let number = text.parse().ok().filter(|number| (self.least..=self.most).contains(number));
        number.ok_or_else(|| TaskNumberError {
            annotation: self.annotation,
            text: text.to_owned(),
            least: self.least,
            most: self.most,
        })
    }
}

/// Pods of a task that may be unfinished at once.
pub fn at_once(task: &TaskSpec) -> i32 {
    MAX_PARALLEL.of(task).unwrap_or(i32::MAX).min(task.replicas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_field_counts_before_the_annotation() {
        for number in TASK_NUMBERS {
            let task = |field: Value, text: &str| -> TaskSpec {
                let annotations = json!({number.annotation: text});
                serde_json::from_value(
                    json!({number.field: field, "template": {"metadata": {"annotations": annotations}}}),
                )
                .unwrap()
            };
            assert_eq!(number.of(&task(Value::Null, "2")), Some(2));
            assert_eq!(number.of(&task(json!(3), "2")), Some(3));
            for text in ["-1", "all", "", "2147483648"] {
                let task = task(Value::Null, text);
                let error = number.annotated(&task).unwrap_err().to_string();
                assert!(error.contains(number.annotation) && error.contains("write a whole number from"), "{error}");
                assert_eq!(number.of(&task), None);
            }
            assert_eq!(number.of(&TaskSpec::default()), None);
        }
    }

    #[test]
    fn what_may_be_unfinished_at_once_is_never_more_than_there_is() {
        let task = |replicas: i32, max_parallel| TaskSpec { replicas, max_parallel, ..TaskSpec::default() };
        assert_eq!([None, Some(3), Some(9)].map(|most| at_once(&task(5, most))), [5, 3, 5]);
    }
}
