//! Questions about identities and rights, asked by a create and answered at once: nothing is stored.
//!
//! Invariant: they are answered by what requests are judged by: the same tokens, the same rights, at the same moment.
//! Called by the pipeline once the caller may ask.

use http::StatusCode;
use jiff::Timestamp;
use pumice_api::names::{TENANT, TENANT_GID, TENANT_GROUPS, TENANT_UID};
use pumice_auth::{Attributes, BoundTo, Claims, Decision, ISSUER, Identity, OidcToken, Rule, Target, Verified, named};
use pumice_clock::wire_time;
use pumice_objects::meta;
use pumice_objects::status::Status;
use serde_json::{Value, json};

use crate::authn::service_accounts::Rejected;
use crate::authn::{Caller, Credential};
use crate::context::{Call, ShownBy};
use crate::handlers::verbs::write;
use crate::http::body::Body;
use crate::http::query::WriteOptions;
use crate::http::respond::{self, Answer};
use crate::kinds::Review;

/// Keys of what a review of oneself says beside the name: how the caller is known, until when, and the namespaces of his tenants.
const IDENTIFIED_BY: &str = "pumice.sh/identified-by";
const IDENTIFIED_UNTIL: &str = "pumice.sh/identified-until";
const TENANT_NAMESPACE: &str = "pumice.sh/tenant-namespace";

/// Answers a create of a review.
pub(crate) async fn answer(call: &Call, review: Review, body: Body) -> Answer {
    let options = WriteOptions::parse(&call.query)?;
    let decoded = write::read_object(call, body).await?;
    let mut object = decoded.value;
    write::check_kind(&call.descriptor, &mut object)?;
    write::check_place(call, &mut object)?;
    let mut warnings = Vec::new();
    write::clean(&call.descriptor, &mut object, &decoded.duplicates, options.field_validation, &mut warnings)?;
    let status = match review {
        Review::Myself => json!({ "userInfo": myself(call) }),
        Review::Token => token(call, &object["spec"]).await?,
        Review::MyRules => rules(call, &object["spec"])?,
        Review::MyAccess => access(call, &call.identity, &object["spec"])?,
        Review::Access => access(call, &subject(&object["spec"])?, &object["spec"])?,
        Review::LocalAccess => {
            local(call, &object["spec"])?;
            access(call, &subject(&object["spec"])?, &object["spec"])?
        }
    };
    let now = wire_time(call.now());
    meta::metadata_mut(&mut object).insert("creationTimestamp".to_owned(), json!(now));
    object["status"] = status;
    let mut response = respond::json(StatusCode::CREATED, object.to_string());
    respond::warn(&mut response, &warnings);
    Ok(response)
}

fn user(identity: &Identity) -> Value {
    json!({ "username": identity.user, "groups": identity.groups })
}

/// The caller, how he is known, and the tenants that he works for, his own first: one entry each of what a namespace's annotations say.
fn myself(call: &Call) -> Value {
    let mut user = user(&call.identity);
    let mut extra = json!({});
    if let Some(ShownBy { what, until }) = call.shown_by {
        extra[IDENTIFIED_BY] = json!([what]);
        if let Some(until) = until.and_then(|until| Timestamp::from_second(until).ok()) {
            extra[IDENTIFIED_UNTIL] = json!([wire_time(until)]);
        }
    }
    let tenants = call.state.storage.tenant_users.load(call.store());
    for tenant in tenants.of(&call.identity) {
        let groups = tenant.groups.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let facts = [
            (TENANT, tenant.name.clone()),
            (TENANT_NAMESPACE, tenant.namespace.clone()),
            (TENANT_UID, tenant.uid.to_string()),
            (TENANT_GID, tenant.gid.to_string()),
            (TENANT_GROUPS, groups),
        ];
        for (key, fact) in facts {
            match extra.get_mut(key).and_then(Value::as_array_mut) {
                Some(all) => all.push(json!(fact)),
                None => extra[key] = json!([fact]),
            }
        }
    }
    if extra.as_object().is_some_and(|extra| !extra.is_empty()) {
        user["extra"] = extra;
    }
    user
}

