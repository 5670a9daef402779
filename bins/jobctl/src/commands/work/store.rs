//! Where records go that pods can't compute, and the results of all: a folder, or ConfigMaps that come into being with the job.
//!
//! Invariant: nothing is made before something goes into it, nothing is sent from here, and a dry run writes no file either.

use std::path::PathBuf;
use std::sync::Arc;

use pumice_jobs::bundle::objects::{SHARDS_MAX, shard_bytes_max};
use pumice_jobs::bundle::place::FOLDER_FLAG;
use pumice_jobs::bundle::{BundleWriter, ChunkId, Folder, Location, Nowhere, Place, RunId, Spot};
use pumice_jobs::submit::bundled::Prepared;

use super::{Site, usage};
use crate::args::JobArgs;
use crate::commands::{Session, runtime};
use crate::failure::Failure;
use crate::terminal;

/// The place of a job's bundle.
pub struct Store {
    kind: Kind,
    /// As pods know it.
    spot: Option<Spot>,
    dry_run: bool,
}

enum Kind {
    /// A folder that pods see, and its place once something goes into it.
    Folder(PathBuf, Option<Arc<dyn Place>>),
    /// ConfigMaps of the job's namespace.
    Objects(Prepared),
    /// Nothing that pods could reach.
    None,
}

impl Store {
    /// The folder that is named, else the user's own where pods see it, else ConfigMaps where pods can reach them.
    pub fn choose(session: &Session, args: &JobArgs, site: Site) -> Result<Store, Failure> {
        let surroundings = &session.surroundings;
        let named = args.bundle_dir.as_ref().map(|folder| match &surroundings.directory {
            Some(current) => current.join(folder),
            None => folder.clone(),
        });
        let cache = surroundings.cache.as_ref().filter(|cache| site.here && cache.is_absolute());
        let (kind, spot) = match named.or_else(|| cache.map(|cache| cache.join("bundles"))) {
            Some(folder) => {
                let spot = Spot::folder(&folder)?;
                (Kind::Folder(folder, None), Some(spot))
            }
            None if site.elsewhere => {
                let prepared = Prepared::new()?;
                let spot = prepared.spot(&session.namespace()?)?;
                (Kind::Objects(prepared), Some(spot))
            }
            // Pods of this machine's platform have no token.
            None => (Kind::None, None),
        };
        Ok(Store { kind, spot, dry_run: site.dry_run })
    }

    /// Where to pack records.
    pub fn needed(&mut self) -> Result<Arc<dyn Place>, Failure> {
        let dry_run = self.dry_run;
        match &mut self.kind {
            Kind::Folder(_, Some(place)) => Ok(Arc::clone(place)),
            Kind::Folder(folder, place) => {
                let made: Arc<dyn Place> = if dry_run { Arc::new(Nowhere) } else { Arc::new(Folder::make(folder)?) };
                Ok(Arc::clone(place.insert(made)))
            }
            Kind::Objects(prepared) => Ok(prepared.place()),
            Kind::None => Err(usage(format!(
                "the pods can't compute these records: say {FOLDER_FLAG}, one that they see too, at the same path"
            ))),
        }
    }

    /// Where the pods find records and record results, as a new run. Without a root there are no records in it; results are
    /// recorded wherever there is a place for so many.
    pub fn location(&mut self, root: Option<ChunkId>, pods: u32, results: bool) -> Result<Option<Location>, Failure> {
        let Some(spot) = self.spot.clone().filter(|_| root.is_some() || results) else { return Ok(None) };
        let objects = matches!(self.kind, Kind::Objects(_));
        if let (true, Err(error)) = (objects, shard_bytes_max(pods)) {
            if root.is_some() {
                return Err(error.into());
            }
            terminal::say(&format!(
                "results are not recorded: ConfigMaps hold those of {SHARDS_MAX} pods; say {FOLDER_FLAG} for a folder that \
                 pods see"
            ));
            return Ok(None);
        }
        if self.dry_run && (root.is_some() || objects) {
            terminal::say(&format!(
                "{spot} is not made by --dry-run, so what is printed can't be submitted without it"
            ));
        }
        let root = match root {
            Some(root) => root,
            None => runtime()?.block_on(BundleWriter::new(self.needed()?).finish())?.root,
        };
        let run = if results { Some(RunId::fresh()?) } else { None };
        Ok(Some(Location { spot, root, run }))
    }

    /// What becomes ConfigMaps with the job.
    pub fn prepared(self) -> Option<Prepared> {
        match self.kind {
            Kind::Objects(prepared) => Some(prepared),
            Kind::Folder(..) | Kind::None => None,
        }
    }
}
