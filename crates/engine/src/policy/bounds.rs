//! What is asked while the best node is searched among regions: bounds of scores, and whether a single node will do.

use super::Policy;
use crate::cluster::classes::ClassRow;
use crate::config::Switch;
use crate::ids::NodeId;
use crate::plugin::region::Region;
use crate::world::tables::Tables;

impl Policy {
    /// Adds the most that `score_nodes` can add for any node of each region; `bounds` lie beside `regions`, come in
    /// points and go in the policy's unit. False where some plugin can't tell.
    pub(crate) fn bound_scores(
        &self,
        tables: &Tables,
        class: &ClassRow,
        regions: &[Region<'_>],
        bounds: &mut [i64],
    ) -> bool {
        let scoring = |fine| {
            let plugins = self.with(Switch::NodeOrder).filter(|plugin| plugin.scores_nodes());
            plugins.filter(move |plugin| plugin.in_thousandths() == fine)
        };
        if tables.shard.is_soft() || !scoring(false).all(|plugin| plugin.bound_scores(tables, class, regions, bounds)) {
            return false;
        }
        if self.unit == 1 {
            return true;
        }
        bounds.iter_mut().for_each(|bound| *bound = bound.saturating_mul(self.unit));
        scoring(true).all(|plugin| plugin.bound_scores(tables, class, regions, bounds))
    }

    /// Whether the node's use allows the class, apart from room: what `keep_by_use` asks, for one.
    pub(crate) fn use_allows(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> bool {
        let mut asked = self.with(Switch::Predicate).filter(|plugin| plugin.checks_use_of(class));
        !self.is_busy(tables, node) && asked.all(|plugin| plugin.check_use(tables, class, node).is_none())
    }
}
