//! The variable `authorizer` of expressions: what the sender of a request may do.
//!
//! Invariant: it asks the rights that decide about requests, and nothing else. Methods are upstream's; selectors are
//! taken and not looked at, as by roles.

use std::fmt;
use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Opaque, Value};
use kube_cel::cel::{Context, ExecutionError, ResolveResult};
use pumice_auth::{Attributes, Decision, Identity, Target, service_account_of};

use crate::authz::Rights;
use crate::cel::text;

/// A question that is being put together, or its answer.
#[derive(Clone)]
pub(crate) struct Question {
    rights: Arc<Rights>,
    identity: Identity,
    about: About,
    answer: Option<(bool, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) path: Option<String>,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Debug for Question {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "authorizer({:?}, {:?})", self.about, self.answer)
    }
}

impl PartialEq for Question {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity && self.about == other.about && self.answer == other.answer
    }
}

impl Eq for Question {}

impl Opaque for Question {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Authorizer"
    }
}

impl Question {
    /// The value of the variable, or with a resource that of a field of it.
    pub(crate) fn value(rights: &Arc<Rights>, identity: &Identity, about: About) -> Value {
        let question = Self { rights: Arc::clone(rights), identity: identity.clone(), about, answer: None };
        Value::Opaque(Arc::new(question))
    }

    fn decide(&self, verb: &str) -> (bool, String) {
        let About { path, group, resource, subresource, namespace, name } = &self.about;
        let filled = |text: &'_ String| Some(text.clone()).filter(|text| !text.is_empty());
        let (subresource, namespace, name) = (filled(subresource), filled(namespace), filled(name));
        let target = match path {
            Some(path) => Target::Path(path),
            None => Target::Resource {
                group,
                resource,
                subresource: subresource.as_deref(),
                namespace: namespace.as_deref(),
                name: name.as_deref(),
            },
        };
        match self.rights.decide(&self.identity, &Attributes { verb, target }) {
            Decision::Allow { .. } => (true, String::new()),
            Decision::Deny { reason } => (false, reason),
        }
    }
}

fn question_of(value: &Value) -> Result<Question, ExecutionError> {
    match value {
        Value::Opaque(opaque) => opaque.downcast_ref::<Question>().cloned().ok_or(ExecutionError::NoSuchOverload),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn with(value: &Value, change: impl FnOnce(&mut Question)) -> ResolveResult {
    let mut question = question_of(value)?;
    change(&mut question);
    Ok(Value::Opaque(Arc::new(question)))
}

pub(crate) fn register(context: &mut Context<'_>) {
    context.add_function("path", |This(this): This<Value>, path: Arc<String>| -> ResolveResult {
        with(&this, |question| question.about.path = Some(path.to_string()))
    });
    context.add_function("group", |This(this): This<Value>, group: Arc<String>| -> ResolveResult {
        with(&this, |question| question.about.group = group.to_string())
    });
    context.add_function("resource", |This(this): This<Value>, resource: Arc<String>| -> ResolveResult {
        with(&this, |question| question.about.resource = resource.to_string())
    });
    context.add_function("subresource", |This(this): This<Value>, subresource: Arc<String>| -> ResolveResult {
        with(&this, |question| question.about.subresource = subresource.to_string())
    });
    context.add_function("namespace", |This(this): This<Value>, namespace: Arc<String>| -> ResolveResult {
        with(&this, |question| question.about.namespace = namespace.to_string())
    });
    context.add_function("name", |This(this): This<Value>, name: Arc<String>| -> ResolveResult {
        with(&this, |question| question.about.name = name.to_string())
    });
    for selector in ["fieldSelector", "labelSelector"] {
        context
            .add_function(selector, |This(this): This<Value>, _: Arc<String>| -> ResolveResult { with(&this, |_| {}) });
    }
    context.add_function(
        "serviceAccount",
        |This(this): This<Value>, namespace: Arc<String>, name: Arc<String>| -> ResolveResult {
            let identity = Identity::service_account(&namespace, &name);
            if service_account_of(&identity.user).is_none() {
                return Err(ExecutionError::function_error("serviceAccount", "Invalid service account name"));
            }
            with(&this, |question| question.identity = identity)
        },
    );
    context.add_function("check", |This(this): This<Value>, verb: Arc<String>| -> ResolveResult {
        with(&this, |question| question.answer = Some(question.decide(&verb)))
    });
    context.add_function("allowed", |This(this): This<Value>| -> ResolveResult {
        let answer = question_of(&this)?.answer.ok_or(ExecutionError::NoSuchOverload)?;
        Ok(Value::Bool(answer.0))
    });
    context.add_function("reason", |This(this): This<Value>| -> ResolveResult {
        let answer = question_of(&this)?.answer.ok_or(ExecutionError::NoSuchOverload)?;
        Ok(text(&answer.1))
    });
    // A decision never fails here.
    context.add_function("errored", |This(this): This<Value>| -> ResolveResult {
        question_of(&this).map(|_| Value::Bool(false))
    });
    context.add_function("error", |This(this): This<Value>| -> ResolveResult { question_of(&this).map(|_| text("")) });
}
