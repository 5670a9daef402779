//! Which runs are taken for the same, so that what one of them taught holds for the next.
//!
//! Invariant: a signature follows from the job and the task alone, and is the same in every version and on every machine. Runs
//! that differ in numbers or dates only, as in `train-2024-01-02` and `train-2024-01-03`, have the same. Used by `learning`.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pumice_api::batch::{Job, TaskSpec};
use pumice_api::names::USER;
use pumice_api::profile;
use pumice_api::profile::ResourceProfileSpec;
use pumice_units::stable_hash;

use crate::job_object;

/// Longest text that is kept for people.
const TEXT_MAX: usize = 256;
/// Longest parts of the name of a profile.
const NAME_PART_MAX: usize = 60;

/// The runs that a task of a job is one of.
pub(crate) fn of(job: &Job, task: &TaskSpec) -> ResourceProfileSpec {
    let none = PodSpec::default();
    let pod = task.template.spec.as_ref().unwrap_or(&none);
    let user = user(job);
    let base = base_name(job);
    let mut words = vec![user.to_owned(), base.clone(), task.name.clone()];
    for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
        let image = repository(container.image.as_deref().unwrap_or_default());
        words.extend([container.name.clone(), image.to_owned()]);
        words.extend(shape(container).chain([String::new()]));
    }
    // No text holds the byte after each word.
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0xff]));
    let first = pod.containers.first();
    ResourceProfileSpec {
        user: cut(user, TEXT_MAX - 3),
        job: cut(&base, TEXT_MAX - 3),
        task: cut(&task.name, TEXT_MAX - 3),
        image: cut(repository(first.and_then(|one| one.image.as_deref()).unwrap_or_default()), TEXT_MAX),
        command: cut(&first.map_or_else(String::new, |one| shape(one).collect::<Vec<_>>().join(" ")), TEXT_MAX),
        signature: format!("{:016x}", stable_hash(bytes)),
    }
}

