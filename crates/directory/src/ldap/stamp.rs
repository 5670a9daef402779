//! Whether anything was written to a server since it was last read.
//!
//! OpenLDAP with the overlay `syncprov` has `contextCSN` at the top of each tree, Active Directory the highest number of a change
//! of each domain controller. Both grow with each write, also with one that deletes. Times of single entries would not tell what
//! is gone, so that a server which has neither is read whole each time.

use pumice_api::directory::LdapDirectory;

use super::connection::Session;
use super::dn;
use super::error::LdapReadError;
use super::record::Record;

/// What grows with each write; nothing where the server has no such thing.
pub(super) async fn read(session: &mut Session, directory: &LdapDirectory) -> Result<Option<String>, LdapReadError> {
    let attributes = ["namingContexts", "highestCommittedUSN", "dsServiceName"];
    let Some(root) = session.entry("", &attributes).await? else { return Ok(None) };
    if let Some(stamp) = of_active_directory(&root) {
        return Ok(Some(stamp));
    }
    let mut stamp = String::new();
    for base in [&directory.user_base, &directory.group_base] {
        let base = if base.is_empty() { &directory.user_base } else { base };
        let Some(tree) = root.texts("namingContexts").find(|tree| dn::is_below(base, tree)) else { return Ok(None) };
        let top = session.entry(tree, &["contextCSN"]).await?;
        let mut numbers: Vec<&str> = top.iter().flat_map(|top| top.texts("contextCSN")).collect();
        if numbers.is_empty() {
            return Ok(None);
        }
        numbers.sort_unstable();
        stamp.push_str(&format!("{tree} {} ", numbers.join(" ")));
    }
    Ok(Some(stamp))
}

/// Each domain controller counts for itself.
fn of_active_directory(root: &Record) -> Option<String> {
    Some(format!("{} {}", root.text("dsServiceName")?, root.text("highestCommittedUSN")?))
}
