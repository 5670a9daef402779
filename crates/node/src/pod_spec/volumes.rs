//! A pod's volumes: what each is, the files it is made of, and where containers mount it.
//!
//! Invariant: planning touches nothing; making touches the pod's directory, claims' folders and, for
//! the host paths that ask to be created, the host. Files are written below a volume's descriptor, so no
//! link leads out of it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, KeyToPath, Pod, Volume, VolumeMount, VolumeProjection,
};

use crate::downward_api::{self, Placement};
use crate::pod_spec::claims;
use crate::pod_spec::environment::expand;
use crate::pod_spec::environment::needed;
use crate::pod_spec::resolve::ResolveError;
use crate::pod_spec::sources::Sources;
use crate::spec_numbers;
use crate::subordinate_ids::SubordinateIds;
use pumice_linux::mount_table;
use pumice_linux::paths::{self, FileRights, Missing, is_plain_relative, open_in_root, open_path};
use pumice_shim::spec::{ImageVolume, MemoryVolume, MountSpec};

/// Mode of files whose volume names none.
const DEFAULT_MODE: i32 = 0o644;

/// A volume as it is to be on the host before its pod starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedVolume {
    pub path: PathBuf,
    pub content: Content,
}

/// What a volume is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// An empty directory in the pod's own.
    Empty,
    /// An empty directory in memory, mounted by the shim.
    Memory {
        /// Its limit in bytes.
        size_bytes: Option<u64>,
    },
    /// Files by path.
    Files(BTreeMap<String, VolumeFile>),
    /// A path of the host with its declared type.
    Host(String),
    Claim,
    /// An image's unpacked layers, the lowest first, mounted by the shim.
    Image(Vec<PathBuf>),
}

/// One file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeFile {
    bytes: Vec<u8>,
    mode: u32,
}

/// Where volumes are kept.
pub(crate) struct VolumeRoots<'a> {
    /// Folders of this pod's volumes.
    pub pod: &'a Path,
    pub claims: &'a Path,
    /// The unpacked layers of volumes that are images, by the volume's name; none where this node gets no images.
    pub images: Option<&'a BTreeMap<String, Vec<PathBuf>>>,
}

/// Plans all volumes of a pod by name.
pub(crate) fn plan(
    pod: &Pod,
    sources: &Sources,
    placement: &Placement,
    roots: &VolumeRoots<'_>,
) -> Result<BTreeMap<String, PlannedVolume>, ResolveError> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let planned = volumes.map(|volume| {
        let planned = planned(pod, volume, sources, placement, roots).map_err(|error| error.of_volume(&volume.name))?;
        Ok((volume.name.clone(), planned))
    });
    planned.collect()
}