async fn token(call: &Call, spec: &Value) -> Result<Value, Status> {
    let token = text(spec, "token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let wanted: Vec<&str> = spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let audiences = if wanted.is_empty() { vec![ISSUER] } else { wanted };
    let now = call.now();
    let accounts = &call.state.storage.accounts;
    if let Some(issuer) = call.state.storage.logins.issuer()
        && OidcToken::is_one(token)
        && !accounts.keys.has_signed(token)
    {
        let verified = issuer.identify(token, now).await;
        return Ok(login(call, verified.map_err(|error| error.to_string()), &audiences));
    }
    Ok(match accounts.verify(call.store(), token, &audiences, now) {
        Ok(claims) => {
            let shared: Vec<&String> =
                claims.audiences.iter().filter(|mine| audiences.contains(&mine.as_str())).collect();
            json!({ "authenticated": true, "user": holder(&claims), "audiences": shared })
        }
        Err(error @ Rejected::Token(_)) => json!({ "error": error.to_string() }),
        Err(error) => json!({ "error": format!("service account token has been invalidated: {error}") }),
    })
}

/// What is said of a token of a login. It is for this server; whoever asks for another audience did not get it.
fn login(call: &Call, verified: Result<Verified, String>, audiences: &[&str]) -> Value {
    let verified = verified.and_then(|Verified { identity, session, issued, .. }| {
        if !audiences.contains(&ISSUER) {
            return Err("the token is for another audience".to_owned());
        }
        let caller = Caller { identity, by: None, credential: Credential::Login { session, issued } };
        match call.state.storage.logins.ended(call.store(), &caller) {
            Some(ended) => Err(ended.status().message),
            None => Ok(caller.identity),
        }
    });
    match verified {
        Ok(identity) => json!({ "authenticated": true, "user": user(&identity), "audiences": [ISSUER] }),
        Err(error) => json!({ "error": error }),
    }
}

fn holder(claims: &Claims) -> Value {
    let mut user = user(&claims.identity());
    user["uid"] = json!(claims.account.uid);
    user["extra"] = json!({ "authentication.kubernetes.io/credential-id": [format!("JTI={}", claims.id)] });
    if let Some(BoundTo::Pod(pod)) = &claims.bound_to {
        user["extra"]["authentication.kubernetes.io/pod-name"] = json!([pod.name]);
        user["extra"]["authentication.kubernetes.io/pod-uid"] = json!([pod.uid]);
    }
    user
}

/// Whom a review of somebody else is about.
fn subject(spec: &Value) -> Result<Identity, Status> {
    let groups: Vec<String> =
        spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let user = text(spec, "user").to_owned();
    if user.is_empty() && groups.is_empty() {
        return Err(Status::bad_request("at least one of user or group must be specified"));
    }
    // As asked: groups that everybody has count only where they are named.
    Ok(Identity { user, groups })
}

/// A local review is about the namespace of its path.
fn local(call: &Call, spec: &Value) -> Result<(), Status> {
    if !spec["nonResourceAttributes"].is_null() {
        return Err(Status::bad_request("disallowed on this kind of request: spec.nonResourceAttributes"));
    }
    if text(&spec["resourceAttributes"], "namespace") != call.request.namespace {
        return Err(Status::bad_request("spec.resourceAttributes.namespace must match metadata.namespace"));
    }
    Ok(())
}

fn access(call: &Call, identity: &Identity, spec: &Value) -> Result<Value, Status> {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let attributes = match (resource.is_object(), path.is_object()) {
        (true, false) => Attributes {
            verb: text(resource, "verb"),
            target: Target::Resource {
                group: text(resource, "group"),
                resource: text(resource, "resource"),
                subresource: named(text(resource, "subresource")),
                namespace: named(text(resource, "namespace")),
                name: named(text(resource, "name")),
            },
        },
        (false, true) => Attributes { verb: text(path, "verb"), target: Target::Path(text(path, "path")) },
        _ => {
            return Err(Status::bad_request(
                "exactly one of spec.nonResourceAttributes or spec.resourceAttributes must be specified",
            ));
        }
    };
    let rights = call.state.storage.rights.load(call.store());
    Ok(match rights.decide(identity, &attributes) {
        Decision::Allow { by } => json!({ "allowed": true, "reason": format!("RBAC: allowed by {by}") }),
        // Upstream gives no reason, and kubectl prints what there is.
        Decision::Deny { .. } => json!({ "allowed": false }),
    })
}

fn rules(call: &Call, spec: &Value) -> Result<Value, Status> {
    let namespace = text(spec, "namespace");
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let rights = call.state.storage.rights.load(call.store());
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in rights.rules_of(&call.identity, Some(namespace)) {
        let Rule { verbs, api_groups, resources: plural, resource_names, non_resource_urls } = rule;
        if !plural.is_empty() {
            let names = Some(resource_names).filter(|names| !names.is_empty());
            let mut told = json!({ "verbs": verbs, "apiGroups": api_groups, "resources": plural });
            if let Some(names) = names {
                told["resourceNames"] = json!(names);
            }
            resources.push(told);
        }
        if !non_resource_urls.is_empty() {
            paths.push(json!({ "verbs": verbs, "nonResourceURLs": non_resource_urls }));
        }
    }
    Ok(json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false }))
}

fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object[field].as_str().unwrap_or_default()
}
