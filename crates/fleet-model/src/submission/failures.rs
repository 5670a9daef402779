//! What a job says of its own failures: the annotations that `jobctl` writes, with a platform's words.

use pumice_api::names::{ON_OOM, RETRIES, RETRIES_MAX};
use pumice_ledger::OwnRetries;
use pumice_machines::job::ScaleUp;

use super::{Item, ItemError};

/// Refuses what can't be read.
pub fn check(item: &Item) -> Result<(), ItemError> {
    limit(item)?;
    rule(item).map(drop)
}

/// What an item that was checked says of a job that asks for so many bytes; none where it says nothing. The amounts are those
/// that a platform would give a container.
pub fn own(item: &Item, memory: Option<i64>) -> Option<OwnRetries> {
    let limit = limit(item).unwrap_or_default();
    let raises = match (rule(item).unwrap_or_default(), memory) {
        (Some(rule), Some(bytes)) if bytes > 0 => {
            let raised = (1..=i64::from(rule.tries())).map(|times| rule.raised(bytes, times));
            let mut amounts: Vec<i64> = raised.filter(|raised| *raised > bytes).collect();
            amounts.dedup();
            amounts
        }
        _ => Vec::new(),
    };
    (limit > 0 || !raises.is_empty()).then_some(OwnRetries { limit, memory: raises })
}

fn limit(item: &Item) -> Result<u32, ItemError> {
    let Some(text) = item.annotations.get(RETRIES) else { return Ok(0) };
    let limit = text.parse().ok().filter(|limit| *limit <= RETRIES_MAX.unsigned_abs());
    limit.ok_or_else(|| ItemError::Retries { text: text.clone(), most: RETRIES_MAX })
}

fn rule(item: &Item) -> Result<Option<ScaleUp>, ItemError> {
    match item.annotations.get(ON_OOM) {
        None => Ok(None),
        Some(text) => ScaleUp::of_annotation(text).map_err(|source| ItemError::OnOom { source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: i64 = 1 << 20;

    #[test]
    fn annotations_are_read_as_a_platform_reads_them() {
        let item = |annotations: &[(&str, &str)]| Item {
            annotations: annotations.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
            ..Item::default()
        };
        let own_of = |annotations: &[(&str, &str)], memory| own(&item(annotations), memory);
        let said = |limit, memory: &[i64]| Some(OwnRetries { limit, memory: memory.to_vec() });
        for (annotations, memory, expected) in [
            (&[][..], Some(MI), None),
            (&[(RETRIES, "0"), (ON_OOM, "off")], Some(MI), None),
            (&[(RETRIES, "3")], None, said(3, &[])),
            (&[(ON_OOM, "factor=1.5,tries=2")], Some(64 * MI), said(0, &[96 * MI, 144 * MI])),
            // The last try gets just the ceiling, and more tries change nothing.
            (&[(ON_OOM, "factor=4,ceiling=100Mi")], Some(20 * MI), said(0, &[80 * MI, 100 * MI])),
            (&[(ON_OOM, "step=10Mi,ceiling=15Mi")], Some(20 * MI), None),
            (&[(RETRIES, "1"), (ON_OOM, "step=10Mi,tries=1")], Some(20 * MI), said(1, &[30 * MI])),
            (&[(RETRIES, "1"), (ON_OOM, "step=10Mi")], None, said(1, &[])),
        ] {
            assert_eq!(check(&item(annotations)), Ok(()));
            assert_eq!(own_of(annotations, memory), expected, "{annotations:?}");
        }
        for (name, text, wanted) in [
            (RETRIES, "", "annotations[pumice.sh/retries]: \"\" is no number from 0 to 1000"),
            (RETRIES, "-1", "\"-1\" is no number from 0 to 1000"),
            (RETRIES, "1001", "\"1001\" is no number from 0 to 1000"),
            (ON_OOM, "factor=1", "annotations[pumice.sh/on-oom]: factor 1 is no number above 1"),
        ] {
            let error = check(&item(&[(name, text)])).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
