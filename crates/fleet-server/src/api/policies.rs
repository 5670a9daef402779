//! Retry policies: what one may do about them, and how they are on the wire.
//!
//! Invariant: a policy of the configuration is read here and changed there; a policy that requests have set has another name,
//! and stays as long as a queue names it.

use pumice_ledger::{
    AffinityMutation, Entry, Event, MemoryBump, Mutation, ResourceMutation, RetryAction, RetryPolicy, RetryRule,
};
use pumice_wire::api::{
    self, RetryPolicyDeleteRequest, RetryPolicyGetRequest, RetryPolicyList, RetryPolicyListRequest,
};
use pumice_wire::wellknown::Empty;

use super::limits::{self, TEXT_BYTES_MAX};
use super::{Api, Error, Permission, Who};
use crate::database::Expect;

impl Api {
    pub(super) async fn create_policy(&self, who: &Who, policy: api::RetryPolicy) -> Result<Empty, Error> {
        who.need(Permission::CreateRetryPolicy, "create retry policies")?;
        self.set_policy(who, policy, Expect::PolicyAbsent).await
    }

    pub(super) async fn update_policy(&self, who: &Who, policy: api::RetryPolicy) -> Result<Empty, Error> {
        who.need(Permission::UpdateRetryPolicy, "change retry policies")?;
        self.set_policy(who, policy, Expect::PolicyPresent).await
    }

    pub(super) async fn delete_policy(&self, who: &Who, request: RetryPolicyDeleteRequest) -> Result<Empty, Error> {
        who.need(Permission::DeleteRetryPolicy, "delete retry policies")?;
        limits::name("name", &request.name)?;
        self.not_configured(&request.name)?;
        if self.policies.default_policy_name == request.name {
            return Err(Error::Default(request.name));
        }
        let event = Event::RetryPolicyRemoved { policy: request.name.clone() };
        self.write_policy(who, event, Expect::PolicyPresent(request.name)).await
    }

    pub(super) async fn get_policy(&self, _: &Who, request: RetryPolicyGetRequest) -> Result<api::RetryPolicy, Error> {
        limits::name("name", &request.name)?;
        let configured = self.policies.policies.iter().find(|policy| policy.name == request.name);
        match configured {
            Some(policy) => Ok(to_wire(policy)),
            None => match self.log().policies().await?.get(&request.name) {
                Some(policy) => Ok(to_wire(policy)),
                None => Err(crate::database::Error::NoPolicy(request.name).into()),
            },
        }
    }

    pub(super) async fn get_policies(&self, _: &Who, _: RetryPolicyListRequest) -> Result<RetryPolicyList, Error> {
        let mut all = self.log().policies().await?;
        all.extend(self.policies.policies.iter().map(|policy| (policy.name.clone(), policy.clone())));
        Ok(RetryPolicyList { retry_policies: all.values().map(to_wire).collect() })
    }

    /// Those of a queue's policies that a request has to have set: the rest stands in the configuration.
    pub(super) fn policies_beside(&self, names: &[String]) -> Vec<String> {
        let configured = self.policies.names();
        names.iter().filter(|name| !configured.contains(name.as_str())).cloned().collect()
    }

    fn not_configured(&self, name: &str) -> Result<(), Error> {
        match self.policies.names().contains(name) {
            true => Err(Error::Configured(name.to_owned())),
            false => Ok(()),
        }
    }

    async fn set_policy(
        &self,
        who: &Who,
        policy: api::RetryPolicy,
        expect: impl FnOnce(String) -> Expect,
    ) -> Result<Empty, Error> {
        let policy = from_wire(policy)?;
        self.not_configured(&policy.name)?;
        let expect = expect(policy.name.clone());
        self.write_policy(who, Event::RetryPolicySet(Box::new(policy)), expect).await
    }

    async fn write_policy(&self, who: &Who, event: Event, expect: Expect) -> Result<Empty, Error> {
        // It is about no queue alone.
        let mut entry = Entry::new(self.now(), "", "");
        entry.user.clone_from(&who.name);
        entry.events.push(event);
        self.log().request(entry, expect).await?;
        Ok(Empty {})
    }
}

