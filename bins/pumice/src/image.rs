//! `pumice image`: the images of this machine, by hand.
//!
//! Invariant: all of it works on the data directory, whether a platform runs there or not.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use pumice_clock as clock;
use pumice_images::archive;
use pumice_images::provide::{Images, Options, Proxies, PullPolicy, Wanted, parse};
use pumice_images::registry::Patience;
use pumice_images::registry::credentials::Keyring;
use pumice_images::registry::pull::Progress;
use pumice_images::registry::push::PushProgress;
use pumice_images::store::{Extent, ImageRecord, Limits, Store};
use serde_json::{Value, json};

use crate::args::StatusForm;
use crate::args::image::{
    FromRootArgs, ImageCommand, ListArgs, LoadArgs, NamedArgs, NamesArgs, PruneArgs, PullArgs, PushArgs, RegistryArgs,
    SaveArgs,
};
use crate::data_dir::DataDir;
use crate::output;

/// How often it is told how far a pull is.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// The images of a data directory, as its node and its commands have them.
pub fn open(data: &Path, args: &RegistryArgs) -> Result<Images> {
    let store = Arc::new(open_store(data)?);
    let settings =
        args.registries.as_ref().map(std::path::absolute).transpose().context("make --registries absolute")?;
    let options = Options { settings, docker_config: docker_config(), patience: Patience::default() };
    Ok(Images::new(store, options, Proxies::of_environment()))
}

fn open_store(data: &Path) -> Result<Store> {
    let folder = pumice_node::images_dir(data);
    Store::open(&folder, Limits::default()).with_context(|| format!("open the store of images {}", folder.display()))
}

/// Where Docker's own commands keep the credentials of this user.
fn docker_config() -> Option<PathBuf> {
    let named = std::env::var_os("DOCKER_CONFIG").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let folder = named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")))?;
    std::path::absolute(folder.join("config.json")).ok()
}

/// Does what is asked.
pub fn run(command: ImageCommand) -> Result<()> {
    match command {
        ImageCommand::Pull(args) => pull(&args),
        ImageCommand::Push(args) => push(&args),
        ImageCommand::Load(args) => load(&args),
        ImageCommand::Save(args) => save(&args),
        ImageCommand::FromRoot(args) => from_root(&args),
        ImageCommand::Ls(args) => list(&args),
        ImageCommand::Inspect(args) => inspect(&args),
        ImageCommand::Rm(args) => remove(&args),
        ImageCommand::Prune(args) => prune(&args),
    }
}

fn pull(args: &PullArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    let images = open(data.path(), &args.registry)?;
    let wanted = Wanted { name: args.name.clone(), policy: PullPolicy::Always, keyring: Keyring::default() };
    let progress = Progress::default();
    let provided = watched("pulling", &wanted.name, || progress.bytes(), images.provide(&wanted, &progress))?;
    output::line(provided?.id)
}

/// Does something with a registry, and says how far it is now and then.
fn watched<T>(what: &str, name: &str, bytes: impl Fn() -> (u64, u64), work: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(async {
        let mut work = Box::pin(work);
        loop {
            match tokio::time::timeout(TOLD_EVERY, &mut work).await {
                Ok(done) => return Ok(done),
                Err(_) => {
                    let (done, total) = bytes();
                    tracing::info!(done_bytes = done, total_bytes = total, "{what} {name}");
                }
            }
        }
    })
}

fn push(args: &PushArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    let images = open(data.path(), &args.registry)?;
    let progress = PushProgress::default();
    let pushing = images.push(&args.name, args.destination.as_deref(), &progress);
    let pushed = watched("pushing", &args.name, || progress.bytes(), pushing)??;
    let ((_, total), there) = (progress.bytes(), progress.there());
    output::note(format_args!("{} bytes sent, {there} were there", total.saturating_sub(there)));
    if let Some(index) = &pushed.index {
        output::note(format_args!(
            "pumice: {} stands for images for several machines ({index}); the one for this machine was pushed",
            args.name
        ));
    }
    output::line(pushed.id)
}

fn load(args: &LoadArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    let store = open_store(data.path())?;
    let name = args.name.as_deref();
    let loaded = if args.file == Path::new("-") {
        archive::load(&store, std::io::stdin().lock(), name, clock::now())
    } else {
        let file = File::open(&args.file).with_context(|| format!("open {}", args.file.display()))?;
        archive::load(&store, file, name, clock::now())
    };
    // Also after a failure: what came is of no image.
    let pruned = pumice_node::prune_images(&store, data.path(), Extent::Unnamed);
    let loaded = loaded.with_context(|| format!("load {}", args.file.display()))?;
    pruned.context("remove what no image uses")?;
    finish(&store, &loaded)
}

