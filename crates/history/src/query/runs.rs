//! How long the last pods of each kind ran, for a scheduler that has just started.

use super::{QueryError, decode};
use crate::database::Database;
use crate::rows::{Cell, Kind};
use crate::statements::Statement;

/// Runs told of each kind.
const RUNS_MAX: i64 = 16;
/// Runs told in all.
const ALL_MAX: i64 = 200_000;

/// The last runs of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastRuns {
    /// Their namespace.
    pub namespace: String,
    /// The name of their jobs without what differs from run to run, as `pumice_api::runs::base_name` has it.
    pub profile: String,
    /// How long each pod ran, in milliseconds, the oldest first. At most 16.
    pub runs_ms: Vec<i64>,
}

/// Of pods that succeeded since this moment, in milliseconds since 1970, by namespace and profile. Reads all attempts since then.
///
/// # Errors
/// When the database does not answer in time.
pub async fn last_runs(database: &Database, since: i64) -> Result<Vec<LastRuns>, QueryError> {
    let sql = "SELECT namespace, profile, ran FROM (\
               SELECT j.namespace AS namespace, j.profile AS profile, a.ended - a.started AS ran, a.ended AS ended, \
               ROW_NUMBER() OVER (PARTITION BY j.namespace, j.profile ORDER BY a.ended DESC, a.uid DESC) AS n \
               FROM attempt a JOIN job j ON j.uid = a.job_uid \
               WHERE a.phase = 'Succeeded' AND a.started IS NOT NULL AND a.ended >= $1) AS r \
               WHERE n <= $2 ORDER BY namespace, profile, n DESC LIMIT $3";
    let arguments = [since, RUNS_MAX, ALL_MAX].map(|number| Cell::Int(Some(number))).to_vec();
    let rows = database.ask(&Statement::new(sql, arguments), &[Kind::Text, Kind::Text, Kind::Int]).await?;
    let mut all: Vec<LastRuns> = Vec::new();
    for row in rows {
        let [Cell::Text(Some(namespace)), Cell::Text(Some(profile)), ran] = &row[..] else { continue };
        let Some(ran) = decode::int(ran) else { continue };
        match all.last_mut().filter(|last| (&last.namespace, &last.profile) == (namespace, profile)) {
            Some(last) => last.runs_ms.push(ran.max(0)),
            None => {
                all.push(LastRuns { namespace: namespace.clone(), profile: profile.clone(), runs_ms: vec![ran.max(0)] })
            }
        }
    }
    Ok(all)
}
