//! HyperNodes: members that can be found.
//!
//! Volcano leaves some of this to rules in the definition's schema, which not every API server evaluates; here all of it is
//! judged, by what the scheduler and the HyperNode controller can work with.

use pumice_api::topology::{HyperNode, Member, MemberSelector, MemberType};
use pumice_machines::hyper_nodes::{pattern, selector};
use pumice_objects::field::FieldError;
use pumice_objects::names::check_dns1123_subdomain;

use crate::Findings;

/// Judges a HyperNode as it would be stored.
pub fn validate(hyper_node: &HyperNode, findings: &mut Findings) {
    let members = &hyper_node.spec.members;
    if members.is_empty() {
        findings.refuse(FieldError::required("spec.members", "at least one member is required").to_string());
    }
    for (index, member) in members.iter().enumerate() {
        let path = format!("spec.members[{index}]");
        if let Err(error) = which(member, &format!("{path}.selector")) {
            findings.refuse(error.to_string());
        }
        match (&member.type_, &member.selector.label_match) {
            (None | Some(MemberType::Other(_)), _) => {
                let word = member.type_.as_ref().map_or("", MemberType::as_str);
                let error = FieldError::invalid(format!("{path}.type"), word, format!("unknown member type {word}"));
                findings.refuse(error.to_string());
            }
            (Some(MemberType::HyperNode), Some(_)) => {
                findings
                    .warn(format!("{path}.selector.labelMatch selects nodes: a member of type HyperNode needs a name"));
            }
            _ => {}
        }
    }
}

/// Exactly one way to say which, and one that finds something.
fn which(member: &Member, path: &str) -> Result<(), FieldError> {
    match &member.selector {
        MemberSelector { exact_match: None, regex_match: None, label_match: None } => {
            let words = "Either ExactMatch or RegexMatch or LabelMatch must be specified";
            Err(FieldError::invalid(path, "object", words))
        }
        MemberSelector { exact_match: Some(exact), regex_match: None, label_match: None } => {
            check_dns1123_subdomain(&exact.name).map_err(|error| {
                let words = format!("member exactMatch validate failed [{error}]");
                FieldError::invalid(format!("{path}.exactMatch.name"), exact.name.as_str(), words)
            })
        }
        MemberSelector { exact_match: None, regex_match: Some(regex), label_match: None } => {
            pattern(&regex.pattern).map(drop).map_err(|error| {
                let words = format!("member regexMatch pattern is invalid: {error}");
                FieldError::invalid(format!("{path}.regexMatch.pattern"), regex.pattern.as_str(), words)
            })
        }
        MemberSelector { exact_match: None, regex_match: None, label_match: Some(labels) } => {
            selector(labels).map(drop).map_err(|error| {
                let words = format!("member labelMatch is invalid: {error}");
                FieldError::invalid(format!("{path}.labelMatch"), "object", words)
            })
        }
        _ => {
            let words = "Only one of ExactMatch, RegexMatch, or LabelMatch can be specified";
            Err(FieldError::invalid(path, "object", words))
        }
    }
}