fn planned(
    pod: &Pod,
    volume: &Volume,
    sources: &Sources,
    placement: &Placement,
    roots: &VolumeRoots<'_>,
) -> Result<PlannedVolume, ResolveError> {
    let own = roots.pod.join(&volume.name);
    if let Some(source) = &volume.empty_dir {
        let size_bytes =
            source.size_limit.as_ref().and_then(downward_api::parse).and_then(|size| u64::try_from(size.value()).ok());
        let memory = source.medium.as_deref() == Some("Memory");
        return Ok(PlannedVolume {
            path: own,
            content: if memory { Content::Memory { size_bytes } } else { Content::Empty },
        });
    }
    if let Some(source) = &volume.host_path {
        let kind = source.type_.clone().unwrap_or_default();
        return Ok(PlannedVolume { path: source.path.clone().into(), content: Content::Host(kind) });
    }
    if let Some(source) = &volume.persistent_volume_claim {
        if !sources.has_claim(&source.claim_name) {
            return Err(ResolveError::Missing { kind: "PersistentVolumeClaim", name: source.claim_name.clone() });
        }
        return claims::planned(&source.claim_name, sources.volume(&source.claim_name), roots.claims);
    }
    if volume.image.is_some() {
        let layers = roots.images.and_then(|images| images.get(&volume.name));
        let missing = || ResolveError::NoImages;
        return Ok(PlannedVolume { path: own, content: Content::Image(layers.ok_or_else(missing)?.clone()) });
    }
    let mut files = BTreeMap::new();
    if let Some(source) = &volume.config_map {
        let keys = needed("ConfigMap", &source.name, sources.config_map(&source.name), source.optional)?;
        pick(
            "ConfigMap",
            &source.name,
            keys,
            source.items.as_deref(),
            source.default_mode,
            source.optional,
            &mut files,
        )?;
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.clone().unwrap_or_default();
        let keys = needed("Secret", &name, sources.secret(&name), source.optional)?;
        pick("Secret", &name, keys, source.items.as_deref(), source.default_mode, source.optional, &mut files)?;
    } else if let Some(source) = &volume.downward_api {
        for item in source.items.iter().flatten() {
            add_downward(pod, placement, item, source.default_mode, &mut files)?;
        }
    } else if let Some(source) = &volume.projected {
        for part in source.sources.iter().flatten() {
            add_projection(pod, part, sources, placement, source.default_mode, &mut files)?;
            if let Some(token) = &part.service_account_token {
                let missing = || ResolveError::Missing { kind: "token", name: token.path.clone() };
                let bytes = sources.token(&volume.name, &token.path).ok_or_else(missing)?.as_bytes().to_vec();
                insert(&mut files, &token.path, bytes, source.default_mode)?;
            }
        }
    } else {
        return Err(ResolveError::Unsupported { what: format!("the kind of volume {:?}", volume.name) });
    }
    Ok(PlannedVolume { path: own, content: Content::Files(files) })
}

fn add_projection(
    pod: &Pod,
    part: &VolumeProjection,
    sources: &Sources,
    placement: &Placement,
    mode: Option<i32>,
    files: &mut BTreeMap<String, VolumeFile>,
) -> Result<(), ResolveError> {
    if let Some(from) = &part.config_map {
        let keys = needed("ConfigMap", &from.name, sources.config_map(&from.name), from.optional)?;
        pick("ConfigMap", &from.name, keys, from.items.as_deref(), mode, from.optional, files)?;
    }
    if let Some(from) = &part.secret {
        let keys = needed("Secret", &from.name, sources.secret(&from.name), from.optional)?;
        pick("Secret", &from.name, keys, from.items.as_deref(), mode, from.optional, files)?;
    }
    for item in part.downward_api.iter().flat_map(|from| from.items.iter().flatten()) {
        add_downward(pod, placement, item, mode, files)?;
    }
    Ok(())
}

fn add_downward(
    pod: &Pod,
    placement: &Placement,
    item: &DownwardAPIVolumeFile,
    mode: Option<i32>,
    files: &mut BTreeMap<String, VolumeFile>,
) -> Result<(), ResolveError> {
    let value = match (&item.field_ref, &item.resource_field_ref) {
        (Some(from), _) => downward_api::field(pod, placement, &from.field_path)
            .ok_or_else(|| ResolveError::Field { path: from.field_path.clone() })?,
        (None, Some(from)) => {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let container = containers.into_iter().find(|c| Some(&c.name) == from.container_name.as_ref());
            container
                .and_then(|container| downward_api::resource(container, placement, from))
                .ok_or_else(|| ResolveError::Field { path: from.resource.clone() })?
        }
        (None, None) => String::new(),
    };
    insert(files, &item.path, value.into_bytes(), item.mode.or(mode))
}

/// Takes the wanted keys, all of them when none are named.
fn pick(
    kind: &'static str,
    name: &str,
    keys: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    optional: Option<bool>,
    files: &mut BTreeMap<String, VolumeFile>,
) -> Result<(), ResolveError> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return keys.into_iter().try_for_each(|(key, bytes)| insert(files, &key, bytes, mode));
    };
    for item in items {
        match keys.get(&item.key) {
            // A key may stand in several files.
            Some(bytes) => insert(files, &item.path, bytes.clone(), item.mode.or(mode))?,
            None if optional == Some(true) => {}
            None => return Err(ResolveError::MissingKey { kind, name: name.to_owned(), key: item.key.clone() }),
        }
    }
    Ok(())
}

