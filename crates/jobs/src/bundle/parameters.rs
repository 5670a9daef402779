//! Records that travel in a bundle, because a pod can't compute them: rows of parameters, and days whose rule is too long.
//!
//! Invariant: a record that is read has the key, the number and the values that it was packed with. Called where a job is
//! submitted, and in its pods.

use std::io::BufRead;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;

use crate::Error;
use crate::bundle::{Bundle, BundleWriter, ChunkId, Store};
use crate::shards::{Params, Record, Shards};

/// Packs rows of parameters as they are read; memory does not grow with their values.
pub async fn pack_rows<R: BufRead>(store: Arc<dyn Store>, rows: Params<R>) -> Result<(Shards, ChunkId), Error> {
    let columns = rows.columns().to_vec();
    let mut writer = BundleWriter::new(store);
    let mut count = 0;
    for row in rows {
        let row = row?;
        writer.record(&row.key, Bytes::from(row.json)).await?;
        count += 1;
    }
    Ok((Shards::params(count, columns), writer.finish().await?.root))
}

/// Packs records that could be computed.
pub async fn pack(store: Arc<dyn Store>, shards: &Shards) -> Result<ChunkId, Error> {
    let mut writer = BundleWriter::new(store);
    for record in (0..shards.len()).map_while(|index| shards.record(index)) {
        writer.record(&record.key, Bytes::from(record.to_json())).await?;
    }
    Ok(writer.finish().await?.root)
}

/// Records by their numbers from 0, in order.
pub async fn read(bundle: &Bundle, numbers: Range<u32>) -> Result<Vec<Record>, Error> {
    let mut packed = std::pin::pin!(bundle.range(numbers.start.into()..numbers.end.into()));
    let mut records = Vec::new();
    for index in numbers {
        let Some(record) = packed.try_next().await? else { break };
        records.push(Record::from_json(index, &record.key, &record.value)?);
    }
    Ok(records)
}
