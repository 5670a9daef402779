//! The pods of a rendered Job: command, environment, resources, volumes, deadline.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::counts::in_range;
use super::volumes::Volumes;
use super::{JobFlags, RenderError, ShardRun, TASK, amounts, rules, script, slurm};
use crate::names::{self, ZONE};
use pumice_api::names::HOST_IMAGE;

/// The volume of a working directory that is this machine's own.
const WORKDIR_VOLUME: &str = "workdir";
/// The resource of `--gpu`.
const GPU: &str = "nvidia.com/gpu";
/// The most GPUs of a pod.
const GPUS_MAX: u32 = 1024;
/// What a program of Python wrote before it was killed is wanted most.
const UNBUFFERED: [&str; 2] = ["PYTHONUNBUFFERED", "1"];

/// The spec of every pod of the job: one container with the command, its resources, variables and volumes.
pub(super) fn spec(flags: &JobFlags) -> Result<PodSpec, RenderError> {
    if let Some(path) = flags.workdir.as_deref().filter(|path| !path.starts_with('/')) {
        return Err(RenderError::Workdir { path: path.to_owned() });
    }
    let volumes = volumes(flags)?;
    let container = Container {
        name: TASK.to_owned(),
        image: Some(flags.image.clone().unwrap_or_else(|| HOST_IMAGE.to_owned())),
        command: Some(command(flags)?.iter().map(|word| literal(word)).collect()),
        env: env(flags)?,
        working_dir: flags.workdir.clone(),
        resources: resources(flags)?,
        volume_mounts: (!volumes.mounts.is_empty()).then_some(volumes.mounts),
        ..Container::default()
    };
    let zone =
        flags.zone.as_deref().map(|zone| names::check("--zone", zone, 63).map(|()| zone.to_owned())).transpose()?;
    Ok(PodSpec {
        containers: vec![container],
        restart_policy: Some("Never".to_owned()),
        service_account_name: flags.shards.as_ref().and_then(ShardRun::service_account),
        volumes: (!volumes.volumes.is_empty()).then_some(volumes.volumes),
        node_selector: zone.map(|zone| BTreeMap::from([(ZONE.to_owned(), zone)])),
        active_deadline_seconds: flags.timeout.map(rules::deadline_seconds).transpose()?,
        termination_grace_period_seconds: flags.signal.as_deref().map(rules::grace_seconds).transpose()?,
        ..PodSpec::default()
    })
}

/// The words of the pod's process.
fn command(flags: &JobFlags) -> Result<Vec<String>, RenderError> {
    let words = match &flags.script {
        Some(script) => script::command(script, &flags.command),
        None => flags.command.clone(),
    };
    if words.first().is_none_or(String::is_empty) {
        return Err(RenderError::NoCommand);
    }
    match &flags.shards {
        Some(shards) => shards.command(words),
        None => Ok(words),
    }
}

fn resources(flags: &JobFlags) -> Result<Option<ResourceRequirements>, RenderError> {
    let mut requests = BTreeMap::new();
    if let Some(cpu) = &flags.cpu {
        requests.insert("cpu".to_owned(), amounts::cpu("--cpu", cpu)?);
    }
    if let Some(memory) = &flags.memory {
        requests.insert("memory".to_owned(), amounts::memory("--memory", memory)?);
    }
    if let Some(gpus) = flags.gpu {
        requests.insert(GPU.to_owned(), Quantity(in_range("--gpu", gpus, 1, GPUS_MAX)?.to_string()));
    }
    if requests.is_empty() {
        return Ok(None);
    }
    // A limit on memory as asked for, so that a runaway program is stopped and not its neighbour. GPUs are not shared.
    let limits: BTreeMap<_, _> =
        requests.iter().filter(|(k, _)| *k != "cpu").map(|(k, v)| (k.clone(), v.clone())).collect();
    Ok(Some(ResourceRequirements {
        requests: Some(requests),
        limits: (!limits.is_empty()).then_some(limits),
        ..ResourceRequirements::default()
    }))
}

fn volumes(flags: &JobFlags) -> Result<Volumes, RenderError> {
    let mut volumes = Volumes::default();
    // The root itself can't be laid over the root.
    if let Some(path) =
        flags.workdir.as_deref().filter(|path| flags.share_workdir && !path.trim_matches('/').is_empty())
    {
        volumes.add_directory(WORKDIR_VOLUME, path);
    }
    if let Some(script) = &flags.script {
        script::mount(script, &mut volumes);
    }
    for text in &flags.volumes {
        volumes.add_flag(text)?;
    }
    if let Some(shards) = &flags.shards {
        shards.mount(&mut volumes);
    }
    // What a flag has put at such a path is what is wanted there.
    if flags.share_workdir {
        for (number, link) in flags.linked.iter().enumerate() {
            volumes.add_target(&format!("{WORKDIR_VOLUME}-{number}"), link)?;
        }
    }
    Ok(volumes)
}

/// Whether every pod has this variable, unless its user says another.
pub(crate) fn is_default(variable: &serde_json::Value) -> bool {
    ["name", "value"].map(|field| variable[field].as_str()) == UNBUFFERED.map(Some)
}

/// A variable said twice keeps its last value, as in a shell.
fn env(flags: &JobFlags) -> Result<Option<Vec<EnvVar>>, RenderError> {
    let mut variables: Vec<EnvVar> = Vec::new();
    for (name, value) in &flags.env {
        if name.is_empty() || name.contains(|c: char| c == '=' || c.is_control()) {
            return Err(RenderError::EnvName { name: name.clone() });
        }
        let variable = EnvVar { name: name.clone(), value: Some(literal(value)), ..EnvVar::default() };
        match variables.iter_mut().find(|known| known.name == *name) {
            Some(known) => *known = variable,
            None => variables.push(variable),
        }
    }
    let [name, value] = UNBUFFERED.map(str::to_owned);
    let unbuffered = EnvVar { name, value: Some(value), ..EnvVar::default() };
    let of_slurm = flags.slurm.iter().flat_map(|run| slurm::variables(flags, run));
    for own in std::iter::once(unbuffered).chain(of_slurm) {
        if variables.iter().all(|known| known.name != own.name) {
            variables.push(own);
        }
    }
    if let Some(shards) = &flags.shards {
        let own = shards.variables()?;
        variables.retain(|known| own.iter().all(|one| one.name != known.name));
        variables.extend(own);
    }
    Ok((!variables.is_empty()).then_some(variables))
}

/// Writes a text so that it reaches the process as it is: in commands and values of variables
/// Kubernetes replaces `$(NAME)` and reads `$$` as `$`, which would break `sh -c 'kill $$'`.
pub(super) fn literal(text: &str) -> String {
    if text.contains("$(") || text.contains("$$") { text.replace('$', "$$") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::literal;

    /// Kubernetes' rule for a text that names no known variable.
    fn expanded(text: &str) -> String {
        let mut expanded = String::new();
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            expanded.push(character);
            if character == '$' && characters.peek() == Some(&'$') {
                characters.next();
            }
        }
        expanded
    }

    #[test]
    fn words_reach_the_process_as_typed() {
        for text in
            ["plain", "$HOME", "kill -TERM $$", "$(date)", "echo $$(A)", "$", "a$", "$$$", "$((1 + $$))", "é$(x"]
        {
            let written = literal(text);
            assert_eq!(expanded(&written), text, "{written}");
            assert!(!written.replace("$$", "").contains("$("), "{written}: nothing is left to replace");
        }
        assert_eq!(literal("echo $HOME"), "echo $HOME", "what needs no care stays readable");
    }
}