fn save(args: &SaveArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    let store = open_store(data.path())?;
    let images = args.names.iter().map(|name| image(&store, name)).collect::<Result<Vec<_>>>()?;
    if args.file == Path::new("-") {
        return archive::save(&store, &images, std::io::stdout().lock()).context("save to standard output");
    }
    let failed = || format!("save to {}", args.file.display());
    let mut temporary = args.file.clone().into_os_string();
    temporary.push(".partial");
    let file = File::create(&temporary).with_context(failed)?;
    let saved = archive::save(&store, &images, BufWriter::new(&file)).map_err(anyhow::Error::from);
    let saved = saved.and_then(|()| Ok(std::fs::rename(&temporary, &args.file)?));
    if saved.is_err() {
        // There is nothing to say of it that the failure doesn't.
        let _ = std::fs::remove_file(&temporary);
    }
    saved.with_context(failed)
}

fn from_root(args: &FromRootArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    let store = open_store(data.path())?;
    let without = [data.path().canonicalize().context("open the data directory")?];
    let folder = archive::Folder { path: &args.dir, name: &args.name, without: &without };
    let made = archive::from_root(&store, &folder, clock::now());
    finish(&store, &[made.with_context(|| format!("make an image of {}", args.dir.display()))?])
}

/// Says which images came, once they are on the disk.
fn finish(store: &Store, images: &[ImageRecord]) -> Result<()> {
    store.settle()?;
    images.iter().try_for_each(|image| output::line(&image.name))
}

fn image(store: &Store, name: &str) -> Result<ImageRecord> {
    let name = parse(name)?.whole();
    store.image(&name)?.with_context(|| format!("{name} is not on this machine; see pumice image ls"))
}

fn list(args: &ListArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    let images = open_store(data.path())?.images()?;
    let rows: Vec<_> = images.iter().map(row).collect();
    let text = match args.output {
        StatusForm::Json => format!("{}\n", serde_json::to_string_pretty(&rows).context("write JSON")?),
        StatusForm::Yaml => serde_saphyr::to_string(&rows).context("write YAML")?,
        StatusForm::Text => {
            let widest = images.iter().map(|image| image.name.len()).max().unwrap_or(0).max(4);
            let mut text = format!("{:widest$}  DIGEST               SIZE\n", "NAME");
            for image in &images {
                let digest: String = image.target.to_string().chars().take(19).collect();
                let megabytes = image.size_bytes.div_ceil(100_000);
                let _ = writeln!(text, "{:widest$}  {digest}  {}.{} MB", image.name, megabytes / 10, megabytes % 10);
            }
            text
        }
    };
    output::print(&text)
}

/// An image as programs read it.
fn row(image: &ImageRecord) -> Value {
    json!({"name": image.name, "digest": image.target, "sizeBytes": image.size_bytes, "loaded": image.loaded,
           "pulledAt": image.pulled_at, "usedAt": image.used_at})
}

fn inspect(args: &NamedArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    let store = open_store(data.path())?;
    let image = image(&store, &args.name)?;
    let part = |digest| -> Result<Value> {
        let bytes = store.manifest(digest)?.with_context(|| format!("{digest} is missing; pull the image again"))?;
        serde_json::from_slice(&bytes).with_context(|| format!("read {digest}"))
    };
    let mut whole = row(&image);
    (whole["manifest"], whole["config"]) = (part(&image.manifest)?, part(&image.config)?);
    output::line(serde_json::to_string_pretty(&whole).context("write JSON")?)
}

fn remove(args: &NamesArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    let store = open_store(data.path())?;
    for name in &args.names {
        let ImageRecord { name, .. } = image(&store, name)?;
        store.remove_image(&name)?;
        output::line(format_args!("{name} is removed"))?;
    }
    pumice_node::prune_images(&store, data.path(), Extent::Unnamed).context("remove what no image uses")?;
    Ok(())
}

fn prune(args: &PruneArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    let store = open_store(data.path())?;
    let extent = if args.all { Extent::Unused } else { Extent::Unnamed };
    let pruned = pumice_node::prune_images(&store, data.path(), extent)?;
    for name in &pruned.images {
        output::line(format_args!("{name} is removed"))?;
    }
    let (blobs, layers) = (pruned.blobs, pruned.layers);
    output::line(format_args!("{} MB are free again: {blobs} blobs, {layers} layers", pruned.bytes / 1_000_000))
}