fn insert(
    files: &mut BTreeMap<String, VolumeFile>,
    path: &str,
    bytes: Vec<u8>,
    mode: Option<i32>,
) -> Result<(), ResolveError> {
    if path.is_empty() || !is_plain_relative(path) {
        return Err(ResolveError::Path { path: path.to_owned() });
    }
    let mode = spec_numbers::file_mode("mode", mode.unwrap_or(DEFAULT_MODE))?;
    files.insert(path.to_owned(), VolumeFile { bytes, mode });
    Ok(())
}

/// What a container mounts.
pub(crate) fn mounts<'a>(
    container: &Container,
    volumes: &BTreeMap<String, PlannedVolume>,
    lookup: impl Fn(&str) -> Option<&'a str>,
) -> Result<Vec<MountSpec>, ResolveError> {
    let wanted = container.volume_mounts.iter().flatten();
    wanted.map(|wanted| mount(wanted, volumes, &lookup)).collect()
}

fn mount<'a>(
    wanted: &VolumeMount,
    volumes: &BTreeMap<String, PlannedVolume>,
    lookup: &impl Fn(&str) -> Option<&'a str>,
) -> Result<MountSpec, ResolveError> {
    let missing = || ResolveError::Missing { kind: "volume", name: wanted.name.clone() };
    let volume = volumes.get(&wanted.name).ok_or_else(missing)?;
    let expanded = wanted.sub_path_expr.as_ref().map(|text| expand(text, lookup));
    let sub_path = wanted.sub_path.clone().or(expanded).filter(|path| !path.is_empty());
    if let Some(path) = sub_path.as_ref().filter(|path| !is_plain_relative(path)) {
        return Err(ResolveError::Path { path: path.clone() });
    }
    let is_read_only = matches!(volume.content, Content::Files(_) | Content::Image(_));
    let read_only = wanted.read_only == Some(true) || is_read_only;
    Ok(MountSpec { source: volume.path.clone(), sub_path, target: Path::new("/").join(&wanted.mount_path), read_only })
}

/// Volumes in memory, for the shim.
pub(crate) fn memory(volumes: &BTreeMap<String, PlannedVolume>, group: Option<u32>) -> Vec<MemoryVolume> {
    let memory = volumes.values().filter_map(|volume| match volume.content {
        Content::Memory { size_bytes } => Some(MemoryVolume { path: volume.path.clone(), size_bytes, group }),
        _ => None,
    });
    memory.collect()
}

/// Volumes that are images, for the shim.
pub(crate) fn images(volumes: &BTreeMap<String, PlannedVolume>) -> Vec<ImageVolume> {
    let images = volumes.values().filter_map(|volume| match &volume.content {
        Content::Image(layers) => Some(ImageVolume { path: volume.path.clone(), layers: layers.clone() }),
        _ => None,
    });
    images.collect()
}

/// A group that the files of a pod's own volumes belong to.
#[derive(Clone, Copy)]
pub(crate) struct VolumeGroup<'a> {
    /// As the pod has it.
    pub gid: u32,
    /// The ids of pods, where they are not the machine's.
    pub ids: Option<&'a SubordinateIds>,
}

impl VolumeGroup<'_> {
    /// Gives a folder of this process's to it, and what is made there from then on.
    fn own(self, folder: &Path) -> io::Result<()> {
        if let Some(ids) = self.ids {
            return ids.give_to_group(folder, self.gid);
        }
        std::os::unix::fs::chown(folder, None, Some(self.gid))?;
        let mode = fs::metadata(folder)?.permissions().mode() | SET_GROUP_ID;
        fs::set_permissions(folder, fs::Permissions::from_mode(mode))
    }

    /// The machine's group that it is.
    fn outside(self) -> io::Result<u32> {
        let outside = self.ids.map_or(Some(self.gid), |ids| ids.gid(self.gid));
        outside.ok_or_else(|| io::Error::other(format!("the pod's user namespace does not have group {}", self.gid)))
    }
}

/// The bit by which what is made in a folder gets the folder's group.
const SET_GROUP_ID: u32 = 0o2000;

/// Folders of the host that no volume may lie in.
#[derive(Clone, Copy)]
pub(crate) struct HiddenFolders<'a> {
    pub data_dir: &'a Path,
    pub others: &'a [PathBuf],
}

