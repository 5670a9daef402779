//! What images stand for on this node: an entry of the image map, or an image's own content.
//!
//! A YAML or JSON file of `image -> {command, args, replaceCommand, root, layer, workingDir, env}`. An exact image wins over
//! the same without its tag or digest, that over the longest matching pattern with `*`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use nix::sys::signal::Signal;
use serde::Deserialize;

use pumice_images::config::ImageConfig;
use pumice_images::provide::Provided;
use pumice_linux::files::read_bounded;

/// Largest map read, in bytes.
const MAP_BYTES_MAX: u64 = 4 << 20;

/// What one image stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageEntry {
    /// The image's entry point.
    #[serde(default)]
    pub command: Vec<String>,
    /// The image's default arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Whether `command` and `args` stand in for the container's own as well, which then does not run.
    #[serde(default)]
    pub replace_command: bool,
    /// A folder that is the container's root.
    pub root: Option<PathBuf>,
    /// A folder that is laid over the root: what the image would add to this host.
    pub layer: Option<PathBuf>,
    /// The image's working directory.
    pub working_dir: Option<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The image itself; none of an entry of the map.
    #[serde(skip)]
    pub content: Option<ImageContent>,
}

/// An image that was pulled or loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageContent {
    /// By its digest, as a pod's status says it.
    pub id: String,
    /// Unpacked, the lowest first.
    pub layers: Vec<PathBuf>,
    /// The user that it runs as, by name or number, maybe with a group.
    pub user: Option<String>,
    /// The signal that asks its program to end.
    pub stop_signal: Option<i32>,
    /// Folders that it declares as volumes, those around others first.
    pub volumes: Vec<PathBuf>,
}

impl From<Provided> for ImageEntry {
    fn from(provided: Provided) -> ImageEntry {
        let ImageConfig { entrypoint, cmd, env, working_dir, user, stop_signal, volumes, .. } = provided.config;
        ImageEntry {
            command: entrypoint,
            args: cmd,
            working_dir,
            env: env.into_iter().collect(),
            content: Some(ImageContent {
                id: provided.id,
                layers: provided.layers,
                user,
                stop_signal: stop_signal.as_deref().and_then(signal_number),
                volumes: declared_volumes(&volumes),
            }),
            ..ImageEntry::default()
        }
    }
}

/// File systems of the kernel's, which an image has no say in.
const KERNELS_OWN: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The folders that an image declares as volumes, without `.` and `..`. The whole root is none, nor is what the kernel shows.
fn declared_volumes(paths: &[String]) -> Vec<PathBuf> {
    let paths = paths.iter().map(|path| plain(Path::new(path)));
    let are_folders =
        paths.filter(|path| path.parent().is_some() && !KERNELS_OWN.iter().any(|own| path.starts_with(own)));
    are_folders.collect::<BTreeSet<_>>().into_iter().collect()
}

/// An absolute path by its names alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// A signal by its name, with or without `SIG`, or by its number; none where there is no such signal.
fn signal_number(text: &str) -> Option<i32> {
    let number = text.parse().ok().and_then(|number: i32| Signal::try_from(number).ok());
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    number.or_else(|| name.parse().ok()).map(|signal| signal as i32)
}

/// Why a map can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageMapError {
    /// The file can't be read.
    #[error("can't read the image map {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file is not a map of images.
    #[error("the image map {} is not a map of image to command, args, replaceCommand, root, layer, workingDir, env: \
         {message}", path.display())]
    Parse {
        path: PathBuf,
        /// What is wrong and where.
        message: String,
    },
}

/// What images mean on this node, by their names or patterns of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageMap {
    entries: BTreeMap<String, ImageEntry>,
}

impl ImageMap {
    /// Reads the map from a YAML file; the error names the file, and what is wrong where.
    pub fn read(path: &Path) -> Result<ImageMap, ImageMapError> {
        let bytes =
            read_bounded(path, MAP_BYTES_MAX).map_err(|source| ImageMapError::Read { path: path.into(), source })?;
        let parse = |message: String| ImageMapError::Parse { path: path.into(), message };
        let text = std::str::from_utf8(&bytes).map_err(|error| parse(error.to_string()))?;
        ImageMap::parse(text).map_err(parse)
    }

