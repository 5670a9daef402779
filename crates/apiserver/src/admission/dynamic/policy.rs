//! Validating policies and their bindings, and the conditions of webhooks: expressions about requests.
//!
//! Invariant: a policy judges only what one of its bindings binds it to, with each of the binding's parameters; what can't be
//! judged counts as its `failurePolicy` says. What all expressions cost for one request is bounded. Called by [`super::DynamicAdmission`].

use std::collections::{BTreeMap, BTreeSet};

use pumice_objects::meta;
use pumice_objects::selector::LabelSelector;
use pumice_objects::status::{GroupResource, Status, StatusCause};
use serde_json::Value;

use super::Subject;
use super::matching::Matching;
use crate::cel::authorizer::{About, Question};
use crate::cel::{Binding as Bound, Bindings, Budget, CompileError, Computed, EvaluateError, Expression, Wanted};
use crate::stored::parse;
use crate::strategies::admission::policies::{EXPRESSIONS_MAX, REASONS, listed, scope, text};

/// Longest message that an expression may make.
const MESSAGE_BYTES_MAX: usize = 5120;
/// Most parameters of one binding.
const PARAMS_MAX: usize = 100;

/// Conditions that all must hold before somebody judges.
#[derive(Debug)]
pub(super) struct Conditions(Vec<(String, Result<Expression, CompileError>)>);

#[derive(Debug)]
pub(super) struct Policy {
    matching: Matching,
    conditions: Conditions,
    /// In their order: each sees those before it.
    variables: Vec<(String, Result<Expression, CompileError>)>,
    validations: Vec<Validation>,
    param_kind: Option<ParamKind>,
    passes_on_failure: bool,
}

/// Of which kind a policy's parameters are.
#[derive(Debug)]
struct ParamKind {
    api_version: String,
    kind: String,
}

#[derive(Debug)]
struct Validation {
    source: String,
    holds: Result<Expression, CompileError>,
    message: Option<String>,
    says: Option<Expression>,
    reason: usize,
}

/// What puts a policy into force.
#[derive(Debug)]
pub(super) struct Binding {
    name: String,
    policy: String,
    params: Value,
    matching: Option<Matching>,
    denies: bool,
    warns: bool,
}

impl Conditions {
    /// Those of a webhook, or of a policy with or without parameters.
    pub(super) fn new(declared: &Value, has_params: Option<bool>) -> Self {
        let scope = scope(&[], has_params == Some(true));
        let compiled = declared.as_array().into_iter().flatten().map(|one| {
            let source = one["expression"].as_str().unwrap_or_default();
            (text(&one["name"]), Expression::compile(source, &scope, Wanted::Bool))
        });
        Self(compiled.collect())
    }

    /// Whether all hold of a request; no condition costs nothing.
    pub(super) fn hold(&self, subject: &Subject<'_>, object: Option<&Value>) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let facts = Facts::new(subject, object);
        self.hold_of(&facts.bindings(None), &mut Budget::new())
    }

    fn hold_of(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<bool, String> {
        let mut failure = None;
        for (name, condition) in &self.0 {
            let held = match condition {
                Ok(condition) => condition.holds(bindings, budget).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match held {
                Ok(true) => {}
                // One that does not hold decides, whatever became of the others.
                Ok(false) => return Ok(false),
                Err(cause) => failure = Some(format!("match condition {name:?} failed: {cause}")),
            }
        }
        failure.map_or(Ok(true), Err)
    }
}

/// What expressions about one request see.
struct Facts<'a> {
    object: &'a Value,
    old: &'a Value,
    request: Value,
    namespace: Value,
    subject: &'a Subject<'a>,
}

impl<'a> Facts<'a> {
    fn new(subject: &'a Subject<'a>, object: Option<&'a Value>) -> Self {
        Self {
            object: object.unwrap_or(&Value::Null),
            old: subject.old.unwrap_or(&Value::Null),
            request: subject.request("", &subject.descriptor.version, object),
            namespace: subject.namespace_object().unwrap_or_default(),
            subject,
        }
    }

