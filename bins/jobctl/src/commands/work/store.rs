//! Where records go that pods can't compute, and the results of all: a folder, or ConfigMaps that come into being with the job.
//!
//! Invariant: nothing is made before something goes into it, nothing is sent from here, and a dry run writes no file either.

use std::path::PathBuf;
use std::sync::Arc;

use pumice_jobs::bundle::config_maps::{SHARDS_MAX, shard_bytes_max};
use pumice_jobs::bundle::store::FOLDER_FLAG;
use pumice_jobs::bundle::{BundleWriter, ChunkId, Folder, Location, NullStore, RunId, Store, StoreAddress};
use pumice_jobs::submit::bundled::Prepared;

use super::{Site, usage};
use crate::args::JobArgs;
use crate::commands::{Session, runtime};
use crate::failure::Failure;
use crate::terminal;

/// Where a job's bundle is stored.
pub struct BundleStore {
    kind: Kind,
    /// As pods know it.
    address: Option<StoreAddress>,
    dry_run: bool,
}

enum Kind {
    /// A folder that pods see, and its store once something goes into it.
    Folder(PathBuf, Option<Arc<dyn Store>>),
    /// ConfigMaps of the job's namespace.
    ConfigMaps(Prepared),
    /// Nothing that pods could reach.
    None,
}

impl BundleStore {
    /// The folder that is named, else the user's own where pods see it, else ConfigMaps where pods can reach them.
    pub fn choose(session: &Session, args: &JobArgs, site: Site) -> Result<BundleStore, Failure> {
        let surroundings = &session.surroundings;
        let named = args.bundle_dir.as_ref().map(|folder| match &surroundings.directory {
            Some(current) => current.join(folder),
            None => folder.clone(),
        });
        let cache = surroundings.cache.as_ref().filter(|cache| site.here && cache.is_absolute());
        let (kind, address) = match named.or_else(|| cache.map(|cache| cache.join("bundles"))) {
            Some(folder) => {
                let address = StoreAddress::folder(&folder)?;
                (Kind::Folder(folder, None), Some(address))
            }
            None if site.elsewhere => {
                let prepared = Prepared::new()?;
                let address = prepared.address(&session.namespace()?)?;
                (Kind::ConfigMaps(prepared), Some(address))
            }
            // Pods of this machine's platform have no token.
            None => (Kind::None, None),
        };
        Ok(BundleStore { kind, address, dry_run: site.dry_run })
    }

    /// Where to pack records.
    pub fn needed(&mut self) -> Result<Arc<dyn Store>, Failure> {
        let dry_run = self.dry_run;
        match &mut self.kind {
            Kind::Folder(_, Some(store)) => Ok(Arc::clone(store)),
            Kind::Folder(folder, store) => {
                let made: Arc<dyn Store> = if dry_run { Arc::new(NullStore) } else { Arc::new(Folder::make(folder)?) };
                Ok(Arc::clone(store.insert(made)))
            }
            Kind::ConfigMaps(prepared) => Ok(prepared.store()),
            Kind::None => Err(usage(format!(
                "the pods can't compute these records: say {FOLDER_FLAG}, one that they see too, at the same path"
            ))),
        }
    }

    /// Where the pods find records and record results, as a new run. Without a root there are no records in it; results are
    /// recorded wherever there is a place for so many.
    pub fn location(&mut self, root: Option<ChunkId>, pods: u32, results: bool) -> Result<Option<Location>, Failure> {
        if root.is_none() && !results {
            return Ok(None);
        }
        let Some(address) = self.address.clone() else { return Ok(None) };
        let objects = matches!(self.kind, Kind::ConfigMaps(_));
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
                "{address} is not made by --dry-run, so what is printed can't be submitted without it"
            ));
        }
        let root = match root {
            Some(root) => root,
            None => runtime()?.block_on(BundleWriter::new(self.needed()?).finish())?.root,
        };
        let run = if results { Some(RunId::fresh()?) } else { None };
        Ok(Some(Location { address, root, run }))
    }

    /// What becomes ConfigMaps with the job.
    pub fn prepared(self) -> Option<Prepared> {
        match self.kind {
            Kind::ConfigMaps(prepared) => Some(prepared),
            Kind::Folder(..) | Kind::None => None,
        }
    }
}