    fn parse(text: &str) -> Result<ImageMap, String> {
        if text.trim().is_empty() {
            return Ok(ImageMap::default());
        }
        let entries: BTreeMap<String, ImageEntry> = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let lacks = |(_, entry): &(&String, &ImageEntry)| entry.replace_command && entry.command.is_empty();
        if let Some((image, _)) = entries.iter().find(lacks) {
            return Err(format!("the entry {image:?} has replaceCommand and no command to run instead"));
        }
        Ok(ImageMap { entries })
    }

    /// What `image` stands for.
    pub fn get(&self, image: &str) -> Option<&ImageEntry> {
        let named = self.entries.get(image).or_else(|| self.entries.get(untagged(image)));
        named.or_else(|| {
            let patterns = self.entries.iter().filter(|(pattern, _)| pattern.contains('*') && matches(pattern, image));
            patterns.max_by_key(|(pattern, _)| pattern.len()).map(|(_, entry)| entry)
        })
    }
}

/// An image without its tag and digest; a colon before a slash is a registry's port.
fn untagged(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

/// Whether `text` is `pattern` with each `*` standing for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "
nginx: {command: [exact-untagged]}
nginx:1.14: {command: [exact], args: [-x], root: /opt/nginx, workingDir: /w, env: {A: b}}
'volcanosh/*': {command: [prefix]}
'volcanosh/dist-mnist*': {command: [longer]}
'*/horovod:*': {command: [middle]}
localhost:5000/a: {command: [port]}
";

    #[test]
    fn the_most_exact_entry_wins() {
        let map = ImageMap::parse(MAP).unwrap();
        let cases = [
            ("nginx:1.14", Some("exact")),
            ("nginx:latest", Some("exact-untagged")),
            ("nginx@sha256:abc", Some("exact-untagged")),
            ("nginx", Some("exact-untagged")),
            ("volcanosh/example", Some("prefix")),
            ("volcanosh/dist-mnist-tf:0.0.1", Some("longer")),
            ("docker.io/horovod:0.1", Some("middle")),
            ("localhost:5000/a", Some("port")),
            ("busybox", None),
            ("", None),
        ];
        for (image, expected) in cases {
            assert_eq!(map.get(image).map(|entry| entry.command[0].as_str()), expected, "{image}");
        }
        assert_eq!(map.get("nginx:1.14").unwrap().working_dir.as_deref(), Some("/w"));
    }

    #[test]
    fn signals_have_names_and_numbers() {
        let cases =
            [("SIGINT", Some(2)), ("quit", Some(3)), ("15", Some(15)), ("SIGRTMIN+3", None), ("99", None), ("", None)];
        for (text, expected) in cases {
            assert_eq!(signal_number(text), expected, "{text}");
        }
    }

    #[test]
    fn an_image_declares_no_folder_outside_and_nothing_of_the_kernels() {
        let paths = ["/data", "/a/../b/./c/", "/../..", "/", "/proc/self", "/dev", "/sys/../sys/fs", "/data", "/b"];
        let found = declared_volumes(&paths.map(str::to_owned));
        assert_eq!(found, ["/b", "/b/c", "/data"].map(PathBuf::from));
    }

    #[test]
    fn patterns_match_as_shells_do() {
        let cases =
            [("*", "", true), ("a*", "abc", true), ("a*c", "abc", true), ("a*c", "abd", false), ("a*a", "a", false)];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn json_is_read_and_nonsense_is_named() {
        assert!(ImageMap::parse(r#"{"a": {"command": ["x"]}}"#).unwrap().get("a").is_some());
        assert_eq!(ImageMap::parse(" \n").unwrap(), ImageMap::default());
        for text in ["[1]", "a: {comand: [x]}", "a: [", "a: 3", "a: {replaceCommand: true, args: [x]}"] {
            assert!(ImageMap::parse(text).is_err(), "{text}");
        }
    }
}