    fn bindings<'b>(&'b self, params: Option<&'b Value>) -> Bindings<'b> {
        let subject = self.subject;
        let rights = subject.rights.load(subject.store);
        let about = About {
            path: None,
            group: subject.descriptor.group.clone(),
            resource: subject.descriptor.plural.clone(),
            subresource: subject.subresource.to_owned(),
            namespace: subject.namespace.to_owned(),
            name: subject.name.to_owned(),
        };
        let authorizer = Question::value(&rights, subject.identity, About::default());
        let own = Question::value(&rights, subject.identity, about);
        let bindings = Bindings::default()
            .with("object", Bound::Json(self.object, None))
            .with("oldObject", Bound::Json(self.old, None))
            .with("request", Bound::Json(&self.request, None))
            .with("namespaceObject", Bound::Json(&self.namespace, None))
            .with("authorizer", Bound::WithField { value: authorizer, field: "requestResource", beside: own });
        match params {
            Some(params) => bindings.with("params", Bound::Json(params, None)),
            None => bindings,
        }
    }
}

impl Policy {
    pub(super) fn new(stored: &Value) -> Self {
        let spec = &stored["spec"];
        let declared = &spec["paramKind"];
        let param_kind = if declared.is_object() {
            Some(ParamKind { api_version: text(&declared["apiVersion"]), kind: text(&declared["kind"]) })
        } else {
            None
        };
        let has_params = param_kind.is_some();
        let mut names: Vec<String> = Vec::new();
        let mut variables = Vec::new();
        for one in listed(spec, "variables").take(EXPRESSIONS_MAX) {
            let source = one["expression"].as_str().unwrap_or_default();
            variables.push((text(&one["name"]), Expression::compile(source, &scope(&names, has_params), Wanted::Any)));
            names.push(text(&one["name"]));
        }
        let scope = scope(&names, has_params);
        let validation = |one: &Value| Validation {
            source: text(&one["expression"]),
            holds: Expression::compile(one["expression"].as_str().unwrap_or_default(), &scope, Wanted::Bool),
            message: one["message"].as_str().map(str::to_owned),
            says: one["messageExpression"].as_str().and_then(|one| Expression::compile(one, &scope, Wanted::Text).ok()),
            reason: REASONS.iter().position(|reason| one["reason"] == reason.name).unwrap_or_default(),
        };
        Self {
            matching: Matching::new(&spec["matchConstraints"], "resourceRules"),
            conditions: Conditions::new(&spec["matchConditions"], Some(has_params)),
            validations: listed(spec, "validations").take(EXPRESSIONS_MAX).map(validation).collect(),
            variables,
            param_kind,
            passes_on_failure: spec["failurePolicy"] == "Ignore",
        }
    }

    /// What it finds wrong, with these parameters.
    fn validate(&self, facts: &Facts<'_>, params: Option<&Value>, budget: &mut Budget) -> Vec<(usize, String)> {
        let failed = |cause: String| if self.passes_on_failure { Vec::new() } else { vec![(0, cause)] };
        match self.conditions.hold_of(&facts.bindings(params), budget) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(cause) => return failed(cause),
        }
        let computed = self.computed(facts, params, budget);
        let bindings = facts.bindings(params).with("variables", Bound::Computed(&computed));
        let mut wrong = Vec::new();
        for validation in &self.validations {
            let held = match &validation.holds {
                Ok(holds) => holds.holds(&bindings, budget).map_err(|error| why(holds, &computed, &error)),
                Err(error) => Err(error.to_string()),
            };
            match held {
                Ok(true) => {}
                Ok(false) => {
                    let made = validation.says.as_ref().and_then(|says| says.text(&bindings, budget).ok());
                    let fits = |text: &String| !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX;
                    let message = made.filter(fits).or_else(|| validation.message.clone());
                    let message = message.unwrap_or_else(|| format!("failed expression: {}", validation.source.trim()));
                    wrong.push((validation.reason, message));
                }
                Err(cause) => {
                    wrong.extend(failed(format!("expression '{}' resulted in error: {cause}", validation.source)));
                }
            }
        }
        wrong
    }

    /// The variables that validations look at, in their order.
    fn computed(&self, facts: &Facts<'_>, params: Option<&Value>, budget: &mut Budget) -> Computed {
        let mut wanted: BTreeSet<String> = BTreeSet::new();
        for validation in &self.validations {
            let expressions = validation.holds.iter().chain(&validation.says);
            wanted.extend(expressions.flat_map(Expression::read).map(str::to_owned));
        }
        for (name, variable) in self.variables.iter().rev() {
            if wanted.contains(&format!("variables.{name}")) {
                wanted.extend(variable.iter().flat_map(Expression::read).map(str::to_owned));
            }
        }
        let mut computed = Computed::new();
        for (name, variable) in &self.variables {
            if !wanted.contains(&format!("variables.{name}")) {
                continue;
            }
            let value = match variable {
                Ok(variable) => {
                    let bindings = facts.bindings(params).with("variables", Bound::Computed(&computed));
                    variable.evaluate(&bindings, budget).map_err(|error| why(variable, &computed, &error))
                }
                Err(error) => Err(error.to_string()),
            };
            computed.insert(name.clone(), value);
        }
        computed
    }
}

/// Why an expression failed: perhaps because a variable did.
fn why(expression: &Expression, computed: &Computed, error: &EvaluateError) -> String {
    for (name, value) in computed {
        if let Err(cause) = value
            && expression.reads(&format!("variables.{name}"))
        {
            return format!("composited variable {name:?} fails to evaluate: {cause}");
        }
    }
    error.to_string()
}

