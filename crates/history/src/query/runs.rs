//! How long the last jobs of each kind ran, for a scheduler that has just started.
//!
//! A job counts once, as in the scheduler: it ran for as long as the longest of its pods that succeeded.

use super::{QueryError, decode};
use crate::database::Database;
use crate::rows::{Cell, Kind};
use crate::statements::Statement;

/// Runs told of each kind.
const RUNS_MAX: i64 = 16;
/// Pods that are looked at, the last ones: what the question costs does not grow with the history.
const ALL_MAX: i64 = 200_000;

/// The last runs of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastRuns {
    pub namespace: String,
    /// The name of their jobs without what differs from run to run, as `pumice_api::profile::base_name` has it.
    pub profile: String,
    /// How long each job ran, in milliseconds, the oldest first. At most 16.
    pub runs_ms: Vec<i64>,
}

/// By namespace and profile, from the last 200,000 pods that succeeded since this moment, in milliseconds since 1970.
///
/// # Errors
/// When the database does not answer in time.
pub async fn last_runs(database: &Database, since: i64) -> Result<Vec<LastRuns>, QueryError> {
    let sql = "SELECT namespace, profile, ran FROM (\
               SELECT j.namespace AS namespace, j.profile AS profile, MAX(a.ended - a.started) AS ran, \
               ROW_NUMBER() OVER (PARTITION BY j.namespace, j.profile ORDER BY MAX(a.ended) DESC, j.uid DESC) AS n \
               FROM (SELECT job_uid, started, ended FROM attempt \
               WHERE phase = 'Succeeded' AND started IS NOT NULL AND ended >= $1 ORDER BY ended DESC LIMIT $3) AS a \
               JOIN job j ON j.uid = a.job_uid GROUP BY j.uid, j.namespace, j.profile) AS r \
               WHERE n <= $2 ORDER BY namespace, profile, n DESC";
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
