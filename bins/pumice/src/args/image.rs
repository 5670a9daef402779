//! Flags of `pumice image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{DataDir, StatusForm};

/// What `pumice image` can do.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Bring an image from its registry, as a pod that names it would
    Pull(PullArgs),
    /// Take images from a file that docker save, podman save, skopeo or pumice image save wrote
    Load(LoadArgs),
    /// Bring an image of this machine to a registry, with the digest that it has
    Push(PushArgs),
    /// Write images to a file, which docker load and podman load read as well
    Save(SaveArgs),
    /// Make an image of a folder
    FromRoot(FromRootArgs),
    /// List the images of this machine
    #[command(alias = "list")]
    Ls(ListArgs),
    /// Say all of one image, as JSON
    Inspect(NamedArgs),
    /// Forget images by their names; what no other image and no pod uses goes from the disk
    Rm(NamesArgs),
    /// Remove what no image and no pod uses from the disk
    Prune(PruneArgs),
}

/// How images come to this machine.
#[derive(Debug, Args)]
pub struct RegistryArgs {
    /// What is special about registries: mirrors, plain HTTP, authorities (see docs/images.md)
    #[arg(long, value_name = "FILE")]
    pub registries: Option<PathBuf>,
}

/// `pumice image pull`.
#[derive(Debug, Args)]
pub struct PullArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// Such as busybox, ghcr.io/org/app:1.2 or localhost:5000/app@sha256:…
    #[arg(value_name = "IMAGE")]
    pub name: String,
}

/// `pumice image push`.
#[derive(Debug, Args)]
pub struct PushArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// An image of this machine
    #[arg(value_name = "IMAGE")]
    pub name: String,
    /// Where it goes, such as ghcr.io/org/app:1.2; without it, to what IMAGE names
    #[arg(value_name = "DESTINATION")]
    pub destination: Option<String>,
}

/// `pumice image load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// What the image is called, in place of what the file says
    #[arg(long, value_name = "IMAGE")]
    pub name: Option<String>,
    /// The file, compressed or not; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `pumice image save`.
#[derive(Debug, Args)]
pub struct SaveArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// The file; - is standard output
    #[arg(short = 'O', long = "file", value_name = "FILE")]
    pub file: PathBuf,
    #[arg(value_name = "IMAGE", required = true)]
    pub names: Vec<String>,
}

/// `pumice image from-root`.
#[derive(Debug, Args)]
pub struct FromRootArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// The folder, which is the image's root
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// What the image is called
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// `pumice image ls`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// How it is told
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = StatusForm::Text)]
    pub output: StatusForm,
}

/// One image.
#[derive(Debug, Args)]
pub struct NamedArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    #[arg(value_name = "IMAGE")]
    pub name: String,
}

/// Some images.
#[derive(Debug, Args)]
pub struct NamesArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    #[arg(value_name = "IMAGE", required = true)]
    pub names: Vec<String>,
}

/// `pumice image prune`.
#[derive(Debug, Args)]
pub struct PruneArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Forget every pulled image that no pod uses as well
    #[arg(short, long)]
    pub all: bool,
}