fn wrong(field: impl Into<String>, problem: impl ToString) -> Error {
    Error::Field { field: field.into(), problem: problem.to_string() }
}

/// A policy of the wire, checked.
fn from_wire(policy: api::RetryPolicy) -> Result<RetryPolicy, Error> {
    let bytes = prost::Message::encoded_len(&policy);
    if bytes > TEXT_BYTES_MAX {
        return Err(wrong("policy", format!("it has {bytes} bytes: have at most {TEXT_BYTES_MAX}")));
    }
    let rules = policy.rules.into_iter().enumerate().map(|(index, rule)| rule_from_wire(index, rule));
    let read = RetryPolicy {
        retry_limit: policy.retry_limit,
        default_action: action_from_wire("defaultAction", policy.default_action)?,
        rules: rules.collect::<Result<_, _>>()?,
        name: policy.name,
    };
    read.check().map_err(|error| wrong("policy", error))?;
    Ok(read)
}

fn action_from_wire(field: &str, action: i32) -> Result<RetryAction, Error> {
    match api::RetryAction::try_from(action) {
        Ok(api::RetryAction::Fail) => Ok(RetryAction::Fail),
        Ok(api::RetryAction::Retry) => Ok(RetryAction::Retry),
        _ => Err(wrong(field, "it is neither RETRY_ACTION_FAIL nor RETRY_ACTION_RETRY")),
    }
}

fn rule_from_wire(index: usize, rule: api::RetryRule) -> Result<RetryRule, Error> {
    let api::RetryMutation { affinity, resources } = rule.mutate.unwrap_or_default();
    let memory = resources.and_then(|resources| resources.memory);
    let memory = memory.map(|bump| {
        let field = || format!("rules[{index}].mutate.resources.memory");
        let amount = Some(bump.r#static).filter(|text| !text.is_empty());
        let amount = amount.map(|text| text.parse()).transpose().map_err(|error| wrong(field(), error))?;
        let factor = Some(bump.factor).filter(|factor| *factor != 0.0);
        MemoryBump::new(amount, factor).map_err(|error| wrong(field(), error))
    });
    Ok(RetryRule {
        action: action_from_wire(&format!("rules[{index}].action"), rule.action)?,
        on_category: rule.on_category,
        on_subcategory: rule.on_subcategory,
        mutate: Mutation {
            affinity: AffinityMutation { avoid_same_node: affinity.is_some_and(|affinity| affinity.avoid_same_node) },
            resources: ResourceMutation { memory: memory.transpose()? },
        },
    })
}

/// A policy as the wire has it.
fn to_wire(policy: &RetryPolicy) -> api::RetryPolicy {
    let action = |action: RetryAction| match action {
        RetryAction::Fail => api::RetryAction::Fail.into(),
        RetryAction::Retry => api::RetryAction::Retry.into(),
    };
    let rule = |rule: &RetryRule| {
        let Mutation { affinity, resources } = rule.mutate;
        let memory = resources.memory.map(|bump| match bump {
            MemoryBump::Static(amount) => api::RetryResourceBump { r#static: amount.to_string(), factor: 0.0 },
            MemoryBump::Factor(factor) => api::RetryResourceBump { r#static: String::new(), factor },
        });
        let affinity = affinity.avoid_same_node.then_some(api::RetryAffinityMutation { avoid_same_node: true });
        let resources = memory.map(|memory| api::RetryResourceMutation { memory: Some(memory) });
        let changes = affinity.is_some() || resources.is_some();
        api::RetryRule {
            action: action(rule.action),
            on_category: rule.on_category.clone(),
            on_subcategory: rule.on_subcategory.clone(),
            mutate: changes.then_some(api::RetryMutation { affinity, resources }),
        }
    };
    api::RetryPolicy {
        name: policy.name.clone(),
        retry_limit: policy.retry_limit,
        default_action: action(policy.default_action),
        rules: policy.rules.iter().map(rule).collect(),
    }
}

#[cfg(test)]
mod tests;