impl Binding {
    /// `None` for one without a policy.
    pub(super) fn new(stored: &Value) -> Option<Self> {
        let spec = &stored["spec"];
        let acts = |action: &str| listed(spec, "validationActions").any(|one| one == action);
        Some(Self {
            name: text(&stored["metadata"]["name"]),
            policy: spec["policyName"].as_str()?.to_owned(),
            params: spec["paramRef"].clone(),
            matching: match &spec["matchResources"] {
                resources if resources.is_object() => Some(Matching::new(resources, "resourceRules")),
                _ => None,
            },
            denies: acts("Deny"),
            warns: acts("Warn"),
        })
    }

    fn matches(&self, subject: &Subject<'_>, object: Option<&Value>) -> bool {
        match &self.matching {
            None => true,
            Some(matching) if matching.has_rules() => matching.version(subject, object).is_some(),
            Some(matching) => matching.selects(subject, object),
        }
    }
}

/// Judges a request by all policies that are bound to it.
pub(super) fn validate<'a>(
    policies: &BTreeMap<&str, &Policy>,
    bindings: impl Iterator<Item = &'a Binding>,
    subject: &Subject<'_>,
    object: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let mut facts = None;
    let mut budget = Budget::new();
    let mut refusal = None;
    for binding in bindings {
        let Some(policy) = policies.get(binding.policy.as_str()) else { continue };
        if policy.matching.version(subject, object).is_none() || !binding.matches(subject, object) {
            continue;
        }
        let facts = facts.get_or_insert_with(|| Facts::new(subject, object));
        let params = match &policy.param_kind {
            None => Ok(vec![None]),
            Some(kind) => {
                params(kind, &binding.params, subject).map(|found| found.into_iter().map(Some).collect::<Vec<_>>())
            }
        };
        let wrong: Vec<(usize, String)> = match params {
            Ok(params) => {
                params.iter().flat_map(|params| policy.validate(facts, params.as_ref(), &mut budget)).collect()
            }
            Err(_) if policy.passes_on_failure => Vec::new(),
            Err(cause) => vec![(0, format!("failed to configure binding: {cause}"))],
        };
        for (reason, message) in wrong {
            if binding.warns {
                let (policy, binding) = (&binding.policy, &binding.name);
                warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"
                ));
            }
            if binding.denies && refusal.is_none() {
                refusal = Some(refused(subject, object, binding, reason, &message));
            }
        }
    }
    refusal.map_or(Ok(()), Err)
}

/// The objects that a binding names, in the namespace that it names or that of the request, each as it is stored now. None at all
/// counts as its `parameterNotFoundAction` says.
fn params(kind: &ParamKind, wanted: &Value, subject: &Subject<'_>) -> Result<Vec<Value>, String> {
    let registry = subject.registry.load(subject.store);
    let ParamKind { api_version, kind } = kind;
    let Some(descriptor) = registry.find_kind(api_version, kind) else {
        return Err(format!("failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'"));
    };
    let namespace = match (descriptor.namespaced, wanted["namespace"].as_str().filter(|name| !name.is_empty())) {
        (false, Some(_)) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (false, None) => "",
        (true, Some(namespace)) => namespace,
        (true, None) if subject.namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned()
            );
        }
        (true, None) => subject.namespace,
    };
    let store = subject.store;
    let mut found: Vec<Value> = match wanted["name"].as_str() {
        Some(name) => store.find(&descriptor.storage, namespace, name).iter().map(|object| parse(object)).collect(),
        None => {
            let selector = LabelSelector::from_json(&wanted["selector"]).map_err(|error| error.to_string())?;
            let listed = store.list(&descriptor.storage, descriptor.namespaced.then_some(namespace));
            let all = listed.items.iter().map(|object| parse(object));
            all.filter(|object| selector.matches(|key| meta::label(object, key))).take(PARAMS_MAX).collect()
        }
    };
    for object in &mut found {
        object["apiVersion"] = api_version.as_str().into();
    }
    if found.is_empty() && wanted["parameterNotFoundAction"] != "Allow" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

fn refused(subject: &Subject<'_>, object: Option<&Value>, binding: &Binding, reason: usize, message: &str) -> Status {
    let resource = GroupResource { group: &subject.descriptor.group, resource: &subject.descriptor.plural };
    let name = match (subject.name, object) {
        ("", Some(object)) => meta::name(object),
        (name, _) => name,
    };
    let (policy, binding) = (&binding.policy, &binding.name);
    let text = format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}");
    let mut status = Status::forbidden(resource, name, &text);
    let reason = &REASONS[reason.min(REASONS.len() - 1)];
    status.reason = reason.status;
    status.code = reason.code;
    let cause = StatusCause { reason: String::new(), message: text, field: String::new() };
    status.details.get_or_insert_default().causes.push(cause);
    status
}
