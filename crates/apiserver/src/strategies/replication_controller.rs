//! ReplicationControllers: stored, and without an effect: ReplicaSets and Deployments make pods here.

use pumice_objects::field::FieldError;
use pumice_objects::status::Status;
use serde_json::{Value, json};

use super::workload::{fill, fill_template, not_negative, one_of, spec_mut, template_errors};
use super::{Hook, Strategy};
use crate::problems::Problems;

const WARNING: &str = "the replication controller is stored, but nothing here makes its pods: use a Deployment";

pub(crate) struct ReplicationController;

impl Strategy for ReplicationController {
    fn defaults(&self, object: &mut Value) {
        let labels = object["spec"]["template"]["metadata"]["labels"].clone();
        let Some(spec) = spec_mut(object) else { return };
        fill(spec, "replicas", json!(1));
        fill_template(spec);
        if labels.as_object().is_none_or(serde_json::Map::is_empty) {
            return;
        }
        let is_empty = |value: Option<&Value>| value.and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
        if is_empty(spec.get("selector")) {
            spec.insert("selector".to_owned(), labels.clone());
        }
        if is_empty(object["metadata"].get("labels")) {
            object["metadata"]["labels"] = labels;
        }
    }

    fn prepare_create(&self, _object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        hook.warnings.push(WARNING.to_owned());
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (mut problems, spec) = (Problems::default(), &object["spec"]);
        not_negative(&mut problems, spec, "spec", &["replicas", "minReadySeconds"]);
        let selector = spec["selector"].as_object().filter(|selector| !selector.is_empty());
        if selector.is_none() {
            problems.required("spec.selector", "");
        }
        if !spec["template"].is_object() {
            problems.required("spec.template", "");
            return problems.into_errors();
        }
        let (labels, pod) = (&spec["template"]["metadata"]["labels"], &spec["template"]["spec"]);
        if selector.into_iter().flatten().any(|(key, value)| labels[key] != *value) {
            let path = "spec.template.metadata.labels";
            problems.invalid(path, labels, "`selector` does not match template `labels`");
        }
        one_of(&mut problems, "spec.template.spec.restartPolicy", &pod["restartPolicy"], &["Always"]);
        if pod["activeDeadlineSeconds"].is_i64() {
            let detail = "activeDeadlineSeconds in ReplicationController is not Supported";
            problems.forbidden("spec.template.spec.activeDeadlineSeconds", detail);
        }
        let mut errors = problems.into_errors();
        errors.extend(template_errors(&spec["template"], "spec.template"));
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller() -> Value {
        let pod = json!({"containers": [{"name": "c", "image": "i"}]});
        json!({"metadata": {"name": "r"}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}})
    }

    #[test]
    fn it_selects_the_labels_of_its_template_where_it_does_not_say() {
        let mut object = controller();
        ReplicationController.defaults(&mut object);
        assert_eq!((&object["spec"]["replicas"], &object["spec"]["selector"]), (&json!(1), &json!({"a": "b"})));
        assert_eq!(object["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(ReplicationController.validate(&object), Vec::new());
        let mut named = controller();
        named["metadata"]["labels"] = json!({"own": "1"});
        ReplicationController.defaults(&mut named);
        assert_eq!(named["metadata"]["labels"], json!({"own": "1"}));
    }

    #[test]
    fn what_can_never_work_is_refused() {
        for (pointer, value, path) in [
            ("/spec/replicas", json!(-1), "spec.replicas"),
            ("/spec/selector", json!({"a": "c"}), "spec.template.metadata.labels"),
            ("/spec/template/spec/restartPolicy", json!("Never"), "spec.template.spec.restartPolicy"),
        ] {
            let mut object = controller();
            ReplicationController.defaults(&mut object);
            *object.pointer_mut(pointer).expect("it is filled") = value;
            let errors = ReplicationController.validate(&object);
            assert_eq!(errors.first().map(|error| error.path.as_str()), Some(path), "{errors:?}");
        }
        let errors = ReplicationController.validate(&json!({"spec": {"replicas": 1}}));
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["spec.selector", "spec.template"]);
    }
}