/// The name of the profile of such runs.
pub(crate) fn profile_name(runs: &ResourceProfileSpec) -> String {
    let part = |text: &str| {
        let plain = text.to_ascii_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        cut(plain.trim_matches('-'), NAME_PART_MAX).trim_end_matches('-').to_owned()
    };
    let parts = [part(&runs.job), part(&runs.task), runs.signature.clone()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn user(job: &Job) -> &str {
    let metadata = &job.metadata;
    let named = [&metadata.annotations, &metadata.labels].into_iter().flatten().find_map(|all| all.get(USER));
    named.map_or("", String::as_str)
}

/// The job's name without what differs from run to run: what the server has generated, else numbers and dates at its end.
fn base_name(job: &Job) -> String {
    let end = ['-', '.'];
    if let Some(base) = job.metadata.generate_name.as_deref().map(|base| base.trim_end_matches(end))
        && !base.is_empty()
    {
        return profile::base_name(base).to_owned();
    }
    profile::base_name(job_object::name(job)).to_owned()
}

/// An image without tag and digest: a program needs about as much in its next version.
fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or_default();
    match image.rsplit_once(':') {
        // A colon before a slash is that of a port.
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => image,
    }
}

/// The words of a command: the program by its file name, flags by their names alone, and of other words their numbers are left
/// out, so that dates and numbered paths are alike.
fn shape(container: &Container) -> impl Iterator<Item = String> {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    words.enumerate().map(|(place, word)| match (place, word.split_once('=')) {
        (0, _) => word.rsplit('/').next().unwrap_or_default().to_owned(),
        (_, Some((flag, _))) if flag.starts_with('-') => flag.to_owned(),
        (_, None) if word.starts_with("--") => word.to_owned(),
        _ => without_amounts(word),
    })
}

/// Each run of digits becomes `#`.
fn without_amounts(word: &str) -> String {
    let mut plain = String::with_capacity(word.len());
    for letter in word.chars() {
        match letter {
            '0'..='9' if plain.ends_with('#') => {}
            '0'..='9' => plain.push('#'),
            _ => plain.push(letter),
        }
    }
    plain
}

/// The first `most` bytes, of whole letters.
fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn runs(metadata: Value, container: Value) -> ResourceProfileSpec {
        let template = json!({"spec": {"containers": [container]}});
        let job = json!({"metadata": metadata, "spec": {"tasks": [{"name": "w", "template": template}]}});
        let job: Job = serde_json::from_value(job).unwrap();
        of(&job, &job.spec.tasks[0])
    }

    #[test]
    fn a_name_is_what_runs_have_in_common() {
        let cases = [
            (json!({"name": "train"}), "train"),
            (json!({"name": "train-x7k2p", "generateName": "train-"}), "train"),
            (json!({"name": "train-2024-x7k2p", "generateName": "train-2024-"}), "train"),
            (json!({"name": "x", "generateName": "-"}), "x"),
            (json!({"name": "train-2024-01-02"}), "train"),
            (json!({"name": "train-20240102"}), "train"),
            (json!({"name": "train.2024.01"}), "train"),
            (json!({"name": "train7"}), "train"),
            (json!({"name": "gpt4-eval"}), "gpt4-eval"),
            (json!({"name": "2024"}), "2024"),
            (json!({}), ""),
        ];
        for (metadata, base) in cases {
            assert_eq!(runs(metadata.clone(), json!({"name": "c"})).job, base, "{metadata}");
        }
    }

    #[test]
    fn a_command_is_its_program_its_flags_and_its_words() {
        let cases = [
            (json!(["/usr/bin/python3.11", "train.py"]), "python3.11 train.py"),
            (json!(["python", "train.py", "--day", "2024-01-02"]), "python train.py --day #-#-#"),
            (json!(["python", "train.py", "--day=2024-01-02", "-n=5"]), "python train.py --day -n"),
            (json!(["sh", "-c", "run 17 && run 18"]), "sh -c run # && run #"),
            (json!(["copy", "/data/2024/01/a.csv", "/out"]), "copy /data/#/#/a.csv /out"),
            (json!(["fit", "A=3", "big"]), "fit A=# big"),
            (json!([]), ""),
        ];
        for (command, expected) in cases {
            let of_command = runs(json!({"name": "j"}), json!({"name": "c", "command": command}));
            assert_eq!(of_command.command, expected);
            let as_arguments = runs(json!({"name": "j"}), json!({"name": "c", "args": command}));
            assert_eq!(of_command, as_arguments);
        }
    }

    #[test]
    fn what_tells_runs_apart_is_in_the_signature() {
        let job = |user: &str, name: &str| json!({"name": name, "annotations": {USER: user}});
        let of = |metadata: Value, container: Value| runs(metadata, container).signature;
        let container = json!({"name": "c", "image": "host:5000/a/train:v1", "command": ["train", "--size=1"]});
        let known = of(job("ann", "train-1"), container.clone());
        assert_eq!(known, "7cc3dd8bf3b82e71", "it may never change");
        let with = |key: &str, value: Value| {
            let mut other = container.clone();
            other[key] = value;
            other
        };
        let labelled = json!({"name": "train-1", "labels": {USER: "ann"}});
        let same = [
            (job("ann", "train-2"), container.clone()),
            (labelled, container.clone()),
            (job("ann", "train-1"), with("image", json!("host:5000/a/train@sha256:00"))),
            (job("ann", "train-1"), with("command", json!(["/bin/train", "--size=9"]))),
        ];
        for (metadata, container) in same {
            assert_eq!(of(metadata.clone(), container.clone()), known, "{metadata} {container}");
        }
        let others = [
            (job("bob", "train-1"), container.clone()),
            (json!({"name": "train-1"}), container.clone()),
            (job("ann", "eval-1"), container.clone()),
            (job("ann", "train-1"), with("image", json!("host:5001/a/train:v1"))),
            (job("ann", "train-1"), with("name", json!("d"))),
            (job("ann", "train-1"), with("command", json!(["train", "--width=1"]))),
            (job("ann", "train-1"), with("args", json!(["more"]))),
        ];
        for (metadata, container) in others {
            assert_ne!(of(metadata.clone(), container.clone()), known, "{metadata} {container}");
        }
    }

    #[test]
    fn the_profile_has_a_name_for_people_and_for_the_server() {
        let mut named = runs(json!({"name": "Train.It-1"}), json!({"name": "c"}));
        let signature = named.signature.clone();
        assert_eq!(profile_name(&named), format!("train-it-w-{signature}"));
        (named.job, named.task) = ("x".repeat(300), String::new());
        assert_eq!(profile_name(&named).len(), NAME_PART_MAX + 1 + 16);
    }

    proptest! {
        #[test]
        fn no_text_is_too_long_or_panics(name in "\\PC{0,400}", word in "\\PC{0,400}", image in "\\PC{0,400}") {
            let of = runs(json!({"name": name}), json!({"name": word, "image": image, "command": ["sh", word]}));
            prop_assert!(of.job.len() < TEXT_MAX && of.image.len() <= TEXT_MAX && of.command.len() <= TEXT_MAX);
            let name = profile_name(&of);
            prop_assert!(name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{name}");
            prop_assert!(!name.starts_with('-') && !name.ends_with('-') && name.len() <= 253, "{name}");
        }
    }
}
