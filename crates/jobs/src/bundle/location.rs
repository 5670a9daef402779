//! Where a bundle is and which run records into it, as one text: what pods get in `PUMICE_BUNDLE`.
//!
//! Invariant: a text that parses prints as itself. The text is `SPOT#ROOT` or `SPOT#ROOT/RUN`; a spot is `folder:PATH` or
//! `objects:NAMESPACE/NAME`.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use super::chunk::{ChunkId, ChunkIdError};
use super::config_maps::{ConfigMaps, shard_bytes_max};
use super::folder::Folder;
use super::store::{RunId, Store, StoreError};
use crate::Connection;
use crate::error::{CORRECT, Failure, Remedy};
use crate::exit_code::Exit;
use crate::names::{self, LabelError};

/// The variable that a pod finds its bundle by.
pub const VARIABLE: &str = pumice_api::names::BUNDLE_VARIABLE;
/// Longest text of a location in bytes.
pub const TEXT_BYTES_MAX: usize = 8 << 10;

/// A place that can be named from another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// An absolute path.
    Folder(PathBuf),
    ConfigMaps {
        namespace: String,
        /// The name of their anchor.
        name: String,
    },
}

/// A bundle and, for who records results, the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub address: StoreAddress,
    pub root: ChunkId,
    /// The run whose results belong to it.
    pub run: Option<RunId>,
}

/// A text that is no location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// It is too long.
    #[error("the place of a bundle has {found} bytes, and at most {TEXT_BYTES_MAX} are allowed")]
    TooLong {
        /// Its bytes.
        found: usize,
    },
    /// It is not of the form.
    #[error("{text:?} is no place of a bundle: write folder:/PATH#ROOT or objects:NAMESPACE/NAME#ROOT")]
    Form {
        /// The text, cut to 200 characters.
        text: String,
    },
    /// Its path could mean another folder elsewhere.
    #[error("{} is no path for a bundle: it must be absolute, UTF-8 and without '..'", path.display())]
    Path { path: PathBuf },
    /// Its root is none.
    #[error("the root of a bundle is wrong")]
    Root(#[from] ChunkIdError),
    /// A name in it is none.
    #[error(transparent)]
    Name(#[from] LabelError),
}

impl Failure for LocationError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn remedy(&self) -> Remedy {
        Remedy::from_text(CORRECT)
    }
}

impl StoreAddress {
    /// A folder, if its path means the same everywhere.
    pub fn folder(path: &Path) -> Result<Self, LocationError> {
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let text = path.to_str().is_some_and(|text| !text.contains('\0'));
        if path.is_absolute() && plain && text {
            return Ok(StoreAddress::Folder(path.to_owned()));
        }
        Err(LocationError::Path { path: path.to_owned() })
    }

    /// The ConfigMaps of a bundle, whose names begin with `name`. Refuses names that are no DNS labels.
    pub fn objects(namespace: &str, name: &str) -> Result<Self, LocationError> {
        names::check_label("namespace", namespace)?;
        names::check_label("bundle", name)?;
        Ok(StoreAddress::ConfigMaps { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The place itself, to read a bundle and to record the results of one shard of so many. ConfigMaps need a connection.
    pub async fn open(&self, connection: Option<&Connection>, shards: u32) -> Result<Arc<dyn Store>, StoreError> {
        match (self, connection) {
            (StoreAddress::Folder(path), _) => Ok(Arc::new(Folder::open(path)?)),
            (StoreAddress::ConfigMaps { namespace, name }, Some(connection)) => {
                Ok(Arc::new(ConfigMaps::open(connection, namespace, name, shard_bytes_max(shards)?).await?))
            }
            (StoreAddress::ConfigMaps { .. }, None) => Err(StoreError::NoConnection { address: self.to_string() }),
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreAddress::Folder(path) => write!(f, "folder:{}", path.display()),
            StoreAddress::ConfigMaps { namespace, name } => write!(f, "objects:{namespace}/{name}"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.address, self.root)?;
        self.run.iter().try_for_each(|run| write!(f, "/{run}"))
    }
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(LocationError::TooLong { found: text.len() });
        }
        let form = || LocationError::Form { text: text.chars().take(200).collect() };
        // A path may have a '#'; a root and a run have none.
        let (address, rest) = text.rsplit_once('#').ok_or_else(form)?;
        let (root, run) = rest.split_once('/').map_or((rest, None), |(root, run)| (root, Some(run)));
        let address = match address.split_once(':').ok_or_else(form)? {
            ("folder", path) => StoreAddress::folder(Path::new(path))?,
            ("objects", named) => {
                let (namespace, name) = named.split_once('/').ok_or_else(form)?;
                StoreAddress::objects(namespace, name)?
            }
            _ => return Err(form()),
        };
        Ok(Location { address, root: root.parse()?, run: run.map(RunId::new).transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_prints_as_it_was_written() {
        let root = ChunkId::of(b"");
        for text in [
            format!("folder:/data/bundles#{root}"),
            format!("folder:/odd #name/日本#{root}/train-x7-main"),
            format!("objects:alpha/train-x7#{root}"),
            format!("objects:alpha/train-x7#{root}/main"),
        ] {
            assert_eq!(text.parse::<Location>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_location_is_refused() {
        let root = ChunkId::of(b"");
        let error = |text: String| text.parse::<Location>().unwrap_err().to_string();
        for text in ["", "folder:/x", "/x#abc", &format!("s3:bucket#{root}"), &format!("objects:alpha#{root}")] {
            assert!(error(text.to_owned()).contains("write folder:/PATH#ROOT"), "{text}");
        }
        for path in ["x", "", "/a/../b", "./a"] {
            assert!(error(format!("folder:{path}#{root}")).contains("absolute"), "{path}");
        }
        assert_eq!(error("folder:/x#abc".to_owned()), "the root of a bundle is wrong");
        assert!(error(format!("objects:Alpha/x#{root}")).contains("namespace \"Alpha\" is not valid"));
        assert!(error(format!("folder:/x#{root}/a.b")).contains("run \"a.b\" is not valid"));
        assert!(error(format!("folder:/{}#{root}", "x".repeat(9000))).contains("at most 8192"));
    }
}
