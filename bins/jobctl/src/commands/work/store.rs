//! Where records go that pods can't compute, and the results of all: a folder, or ConfigMaps that come into being with the job.
//!
//! Invariant: nothing is made before something goes into it, nothing is sent from here, and a dry run writes no file either.

use std::path::PathBuf;
use std::sync::Arc;

use pumice_jobs::bundle::objects::shard_bytes_max;
use pumice_jobs::bundle::place::FOLDER_FLAG;
use pumice_jobs::bundle::{BundleWriter, ChunkId, Folder, Location, Nowhere, Place, RunId, Spot};
use pumice_jobs::bundled::Prepared;

use super::{Site, usage};
use crate::args::JobArgs;
use crate::commands::{Session, runtime};
use crate::failure::Failure;
use crate::terminal;

/// The place of a job's bundle.
pub struct Store {
    kind: Kind,
    dry_run: bool,
}

enum Kind {
    /// A folder that pods see, and its place once it was needed.
    Folder(PathBuf, Spot, Option<Arc<dyn Place>>),
    /// ConfigMaps of the job's namespace.
    Objects(Spot, Prepared),
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
        let kind = match named.or_else(|| cache.map(|cache| cache.join("bundles"))) {
            Some(folder) => Kind::Folder(folder.clone(), Spot::folder(&folder)?, None),
            None if site.elsewhere => {
                let prepared = Prepared::new()?;
                Kind::Objects(prepared.spot(&session.namespace()?)?, prepared)
            }
            // Pods of this machine's platform have no token.
            None => Kind::None,
        };
        Ok(Store { kind, dry_run: site.dry_run })
    }

    /// Where to pack records.
    pub fn needed(&mut self) -> Result<Arc<dyn Place>, Failure> {
        let dry_run = self.dry_run;
        match &mut self.kind {
            Kind::Folder(_, _, Some(place)) => Ok(Arc::clone(place)),
            Kind::Folder(folder, _, place) => {
                let made: Arc<dyn Place> = if dry_run { Arc::new(Nowhere) } else { Arc::new(Folder::make(folder)?) };
                Ok(Arc::clone(place.insert(made)))
            }
            Kind::Objects(_, prepared) => Ok(prepared.place()),
            Kind::None => Err(usage(format!(
                "the pods can't compute these records: say {FOLDER_FLAG}, one that they see too, at the same path"
            ))),
        }
    }

    /// Where the pods find records and record results, as a new run. Without a root there are no records in it; results are
    /// recorded wherever there is a place for them.
    pub fn location(&mut self, root: Option<ChunkId>, pods: u32, results: bool) -> Result<Option<Location>, Failure> {
        let spot = match &self.kind {
            Kind::Folder(_, spot, _) => spot.clone(),
            Kind::Objects(spot, _) => spot.clone(),
            Kind::None => return Ok(None),
        };
        if root.is_none() && !results {
            return Ok(None);
        }
        if let Kind::Objects(..) = self.kind {
            shard_bytes_max(pods)?;
        }
        if self.dry_run && (root.is_some() || matches!(self.kind, Kind::Objects(..))) {
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
            Kind::Objects(_, prepared) => Some(prepared),
            Kind::Folder(..) | Kind::None => None,
        }
    }
}