impl HiddenFolders<'_> {
    /// The one that a path lies in, as messages name it.
    fn around(self, path: &Path) -> io::Result<Option<String>> {
        if mount_table::lies_in(path, self.data_dir)? {
            return Ok(Some("the platform's data directory".to_owned()));
        }
        for folder in self.others {
            if mount_table::lies_in(path, folder)? {
                return Ok(Some(format!("{}, the folder of the platform's socket", folder.display())));
            }
        }
        Ok(None)
    }
}

/// Makes what a volume is made of, owned by `group` where it is the pod's own. No path of the host may lie in a hidden folder.
pub(crate) fn make(
    volume: &PlannedVolume,
    group: Option<VolumeGroup<'_>>,
    hidden: HiddenFolders<'_>,
) -> io::Result<()> {
    match &volume.content {
        Content::Memory { .. } | Content::Image(_) => fs::create_dir_all(&volume.path),
        Content::Empty => make_shared_dir(&volume.path, group),
        Content::Claim if volume.path.exists() => Ok(()),
        Content::Claim => make_shared_dir(&volume.path, group),
        Content::Files(files) => make_files(&volume.path, files, group),
        Content::Host(kind) => check_host(&volume.path, kind, hidden),
    }
}

fn make_shared_dir(path: &Path, group: Option<VolumeGroup<'_>>) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
    group.map_or(Ok(()), |group| group.own(path))
}

fn make_files(dir: &Path, files: &BTreeMap<String, VolumeFile>, group: Option<VolumeGroup<'_>>) -> io::Result<()> {
    // What an attempt before left may have been made of other objects.
    pumice_linux::files::remove(dir)?;
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
    if let Some(group) = group.filter(|group| group.ids.is_some()) {
        // A user gives no file to a group that it is no member of, but one that has got it by its folder.
        group.own(dir)?;
    }
    let gid = group.map(VolumeGroup::outside).transpose()?;
    let volume = open_path(dir)?;
    for (path, file) in files {
        let mode = if group.is_some() { file.mode | 0o040 } else { file.mode };
        let rights = FileRights { uid: None, gid, mode };
        paths::write_in_root(volume.as_fd(), Path::new(path), &file.bytes, rights)?;
    }
    Ok(())
}

/// Puts a file with these bytes in the place of one that the volume in `dir` has, with its rights.
pub(crate) fn replace(dir: &Path, path: &str, bytes: &[u8]) -> io::Result<()> {
    let (volume, path) = (open_path(dir)?, Path::new(path));
    let before = nix::sys::stat::fstat(open_in_root(volume.as_fd(), path, Missing::Refuse)?)?;
    let rights = FileRights { uid: Some(before.st_uid), gid: Some(before.st_gid), mode: before.st_mode & 0o7777 };
    paths::write_in_root(volume.as_fd(), path, bytes, rights)
}

/// Checks a host path against its declared type, making what asks to be made.
fn check_host(path: &Path, kind: &str, hidden: HiddenFolders<'_>) -> io::Result<()> {
    // Before anything is made there.
    if let Some(folder) = hidden.around(path)? {
        let text = format!("hostPath {} lies in {folder}, which no pod sees; name another folder", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let wrong = |what: &str| {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("hostPath type check failed: {} is not {what}", path.display()),
        ))
    };
    match kind {
        "DirectoryOrCreate" if !path.exists() => return fs::DirBuilder::new().recursive(true).mode(0o755).create(path),
        "FileOrCreate" if !path.exists() => {
            return fs::OpenOptions::new().create(true).append(true).mode(0o644).open(path).map(drop);
        }
        _ => {}
    }
    let found = match fs::metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) => return Err(io::Error::new(error.kind(), format!("hostPath {}: {error}", path.display()))),
    };
    match kind {
        "" => Ok(()),
        "Directory" | "DirectoryOrCreate" if found.is_dir() => Ok(()),
        "Directory" | "DirectoryOrCreate" => wrong("a directory"),
        "File" | "FileOrCreate" if found.is_file() => Ok(()),
        "File" | "FileOrCreate" => wrong("a file"),
        "Socket" if found.is_socket() => Ok(()),
        "Socket" => wrong("a socket file"),
        "CharDevice" if found.is_char_device() => Ok(()),
        "CharDevice" => wrong("a character device"),
        "BlockDevice" if found.is_block_device() => Ok(()),
        "BlockDevice" => wrong("a block device"),
        _ => wrong("of a known type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_units::with_causes;
    use serde_json::{Value, json};

    fn planned_volume(volume: Value) -> Result<PlannedVolume, String> {
        let mut sources = Sources::of(vec![
            json!({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v", "l": "w"}}),
            json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {"p": "c2VjcmV0"}}),
            json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "claim"}}),
            json!({"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {
                "claimRef": {"name": "claim"}, "csi": {"driver": "pumice.sh/folder", "volumeHandle": "ns/claim"}}}),
        ]);
        sources.add_token("v", "t", "token");
        let pod = serde_json::from_value(json!({"metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {"containers": [], "volumes": [volume]}}))
        .unwrap();
        let images = BTreeMap::from([("v".to_owned(), vec![PathBuf::from("/low"), PathBuf::from("/high")])]);
        let roots = VolumeRoots { pod: Path::new("/pod"), claims: Path::new("/claims"), images: Some(&images) };
        let all = plan(&pod, &sources, &downward_api::placement(), &roots).map_err(|error| with_causes(&error))?;
        Ok(all["v"].clone())
    }

    fn files(volume: &PlannedVolume) -> String {
        let Content::Files(files) = &volume.content else { panic!("{volume:?}") };
        let text =
            files.iter().map(|(path, file)| format!("{path}:{:o}={}", file.mode, String::from_utf8_lossy(&file.bytes)));
        text.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn files_come_from_keys_items_and_fields() {
        let cases = [
            (json!({"name": "v", "configMap": {"name": "c"}}), "k:644=v l:644=w"),
            (
                json!({"name": "v", "configMap": {"name": "c", "defaultMode": 256,
                    "items": [{"key": "l", "path": "a/b", "mode": 493}, {"key": "k", "path": "x"}]}}),
                "a/b:755=w x:400=v",
            ),
            (json!({"name": "v", "secret": {"secretName": "s", "defaultMode": 384}}), "p:600=secret"),
            (json!({"name": "v", "secret": {"secretName": "none", "optional": true}}), ""),
            (
                json!({"name": "v", "secret": {"secretName": "s", "items": [{"key": "p", "path": "a"},
                    {"key": "p", "path": "b"}]}}),
                "a:644=secret b:644=secret",
            ),
            (
                json!({"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "c",
                    "items": [{"key": "k", "path": "k"}]}}, {"downwardAPI": {"items": [{"path": "l",
                    "fieldRef": {"fieldPath": "metadata.labels"}}]}}, {"serviceAccountToken": {"path": "t"}}]}}),
                "k:644=v l:644=a=\"b\" p:644=secret t:644=token",
            ),
        ];
        for (volume, expected) in cases {
            assert_eq!(files(&planned_volume(volume.clone()).unwrap()), expected, "{volume}");
        }
    }

    #[test]
    fn what_can_not_be_had_is_named() {
        let cases = [
            (json!({"name": "v", "configMap": {"name": "none"}}), "ConfigMap \"none\" not found"),
            (
                json!({"name": "v", "configMap": {"name": "c", "items": [{"key": "no", "path": "x"}]}}),
                "couldn't find key no in ConfigMap \"c\"",
            ),
            (
                json!({"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}}),
                "the path \"../x\" must be relative and must not contain '..'",
            ),
            (
                json!({"name": "v", "persistentVolumeClaim": {"claimName": "no"}}),
                "PersistentVolumeClaim \"no\" not found",
            ),
            (
                json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "other"}}]}}),
                "token \"other\" not found",
            ),
            (
                json!({"name": "v", "nfs": {"server": "s", "path": "/"}}),
                "this node can't provide the kind of volume \"v\"",
            ),
        ];
        for (volume, expected) in cases {
            let expected = format!("MountVolume.SetUp failed for volume \"v\": {expected}");
            assert_eq!(planned_volume(volume).unwrap_err(), expected);
        }
    }

    #[test]
    fn directories_are_told_apart() {
        let cases = [
            (json!({"name": "v", "emptyDir": {}}), "/pod/v", Content::Empty),
            (
                json!({"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
                "/pod/v",
                Content::Memory { size_bytes: Some(1 << 20) },
            ),
            (
                json!({"name": "v", "hostPath": {"path": "/data", "type": "File"}}),
                "/data",
                Content::Host("File".into()),
            ),
            (json!({"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}), "/claims/ns/claim", Content::Claim),
            (
                json!({"name": "v", "image": {"reference": "i"}}),
                "/pod/v",
                Content::Image(["/low", "/high"].map(PathBuf::from).into()),
            ),
        ];
        for (volume, path, content) in cases {
            assert_eq!(planned_volume(volume).unwrap(), PlannedVolume { path: path.into(), content });
        }
    }

    #[test]
    fn host_paths_are_what_they_say() {
        let dir = tempfile::tempdir().unwrap();
        let (file, data) = (dir.path().join("file"), dir.path().join("data"));
        fs::create_dir(&data).unwrap();
        let socket = vec![dir.path().join("socket")];
        fs::create_dir(&socket[0]).unwrap();
        let hidden = HiddenFolders { data_dir: &data, others: &socket };
        check_host(&file, "FileOrCreate", hidden).unwrap();
        check_host(&dir.path().join("new/dir"), "DirectoryOrCreate", hidden).unwrap();
        let cases = [(&file, "File", true), (&file, "Directory", false), (&file, "Socket", false), (&file, "", true)];
        for (path, kind, fits) in cases {
            assert_eq!(check_host(path, kind, hidden).is_ok(), fits, "{kind}");
        }
        assert!(check_host(&dir.path().join("none"), "", hidden).is_err());
        let inside = data.join("made");
        let refused = check_host(&inside, "DirectoryOrCreate", hidden).unwrap_err().to_string();
        assert!(refused.contains("lies in the platform's data directory") && !inside.exists(), "{refused}");
        std::os::unix::fs::symlink(&socket[0], dir.path().join("link")).unwrap();
        let refused = check_host(&dir.path().join("link/api.sock"), "Socket", hidden).unwrap_err().to_string();
        assert!(refused.contains("the folder of the platform's socket"), "{refused}");
    }

    #[test]
    fn files_are_written_with_their_modes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v");
        let files = [("a/b", 0o400), ("c", 0o644)];
        let files: BTreeMap<_, _> = files
            .iter()
            .map(|(path, mode)| ((*path).to_owned(), VolumeFile { bytes: b"x".to_vec(), mode: *mode }))
            .collect();
        let volume = PlannedVolume { path: path.clone(), content: Content::Files(files) };
        let hidden = HiddenFolders { data_dir: Path::new("/"), others: &[] };
        make(&volume, None, hidden).unwrap();
        make(&volume, None, hidden).unwrap();
        let mode = || fs::metadata(path.join("a/b")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o400);
        assert_eq!(fs::read(path.join("c")).unwrap(), b"x");
        replace(&path, "a/b", b"y").unwrap();
        assert_eq!((fs::read(path.join("a/b")).unwrap(), mode()), (b"y".to_vec(), 0o400));
        assert_eq!(fs::read_dir(path.join("a")).unwrap().count(), 1, "nothing temporary is left");
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, host) = (dir.path().join("v"), dir.path().join("host"));
        for folder in [&volume, &host] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("token"), "old").unwrap();
        }
        std::os::unix::fs::symlink(&host, volume.join("a")).unwrap();
        std::os::unix::fs::symlink(host.join("token"), volume.join("b")).unwrap();
        for path in ["a/token", "b"] {
            assert!(replace(&volume, path, b"new").is_err(), "{path}");
        }
        assert_eq!(fs::read(host.join("token")).unwrap(), b"old");
        assert_eq!(fs::read_dir(&host).unwrap().count(), 1);
        replace(&volume, "token", b"new").unwrap();
        assert_eq!(fs::read(volume.join("token")).unwrap(), b"new");
    }
}
